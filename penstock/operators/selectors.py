"""Key selectors: of Python values, or of columns by name so that a columnar stream need not be materialised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.datastream.functions import KeySelector
from penstock.errors import JobDefinitionError


@dataclass(frozen=True, slots=True)
class ColumnKeySelector:
    """key_by("user") or key_by(["user", "page"]): on rows the field (or a tuple of fields), on columns the columns."""

    names: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        if len(self.names) == 1:
            return self._field(value, self.names[0])
        return tuple(self._field(value, name) for name in self.names)

    @staticmethod
    def _field(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return value[name]
        try:
            return value[name]
        except (TypeError, KeyError, ValueError):
            return getattr(value, name)

    def columns_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(batch.schema.get_field_index(name)) for name in self.names]


def as_selector(key: Any) -> Callable[[Any], Any]:
    """A KeySelector, a callable, a column name or a list of column names."""
    if isinstance(key, str):
        return ColumnKeySelector((key,))
    if isinstance(key, Sequence) and key and all(isinstance(name, str) for name in key):
        return ColumnKeySelector(tuple(key))
    if isinstance(key, KeySelector):
        return key.get_key
    if callable(key):
        function: Callable[[Any], Any] = key
        return function
    raise JobDefinitionError(
        f"key_by takes a function, a KeySelector, a column name or a list of column names, not {key!r}"
    )
