"""What kind of values a keyed state holds, remembered in checkpoints, and how old values become new ones.

A small list beside the operator's state says, for every state, the version and the declared type of its values. When a
program that declares something else finds it after a restore, values go through the descriptor's migration, or the job
is refused: to read them as what they are not would be a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.errors import JobDefinitionError
from penstock.functions.state import StateDescriptor
from penstock.state.backend import OperatorState
from penstock.state.operator_lists import ABOUT_STATES
from penstock.state.overlay import OverlayTable

SCHEMAS: Final = f"{ABOUT_STATES}schemas"  # of kind "broadcast": the same in every subtask
_UNTYPED: Final = "PickledByteArray"


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
