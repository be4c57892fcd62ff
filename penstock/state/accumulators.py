"""The accumulators of one operator in one subtask: part of its operator state, so that they count exactly once.

Flink starts them again with every attempt. Here they go back with the state they were counted beside. Stored as a list of
(name, accumulator), which is dealt out when the parallelism changes: whoever gets one adds on to it, and the sum over all
subtasks stays what it was.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.common.accumulators import Accumulator, merge_into
from penstock.errors import JobDefinitionError
from penstock.state.operator_lists import LIST, OperatorLists

ACCUMULATORS: Final = "penstock-accumulators"


class Accumulators:
    def __init__(self, operator: str, lists: OperatorLists) -> None:
        self._operator, self._lists = operator, lists
        self._values: dict[str, Accumulator[Any, Any]] | None = None  # None: not looked at since the state was loaded
        self._added: set[str] = set()  # by the functions that are running; the others are only restored

    def add(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """From now on `accumulator` is the one of this name, and has what the restored one had."""
        if not isinstance(accumulator, Accumulator):
            raise JobDefinitionError(
                f"operator {self._operator!r}: accumulator {name!r} must be an Accumulator, such as IntCounter(), not "
                f"{accumulator!r}"
            )
        if name in self._added:
            raise JobDefinitionError(
                f"operator {self._operator!r} has an accumulator {name!r} already: use get_accumulator, or another name"
            )
        values = self._load()
        restored = values.get(name)
        if restored is not None:
            accumulator.reset_local()
            merge_into({name: accumulator}, name, restored)
        values[name] = accumulator
        self._added.add(name)

    def get(self, name: str) -> Accumulator[Any, Any] | None:
        return self._load().get(name) if name in self._added else None

    def values(self) -> dict[str, Accumulator[Any, Any]]:
        """Also those that were restored and that no function has asked for."""
        return self._load() if self._values is not None or self._lists.has(ACCUMULATORS) else {}

    def forget(self) -> None:
        """The state was loaded anew, and functions will be too."""
        self._values = None
        self._added.clear()

    def _load(self) -> dict[str, Accumulator[Any, Any]]:
        if self._values is None:
            values: dict[str, Accumulator[Any, Any]] = {}
            for name, accumulator in self._lists.bind(ACCUMULATORS, LIST, values.items):
                merge_into(values, name, accumulator)
            self._values = values
        return self._values
