"""State: key groups, tables, timers, snapshot files. For users: `read`, `list_states` and `SavepointWriter`.

They are resolved when asked for: they read checkpoints, and checkpoints are made of what is in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.checkpoint.savepoint_writer import SavepointWriter
    from penstock.checkpoint.state_data import StateEntry, StateTable, list_states, read

__all__ = ["SavepointWriter", "StateEntry", "StateTable", "list_states", "read"]


def __getattr__(name: str) -> Any:
    if name == "SavepointWriter":
        from penstock.checkpoint import savepoint_writer

        return savepoint_writer.SavepointWriter
    if name in __all__:
        from penstock.checkpoint import state_data

        return getattr(state_data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
