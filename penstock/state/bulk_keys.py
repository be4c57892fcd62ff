"""Key groups of many keys of Python at once, where they can be a column: a fraction of what asking each one costs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.column_keys import key_groups_of_columns

_MANY: Final = 64  # what a column costs by itself
# Exact types only: True is not 1 as a column.
_COLUMNS: Final[dict[type, pa.DataType]] = {int: pa.int64(), str: pa.string()}


def key_groups_in_bulk(keys: list[Any], max_parallelism: int) -> npt.NDArray[np.int32] | None:
    """What `key_group` gives for each key, if all are whole numbers or all are text; None: ask for each."""
    kind = _COLUMNS.get(type(keys[0])) if len(keys) >= _MANY else None
    if kind is None or len(set(map(type, keys))) > 1:
        return None
    try:
        column = pa.array(keys, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):  # more than 64 bits, half a character
        return None
    if not isinstance(column, pa.Array):  # more text than one array holds comes in pieces
        return None
    return key_groups_of_columns([column], max_parallelism)
