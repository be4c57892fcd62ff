"""Working state of tasks: key groups, tables, timers, backends, and the files of snapshots."""
