"""Formats that read many messages at once into Arrow columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.common.serialization import DeserializationSchema


class ColumnarDeserializationSchema(DeserializationSchema):
    """May read a whole block of messages at once; `deserialize` stays the truth for single ones."""

    @abstractmethod
    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row for each message, in order; None if that cannot be done: the caller then reads them one by one."""
