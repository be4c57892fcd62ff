"""Measurements of Penstock beside Spark's own streaming, on the same files: `python -m benchmarks` (or `make bench`)."""
