"""A connection between two processes of a job: who may open it, what it carries, how its loss is noticed."""
