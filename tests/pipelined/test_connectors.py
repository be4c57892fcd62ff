"""All sources and sinks in pipelined jobs, each with a worker killed in the middle: exactly once.

The contracts of `penstock.testing` need no engine. Here what their suites make is read and written by a job: all sources
in one, all sinks in another.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.common import Row, Types, WatermarkStrategy
from penstock.connectors.base import Source
from penstock.connectors.files import FileSink, FileSource, committed_files
from penstock.connectors.postgres import PostgresSource
from penstock.connectors.push import PushSource
from penstock.datastream import DataStream
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.client import JobClient
from penstock.protocol.events import MIN_WATERMARK
from penstock.spark.sink import SparkSink
from penstock.testing import SinkContract, SourceContract
from penstock.testing.contracts import drain
from tests.connectors import test_sink_contract, test_source_contract
from tests.connectors.lasting import Lasting
from tests.connectors.socket_job import ResumingReceiver
from tests.connectors.tcp import Server
from tests.kafka.jobs import sink as kafka_sink
from tests.kafka.jobs import source as kafka_source
from tests.kafka.test_kafka_source import DISCOVERING, filled
from tests.pipelined.jobs import wait_until
from tests.pipelined.mortal import RATE, Mortal, assert_was_killed, mortal_environment
from tests.postgres.jobs import append_sink, upsert_sink
from tests.servers.postgres import PostgresServer
from tests.servers.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NONE = WatermarkStrategy.no_watermarks()


def suites(module: Any, kind: type) -> dict[str, Any]:
    """The suites that pytest finds in a module, by name."""
    return {
        name: found()
        for name, found in vars(module).items()
        if name.startswith("Test") and isinstance(found, type) and issubclass(found, kind)
    }


def lines(folder: Path) -> list[str]:
    return [line for path in committed_files(str(folder)) for line in Path(path).read_text().splitlines()]


def told(name: str, value: Any, timestamp: int | None) -> str:
    """A record as text, whatever it is; rows of columns are dictionaries in one place and rows in the other."""
    if isinstance(value, Row):
        value = value.as_dict()
    if timestamp == MIN_WATERMARK:  # as in Flink: it has none
        timestamp = None
    return json.dumps([name, value, timestamp], default=str, sort_keys=True)


class Tell(ProcessFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield told(self.name, value, ctx.timestamp())


def test_every_source_of_the_contract_suites_gives_its_records_once(
    tmp_path: Path, topics: Topics, postgres: PostgresServer
) -> None:
    sources: dict[str, Source] = {}
    for name, suite in suites(test_source_contract, SourceContract).items():
        (tmp_path / name).mkdir()
        sources[name] = suite.source(tmp_path / name)
    sources["Kafka"] = kafka_source(topics, filled(topics)).build()
    postgres.sql("create table pipelined_in as select n as id, 'v' || n as v from generate_series(1, 60) n")
    query = PostgresSource.builder().set_connection(postgres.conninfo).set_query("select id, v from pipelined_in")
    sources["Postgres"] = query.set_split_column("id").set_splits(3).set_chunk_size(7).build()
    assert len(sources) >= 12
    expected = Counter(
        told(name, *record)
        for name, source in sources.items()
        for records in drain(source).values()
        for record in records
    )
    # Those are all read at once: behind the first checkpoint there are these.
    steady = Lasting(lambda n: n, 600, until=tmp_path / "killed", splits=2, rate_per_second=RATE)
    sources["steady"] = steady
    expected += Counter(told("steady", n, None) for n in range(600))
    env = mortal_environment(tmp_path)
    first, *others = [
        env.from_source(source, NONE, name).uid(name).process(Tell(name)) for name, source in sources.items()
    ]
    first.union(*others).rebalance().map(Mortal(tmp_path)).sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("all sources")
    client.get_job_execution_result().result()
    found = Counter(lines(tmp_path / "out"))
    assert found - expected == Counter()
    assert expected - found == Counter()
    assert_was_killed(tmp_path, client)


def test_every_sink_of_the_contract_suites_shows_every_record_once(tmp_path: Path) -> None:
    in_process = {"TestListSink", "TestFilesInAnObjectStore"}  # what they write is in the memory of the worker
    found = {name: s for name, s in suites(test_sink_contract, SinkContract).items() if name not in in_process}
    assert len(found) >= 7
    env = mortal_environment(tmp_path)
    source = Lasting(str, 600, until=tmp_path / "killed", splits=2, rate_per_second=RATE)
    numbers = env.from_source(source, NONE, "numbers").rebalance()
    texts = numbers.map(Mortal(tmp_path))
    for name, suite in found.items():
        (tmp_path / name).mkdir()
        block = suite.block(["a"])
        stream: DataStream[Any] = texts
        if hasattr(block, "batch"):  # columns: text and its length
            stream = texts.map(lambda text: (text, len(text)))
        stream.sink_to(suite.sink(tmp_path / name)).uid(name)
    client = env.execute_async("all sinks")
    client.get_job_execution_result().result()
    expected = Counter(map(str, range(600)))
    for name, suite in found.items():
        assert Counter(suite.visible(tmp_path / name)) == expected, name
    assert_was_killed(tmp_path, client)


def test_sparks_own_writer_shows_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """Spark runs the write of each checkpoint beside the job that streams."""
    env = mortal_environment(tmp_path, execution_checkpointing_interval="300 ms")
    source = Lasting(lambda n: n, 600, until=tmp_path / "killed", splits=2, rate_per_second=RATE)
    numbers = env.from_source(source, NONE, "numbers").rebalance()
    sink = SparkSink.parquet(f"file://{tmp_path}/out", schema=pa.schema([("n", pa.int64())]))
    numbers.map(Mortal(tmp_path, 0.005)).map(lambda n: (n,)).sink_to(sink).uid("out")
    client = env.execute_async("to parquet")
    client.get_job_execution_result().result()
    assert sorted(row["n"] for row in spark.read.parquet(f"file://{tmp_path}/out").collect()) == list(range(600))
    assert_was_killed(tmp_path, client)


def stop(client: JobClient, folder: Path) -> None:
    client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    client.get_job_execution_result().result()


def test_files_that_come_while_the_job_runs_are_read_once(tmp_path: Path) -> None:
    new, out = tmp_path / "new", tmp_path / "out"
    new.mkdir()

    def add(number: int) -> None:
        whole = tmp_path / "being-written"
        pq.write_table(pa.table({"n": [number * 300 + n for n in range(300)]}), whole, row_group_size=40)
        whole.rename(new / f"{number}.parquet")

    add(0)
    env = mortal_environment(tmp_path)
    rows = env.from_source(FileSource.parquet(new, monitor_interval=50), NONE, "files").rebalance()
    rows.map(lambda row: str(row[0])).map(Mortal(tmp_path)).sink_to(FileSink.text(str(out)))
    client = env.execute_async("files")
    for number in range(1, 6):
        add(number)
        wait_until(lambda number=number: len(lines(out)) >= number * 300, f"{number * 300} records")  # type: ignore[misc]
    wait_until(lambda: len(lines(out)) >= 1800, "all records")
    stop(client, tmp_path)
    assert Counter(map(int, lines(out))) == Counter(range(1800))
    assert_was_killed(tmp_path, client)


def test_what_a_receiver_was_sent_is_taken_once_from_its_receive_log(tmp_path: Path) -> None:
    """The next attempt connects anew, and says how much it has in its log: the server goes on behind that."""
    out, asked = tmp_path / "out", list[int]()

    def serve(connection: socket.socket, number: int) -> None:
        stream = connection.makefile("rwb")
        asked.append(int(stream.readline()))
        for n in range(asked[-1], 1500):
            stream.write(b"%d\n" % n)
            stream.flush()
            time.sleep(0.001)
        connection.shutdown(socket.SHUT_WR)
        stream.read()  # its acknowledgements: to hang up before they are read would reset the connection

    with Server(serve) as server:
        env = mortal_environment(tmp_path)
        source = PushSource(ResumingReceiver(server.port), receive_log=tmp_path / "received")
        texts = env.from_source(source, NONE, "received").uid("received")
        texts.rebalance().map(Mortal(tmp_path)).sink_to(FileSink.text(str(out)))
        client = env.execute_async("receiver")
        client.get_job_execution_result().result()  # the server has hung up: the stream has ended
    assert len(asked) == 2
    assert asked[1] > asked[0] == 0
    assert Counter(lines(out)) == Counter(map(str, range(1500)))
    assert_was_killed(tmp_path, client)


class Numbering(KeyedProcessFunction):
    """The records of a key, numbered."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value[0], number, value[1]


def counting(texts: DataStream[Any], folder: Path) -> DataStream[Any]:
    """(key, how many, number) of texts `key:number`."""
    pairs = texts.rebalance().map(Mortal(folder)).map(lambda text: tuple(map(int, text.split(":"))))
    return pairs.key_by(lambda pair: pair[0]).process(Numbering(), Types.TUPLE([Types.LONG()] * 3))


def test_partitions_that_come_while_the_job_runs_are_read_once_into_a_topic_and_tables(
    topics: Topics, postgres: PostgresServer, tmp_path: Path
) -> None:
    topic, out = topics.create(2), topics.create(2)

    def write(partition: int) -> None:
        mine = range(partition, 1500, 3)
        topics.write(topic, [b"%d:%d" % (n % 7, n) for n in mine], partition=partition)

    postgres.sql("create table pipelined (key int primary key, count bigint not null, last bigint)")
    postgres.sql("create table pipelined_log (key int, count bigint, last bigint)")
    write(0)
    env = mortal_environment(tmp_path)
    built = kafka_source(topics, topic, bounded=False, properties=DISCOVERING).build()
    counted = counting(env.from_source(built, NONE, "in").uid("in"), tmp_path)
    counted.map(lambda one: f"{one[0]}:{one[2]}").sink_to(kafka_sink(topics, out)).uid("topic")
    counted.sink_to(upsert_sink(postgres.conninfo, "pipelined")).uid("upserted")
    counted.sink_to(append_sink(postgres.conninfo, "pipelined_log", columns=["key", "count", "last"])).uid("appended")
    client = env.execute_async("servers")
    wait_until(lambda: client.checkpoint_statistics().completed, "a checkpoint, behind which there are records")
    write(1)
    topics.add_partitions(topic, 3)
    write(2)
    wait_until(lambda: (tmp_path / "killed").exists(), "the kill")
    found = topics.wait_for(out, 1500)
    stop(client, tmp_path)
    assert Counter(found) == Counter(b"%d:%d" % (n % 7, n) for n in range(1500))
    assert Counter(topics.values(out)) == Counter(found)
    rows = postgres.sql("select key, count, last from pipelined_log")
    assert sorted(row[2] for row in rows) == list(range(1500))
    most = {key: max(row[1] for row in rows if row[0] == key) for key in range(7)}
    assert most == {key: len(range(key, 1500, 7)) for key in range(7)}
    newest = sorted(row for row in rows if row[1] == most[row[0]])
    assert postgres.sql("select key, count, last from pipelined order by key") == newest
    assert_was_killed(tmp_path, client)
