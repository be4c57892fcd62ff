"""socket_text_stream and push sources: with a receive log, exactly once from receipt on."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Time
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.push import Inbox, PushSource, ReceiveLog, Receiver, SocketTextReceiver
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import JobDefinitionError, JobFailedError, PenstockError, StorageError
from penstock.testing.kill import Target, kill
from tests.connectors.reading import read
from tests.connectors.tcp import TIMEOUT_S, Server, sends
from tests.jobmanager.jobs import eventually

ROOT = Path(__file__).parents[2]
calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _counted_anew() -> None:
    calls.clear()


@pytest.fixture(params=[False, True], ids=["without a log", "with a log"])
def receive_log(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "received" if request.param else None


def environment(job: Path | None = None) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.epoch.interval", "5 ms")
    if job is not None:
        config.set_string("penstock.job.dir", str(job))
        config.set_string("execution.checkpointing.interval", "0 ms")
    return StreamExecutionEnvironment(config)


def lines(server: Server, receive_log: Path | None, *, delimiter: str = "\n", max_retry: int = 0) -> list[Any]:
    stream = environment().socket_text_stream("127.0.0.1", server.port, delimiter, max_retry, receive_log=receive_log)
    with stream.execute_and_collect() as result:
        return list(result)


def test_lines_arrive_in_order_and_the_stream_ends_with_the_connection(receive_log: Path | None) -> None:
    with Server(sends("one\ntwo\r\n\nfour ä\nrest")) as server:
        assert lines(server, receive_log) == ["one", "two", "", "four ä", "rest"]


def test_a_delimiter_may_be_anything_and_lie_across_packets(receive_log: Path | None) -> None:
    def serve(connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in ("a<", "|>b", "\n<|", ">"):
            connection.sendall(part.encode())

    with Server(serve) as server:
        assert lines(server, receive_log, delimiter="<|>") == ["a", "b\n"]


def test_a_closed_connection_is_opened_again_as_often_as_asked(receive_log: Path | None) -> None:
    with Server(sends("a\n", "b\n")) as server:
        stream = environment().socket_text_stream("127.0.0.1", server.port, max_retry=-1, receive_log=receive_log)
        with stream.execute_and_collect() as result:
            assert [next(result), next(result)] == ["a", "b"]
    assert server.connections >= 2


def _unread(connection: socket.socket) -> int:
    """How many bytes lie at the other side, which is on this machine, and were not read: its receive queue in Linux's table."""
    ends = [end[1] for end in (connection.getpeername(), connection.getsockname())]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if [int(end.rpartition(":")[2], 16) for end in (local, remote)] == ends:
            return int(queues.rpartition(":")[2], 16)
    raise AssertionError("the other side is gone")


def reset(connection: socket.socket) -> None:
    """End a connection with a reset, once the other side has read what was sent: what it has not read would be lost."""
    eventually(lambda: not _unread(connection), "the other side reads")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_record_torn_by_a_reset_is_not_delivered(receive_log: Path | None) -> None:
    def serve(connection: socket.socket, number: int) -> None:
        if number == 0:
            connection.sendall(b"one\namount 100")
            reset(connection)
        else:
            connection.sendall(b"amount 1000\nlast")  # the server repeats what was cut off; this end is a clean one

    with Server(serve) as server:
        stream = environment().socket_text_stream("127.0.0.1", server.port, max_retry=-1, receive_log=receive_log)
        with stream.execute_and_collect() as result:
            assert [next(result) for _ in range(3)] == ["one", "amount 1000", "last"]


class Delivered(Inbox):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    @property
    def received(self) -> int:
        return len(self.records)

    def deliver(self, records: Sequence[bytes]) -> None:
        self.records += records


def test_a_reset_in_the_middle_of_a_record_is_an_error_and_no_record() -> None:
    def serve(connection: socket.socket, number: int) -> None:
        connection.sendall(b"whole\ntor")
        reset(connection)

    inbox = Delivered()
    with Server(serve) as server, pytest.raises(PenstockError, match="reset by peer"):
        SocketTextReceiver("127.0.0.1", server.port).run(inbox, threading.Event())
    assert inbox.records == [b"whole"]


class Dying:
    """A connection whose peer is silent, sends a part of a record, and vanishes: the kernel gives it up once, and from then on
    says that the stream has ended."""

    def __init__(self) -> None:
        self.answers: list[bytes | OSError] = [
            TimeoutError("timed out"), b"whole\ntor", TimeoutError(errno.ETIMEDOUT, "Connection timed out"), b"",
        ]  # fmt: skip

    def settimeout(self, seconds: float) -> None:
        pass

    def recv(self, size: int) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def test_a_peer_that_is_given_up_has_not_ended_its_stream() -> None:
    inbox, receiver = Delivered(), SocketTextReceiver("127.0.0.1", 1)
    with pytest.raises(TimeoutError):
        receiver._receive(Dying(), inbox, threading.Event())  # type: ignore[arg-type]
    assert inbox.records == [b"whole"]


def test_a_server_that_cannot_be_reached_fails_the_job_and_names_it(receive_log: Path | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    stream = environment().socket_text_stream("127.0.0.1", port, receive_log=receive_log)
    with pytest.raises(JobFailedError, match=f"127.0.0.1:{port} failed"), stream.execute_and_collect() as result:
        list(result)


@pytest.mark.parametrize(("host_port", "delimiter"), [(0, "\n"), (65536, "\n"), (80, "")])
def test_ports_and_delimiters_that_cannot_be_are_refused(host_port: int, delimiter: str) -> None:
    with pytest.raises(JobDefinitionError, match="socket_text_stream"):
        environment().socket_text_stream("localhost", host_port, delimiter)


def test_without_an_assigner_event_time_is_the_time_of_receipt(receive_log: Path | None) -> None:
    with Server(sends("1\n2\n3\n")) as server:
        stream = environment().socket_text_stream("127.0.0.1", server.port, receive_log=receive_log)
        days = stream.map(int).window_all(TumblingEventTimeWindows.of(Time.days(10_000))).reduce(lambda a, b: a + b)
        with days.execute_and_collect() as result:
            assert list(result) == [6]


class FailsOnce:
    """Raises at its n-th record, counted over all attempts."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, value: Any) -> Any:
        calls["map"] += 1
        if calls["map"] == self.at:
            raise ValueError("once")
        return value


def test_with_a_log_every_record_takes_effect_once_when_the_job_goes_back(tmp_path: Path) -> None:
    def serve(connection: socket.socket, number: int) -> None:
        if number == 0:
            connection.sendall("".join(f"{n}\n" for n in range(500)).encode())
            connection.recv(1)  # until the failed attempt hangs up
        else:
            connection.sendall(b"last\n")

    with Server(serve) as server:
        env = environment(tmp_path / "job")
        env._configuration.set_string("penstock.epoch.max-records", "40")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        stream = env.socket_text_stream("127.0.0.1", server.port, receive_log=tmp_path / "received")
        with stream.map(FailsOnce(130)).execute_and_collect() as result:
            received = list(result)
    # All 500 were received before the failure, or some were still on their way when the connection was closed.
    log = ReceiveLog(tmp_path / "received")
    assert received[-1] == "last"
    assert received[:-1] == [str(n) for n in range(len(received) - 1)]
    assert len(received) == log.end()
    assert calls["map"] > len(received), "nothing was replayed: the failure came too early to show anything"


def test_segments_that_no_checkpoint_needs_are_deleted(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path / "received")
    for start in range(0, 30, 10):
        writer = log.writer()
        writer.append([str(n).encode() for n in range(start, start + 10)], 1)
        writer.close()
    assert log.segments() == [0, 10, 20]
    with Server(sends("30\n")) as server:
        env = environment(tmp_path / "job")
        env._configuration.set_string("penstock.epoch.max-records", "7")
        stream = env.socket_text_stream("127.0.0.1", server.port, receive_log=log.folder)
        with stream.execute_and_collect() as result:
            assert list(result) == [str(n) for n in range(31)]
    assert log.segments() == [30]


def test_as_many_checkpoints_as_are_retained_keep_their_records(tmp_path: Path) -> None:
    source = PushSource(_Silent(), receive_log=tmp_path, retained_checkpoints=2)
    log = ReceiveLog(tmp_path)
    for _ in range(3):
        writer = log.writer()
        writer.append([b"x"], 1)
        writer.close()
    enumerator = source.create_enumerator()
    for position in (1, 2):
        enumerator.checkpoint_complete({"position": position})
    assert log.segments() == [1, 2]
    enumerator.checkpoint_complete({"position": 3})
    assert log.segments() == [2]


class _Silent(Receiver):
    def run(self, inbox: Inbox, stopped: threading.Event) -> None:
        stopped.wait(TIMEOUT_S)


class _Three(Receiver):
    def run(self, inbox: Inbox, stopped: threading.Event) -> None:
        assert inbox.received == 0
        inbox.deliver([b"a", b"b"])
        inbox.deliver([b"c"])


@pytest.mark.parametrize("logged", [False, True])
def test_a_range_gives_the_same_records_whenever_it_is_read(tmp_path: Path, logged: bool) -> None:
    source = PushSource(_Three(), receive_log=tmp_path / "log" if logged else None)
    enumerator, ranges = source.create_enumerator(), []
    for _ in range(10_000):
        plan = enumerator.plan(now_ms=0, max_records=2)
        assert plan.records is not None
        assert plan.records <= 2
        ranges += [split for split in plan.ranges if split.start != split.end]
        if plan.finished:
            break
        threading.Event().wait(0.001)
    again = source.create_enumerator()
    again.restore(plan.state)
    assert again.plan(now_ms=0, max_records=2).finished, "the end of the stream is remembered"
    enumerator.close()
    again.close()
    for _ in range(2):
        reader = source.create_reader()
        assert [value for split in ranges for value, _ in read(reader, split)] == ["a", "b", "c"]
        assert [value for value, _ in read(reader, ranges[0], block_size=1)] == ["a", "b"]


def test_another_log_than_the_checkpoints_is_refused(tmp_path: Path) -> None:
    enumerator = PushSource(_Silent(), receive_log=tmp_path).create_enumerator()
    enumerator.restore({"position": 7})
    try:
        with pytest.raises(StorageError, match="ends at record 0, but the job has read 7"):
            enumerator.plan(now_ms=0, max_records=None)
    finally:
        enumerator.close()


def test_what_a_receiver_raises_fails_the_job() -> None:
    class Broken(Receiver):
        def run(self, inbox: Inbox, stopped: threading.Event) -> None:
            raise ValueError("no such broker")

    stream = environment().from_source(PushSource(Broken()), WatermarkStrategy.no_watermarks(), "push")
    with pytest.raises(JobFailedError, match="no such broker"), stream.execute_and_collect() as result:
        list(result)


# -------------------------------------------------------------------- kill -9 of the driver

BATCH, BATCHES = 50, 16


class Sender:
    """Sends numbered lines from where the receiver says, and waits for the acknowledgement of every batch. At some
    batches it asks for the receiver's death and waits for it."""

    def __init__(self, deaths: set[int]) -> None:
        self._deaths = deaths
        self.due = threading.Semaphore(0)

    def __call__(self, connection: socket.socket, number: int) -> None:
        stream = connection.makefile("rw", encoding="utf-8", newline="\n")
        position = int(stream.readline())
        while position < BATCH * BATCHES:
            end = min(position + BATCH - position % BATCH, BATCH * BATCHES)
            stream.write("".join(f"{n}\n" for n in range(position, end)))
            stream.flush()
            if int(stream.readline() or -1) != end:
                return
            position = end
            if position // BATCH in self._deaths:
                self._deaths.discard(position // BATCH)
                self.due.release()
                assert not stream.readline()
                return


def start(mode: str, port: int, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.connectors.socket_job", mode, str(port), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def written(folder: Path) -> list[int]:
    return [int(line) for path in (folder / "out").rglob("part-*") for line in path.read_text().splitlines()]


def run_to_the_end(mode: str, server: Server, folder: Path, due: threading.Semaphore, deaths: int) -> None:
    for _ in range(deaths):
        process = start(mode, server.port, folder)
        assert due.acquire(timeout=60), process.communicate(timeout=5)[1]
        assert process.poll() is None, "it ended before it could be killed"
        kill(Target.of(process.pid, command_contains="tests.connectors.socket_job"))
        process.communicate(timeout=60)
    process = start(mode, server.port, folder)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors[-3000:]


def test_a_sender_that_is_told_where_to_go_on_loses_nothing_when_the_driver_is_killed(tmp_path: Path) -> None:
    sender = Sender({2, 7, 11})
    with Server(sender) as server:
        run_to_the_end("resuming", server, tmp_path, sender.due, deaths=3)
    assert sorted(written(tmp_path)) == list(range(BATCH * BATCHES))


def test_lines_of_a_plain_socket_take_effect_once_from_receipt_on_when_the_driver_is_killed(tmp_path: Path) -> None:
    due = threading.Semaphore(0)

    def serve(connection: socket.socket, number: int) -> None:
        first = number * 1000
        connection.sendall("".join(f"{n}\n" for n in range(first, first + 400)).encode())
        if number < 2:
            due.release()
            connection.recv(1)

    with Server(serve) as server:
        run_to_the_end("plain", server, tmp_path, due, deaths=2)
    log = ReceiveLog(tmp_path / "received")
    received = [int(record.data) for record in log.read(0, log.end())]
    assert sorted(written(tmp_path)) == received
    assert received[-400:] == list(range(2000, 2400))
