"""Blocks: the unit in which records move. Objects travel as `Rows`, typed and Spark streams as `Columns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Block", "Columns", "PunctuatedRows", "Rows", "SideRows", "TimestampArray"]

TimestampArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class Rows:
    """Python objects with optional event timestamps in milliseconds (None for a record without one)."""

    values: list[Any]
    timestamps: list[int | None] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class PunctuatedRows(Rows):
    """Rows of a source that knows its own watermark: it comes right behind them. Only readers make these."""

    watermark: int = -(2**63)


@dataclass(slots=True)
class SideRows(Rows):
    """Rows for a side output of the source, such as what could not be read. Only readers make these."""

    tag: str = ""


@dataclass(slots=True)
class Columns:
    """An Arrow record batch with optional event timestamps (milliseconds, one per row)."""

    batch: pa.RecordBatch
    timestamps: TimestampArray | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)


Block: TypeAlias = Rows | Columns
