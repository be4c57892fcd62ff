"""What the subtasks have accumulated, put together by the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from penstock.checkpoint.manifest import Manifest, StateHandle
from penstock.common.accumulators import Accumulator, merge_into
from penstock.state.accumulators import ACCUMULATORS
from penstock.state.operator_lists import newest_lists
from penstock.state.snapshot_file import read_tables

Accumulated: TypeAlias = dict[str, Accumulator[Any, Any]]


def merged(parts: Iterable[Mapping[str, Accumulator[Any, Any]]]) -> Accumulated:
    total: Accumulated = {}
    for part in parts:
        for name, accumulator in part.items():
            merge_into(total, name, accumulator)
    return total


def of_checkpoint(manifest: Manifest, read: Callable[[StateHandle], bytes]) -> Accumulated:
    """Those of a job that had ended before its driver could say so. Reads the state of all tasks."""
    total: Accumulated = {}
    for task in manifest.tasks:
        chain = [
            read_tables(read(handle), name=ACCUMULATORS, source=f"state of {task.vertex}") for handle in task.handles
        ]
        for tables in newest_lists(chain):
            for table in tables:
                for name, accumulator in table.values:
                    merge_into(total, name, accumulator)
    return total
