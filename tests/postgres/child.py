"""The job of tests/postgres/jobs.py in a process of its own: python -m tests.postgres.child <folder> <conninfo> <table>."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.postgres.jobs import MAX, counting, environment

if __name__ == "__main__":
    folder, conninfo, table = sys.argv[1:]
    env = environment(Path(folder), MAX)
    counting(conninfo, table)(env)
    env.execute("counting")
