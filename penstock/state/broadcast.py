"""Broadcast state: a map that every subtask holds whole. Written by the broadcast side only, read by both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from penstock.common.values import own
from penstock.errors import PenstockError
from penstock.functions.state import BroadcastState, ReadOnlyBroadcastState


class BroadcastWriteError(PenstockError):
    """Broadcast state was changed from the side that may only read it."""


class _Entries:
    """What both sides may do."""

    def __init__(self, name: str, entries: dict[Any, Any]) -> None:
        self._name, self._entries = name, entries

    def get(self, key: Any) -> Any:
        return own(self._entries.get(key))

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(key, own(value)) for key, value in self._entries.items()]

    def keys(self) -> Iterable[Any]:
        return list(self._entries)

    def values(self) -> Iterable[Any]:
        return [own(value) for value in self._entries.values()]

    def is_empty(self) -> bool:
        return not self._entries


class ReadableBroadcast(_Entries, ReadOnlyBroadcastState[Any, Any]):
    """The data side's view."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise BroadcastWriteError(
            f"broadcast state {self._name!r} was written outside of process_broadcast_element: there each subtask sees other "
            "records, so the copies would drift apart. Write it from the broadcast side, or use keyed state"
        )

    # Not part of the read-only interface: they are here for the sake of the message.
    clear = put = put_all = remove = __setitem__ = __delitem__ = _refuse


class WritableBroadcast(_Entries, BroadcastState[Any, Any]):
    """The broadcast side's view."""

    def put(self, key: Any, value: Any) -> None:
        self._entries[key] = own(value)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
