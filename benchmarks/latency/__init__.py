"""From an event to its emitted result: `python -m benchmarks.latency` (`make bench-latency`)."""
