"""The folder of each record that `FileSink` writes: by columns, by a function, by the time, or all in one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any, TypeAlias
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from penstock.connectors.sink_values import as_mapping, to_batch
from penstock.errors import BadRecordError, ConfigurationError
from penstock.records import Block, Columns, Rows
from penstock.records.arrow_columns import take_rows


class BucketAssigner:
    """Chooses the folder by the time at which records are written, or none. For a choice by the record give `FileSink` column
    names or a function.

    Example:

        FileSink.text("out", partition_by=BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd"))
    """

    def bucket(self, processing_time: int) -> str:
        """The folder of what is written at this time (milliseconds since 1970); "" is the sink's own."""
        return ""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """PyFlink's name: all files in the sink's folder."""
        return BucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """PyFlink's name: a folder for each hour, or what `format_str` says in Java's letters (yyyy MM dd HH mm ss). The time zone
        is the host's unless one is named."""
        return _ByTime(format_str, timezone_id)


_PARTS = re.compile(r"'[^']*'|" + "|".join(f"{letter}+" for letter in "yMdHmsD") + r"|[A-Za-z]|[^A-Za-z']")
_JAVA = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "DDD": "%j"}


class _ByTime(BucketAssigner):
    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        self._format = "".join(_strftime(part, format_str) for part in _PARTS.findall(format_str))
        try:
            self._zone: tzinfo | None = None if timezone_id is None else ZoneInfo(timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(f"BucketAssigner: {timezone_id!r} is not the name of a time zone") from error

    def bucket(self, processing_time: int) -> str:
        return datetime.fromtimestamp(processing_time / 1000, self._zone).strftime(self._format)


def _strftime(part: str, whole: str) -> str:
    if part.startswith("'"):
        return part.strip("'").replace("%", "%%") or "'"
    if not part[0].isalpha():
        return part.replace("%", "%%")
    if part not in _JAVA:
        raise ConfigurationError(
            f"BucketAssigner: {part!r} in {whole!r} is none of {', '.join(_JAVA)}; put letters that stand for themselves in quotes"
        )
    return _JAVA[part]


Partitioning: TypeAlias = Sequence[str] | Callable[[Any], str] | BucketAssigner

_NULL = "__HIVE_DEFAULT_PARTITION__"


class Partitions:
    """Splits blocks by folder, keeping the order of the values inside each. `schema` is the sink's, if it has one."""

    def __init__(self, partition_by: Partitioning | None, schema: pa.Schema | None) -> None:
        if isinstance(partition_by, str):
            raise ConfigurationError(f"FileSink: partition_by={partition_by!r} must be a list of column names")
        self._assigner = partition_by if isinstance(partition_by, BucketAssigner) else None
        self._function: Callable[[Any], str] | None = None
        self.columns: list[str] = []
        if callable(partition_by):
            self._function = partition_by
        elif partition_by is not None and not isinstance(partition_by, BucketAssigner):
            self.columns = list(partition_by)
        self._schema = schema
        if schema is not None:
            missing = [column for column in self.columns if column not in schema.names]
            if missing or (self.columns and len(self.columns) == len(schema)):
                raise ConfigurationError(
                    f"FileSink: partition_by={self.columns} must be some, not all, of the columns {schema.names}"
                )

    @property
    def partitioned(self) -> bool:
        """True if records go to several folders."""
        return self._assigner is not None or self._function is not None or bool(self.columns)

    def split(self, block: Block, processing_time: int) -> Iterator[tuple[str, Block]]:
        """The parts of a block with the folder each goes to, if it is written at this time."""
        if not self.partitioned:
            yield "", block
        elif self._assigner is not None:
            folder = self._assigner.bucket(processing_time)
            yield _checked(folder, block) if folder else "", block
        elif self._function is not None:
            yield from self._by_function(block, self._function)
        elif isinstance(block, Columns):
            yield from self._by_columns(block.batch)
        elif self._schema is not None:
            yield from self._by_columns(to_batch(block, self._schema, "FileSink"))
        else:
            yield from self._by_fields(block)

    def _by_function(self, block: Block, function: Callable[[Any], str]) -> Iterator[tuple[str, Block]]:
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        for folder, rows in _grouped([_checked(function(value), value) for value in values]).items():
            if isinstance(block, Columns):
                yield folder, Columns(take_rows(block.batch, pa.array(rows)))
            else:
                yield folder, Rows([values[row] for row in rows])

    def _by_columns(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Block]]:
        missing = [column for column in self.columns if column not in batch.schema.names]
        if missing:
            raise BadRecordError(
                f"FileSink: cannot partition by {missing}: a batch with the columns {batch.schema.names} came"
            )
        keys = zip(*(batch.column(column).to_pylist() for column in self.columns), strict=True)
        rest = batch.drop_columns(self.columns)
        for folder, rows in _grouped([self._folder(key) for key in keys]).items():
            yield folder, Columns(take_rows(rest, pa.array(rows)))

    def _by_fields(self, block: Rows) -> Iterator[tuple[str, Block]]:
        parts: dict[str, list[Any]] = {}
        for value in block.values:
            try:
                fields = as_mapping(value, None)
                key = tuple(fields.pop(column) for column in self.columns)
            except (ValueError, KeyError) as error:
                raise BadRecordError(
                    f"FileSink: cannot partition the {type(value).__name__} {value!r:.200} by {self.columns}: {error}"
                ) from error
            parts.setdefault(self._folder(key), []).append(fields)
        for folder, values in parts.items():
            yield folder, Rows(values)

    def _folder(self, key: tuple[Any, ...]) -> str:
        return "/".join(
            f"{quote(name, safe='')}={_quoted(value)}" for name, value in zip(self.columns, key, strict=True)
        )


def _quoted(value: Any) -> str:
    return _NULL if value is None or value == "" else quote(str(value), safe="")


def _grouped(folders: list[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for row, folder in enumerate(folders):
        groups.setdefault(folder, []).append(row)
    return groups


def _checked(folder: object, value: Any) -> str:
    """A folder below the base, and not one that readers skip."""
    if not isinstance(folder, str) or any(not part or part[0] in "._" for part in folder.split("/")):
        raise BadRecordError(
            f"FileSink: the partition function gave {folder!r} for {value!r:.200}; it must give a relative folder "
            "whose names do not start with '.' or '_'"
        )
    return folder
