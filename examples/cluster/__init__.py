"""A job on a real Spark cluster, and the loss of one of its machines."""
