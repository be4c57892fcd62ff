"""Stateless operators: map, flat_map, filter, and the tail of a chain, a sink's writer with one pre-commit per epoch.

They work block by block, which is where their speed comes from; functions that follow one another share one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation
from penstock.functions.connectors import Sink, SinkWriter, WriterContext
from penstock.operators.base import Operator
from penstock.operators.fused import Kind, fused_loop
from penstock.operators.positions import reads_by_position
from penstock.records import Block, Columns, Rows
from penstock.records.convert import makes_rows, named_rows, to_rows, to_tuples


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


class ElementwiseOperator(FunctionOperator):
    """Runs a function on one record after the other; those of the operators that follow it in the chain run in the same loop
    (`fused_loop`), if nothing is between them."""

    kind: Kind

    def __init__(self, function: Any, input_type: TypeInformation | None = None) -> None:
        super().__init__(function, input_type)
        self.fused: list[ElementwiseOperator] = [self]  # this one, and those that it calls

    def process(self, input: int, block: Block) -> None:
        fused = self.fused
        kinds, functions = tuple([operator.kind for operator in fused]), [operator.bound() for operator in fused]
        rows, names = self._records(block, functions[: self._readers(kinds)])
        self.ctx.metrics.records_in += len(rows)
        values, stamps, left = fused_loop(kinds, rows.timestamps is not None)(
            rows.values, rows.timestamps, functions, partial(self._failed, names), fused[-1].emit, self.ctx.block_size
        )
        for operator, behind, count in zip(fused, fused[1:], left, strict=False):  # the last one counts what it emits
            operator.ctx.metrics.records_out += count
            behind.ctx.metrics.records_in += count
        if names is not None and set(kinds) == {"filter"}:
            values = named_rows(names, values)
        fused[-1].emit(values, stamps)

    def _records(self, block: Block, readers: list[Callable[[Any], Any]]) -> tuple[Rows, list[str] | None]:
        """The records, and the names of Rows that are tuples for now: those who get them cannot tell."""
        if isinstance(block, Columns) and makes_rows(block.batch, self.input_type):
            width = block.batch.num_columns
            if all(reads_by_position(reader, width) for reader in readers):
                return to_tuples(block, self.input_type)
        return to_rows(block, self.input_type), None

    @staticmethod
    def _readers(kinds: tuple[Kind, ...]) -> int:
        """So many functions get the records as they came: filters, and the first that makes something else of them."""
        return next((place for place, kind in enumerate(kinds) if kind != "filter"), len(kinds)) + 1

    def _failed(self, names: list[str] | None, place: int, error: Exception, value: Any) -> None:
        operator = self.fused[place]
        if names is not None and place < self._readers(tuple([one.kind for one in self.fused])):
            value = named_rows(names, [value])[0]
        operator.fail(error, operator.method, value, has_record=True)


class MapOperator(ElementwiseOperator):
    """Runs a MapFunction."""

    method = kind = "map"


class FilterOperator(ElementwiseOperator):
    """Runs a FilterFunction."""

    method = kind = "filter"


class FlatMapOperator(ElementwiseOperator):
    """Runs a FlatMapFunction."""

    method = kind = "flat_map"


_FUSED: Final = (MapOperator, FilterOperator, FlatMapOperator)
_FLAT_MAPS: Final = 4  # in one loop: each is a loop in it, and Python nests twenty blocks


def fuse(operator: Operator, following: Operator) -> None:
    """Let `operator` run the function of `following`, which takes what it makes, as it is and alone. Called from the end of a
    chain to its head."""
    if isinstance(operator, ElementwiseOperator) and isinstance(following, ElementwiseOperator):
        together = [operator, *following.fused]
        if type(following) in _FUSED and sum(one.kind == "flat_map" for one in together) <= _FLAT_MAPS:
            operator.fused = together


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
