"""What the entries of an operator's state mean, remembered beside them in every checkpoint.

A sum and a maximum are both one number, and a pane of ten seconds looks like one of twenty: nothing in the entries tells a
program that it reads what another one meant. So operators whose state depends on how they were built say so
(`Operator.specification`), and a program that says something else is refused with both, or its state is migrated where
that is exact: partial aggregates are known by column and function, so they may be named and ordered otherwise, and left
out. Snapshots from before specifications have none; they are taken for what the program says.

What kind of values a keyed state holds, remembered in checkpoints, and how old values become new ones.

A small list beside the operator's state says, for every state, the version and the declared type of its values. When a
program that declares something else finds it after a restore, values go through the descriptor's migration, or the job
is refused: to read them as what they are not would be a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from penstock.errors import JobDefinitionError
from penstock.functions.state import StateDescriptor
from penstock.state.backend import OperatorState
from penstock.state.operator_lists import ABOUT_STATES
from penstock.state.overlay import OverlayTable

SPECIFICATION: Final = f"{ABOUT_STATES}specification"  # of kind "broadcast": the same in every subtask
_VERSION: Final = 1
_UNTYPED: Final = "PickledByteArray"

PartialName: TypeAlias = tuple[str | None, str, str]  # column, function over records, function over partial results


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """None: not known, or nothing that this state depends on."""

    holds: str  # "panes", "windows", "a rolling aggregate", …
    function: str | None = None
    keys: tuple[str, ...] | None = None  # names of columns
    kind_of_windows: str | None = None  # those of another kind cannot even be read
    windows: str | None = None
    lateness: int | None = None
    reach: tuple[int, int] | None = None  # of an interval join: how far away in time the other record may be
    partials: tuple[PartialName, ...] | None = None
    values: str | None = None  # their declared type
    columns: Mapping[str, str] | None = None  # declared types of those that it reads

    def restorable_from(self, before: Specification, *, allow_changed_windows: bool) -> list[str]:
        """What differs and must not: empty if this program may go on from state of the other."""
        if self.holds != before.holds:
            return [f"its state is {before.holds}, and now {self.holds}"]
        differences = []
        for title, was, now in (
            ("function", before.function, self.function),
            ("key columns", before.keys, self.keys),
            ("kind of windows", before.kind_of_windows, self.kind_of_windows),
            ("windows", before.windows, self.windows),
            ("type of values", before.values, self.values),
        ):
            tolerated = title == "windows" and allow_changed_windows and self.holds in WITH_BOUNDS
            if was != now and was is not None and now is not None and not tolerated:
                differences.append(f"{title}: {_shown(was)}, now {_shown(now)}")
        for column, now in (self.columns or {}).items():
            was = (before.columns or {}).get(column, now)
            if was != now:
                differences.append(f"column {column!r}: {was}, now {now}")
        if not self._keeps_no_longer(before):
            differences.append(f"allowed lateness: {before.lateness} ms, now {self.lateness} ms")
        if self.reach is not None and before.reach is not None:
            lower, upper = self.reach
            if lower < before.reach[0] or before.reach[1] < upper:  # records that it would need have been let go
                differences.append(f"bounds: {_bounds(before.reach)}, now {_bounds(self.reach)}")
        differences += self._missing_aggregates(before)
        return differences

    def _keeps_no_longer(self, before: Specification) -> bool:
        """Panes are dropped by the program's own lateness, so they may be dropped earlier than was meant; those that are
        gone cannot come back for a later one. Windows of rows have a timer each, set for the lateness of before."""
        if self.lateness is None or before.lateness is None:
            return True
        return self.lateness <= before.lateness if self.holds == PANES else self.lateness == before.lateness

    def _missing_aggregates(self, before: Specification) -> list[str]:
        if (self.partials is None) != (before.partials is None):
            return ["built-in aggregates in place of an AggregateFunction, or the other way round"]
        missing = [partial for partial in self.partials or () if partial not in (before.partials or ())]
        if not missing:
            return []
        kept, wanted = ([_partial(p) for p in each] for each in (before.partials or (), missing))
        return [f"aggregates: {', '.join(kept)} are kept, and now {', '.join(wanted)} would be needed"]


PANES: Final = "panes of partial aggregates"
WINDOWS: Final = "windows of records"
SESSIONS: Final = "sessions of partial aggregates"
WITH_BOUNDS: Final = (WINDOWS, SESSIONS)  # what has begun keeps its bounds, whatever windows there are from now on


def settle(
    state: OperatorState,
    declared: Specification | None,
    *,
    formerly: Specification | None = None,
    allow_changed_windows: bool = False,
) -> Specification | None:
    """The operator starts on what was restored, or on nothing: check, and remember what it says. Returns the specification
    of what is there if that has to be migrated. `formerly`: what it would say of state that is not of its own kind and can
    be migrated."""
    known = state.operator_list(SPECIFICATION, "broadcast") if state.lists.has(SPECIFICATION) else []
    before = _read(known[0]) if known else _guess(state, declared)
    if before is not None:
        of_its_kind = formerly if formerly is not None and before.holds == formerly.holds else declared
        _check(state.operator, before, of_its_kind, allow_changed_windows=allow_changed_windows)
    if declared is not None:
        state.operator_list(SPECIFICATION, "broadcast")[:] = [{"version": _VERSION, **asdict(declared)}]
    if before is None or declared is None or (before.holds, before.partials) == (declared.holds, declared.partials):
        return None
    return before


def _guess(state: OperatorState, declared: Specification | None) -> Specification | None:
    """Without a specification: windows over columns leave what windows over rows kept unread, and the other way round."""
    for holds, table in ((PANES, "panes"), (WINDOWS, "window-contents")):
        other = declared is not None and declared.holds in (PANES, *WITH_BOUNDS) and declared.holds != holds
        if other and table in state.tables and any(True for _ in state.tables[table].items()):
            return Specification(holds=holds)
    return None


def type_name(type_info: Any) -> str | None:
    """None if the program does not say: pickled values can be anything."""
    if type_info is None:
        return None
    name = str(type_info)
    return None if _UNTYPED in name else name


def _check(
    operator: str, before: Specification, declared: Specification | None, *, allow_changed_windows: bool
) -> None:
    if declared is None:
        differences = [f"its state is {before.holds}, and now it keeps nothing of that kind"]
    else:
        differences = declared.restorable_from(before, allow_changed_windows=allow_changed_windows)
    if not differences:
        return
    permitted = (
        declared is not None
        and before.holds in WITH_BOUNDS
        and not declared.restorable_from(before, allow_changed_windows=True)
    )
    raise JobDefinitionError(
        f"operator {operator!r} cannot go on from its state in the checkpoint: {'; '.join(differences)}. Its results would be "
        "wrong. Build it as it was; or give it another uid, so that it starts with nothing, and set "
        "execution.state-recovery.ignore-unclaimed-state to true to drop the old state"
        + (
            "; or set execution.state-recovery.allow-changed-windows to true: windows that have begun keep their bounds and what "
            "is in them, and only records from now on go into windows of the new kind, as in Flink"
            if permitted
            else ""
        )
    )


def _read(stored: dict[str, Any]) -> Specification:
    if stored["version"] != _VERSION:
        raise JobDefinitionError(
            f"the checkpoint describes its state in version {stored['version']}, and this Penstock reads {_VERSION}: use the "
            "release that wrote it, or a newer one"
        )
    known = {name: value for name, value in stored.items() if name != "version"}
    for name in ("keys", "partials", "reach"):
        if known.get(name) is not None:
            known[name] = tuple(tuple(part) if isinstance(part, (list, tuple)) else part for part in known[name])
    return Specification(**known)


def _bounds(reach: tuple[int, int]) -> str:
    return f"{reach[0]} to {reach[1]} ms"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))


def _partial(partial: PartialName) -> str:
    column, function, _ = partial
    return f"{function}({column or ''})"


SCHEMAS: Final = f"{ABOUT_STATES}schemas"  # of kind "broadcast": the same in every subtask


def declare(state: OperatorState, descriptor: StateDescriptor, table: OverlayTable, kind: str) -> None:
    """The operator uses this state now: check what was restored, migrate it if need be, remember what it is."""
    name = descriptor.get_name()
    if name in state.declared:
        return
    state.declared.add(name)
    schemas = state.operator_list(SCHEMAS, "broadcast") if state.lists.has(SCHEMAS) else []
    position = next((i for i, (known, *_) in enumerate(schemas) if known == name), None)
    declared = (name, descriptor.version, _type_of(descriptor))
    if position is None:
        # New, or not worth a line: values of version 0 and of no declared type.
        if descriptor.version and len(table):
            _migrate(state, descriptor, table, kind, 0)
        if declared[1:] != (0, None):
            state.operator_list(SCHEMAS, "broadcast").append(declared)
        return
    _, version, type_name = schemas[position]
    if version != descriptor.version:
        _migrate(state, descriptor, table, kind, version)
    elif type_name is not None and declared[2] is not None and type_name != declared[2] and len(table):
        raise JobDefinitionError(
            f"operator {state.operator!r} declares state {name!r} with values of type {declared[2]}, but the checkpoint holds "
            f"{type_name}: keep the type, give the new state another name, or say how old values become new ones with "
            f"descriptor.set_migration({version + 1}, …)"
        )
    schemas[position] = declared


def _migrate(state: OperatorState, descriptor: StateDescriptor, table: OverlayTable, kind: str, found: int) -> None:
    where = f"operator {state.operator!r}, state {descriptor.get_name()!r}"
    if found > descriptor.version:
        raise JobDefinitionError(
            f"{where}: the checkpoint holds values of version {found}, and the program knows versions up to "
            f"{descriptor.version}: it is older than the checkpoint. Run the newer program, or resume from an older checkpoint"
        )
    migrate = descriptor.migration
    assert migrate is not None, "a version is set together with its migration"

    def new(value: Any) -> Any:
        try:
            return migrate(value, found)
        except Exception as error:
            raise JobDefinitionError(
                f"{where}: the migration from version {found} to {descriptor.version} failed on {value!r:.200} with "
                f"{type(error).__name__}: {error}"
            ) from error

    change = _changer(kind, new, whole_maps=type(table) is OverlayTable)
    for entry, value in list(table.items()):
        table.put(entry, change(value))  # like any write: a retry does it again, and the next checkpoint has it


def _changer(kind: str, new: Callable[[Any], Any], *, whole_maps: bool) -> Callable[[Any], Any]:
    """`new` for one value as the program sees it, for what is stored: a list's elements, a map's values, and with a time
    to live each of them with the time of its last update."""
    base, expiring = kind.removesuffix("-ttl"), kind.endswith("-ttl")
    single: Callable[[Any], Any] = (lambda stamped: (stamped[0], new(stamped[1]))) if expiring else new
    if base == "list":
        return lambda values: [single(value) for value in values]
    if base == "map" and whole_maps:
        return lambda values: {key: single(value) for key, value in values.items()}
    return single


def _type_of(descriptor: StateDescriptor) -> str | None:
    """None if the program does not say: pickled values can be anything."""
    name = str(descriptor.type_info)
    return None if _UNTYPED in name else name
