"""Intervals of many keys, and which of them are one because they overlap or touch: no Python object per interval.

rows      b [9 19)   a [4 14)   a [30 40)   a [0 10)
sorted    a [0 10)   a [4 14) │ a [30 40) │ b [9 19)         by key and start
groups        0          0    │     1     │     2            a new one begins behind all ends so far
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.records.dense_groups import Longs
from penstock.records.key_numbers import dense


@dataclass(frozen=True, slots=True)
class TouchingGroups:
    """In the order of keys and starts: of every group its first row, and from where to where it reaches."""

    of_rows: Longs  # the group of each row, in the order of the rows
    first_rows: Longs
    starts: Longs
    ends: Longs


def touching(keys: Longs, size: int, starts: Longs, ends: Longs) -> TouchingGroups:
    """The groups of at least one row. `keys` are numbers from 0 and less than `size`."""
    order = sorted_by(keys, size, starts)
    own, begins, until = keys[order], starts[order], ends[order]
    other = np.empty(len(order), np.bool_)  # another key than in the row before
    other[0] = True
    np.not_equal(own[1:], own[:-1], out=other[1:])
    reach = _running_max(until, other)
    new = other.copy()
    new[1:] |= begins[1:] > reach[:-1]
    firsts = np.flatnonzero(new)
    of_rows = np.empty(len(order), np.int64)
    of_rows[order] = np.cumsum(new) - 1
    lasts = np.append(firsts[1:], len(order)) - 1
    return TouchingGroups(of_rows, order[firsts], begins[firsts], reach[lasts])


def sorted_by(keys: Longs, size: int, times: Longs) -> Longs:
    """The rows in the order of keys, times and their own. One word holds all three wherever they are short enough: words sort many
    times as fast as rows of columns."""
    rows = len(keys)
    low, span = int(times.min()), int(times.max()) - int(times.min()) + 1
    bits = (rows - 1).bit_length()
    if size * span << bits >= 2**63 and size > rows:
        keys, size = dense(keys)
    if size * span << bits >= 2**63:
        return np.lexsort((times, keys))
    words = (keys * span + (times - low)) << bits
    words |= np.arange(rows)
    words.sort()
    words &= (1 << bits) - 1
    return words


def _running_max(values: Longs, new: npt.NDArray[np.bool_]) -> Longs:
    """The largest value so far, which begins again in rows that are `new`."""
    if np.all((values[1:] >= values[:-1]) | new[1:]):
        return values
    segments = np.cumsum(new) - 1
    low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
    if span * (int(segments[-1]) + 1) < 2**63:
        above = segments * span  # higher than all of the segments before
        reached: Longs = np.maximum.accumulate(values - low + above) - above + low
        return reached
    distinct, places = np.unique(values, return_inverse=True)
    above = segments * len(distinct)
    found: Longs = distinct[np.maximum.accumulate(places + above) - above]
    return found
