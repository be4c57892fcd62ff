"""The job's brain: `job_master` runs epochs, `checkpoints` does what the machine says, `recovery` finds where to go on."""
