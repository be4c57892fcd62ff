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


class JobAccumulators:
    """Of the whole job, as of the last epoch that completed. `results` may be called from any thread."""

    def __init__(self) -> None:
        self._values: Accumulated = {}
        self._epoch = 0

    def results(self) -> dict[str, Any]:
        return {name: accumulator.get_local_value() for name, accumulator in self._values.items()}

    def completed(self, epoch: int, parts: Iterable[Mapping[str, Accumulator[Any, Any]]]) -> None:
        """Every task brings its own whole."""
        self._epoch, self._values = epoch, _merged(parts)

    def went_back_to(self, epoch: int) -> None:
        """Until an epoch has completed nobody knows them, unless it is the last one that did."""
        if self._epoch != epoch:
            self._values = {}

    def read(self, manifest: Manifest, read: Callable[[StateHandle], bytes]) -> None:
        """Those of a job that had ended before its driver could say so. Reads the state of all tasks."""
        self._values = _of_checkpoint(manifest, read)


def _merged(parts: Iterable[Mapping[str, Accumulator[Any, Any]]]) -> Accumulated:
    total: Accumulated = {}
    for part in parts:
        for name, accumulator in part.items():
            merge_into(total, name, accumulator)
    return total


def _of_checkpoint(manifest: Manifest, read: Callable[[StateHandle], bytes]) -> Accumulated:
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
