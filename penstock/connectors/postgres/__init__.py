"""PostgreSQL: an exactly-once sink and a bounded source. Needs the extra `postgres`."""

from __future__ import annotations

from penstock.connectors.postgres.client import PostgresError
from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder
from penstock.connectors.postgres.source import PostgresSource, PostgresSourceBuilder

__all__ = [
    "PostgresError",
    "PostgresSink",
    "PostgresSinkBuilder",
    "PostgresSource",
    "PostgresSourceBuilder",
]
