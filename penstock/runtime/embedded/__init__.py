"""A job in one process, over queues in memory: for tests, laptops and the simulator. `job` is where to begin."""
