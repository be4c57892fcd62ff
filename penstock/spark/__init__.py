"""Spark's own sinks for a stream of Penstock's, and sources of Penstock's for Spark."""
