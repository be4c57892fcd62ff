"""Graphs of a job, pure: StreamGraph as written, JobGraph with chains, ExecutionGraph with subtasks; how they are shown."""
