"""Stateless operators: map, flat_map, filter, and the tail of a chain, a sink's writer with one pre-commit per epoch.

They work block by block, which is where their speed comes from; functions that follow one another share one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import TypeInformation
from penstock.functions.connectors import Sink, SinkWriter, WriterContext
from penstock.operators.base import Operator
from penstock.operators.calculations import calculated
from penstock.operators.fused import Kind, fused_loop
from penstock.operators.lean_rows import LeanRows, Reader, are_few, lean_rows, shown
from penstock.operators.positions import gives_plain
from penstock.records import Block, Columns, Rows
from penstock.records.convert import named_rows, to_rows

# (values, timestamps, how many have left each function)
_Made: TypeAlias = tuple[list[Any], list[int | None] | None, tuple[int, ...]]


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
        self.ctx.metrics.records_in += len(block)
        done = calculated(block, self.input_type, kinds, functions) if isinstance(block, Columns) else None
        if done is None:
            values, stamps, left = self._called(block, kinds, functions)
        elif done.steps == len(kinds):
            values, stamps, left = done.values, done.timestamps, done.left
        else:
            failed = partial(self._failed, None, block)
            values, stamps, others = self._run(
                Rows(done.values, done.timestamps), kinds[done.steps :], functions[done.steps :], failed, ()
            )
            left = done.left + others
        for operator, behind, count in zip(fused, fused[1:], left, strict=False):  # the last one counts what it emits
            operator.ctx.metrics.records_out += count
            behind.ctx.metrics.records_in += count
        fused[-1].emit(values, stamps)

    def _called(self, block: Block, kinds: tuple[Kind, ...], functions: list[Callable[[Any], Any]]) -> _Made:
        """What the functions give, each called for each record."""
        rows, lean, functions[0] = self._taken(block, kinds, functions)
        plain = _plain(kinds, functions) if lean is not None and lean.plain else ()
        values, stamps, left = self._run(rows, kinds, functions, partial(self._failed, lean, block), plain)
        if lean is not None and set(kinds) == {"filter"}:
            values = named_rows(lean.names, values)
        return values, stamps, left

    def _run(
        self,
        rows: Rows,
        kinds: tuple[Kind, ...],
        functions: list[Callable[[Any], Any]],
        failed: Callable[[int, Exception, Any], None],
        plain: tuple[bool, ...],
    ) -> _Made:
        """The loop for the last functions of the chain."""
        before = len(self.fused) - len(kinds)

        def fail(place: int, error: Exception, value: Any) -> None:
            failed(before + place, error, value)

        loop = fused_loop(kinds, rows.timestamps is not None, plain)
        return loop(rows.values, rows.timestamps, functions, fail, self.fused[-1].emit, self.ctx.block_size)

    def _taken(
        self, block: Block, kinds: tuple[Kind, ...], functions: list[Callable[[Any], Any]]
    ) -> tuple[Rows, LeanRows | None, Callable[[Any], Any]]:
        """The records of a block, and what to call with each of them in the place of the first function."""
        lean = None
        if not are_few(block):
            readers = [Reader(function) for function in functions[: self._readers(kinds)]]
            lean = lean_rows(block, self.input_type, readers, whole=kinds[0] == "filter")
        return to_rows(block, self.input_type) if lean is None else lean.rows, lean, functions[0]

    @staticmethod
    def _readers(kinds: tuple[Kind, ...]) -> int:
        """So many functions get the records as they came: filters, and the first that makes something else of them."""
        return next((place for place, kind in enumerate(kinds) if kind != "filter"), len(kinds)) + 1

    def _failed(self, lean: LeanRows | None, block: Block, place: int, error: Exception, value: Any) -> None:
        operator = self.fused[place]
        if place < self._readers(tuple([one.kind for one in self.fused])):
            value = shown(lean, block, self.input_type, value)
        operator.fail(error, operator.method, value, has_record=True)


def _plain(kinds: tuple[Kind, ...], functions: list[Callable[[Any], Any]]) -> tuple[bool, ...]:
    """Of records that cannot be changed, and of what each function makes of them, whether it surely cannot be changed."""
    plain = [True]
    for kind, function in zip(kinds, functions, strict=True):
        plain.append(plain[-1] and (kind == "filter" or (kind == "map" and gives_plain(function))))
    return tuple(plain)


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
