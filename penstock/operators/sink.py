"""The tail of a chain: a sink's writer, one pre-commit per epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.functions.connectors import Sink, SinkWriter, WriterContext
from penstock.operators.base import Operator
from penstock.records import Block
from penstock.records.convert import to_rows


class SinkOperator(Operator):
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
