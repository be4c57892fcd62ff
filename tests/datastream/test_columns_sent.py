"""Which columns go through an exchange: those that somebody behind it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Types
from penstock.common.watermark_strategy import ColumnTimestampAssigner, WatermarkStrategy
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine import exchange_rows
from penstock.graph.partitioner import Hash, Partitioner
from penstock.operators.routing import HashRouter, Router, create_router
from penstock.operators.selectors import ColumnKeySelector
from penstock.protocol.events import Data
from penstock.records import Columns

PAYMENT = Types.ROW_NAMED(["note", "user", "amount", "at"], [Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()])
DATA = [("x", "ann", 3, 1000), ("y", "bob", 1, 2000), ("z", "ann", 4, 9000), ("late", "ann", 5, 1000)]
BY_COLUMN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ColumnTimestampAssigner("at"))
BY_RECORD = replace(BY_COLUMN, per_record=True)
LATE = OutputTag("late", PAYMENT)


def program(env: StreamExecutionEnvironment, *, late: bool) -> Any:
    payments = env.from_collection(DATA, PAYMENT).assign_timestamps_and_watermarks(BY_RECORD)
    windowed = payments.key_by("user").window(TumblingEventTimeWindows(5000, 0))
    return (windowed.side_output_late_data(LATE) if late else windowed).agg(n=count(), total=sum_("amount"))


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)


@pytest.mark.parametrize(("late", "sent"), [(False, {("user", "amount")}), (True, {("note", "user", "amount", "at")})])
def test_only_columns_that_are_read_are_sent_and_late_records_are_whole(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch, late: bool, sent: set[tuple[str, ...]]
) -> None:
    seen: set[tuple[str, ...]] = set()

    def watched(partitioner: Partitioner, **options: Any) -> Router:
        send = options["send"]

        def look(target: int, event: Any) -> None:
            if isinstance(event, Data) and isinstance(event.block, Columns) and isinstance(partitioner, Hash):
                seen.add(tuple(event.block.batch.schema.names))
            send(target, event)

        return create_router(partitioner, **{**options, "send": look})

    monkeypatch.setattr("penstock.operators.wiring.create_router", watched)
    result = program(env, late=late)
    if late:
        with result.get_side_output(LATE).execute_and_collect() as records:
            assert list(map(tuple, records)) == [DATA[-1]]
    else:
        with result.execute_and_collect() as records:
            found = sorted(map(tuple, records))
        assert found == [("ann", 0, 5000, 1, 3), ("ann", 5000, 10000, 1, 4), ("bob", 0, 5000, 1, 1)]
    assert seen == sent


@pytest.mark.parametrize("names", [("user", "amount"), ("user", "nobody")])
def test_a_router_leaves_out_what_is_not_read_unless_something_is_missing(names: tuple[str, ...]) -> None:
    batch = pa.record_batch({"note": ["x", "y"], "user": [1, 2], "amount": [3, 4]})
    sent: list[Columns] = []

    def send(target: int, event: Any) -> None:
        for kind, payload in exchange_rows.encode_event(event):
            decoded = exchange_rows.decode_event(kind, payload)
            assert isinstance(decoded, Data)
            assert isinstance(decoded.block, Columns)
            sent.append(decoded.block)

    router = HashRouter(ColumnKeySelector(("user",)), 1, 128, None, send, 100)
    router.reads = names
    router.route(Columns(batch, np.array([5, 6])))
    router.flush()
    (block,) = sent
    assert block.batch.schema.names == (["user", "amount"] if "amount" in names else ["note", "user", "amount"])
    assert block.timestamps is not None
    assert block.timestamps.tolist() == [5, 6]
