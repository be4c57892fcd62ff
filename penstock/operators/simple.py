"""Stateless operators: map, flat_map, filter, and the tail of a chain, a sink's writer with one pre-commit per epoch.

They work block by block, which is where their speed comes from. What a function gives is a value (`penstock.common.values`):
it is looked at the moment it is given, because the next operator sees it only when the block is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.values import ATOMS, own
from penstock.functions.connectors import Sink, SinkWriter, WriterContext
from penstock.operators.base import Operator
from penstock.records import Block
from penstock.records.convert import to_rows


class FunctionOperator(Operator):
    """An operator around one user function, given as a function object or a plain callable."""

    method = "map"

    def __init__(self, function: Any, input_type: TypeInformation | None = None) -> None:
        super().__init__()
        self.function = function
        self.input_type = input_type

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def bound(self) -> Callable[[Any], Any]:
        """The method to call for each record, or the callable itself."""
        method: Callable[[Any], Any] = getattr(self.function, self.method, self.function)
        return method


class MapOperator(FunctionOperator):
    """Runs a MapFunction."""

    method = "map"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        out: list[Any] = []
        append, atoms = out.append, ATOMS
        value: Any = None
        try:
            for value in rows.values:  # the error names the record it stopped at
                result = function(value)
                append(result if type(result) in atoms else own(result))
        except Exception as error:
            self.fail(error, "map", value, has_record=True)
        self.emit(out, rows.timestamps)


class FilterOperator(FunctionOperator):
    """Runs a FilterFunction."""

    method = "filter"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        keep: list[int] = []
        out: list[Any] = []
        index, value = 0, None
        try:
            for index, value in enumerate(rows.values):
                if function(value):
                    keep.append(index)
                    out.append(value if type(value) in ATOMS else own(value))
        except Exception as error:
            self.fail(error, "filter", value, has_record=True)
        stamps = rows.timestamps
        self.emit(out, stamps if stamps is None or len(keep) == len(rows) else [stamps[i] for i in keep])


class FlatMapOperator(FunctionOperator):
    """Runs a FlatMapFunction."""

    method = "flat_map"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        out: list[Any] = []
        append, atoms = out.append, ATOMS
        given = rows.timestamps
        stamps: list[int | None] = []
        value: Any = None
        try:
            for index, value in enumerate(rows.values):
                before = len(out)
                results = function(value)
                if results is not None:
                    for result in results:
                        append(result if type(result) in atoms else own(result))
                if given is not None:
                    stamps.extend([given[index]] * (len(out) - before))
        except Exception as error:
            self.fail(error, "flat_map", value, has_record=True)
        self.emit(out, None if given is None else stamps)


class SinkOperator(Operator):
    """Runs the writer of a sink, and gives what it is to commit to the snapshot."""

    def __init__(self, sink: Sink, input_type: TypeInformation | None = None) -> None:
        super().__init__()
        self.sink = sink
        self.input_type = input_type
        self.columnar = sink.accepts_columns
        self._writer: SinkWriter | None = None

    def user_functions(self) -> Iterable[Any]:
        return () if self._writer is None or self._writer.function is None else (self._writer.function,)

    def checkpointed_functions(self) -> Iterable[Any]:
        return () if self._writer is None else (self._writer, *self.user_functions())

    def open(self) -> None:
        self._writer = self.sink.create_writer(
            WriterContext(
                job_id=self.ctx.job_id,
                sink_id=self.ctx.operator_id,
                subtask=self.ctx.subtask,
                parallelism=self.ctx.parallelism,
                storage=self.ctx.storage,
                processing_time=self.ctx.processing_time,
                current_watermark=lambda: self.current_watermark,
            )
        )
        super().open()

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        assert self._writer is not None
        self._writer.begin_epoch(epoch, attempt)

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        assert self._writer is not None
        if not self.sink.accepts_columns:
            block = to_rows(block, self.input_type)
        try:
            self._writer.write(block)
        except Exception as error:
            self.fail(error, "writing to the sink", None)

    def end_input(self) -> None:
        assert self._writer is not None
        self._writer.end_input()

    def prepare_commit(self) -> list[Any]:
        assert self._writer is not None
        try:
            return self._writer.prepare_commit()
        except Exception as error:
            self.fail(error, "pre-commit of the sink", None)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            super().close()
            self._writer = None
