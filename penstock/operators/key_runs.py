"""Rows put in the order of their keys, so that two such runs meet without a look-up for each row.

    run      keys  3 3 7 7 7 9      groups  3 │ 7 │ 9       starts  0 2 5
    other    keys  1 7 7 9          groups  1 │ 7 │ 9       starts  0 1 3
    groups in common: 7 (3 × 2 pairs), 9 (1 × 1 pair)

Pairs are numbered and made a part at a time: a key that a thousand rows of each side have is a million pairs, of which no more
than a part is ever in memory. Where a row meets only some rows of its key, those with a number (a time, say) between two
bounds, the rows of a key are in the order of that number and the bounds are looked up.

Sorting: rows are numbered in the lower bits of their keys and sorted as plain numbers, which is several times as fast as an
`argsort` and always gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.key_codes import Codes, KeyCodes

Numbers: TypeAlias = npt.NDArray[np.int64]
Pairs: TypeAlias = Iterator[tuple[Numbers, Numbers]]  # (rows of one run, rows of the other), a part at a time

_WIDEST: Final = 1 << 62


class KeyRun:
    """An order of some rows: by key, and of one key by `within` if that is given. Neither is changed."""

    def __init__(self, keys: Sequence[pa.Array], within: Numbers | None = None) -> None:
        """At least one row."""
        self.keys = KeyCodes(keys)
        codes = self.keys.codes
        if within is None:
            self.order, ranked = _sorted(codes)
        else:
            by_number = np.argsort(within, kind="stable")
            order, ranked = _sorted(codes[by_number])
            self.order = by_number[order]
        new = np.flatnonzero(ranked[1:] != ranked[:-1]) + 1
        self.starts: Numbers = np.concatenate(([0], new))
        self.counts: Numbers = np.diff(np.append(self.starts, len(ranked)))
        self.groups = ranked[self.starts]  # the codes that there are, ascending
        if within is not None:
            self._number(within[self.order])

    def _number(self, within: Numbers) -> None:
        """One ascending number for each row, of its group and its place within it."""
        lowest, highest = int(within.min()), int(within.max())
        self._lowest, self._highest, self._values = lowest, highest, None
        self._span = highest - lowest + 1
        if (self._span + 1) * len(self.groups) >= _WIDEST:  # far apart: their ranks are as good
            self._values = np.unique(within)
            self._span = len(self._values)
        self._numbers = np.repeat(np.arange(len(self.groups)), self.counts) * (self._span + 1) + self._below(within)

    def _below(self, numbers: Numbers) -> Numbers:
        """How far from the beginning of a group each number is, or would be."""
        if self._values is not None:
            return np.searchsorted(self._values, numbers, "left")
        places: Numbers = np.clip(numbers, self._lowest, self._highest) - self._lowest
        places[numbers > self._highest] = self._span
        return places

    def _up_to(self, numbers: Numbers) -> Numbers:
        """The same of what comes right behind each number."""
        if self._values is not None:
            return np.searchsorted(self._values, numbers, "right")
        places: Numbers = np.clip(numbers, self._lowest, self._highest) - self._lowest + 1
        places[numbers < self._lowest] = 0
        return places

    def between(self, groups: Numbers, lowest: Numbers, highest: Numbers) -> tuple[Numbers, Numbers]:
        """Of each group the rows whose number is from the lowest to the highest beside it: the place of the first in the
        order, and how many there are."""
        begin = groups * (self._span + 1)
        first = np.searchsorted(self._numbers, begin + self._below(lowest), "left")
        last = np.searchsorted(self._numbers, begin + self._up_to(highest), "left")
        return first, np.maximum(last - first, 0)


def _sorted(codes: Codes) -> tuple[Numbers, Codes]:
    """The order of the codes, of equal ones the earlier first, and the codes in it."""
    rows = len(codes)
    bits = (rows - 1).bit_length()
    lowest, highest = int(codes.min()), int(codes.max())
    if (highest - lowest) << bits >= _WIDEST:
        order = np.argsort(codes, kind="stable")
        return order, codes[order]
    numbered = ((codes - lowest) << bits) | np.arange(rows)
    numbered.sort()
    return numbered & ((1 << bits) - 1), (numbered >> bits) + lowest


def all_pairs(one: KeyRun, other: KeyRun, most: int) -> Pairs:
    """Every row with every row of its key, at most so many pairs at a time."""
    mine, theirs = _in_common(one.groups, other.groups)
    made = _expanded(one.starts[mine], one.counts[mine], other.starts[theirs], other.counts[theirs], most)
    return _equal(one, other, ((one.order[a], other.order[b]) for a, b in made))


def pairs_within(one: KeyRun, other: KeyRun, lowest: Numbers, highest: Numbers, most: int) -> Pairs:
    """Every row with those rows of its key whose number is from the row's `lowest` to its `highest`."""
    mine, theirs = _in_common(one.groups, other.groups)
    places = _ranges(one.starts[mine], one.counts[mine])
    rows = one.order[places]
    first, counts = other.between(np.repeat(theirs, one.counts[mine]), lowest[rows], highest[rows])
    made = _expanded(places, np.ones_like(places), first, counts, most)
    return _equal(one, other, ((one.order[a], other.order[b]) for a, b in made))


def _in_common(one: Codes, other: Codes) -> tuple[Numbers, Numbers]:
    """Where the codes are that both have; each is ascending. The shorter one is looked up in the longer."""
    if len(one) > len(other):
        theirs, mine = _in_common(other, one)
        return mine, theirs
    if not len(one):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = np.searchsorted(other, one, "left")
    places[places == len(other)] = 0
    found = np.flatnonzero(other[places] == one)
    return found, places[found]


def _ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """start, start + 1, … for each start, so many as its count says, one behind the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    ranges: Numbers = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return ranges


def _expanded(starts: Numbers, counts: Numbers, other_starts: Numbers, other_counts: Numbers, most: int) -> Pairs:
    """All pairs of ranges of places, range by range."""
    sizes = counts * other_counts
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, most):
        stop = min(start + most, total)
        first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left") + 1
        begins = ends[first:last] - sizes[first:last]
        lengths = np.minimum(ends[first:last], stop) - np.maximum(begins, start)
        group = np.repeat(np.arange(first, last), lengths)
        number = np.arange(start, stop) - np.repeat(begins, lengths)
        here, there = np.divmod(number, other_counts[group])
        yield starts[group] + here, other_starts[group] + there


def _equal(one: KeyRun, other: KeyRun, pairs: Pairs) -> Pairs:
    """Without those whose codes are equal and whose keys are not."""
    if one.keys.exact and other.keys.exact:
        yield from pairs
        return
    for rows, other_rows in pairs:
        same = one.keys.same(rows, other.keys, other_rows)
        if not same.all():
            rows, other_rows = rows[same], other_rows[same]
        if len(rows):
            yield rows, other_rows
