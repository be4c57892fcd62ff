"""Writing savepoints without a job: bootstrap state from data, or transform a savepoint into another one.

What is written is one task an operator, with all of its key groups: a job of any parallelism picks its own out of it. All of
it is in memory, on one machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.checkpoint import layout, savepoint
from penstock.checkpoint.manifest import FileState, Manifest, TaskState
from penstock.checkpoint.restore import chain_contents, encode_contents
from penstock.checkpoint.state_data import merge
from penstock.checkpoint.storage import open_storage
from penstock.common.time import now_ms
from penstock.errors import JobDefinitionError, PenstockError
from penstock.protocol.ids import CheckpointId, Generation
from penstock.protocol.input_facts import joined
from penstock.state.keys import DEFAULT_MAX_PARALLELISM, key_group
from penstock.state.operator_lists import BROADCAST, OPERATOR_KINDS
from penstock.state.panes import PANES
from penstock.state.snapshot import SnapshotContents
from penstock.state.snapshot_file import TableDelta

_KINDS: Final = ("value", "list", "map", "reducing", "aggregating")


class SavepointWriter:
    """A savepoint under construction: `new` or `from_existing`, any changes, then `write`. Changes return the writer."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._tables: dict[tuple[str, str], TableDelta] = {}
        self._gates: dict[str, dict[str, Any]] = {}
        self._finished: set[str] = set()

    @staticmethod
    def new(max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> SavepointWriter:
        """Without any state. The job that starts from it must have the same max parallelism."""
        return SavepointWriter(
            Manifest(
                job_id="",
                job_name="written",
                checkpoint_id=CheckpointId(1),
                epoch=1,
                generation=Generation(0),
                kind="savepoint",
                created_ms=now_ms(),
                processing_time_ms=0,
                max_parallelism=max_parallelism,
            )
        )

    @staticmethod
    def from_existing(path: str) -> SavepointWriter:
        """All that a savepoint or checkpoint holds, source positions included. It is not changed."""
        manifest = savepoint.load(path)
        writer = SavepointWriter(replace(manifest, kind="savepoint", tasks=(), committables={}))
        if manifest.committables:
            raise PenstockError(
                f"{path}: is a checkpoint with output that may not be committed yet; take a savepoint of its job instead"
            )
        for task in manifest.tasks:
            writer._load(task)
        return writer

    def _load(self, task: TaskState) -> None:
        chain = list(chain_contents(task, savepoint.read_absolute))
        by_state: dict[tuple[str, str], list[TableDelta]] = {}
        for contents in chain:
            if contents.channel_state:
                raise PenstockError(
                    f"task {task.vertex}/{task.subtask} holds events that were on their way (an unaligned checkpoint): take a "
                    "savepoint"
                )
            for table in contents.tables:
                by_state.setdefault((table.operator, table.name), []).append(table)
        for state, tables in by_state.items():
            self._add(state, tables, first=task.subtask == 0)
        for operator in {table.operator for contents in chain for table in contents.tables} | set(task.operators or ()):
            gate = chain[-1].gate if chain else None
            if gate is not None:
                known = self._gates.get(operator)
                self._gates[operator] = gate if known is None else joined(known, gate)
            if chain and chain[-1].finished:
                self._finished.add(operator)

    def _add(self, state: tuple[str, str], tables: list[TableDelta], *, first: bool) -> None:
        if tables[-1].kind in OPERATOR_KINDS:
            added = tables[-1]
            if added.kind == BROADCAST and not first:
                return
        else:
            merged = merge(tables)
            added = _table(tables[-1], [(group, key, ns, value) for (key, ns), (group, value) in merged.items()])
        known = self._tables.get(state)
        self._tables[state] = added if known is None else _joined(known, added)

    # ---------------------------------------------------------------- changes

    def with_state(
        self,
        uid: str,
        state_name: str,
        data: Any,
        *,
        key: str = "key",
        value: str = "value",
        kind: str = "value",
    ) -> SavepointWriter:
        """State of an operator from rows with a key and a value: an Arrow table, a DataFrame of pandas or Spark, or an
        iterable of (key, value). Replaces the state if it is there. `kind` is value, list, map, reducing or
        aggregating, as the operator declares it; of a list the value is a list, of a map a dict."""
        if kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise JobDefinitionError(f"state {state_name!r} of {uid!r}: kind {kind!r} is not known; choose of {known}")
        rows = [(k, dict(v) if kind == "map" else v) for k, v in _pairs(data, key, value)]
        if len({k for k, _ in rows}) != len(rows):
            raise JobDefinitionError(f"state {state_name!r} of {uid!r}: a key occurs more than once in the data")
        groups = [key_group(k, self._manifest.max_parallelism) for k, _ in rows]
        self._tables[(uid, state_name)] = TableDelta(
            operator=uid,
            name=state_name,
            kind=kind,
            full=True,
            key_groups=groups,
            keys=[k for k, _ in rows],
            values=[v for _, v in rows],
        )
        return self

    def remove_operator(self, uid: str) -> SavepointWriter:
        """All of its state; of a source its position, too: it starts from the beginning."""
        self._require(uid)
        self._tables = {state: table for state, table in self._tables.items() if state[0] != uid}
        self._gates.pop(uid, None)
        self._finished.discard(uid)
        self._manifest = replace(
            self._manifest, sources={source: s for source, s in self._manifest.sources.items() if source != uid}
        )
        return self

    def rename_operator(self, uid: str, new_uid: str) -> SavepointWriter:
        """Gives the state of `uid` to `new_uid`; refused if that has state already."""
        self._require(uid)
        if new_uid in self.operators():
            raise JobDefinitionError(f"operator {uid!r} cannot be renamed: there is state of {new_uid!r} already")
        self._tables = {
            (new_uid if operator == uid else operator, name): replace(table, operator=new_uid)
            if operator == uid
            else table
            for (operator, name), table in self._tables.items()
        }
        if uid in self._gates:
            self._gates[new_uid] = self._gates.pop(uid)
        if uid in self._finished:
            self._finished = self._finished - {uid} | {new_uid}
        sources = {new_uid if source == uid else source: s for source, s in self._manifest.sources.items()}
        self._manifest = replace(self._manifest, sources=sources)
        return self

    def drop_keys(self, uid: str, drop: Callable[[Any], bool]) -> SavepointWriter:
        """Everything keyed that the operator holds of the keys for which `drop` says so, timers and windows included."""
        self._require(uid)
        for state, table in self._tables.items():
            if state[0] == uid and table.kind not in OPERATOR_KINDS:
                self._rowwise(state, table)
                rows = [row for row in _rows(table) if not drop(row[1])]
                self._tables[state] = _table(table, rows)
        return self

    def map_values(self, uid: str, state_name: str, function: Callable[[Any, Any], Any]) -> SavepointWriter:
        """Every stored value of a keyed state becomes `function(key, value)`."""
        table = self._tables.get((uid, state_name))
        if table is None or table.kind in OPERATOR_KINDS:
            raise PenstockError(
                f"there is no keyed state {state_name!r} of operator {uid!r}; there are {sorted(self._tables)}"
            )
        self._rowwise((uid, state_name), table)
        rows = [(group, key, namespace, function(key, value)) for group, key, namespace, value in _rows(table)]
        self._tables[(uid, state_name)] = _table(table, rows)
        return self

    def operators(self) -> set[str]:
        """The uids that the savepoint has state or a position of."""
        return {operator for operator, _ in self._tables} | set(self._manifest.sources)

    def _require(self, uid: str) -> None:
        if uid not in self.operators():
            raise PenstockError(f"there is no state of operator {uid!r}; there is of {sorted(self.operators())}")

    @staticmethod
    def _rowwise(state: tuple[str, str], table: TableDelta) -> None:
        if table.kind == PANES:
            raise PenstockError(
                f"state {state[1]!r} of operator {state[0]!r} is kept in columns, many keys to a block: it cannot be changed key "
                "by key"
            )

    # ---------------------------------------------------------------- out

    def write(self, path: str) -> str:
        """A new savepoint, in this folder. Whole or absent, like any other. Returns the folder's url."""
        storage = open_storage(path)
        if storage.exists(savepoint.MANIFEST):
            raise PenstockError(f"{path}: there is a savepoint in this folder already; give an empty one")
        tasks = []
        for uid in sorted(self.operators()):
            contents = SnapshotContents(
                tables=[table for (operator, _), table in sorted(self._tables.items()) if operator == uid],
                gate=self._gates.get(uid),
                finished=uid in self._finished,
            )
            data = encode_contents(contents)
            name = layout.state_name(uid, 0, "written")
            storage.put(name, data)
            tasks.append(
                TaskState(
                    vertex=uid,
                    subtask=0,
                    parallelism=1,
                    key_group_range=range(self._manifest.max_parallelism),
                    handles=(FileState(path=name, size=len(data), crc32=zlib.crc32(data)),),
                    operators=(uid,),
                )
            )
        spark = savepoint.portable_position(storage, self._manifest.spark, savepoint.read_absolute)
        stateful = tuple(sorted(self.operators()))
        savepoint.complete(storage, replace(self._manifest, tasks=tuple(tasks), stateful=stateful, spark=spark))
        return storage.url


def _rows(table: TableDelta) -> Iterable[tuple[int, Any, Any, Any]]:
    namespaces = table.namespaces or [None] * len(table)
    return zip(map(int, table.key_groups), table.keys, namespaces, table.values, strict=True)


def _table(like: TableDelta, rows: Iterable[tuple[int, Any, Any, Any]]) -> TableDelta:
    rows = list(rows)
    return TableDelta(
        operator=like.operator,
        name=like.name,
        kind=like.kind,
        full=True,
        key_groups=[group for group, *_ in rows],
        keys=[key for _, key, *_ in rows],
        namespaces=None if like.namespaces is None else [namespace for _, _, namespace, _ in rows],
        values=[value for *_, value in rows],
    )


def _joined(one: TableDelta, other: TableDelta) -> TableDelta:
    """Of two subtasks. A list's elements are numbered anew."""
    joined = _table(one, [*_rows(one), *_rows(other)])
    return replace(joined, keys=list(range(len(joined)))) if one.kind in OPERATOR_KINDS else joined


def _pairs(data: Any, key: str, value: str) -> Iterable[tuple[Any, Any]]:
    if hasattr(data, "toArrow"):  # a DataFrame of Spark's
        data = data.toArrow()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # of pandas'
        return zip(data[key].tolist(), data[value].tolist(), strict=True)
    if hasattr(data, "column") and hasattr(data, "schema"):
        return zip(data.column(key).to_pylist(), data.column(value).to_pylist(), strict=True)
    if isinstance(data, Mapping):
        return data.items()
    pairs: Iterable[tuple[Any, Any]] = data
    return pairs
