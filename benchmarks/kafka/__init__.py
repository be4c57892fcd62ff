"""Kafka to Kafka: source → map → sink beside a plain consumer–producer loop and beside Spark's own connector."""
