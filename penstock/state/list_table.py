"""The table of lists: a list is kept in pieces, so that an element added costs, and snapshots, one piece and not the list.

    (entry, 0)      the tail, which grows: a list; behind pieces that are full, (how many there are, list)
    (entry, 1) …    the full pieces, in order, written once

An epoch copies the tail before it adds to it, as confirmed entries never change; at `PIECE` elements the tail becomes a piece.
The elements themselves are not copied: nobody changes them, for users are given copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

from penstock.common.values import own_all
from penstock.state.overlay import MISSING, TOMBSTONE, OverlayTable

PIECE: Final = 64
LIST_KINDS: Final = frozenset({"list", "list-ttl", "list-with-timestamps"})
_TAIL: Final = 0


class ListTable(OverlayTable):
    """Entries are (entry, piece), where `entry` is a key or (key, namespace). Reading and writing is of whole lists by `entry`;
    `rows`, `delta` and `load` are of pieces."""

    __slots__ = ()

    # ---------------------------------------------------------------- whole lists

    def peek(self, key: Hashable) -> Any:
        """The elements, of which none may be changed, nor their list; or MISSING."""
        stored = super().peek((key, _TAIL))
        if type(stored) is not tuple:
            return stored
        pieces, tail = stored
        joined: list[Any] = []
        for piece in range(1, pieces + 1):
            joined += super().peek((key, piece))
        return joined + tail

    def has(self, key: Hashable) -> bool:
        """True if there is a list of this entry."""
        return super().peek((key, _TAIL)) is not MISSING

    def get(self, key: Hashable) -> Any:
        """The list as an object of the running epoch, or MISSING. What is changed in it counts once it is put."""
        stored = super().get((key, _TAIL))
        if type(stored) is not tuple:
            return stored
        pieces, tail = stored
        joined: list[Any] = []
        for piece in range(1, pieces + 1):
            joined += super().get((key, piece))
        return joined + tail

    def read(self, key: Hashable) -> Any:
        found = self.peek(key)
        return found if found is MISSING else list(own_all(found))

    def put(self, key: Hashable, value: Any) -> None:
        self.delete(key)
        if len(value) < PIECE:
            self.overlay[(key, _TAIL)] = value
        else:
            self.overlay[(key, 1)], self.overlay[(key, _TAIL)] = value, (1, [])

    def extend(self, key: Hashable, values: list[Any]) -> None:
        """Adds elements, which are the table's own from now on, as is the list. One without elements makes an empty list, if
        there is none."""
        flat = (key, _TAIL)
        stored = self.overlay.get(flat, MISSING)
        if stored is MISSING:  # this epoch has not changed it yet
            stored = self.base.get(flat, MISSING)
            if stored is not MISSING:
                self._grow(key, stored, values, shared=True)
                return
        if stored is MISSING or stored is TOMBSTONE:
            stored = self.overlay[flat] = values
            values = []
        self._grow(key, stored, values, shared=False)

    def _grow(self, key: Hashable, stored: Any, values: Iterable[Any], *, shared: bool) -> None:
        pieces, tail = stored if type(stored) is tuple else (0, stored)
        if shared and len(tail) >= PIECE:  # stored whole, by a release that had no pieces
            self.overlay[(key, pieces + 1)] = tail
            pieces, tail = pieces + 1, []
            self.overlay[(key, _TAIL)] = (pieces, tail)
        elif shared:
            tail = tail.copy()
            self.overlay[(key, _TAIL)] = (pieces, tail) if pieces else tail
        tail += values
        if len(tail) >= PIECE:
            self.overlay[(key, pieces + 1)] = tail
            self.overlay[(key, _TAIL)] = (pieces + 1, [])

    def delete(self, key: Hashable) -> None:
        stored = super().peek((key, _TAIL))
        if stored is MISSING:
            return
        for piece in range(1, stored[0] + 1 if type(stored) is tuple else 1):
            super().delete((key, piece))
        super().delete((key, _TAIL))

    def items(self) -> Iterator[tuple[Hashable, Any]]:
        """Every list, as `peek` gives it. The caller may write to the table meanwhile."""
        flat: Any
        for flat, _ in super().items():
            if flat[1] == _TAIL:
                found = self.peek(flat[0])
                if found is not MISSING:
                    yield flat[0], found

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    # ---------------------------------------------------------------- pieces

    def rows(self) -> Iterator[tuple[Hashable, Any]]:
        return super().items()

    def load_whole(self, entry: Hashable, value: Any) -> None:
        """Restore a list that was written as one value: by an older release, or by a program that writes savepoints."""
        self.load((entry, _TAIL), value)


def joined(pieces: dict[int, Any]) -> list[Any]:
    """The list of a snapshot's pieces, by number."""
    stored = pieces.get(_TAIL, [])
    tail = stored[1] if type(stored) is tuple else stored
    full = [pieces[number] for number in sorted(pieces) if number != _TAIL]
    return [element for piece in [*full, tail] for element in piece]
