"""State of an operator that belongs to no key: lists of elements, which is also what maps and counters are stored as.

    kind              a job that starts with another parallelism gives …
    operator-list     … every element to one subtask, in turn
    operator-union    … all elements to everyone; with the same parallelism each its own (the engine's own lists)
    union-list        … all elements to everyone, always
    broadcast         … everyone the elements of the first subtask: they are the same everywhere

Small, held in memory, pickled whole at the end of every epoch. Those bytes are what a retry goes back to, and by comparing
them a snapshot leaves out lists that have not changed since the last one.

The accumulators of one operator in one subtask: part of its operator state, so that they count exactly once.

Flink starts them again with every attempt. Here they go back with the state they were counted beside. Stored as a list of
(name, accumulator), which is dealt out when the parallelism changes: whoever gets one adds on to it, and the sum over all
subtasks stays what it was.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.common.accumulators import Accumulator, merge_into
from penstock.errors import JobDefinitionError, StorageError
from penstock.pickling import dump_by_value
from penstock.state.snapshot_file import TableDelta

LIST: Final = "operator-list"
ENGINE_UNION: Final = "operator-union"
UNION: Final = "union-list"
BROADCAST: Final = "broadcast"
ABOUT_STATES: Final = "penstock-"  # how names of lists begin that describe other states: schemas, specifications
OPERATOR_KINDS: Final = frozenset({LIST, ENGINE_UNION, UNION, BROADCAST})


class OperatorLists:
    """The lists of one operator's operator state in one subtask, and what they were at the last confirmed epoch."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._lists: dict[str, list[Any]] = {}
        self._kinds: dict[str, str] = {}
        self._live: dict[str, Callable[[], Iterable[Any]]] = {}
        self._frozen: dict[str, bytes] | None = None  # at the barrier, until the epoch is confirmed
        self._confirmed: dict[str, tuple[str, bytes]] = {}  # kind and elements
        self._stored: dict[str, bytes] = {}  # in the last checkpoint

    def get(self, name: str, kind: str) -> list[Any]:
        """The list itself, created on first use: change it in place."""
        known = self._kinds.setdefault(name, kind)
        if known != kind:
            raise JobDefinitionError(
                f"operator {self._operator!r} declares operator state {name!r} as {kind}, but it is {known} already (declared "
                "earlier or restored from a checkpoint): give the new state another name"
            )
        return self._lists.setdefault(name, [])

    def has(self, name: str) -> bool:
        """True if there is a list of this name."""
        return name in self._lists

    def bind(self, name: str, kind: str, elements: Callable[[], Iterable[Any]]) -> list[Any]:
        """For state that lives in another form: at every barrier the list becomes what `elements` gives. Returns what it
        is now."""
        current = self.get(name, kind)
        self._live[name] = elements
        return current

    def confirmed(self, name: str) -> list[Any]:
        """The elements when the last epoch that counts had ended, whatever this one has done to them."""
        kind_and_bytes = self._confirmed.get(name)
        return [] if kind_and_bytes is None else list(pickle.loads(kind_and_bytes[1]))

    # ---------------------------------------------------------------- epoch life cycle

    def freeze(self) -> dict[str, bytes]:
        """The barrier: nothing changes until the epoch is confirmed or dropped."""
        if self._frozen is None:
            for name, elements in self._live.items():
                self._lists[name][:] = elements()
            self._frozen = {name: self._dump(name, elements) for name, elements in self._lists.items()}
        return self._frozen

    def _dump(self, name: str, elements: list[Any]) -> bytes:
        try:
            return dump_by_value(elements)
        except Exception as error:
            raise StorageError(
                f"operator {self._operator!r}: its operator state {name!r} cannot be pickled ({type(error).__name__}: "
                f"{error}); keep what cannot travel in the function, and what it is made from in the state"
            ) from error

    def fold(self, *, checkpointed: bool) -> None:
        """The epoch is confirmed: the lists as they were at its barrier are what `rollback` returns to."""
        frozen = self.freeze()
        self._confirmed = {name: (self._kinds[name], data) for name, data in frozen.items()}
        if checkpointed:
            self._stored = frozen
        self._frozen = None

    def rollback(self) -> None:
        """Drops everything since the last confirmed epoch."""
        self._lists = {name: pickle.loads(data) for name, (_, data) in self._confirmed.items()}
        self._kinds = {name: kind for name, (kind, _) in self._confirmed.items()}
        self._live.clear()
        self._frozen = None

    # ---------------------------------------------------------------- snapshots

    def snapshot(self, *, full: bool) -> list[TableDelta]:
        """With `full` all lists, else those that changed since the last checkpoint, whole."""
        changed = [(name, data) for name, data in self.freeze().items() if full or self._stored.get(name) != data]
        return [self._table(name, pickle.loads(data)) for name, data in changed]

    def _table(self, name: str, elements: list[Any]) -> TableDelta:
        """Of copies: the next epoch may begin, and change what is in the list, before the snapshot is written."""
        return TableDelta(
            operator=self._operator,
            name=name,
            kind=self._kinds[name],
            full=True,
            key_groups=[0] * len(elements),
            keys=list(range(len(elements))),
            values=elements,
        )

    def restore(self, table: TableDelta) -> None:
        """Adds what a checkpoint has of one list."""
        self.get(table.name, table.kind).extend(table.values)

    def restored(self) -> None:
        """All tables are loaded. None counts as stored: a union list is now longer than the one in its own file."""
        self._frozen = None
        self.fold(checkpointed=False)
        self._stored = {}


def newest_lists(chain: Sequence[list[TableDelta]]) -> list[list[TableDelta]]:
    """The tables of a full snapshot and its deltas, without lists that a later file of the chain has again."""
    kept: list[list[TableDelta]] = []
    seen: set[tuple[str, str]] = set()
    for tables in reversed(chain):
        here = {(table.operator, table.name) for table in tables if table.kind in OPERATOR_KINDS}
        kept.append([t for t in tables if t.kind not in OPERATOR_KINDS or (t.operator, t.name) not in seen])
        seen |= here
    return kept[::-1]


class Dealer:
    """Another parallelism: what one new subtask gets of the old ones' lists. Every new subtask must be shown the same
    tables in the same order."""

    def __init__(self, subtask: int, parallelism: int) -> None:
        self._subtask, self._parallelism = subtask, parallelism
        self._dealt = 0

    def share(self, old_subtask: int, tables: Iterable[TableDelta]) -> list[TableDelta]:
        """The part of an old subtask's tables that the new subtask gets: list elements are dealt round robin, union
        and broadcast tables come whole.
        """
        shared = []
        for table in tables:
            if table.kind == LIST:
                mine = [i for i in range(len(table)) if (self._dealt + i) % self._parallelism == self._subtask]
                self._dealt += len(table)
                table = replace(
                    table,
                    key_groups=[0] * len(mine),
                    keys=[table.keys[i] for i in mine],
                    values=[table.values[i] for i in mine],
                )
            elif table.kind == BROADCAST and old_subtask != 0:
                continue
            shared.append(table)
        return shared


ACCUMULATORS: Final = "penstock-accumulators"


class Accumulators:
    """The accumulators of one operator in one subtask; they are kept as operator state."""

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
        """The accumulator of this name, if a function of this run added it."""
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
