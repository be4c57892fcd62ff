"""Penstock: Flink's DataStream model and fault tolerance in Python, on Spark."""

__version__ = "0.1.0"
