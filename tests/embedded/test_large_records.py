"""Records of 100 kB and more: blocks are cut by bytes, wherever they are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.base import Source
from penstock.connectors.datagen import ColumnGenerator, DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.connectors.program import CollectionSource
from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.settings import JobSettings
from penstock.errors import BadRecordError
from penstock.graph.partitioner import Broadcast, Hash, Partitioner, Rebalance
from penstock.operators.routing import create_router
from penstock.protocol.events import Barrier, Data, Event
from penstock.records import Block, Columns, Rows
from penstock.records.codec import encoded_blocks
from penstock.records.sizes import BLOCK_BYTES, about, bytes_of, cut, gathered, within
from penstock.testing import EmbeddedJob, ListSink
from tests.embedded.jobs import CountOperator, Pipeline, key_of, master_of, memory_storage

LARGE = 1 << 20


def large(index: int, size: int = LARGE) -> tuple[str, int, bytes]:
    """Each has bytes of its own: pickle would write one object once."""
    return "abc"[index % 3], index, index.to_bytes(4, "big") * (size // 4)


def payload_of(block: Block) -> int:
    """What is in it, counted one by one."""
    if isinstance(block, Columns):
        return sum(len(value) for value in block.batch.column("data").to_pylist())
    return sum(len(value[2]) for value in block.values)


def numbers_of(blocks: list[Block]) -> list[int]:
    return [
        number
        for block in blocks
        for number in (
            block.batch.column("number").to_pylist() if isinstance(block, Columns) else [v[1] for v in block.values]
        )
    ]


def columns(count: int, size: int = LARGE) -> Columns:
    rows = [large(index, size) for index in range(count)]
    batch = pa.record_batch({"number": [r[1] for r in rows], "data": pa.array([r[2] for r in rows], pa.large_binary())})
    return Columns(batch, np.arange(count, dtype=np.int64))


def rows(count: int, size: int = LARGE) -> Rows:
    return Rows([large(index, size) for index in range(count)], list(range(count)))


@pytest.mark.parametrize("make", [rows, columns])
def test_a_block_is_cut_by_records_and_by_bytes(make: Any) -> None:
    parts = list(cut(make(40), 1000))
    assert numbers_of(parts) == list(range(40))
    assert all(0 < payload_of(part) <= BLOCK_BYTES for part in parts)
    assert len(parts) <= 6, "not smaller than needed"
    assert [t for part in parts if part.timestamps is not None for t in part.timestamps] == list(range(40))
    assert [len(part) for part in cut(make(10, 8), 4)] == [4, 4, 2]
    assert [len(part) for part in cut(make(3), 1000, limit=1)] == [1, 1, 1], "a record is never cut"


def test_large_among_small_is_cut_where_the_bytes_are_known() -> None:
    """The estimate looks at a few values and may miss them; the exchange does not."""
    values = [large(n, LARGE if n % 100 == 1 else 8) for n in range(4000)]
    block = Rows(values, None)
    assert about(values) < BLOCK_BYTES < payload_of(block)
    encoded = list(encoded_blocks(block))
    assert all(len(payload) <= BLOCK_BYTES for _, payload in encoded)
    decoded = [event.block for e in encoded if isinstance(event := decode_event(*e), Data)]
    assert numbers_of(decoded) == list(range(4000))


@pytest.mark.parametrize("make", [rows, columns])
def test_no_exchange_row_is_larger_than_a_block_may_be(make: Any) -> None:
    encoded = list(encode_event(Data(make(40))))
    assert len(encoded) > 2
    assert max(len(payload) for _, payload in encoded) <= BLOCK_BYTES
    blocks = [event.block for e in encoded if isinstance(event := decode_event(*e), Data)]
    assert numbers_of(blocks) == list(range(40))
    assert [int(t) for block in blocks for t in block.timestamps] == list(range(40))
    assert len(list(encode_event(Barrier(7)))) == 1


@pytest.mark.parametrize("partitioner", [Hash(key_of), Rebalance(), Broadcast()])
def test_an_output_gathers_no_more_bytes_than_a_block_may_have(partitioner: Partitioner) -> None:
    sent: list[tuple[int, Event]] = []
    router = create_router(
        partitioner,
        upstream=0,
        targets=range(2),
        max_parallelism=8,
        input_type=None,
        send=lambda target, event: sent.append((target, event)),
        block_size=10_000,
    )
    most = 0
    for index in range(60):
        router.route(Rows([large(index)], None))
        most = max(most, *(sum(len(v[2]) for v in waiting.values) for waiting in router._rows.values()), 0)
    router.flush()
    assert most <= BLOCK_BYTES + LARGE
    blocks = [event.block for _, event in sent if isinstance(event, Data)]
    assert all(payload_of(block) <= BLOCK_BYTES + LARGE for block in blocks)
    each = 2 if isinstance(partitioner, Broadcast) else 1
    assert sorted(numbers_of(blocks)) == sorted(list(range(60)) * each)


def test_what_comes_one_by_one_is_gathered_up_to_the_bytes_of_a_block() -> None:
    """And hardly more is taken from where it comes than is passed on."""
    taken = 0

    def coming() -> Iterator[Any]:
        nonlocal taken
        for index in range(50):
            taken += 1
            yield large(index)

    seen = 0
    for part in gathered(coming(), 10_000):
        seen += len(part)
        assert taken == seen
        assert len(part) * LARGE <= BLOCK_BYTES
    assert seen == 50
    assert [len(part) for part in gathered(range(25), 10)] == [10, 10, 5]


def test_at_least_one_value_fits() -> None:
    assert within([5, 5, 5], 11) == 2
    assert within([50, 1], 11) == 1
    assert within([], 11) == 0


class Wide(ColumnGenerator):
    def generate(self, index: Any, seed: int) -> pa.RecordBatch:
        data = pa.array([large(int(n), 100_000)[2] for n in index], pa.large_binary())
        return pa.record_batch({"number": index.astype(np.int64), "data": data})


def source_of(kind: str, folder: Path) -> Source:
    """400 records of 100 kB."""
    match kind:
        case "lines":
            (folder / "1.txt").write_text("".join(f"{n:08d}{'x' * 99_992}\n" for n in range(400)))
            return FileSource.text(folder)
        case "parquet":
            pq.write_table(pa.Table.from_batches([columns(400, 100_000).batch]), folder / "1.parquet")
            return FileSource.parquet(folder)
        case "collection":
            return CollectionSource([large(n, 100_000) for n in range(400)])
        case "rows":
            return DataGeneratorSource(lambda n: large(n, 100_000), 400)
    return DataGeneratorSource(Wide(), 400)


@pytest.mark.parametrize("kind", ["lines", "parquet", "collection", "rows", "columns"])
def test_a_source_gives_no_larger_blocks(kind: str, tmp_path: Path) -> None:
    source = source_of(kind, tmp_path)
    reader = source.create_reader()
    count = 0
    for split in source.create_enumerator().plan(now_ms=0, max_records=None).ranges:
        for block in reader.read(split, 10_000):
            assert len(block) * 100_000 <= BLOCK_BYTES
            assert bytes_of(block) >= len(block) * 100_000
            count += len(block)
    assert count == 400


class Measuring(CountOperator):
    """Instead of what is large, how much of it came at once."""

    def process(self, input: int, block: Block) -> None:
        assert not isinstance(block, Columns)
        at_once = payload_of(block)
        self.emit([(key, number, at_once) for key, number, _ in block.values], None)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_of_150_kb_pass_a_job_in_parts(parallelism: int, request: pytest.FixtureRequest) -> None:
    """1,000 of them are 150 MB and far fewer than the 10,000 that a block may have."""
    sink = request.node.name
    ListSink.clear(sink)
    job = (
        Pipeline()
        .source(DataGeneratorSource(lambda n: large(n, 150_000), 1000), parallelism)
        .operator(Measuring(), parallelism)
        .sink(ListSink(sink))
        .build(JobSettings(runtime="embedded", checkpoint_interval_ms=0))
    )
    EmbeddedJob(job, master_of(job, memory_storage())).run()
    results = ListSink.results(sink)
    assert sorted(number for _, number, _ in results) == list(range(1000))
    assert max(at_once for *_, at_once in results) <= BLOCK_BYTES


@pytest.mark.parametrize("block", [rows(3, 17 << 20), columns(3, 17 << 20)], ids=["rows", "columns"])
def test_a_record_beyond_the_largest_is_an_error_that_shows_it_and_says_what_to_do(block: Block) -> None:
    event = Data(block)
    assert len(list(encode_event(event, 18 << 20))) == 3
    with pytest.raises(BadRecordError, match=r"penstock\.record\.max-size is 17825792:.*long\)") as caught:
        list(encode_event(event, 17 << 20))
    assert len(str(caught.value)) < 1000, "and not all of it"
    assert len(list(encode_event(event))) == 3, "where there is no Spark there is no bound"


def test_only_single_records_are_too_large() -> None:
    """A block is cut at the size of blocks, whatever a record may be."""
    found = [decode_event(*row) for row in encode_event(Data(rows(40)), 1 << 20)]
    assert [number for event in found if isinstance(event, Data) for number in numbers_of([event.block])] == list(
        range(40)
    )
