"""State as data: what a checkpoint or savepoint holds of one state, as rows.

Only the files of the operator are read, and of these only the tables of the one state are decoded: classes of other states need
not be importable. The rows are in memory, on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.checkpoint import savepoint
from penstock.checkpoint.manifest import FileState, Manifest, StateHandle, TaskState
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import CorruptSnapshotError, NoCheckpointError, PenstockError
from penstock.state import snapshot_file
from penstock.state.backend import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.state.keys import key_group
from penstock.state.list_table import LIST_KINDS, joined
from penstock.state.operator_lists import ABOUT_STATES, BROADCAST, OPERATOR_KINDS
from penstock.state.panes import END, PANES, START, block_rows
from penstock.state.snapshot_file import TableDelta

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[[StateHandle], bytes]
T = TypeVar("T")
_TIMERS = (EVENT_TIMERS, PROCESSING_TIMERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One entry. `namespace` is a window, as (start, end) or (id,), or None; of a timer it has the timestamp at its end.
    Operator state has the position in its list as key and no key group."""

    key_group: int | None
    key: Any
    value: Any
    namespace: Any = None
    last_update: int | None = None  # processing time, of state with a time to live


class StateTable:
    """The entries of one state, in the order of key groups."""

    def __init__(self, uid: str, name: str, kind: str, entries: Iterable[StateEntry]) -> None:
        self.uid, self.name, self.kind = uid, name, kind
        self._entries = sorted(entries, key=lambda entry: -1 if entry.key_group is None else entry.key_group)

    def __iter__(self) -> Iterator[StateEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def to_arrow(self) -> pa.Table:
        """Columns `key_group`, `key`, `value`; with windows `namespace` or, for time windows, `window_start` and
        `window_end`; of timers `timestamp`. What has no natural Arrow type is shown as its repr()."""
        columns: dict[str, Any] = {
            "key_group": pa.array([e.key_group for e in self._entries], type=pa.int32()),
            "key": snapshot_file.natural([e.key for e in self._entries]),
        }
        columns |= self._namespaces()
        if self.kind in _TIMERS:
            columns["timestamp"] = pa.array([e.value for e in self._entries], type=pa.int64())
        else:
            columns["value"] = snapshot_file.natural([e.value for e in self._entries])
        if any(e.last_update is not None for e in self._entries):
            columns["last_update"] = pa.array([e.last_update for e in self._entries], type=pa.int64())
        described = {"operator": self.uid, "name": self.name, "kind": self.kind}
        return pa.table(columns).replace_schema_metadata(described)

    def _namespaces(self) -> dict[str, Any]:
        namespaces = [e.namespace for e in self._entries]
        if all(namespace is None for namespace in namespaces):
            return {}
        if all(isinstance(n, tuple) and len(n) == 2 and all(type(part) is int for part in n) for n in namespaces):
            return {
                "window_start": pa.array([n[0] for n in namespaces], type=pa.int64()),
                "window_end": pa.array([n[1] for n in namespaces], type=pa.int64()),
            }
        return {"namespace": snapshot_file.natural(namespaces)}

    def to_pandas(self) -> pd.DataFrame:
        """The entries as a DataFrame of pandas, with the columns of `to_arrow`."""
        return self.to_arrow().to_pandas()

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The entries as a DataFrame of Spark, with the columns of `to_arrow`."""
        return spark.createDataFrame(self.to_arrow())

    def __repr__(self) -> str:
        return f"<StateTable {self.name!r} of {self.uid!r}: {self.kind}, {len(self)} entries>"


def read(path: str, uid: str, state_name: str) -> StateTable:
    """One state of a savepoint, or of a checkpoint (`<job folder>/checkpoints/chk-<n>`). Timers are the states "timer-event"
    and "timer-processing". PenstockError, with what there is, if there is no such state."""
    manifest = savepoint.load(path)
    return read_state(manifest, uid, state_name, savepoint.read_absolute)


def list_states(path: str) -> list[tuple[str, str, str]]:
    """(uid, state name, kind) of every state that has an entry, sorted."""
    return states_of(savepoint.load(path), savepoint.read_absolute)


def states_of(manifest: Manifest, read: Read) -> list[tuple[str, str, str]]:
    """Without what the engine keeps to itself about states."""
    found = {
        described
        for task in manifest.tasks
        for handle in task.handles
        for described in _described(read(handle), _source(handle, task))
    }
    return sorted(found)


def _described(data: bytes, source: str) -> list[tuple[str, str, str]]:
    return [one for one in snapshot_file.describe(data, source=source) if not one[1].startswith(ABOUT_STATES)]


def read_state(
    manifest: Manifest, uid: str, name: str, read: Read, tasks: Iterable[TaskState] | None = None
) -> StateTable:
    """All entries of the state `name` of operator `uid`, read from the files of the manifest; `tasks` restricts it to
    some subtasks.
    """
    kinds: set[str] = set()
    entries: list[StateEntry] = []
    others: set[tuple[str, str]] = set()
    for task in manifest.tasks if tasks is None else tasks:
        if task.operators is not None and uid not in task.operators:
            continue
        tables: list[TableDelta] = []
        for handle in task.handles:
            data = read(handle)
            tables += snapshot_file.read_tables(data, operator=uid, name=name, source=_source(handle, task))
            if not tables:
                described = _described(data, _source(handle, task))
                others |= {(operator, state) for operator, state, _ in described}
        kinds |= {table.kind for table in tables}
        if BROADCAST in kinds and entries:
            continue  # every subtask has the same
        entries += _entries(tables, manifest.max_parallelism)
    if len(kinds) > 1:
        raise CorruptSnapshotError(f"state {name!r} of operator {uid!r} is of several kinds: {sorted(kinds)}")
    if not kinds and tasks is None:
        raise PenstockError(
            f"{manifest.kind} {manifest.checkpoint_id} of job {manifest.job_name!r} has no entries of state {name!r} of operator "
            f"{uid!r}; it has {', '.join(f'{o}: {s}' for o, s in sorted(others)) or 'none of that operator'}"
        )
    # Whether deleted entries are in the files depends on when a chain was last written whole: the name tells for sure.
    otherwise = name if name in _TIMERS else "value"
    return StateTable(uid, name, kinds.pop() if kinds else otherwise, entries)


def merge(tables: Iterable[TableDelta]) -> dict[tuple[Any, Any], tuple[int, Any]]:
    """A full snapshot and its deltas as one: (key, namespace) → (key group, value). A map or a list is one value, however it
    was written."""
    merged: dict[tuple[Any, Any], tuple[int, Any]] = {}
    lists = False
    for table in tables:
        lists = table.kind in LIST_KINDS
        namespaces = table.namespaces or [None] * len(table)
        map_keys = table.map_keys
        for index, (group, key, namespace) in enumerate(zip(table.key_groups, table.keys, namespaces, strict=True)):
            gone = table.deleted is not None and table.deleted[index]
            entry, value = (key, namespace), table.values[index]
            if map_keys is not None:
                found = merged.get(entry)
                value = {} if found is None else found[1]
                if lists and type(value) is list:  # written whole before
                    value = {0: value}
                if gone:
                    value.pop(map_keys[index], None)
                else:
                    value[map_keys[index]] = table.values[index]
                gone = not value
            if gone:
                merged.pop(entry, None)
            else:
                merged[entry] = (int(group), value)
    if lists:
        return {e: (g, joined(v) if type(v) is dict else v) for e, (g, v) in merged.items()}
    return merged


def _entries(tables: list[TableDelta], max_parallelism: int) -> Iterator[StateEntry]:
    if not tables:
        return
    kind = tables[-1].kind
    if kind in OPERATOR_KINDS:  # whole in each: the newest counts
        for position, value in enumerate(tables[-1].values):
            yield StateEntry(key_group=None, key=position, value=value)
        return
    for (key, namespace), (group, value) in merge(tables).items():
        if kind == PANES:
            for row_key, rest in block_rows(value):
                found = key_group(row_key, max_parallelism)
                bounds = (rest.pop(START), rest.pop(END)) if START in rest else (key[0],)
                yield StateEntry(key_group=found, key=row_key, value=rest, namespace=bounds)
        elif kind in _TIMERS:
            yield StateEntry(key_group=group, key=key, namespace=namespace[0], value=namespace[1])
        elif kind.endswith("-ttl"):
            stamp, plain = _without_stamps(kind, value)
            yield StateEntry(key_group=group, key=key, namespace=namespace, value=plain, last_update=stamp)
        else:
            yield StateEntry(key_group=group, key=key, namespace=namespace, value=value)


def _without_stamps(kind: str, stored: Any) -> tuple[int, Any]:
    """The newest time of an update, and the values as the program sees them."""
    match kind:
        case "list-ttl":
            return max(stamp for stamp, _ in stored), [value for _, value in stored]
        case "map-ttl":
            return max(s for s, _ in stored.values()), {key: value for key, (_, value) in stored.items()}
    return stored[0], stored[1]


def sample(manifest: Manifest, uid: str, name: str, read: Read, most: int) -> tuple[str, list[StateEntry], bool]:
    """The kind of a state, some entries of it, and whether there are more. Subtask by subtask: of a large state little is read.
    PenstockError, with what there is, if there is no such state."""
    found: list[StateEntry] = []
    kind = ""
    for task in manifest.tasks:
        if task.operators is not None and uid not in task.operators:
            continue
        table = read_state(manifest, uid, name, read, [task])
        if not len(table):
            continue
        kind = table.kind
        found += table
        if kind == BROADCAST or len(found) > most:
            return kind, found[:most], len(found) > most
    if not found:
        kind = read_state(manifest, uid, name, read).kind
    return kind, found, False


def query(manifest: Manifest, uid: str, name: str, key: Any, read: Read) -> Any:
    """What one key has: its value, or None; with windows or timers a dict by window, or a list of timestamps."""
    group = key_group(key, manifest.max_parallelism)
    owners = [t for t in manifest.tasks if t.key_group_range is None or group in t.key_group_range]
    table = read_state(manifest, uid, name, read, owners)
    found = [entry for entry in table if entry.key_group is not None and entry.key == key]
    if table.kind in _TIMERS:
        return sorted(entry.value for entry in found)
    if any(entry.namespace is not None for entry in found):
        return {entry.namespace: entry.value for entry in found}
    return found[0].value if found else None


def read_newest(
    newest: Callable[[], Manifest | None], store: CheckpointStore | None, use: Callable[[Manifest, Read], T]
) -> T:
    """`use(manifest, read)` of the newest checkpoint. Retention may delete it meanwhile; then there is a newer one."""
    while True:
        manifest = newest()
        if manifest is None or store is None:
            raise NoCheckpointError("state cannot be read: the job has no checkpoint (yet)")
        try:
            return use(manifest, store.read_state)
        except CorruptSnapshotError:
            if manifest is newest():
                raise


def _source(handle: StateHandle, task: TaskState) -> str:
    return handle.path if isinstance(handle, FileState) else f"manifest (inline state of {task.vertex}/{task.subtask})"
