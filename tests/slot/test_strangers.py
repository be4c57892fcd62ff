"""Whoever does not know the job's token learns nothing of it, runs nothing and takes no memory: on both ends of a connection."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import SlotError
from penstock.slot import door
from penstock.slot.client import RegistryAddress, _Starting, open_slot
from penstock.slot.process import SlotJob
from penstock.slot.registry import SlotRegistry
from penstock.slot.wire import Frame, Wire
from tests.connectors.tcp import TIMEOUT_S
from tests.jobmanager.jobs import eventually
from tests.slot.test_wire import plan, tcp_pair

_FRAME = struct.Struct("<IB")
_SILENT = 200


class Touches:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self._path),)


class Impostor:
    """Listens where somebody else used to, answers as `answer` says, and keeps all that it is told."""

    def __init__(self, answer: Callable[[socket.socket, Impostor], None]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.heard = b""
        self.connections = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(TIMEOUT_S)
                    self._answer(connection, self)
                    while self.hear(connection):
                        pass

    def hear(self, connection: socket.socket) -> bytes:
        data = connection.recv(1 << 16)
        self.heard += data
        return data

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def registry() -> Iterator[SlotRegistry]:
    made = SlotRegistry("127.0.0.1", b"job")
    yield made
    made.close()


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A path that exists as soon as something was unpickled."""
    path = tmp_path / "was here"
    pickle.loads(pickle.dumps(Touches(path)))
    assert path.exists(), "the trap does not work"
    path.rmdir()
    yield path
    assert not path.exists(), "what a stranger sent was unpickled"


def _frame(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), kind) + payload


def _says(data: bytes) -> Callable[[socket.socket, Impostor], None]:
    def answer(connection: socket.socket, impostor: Impostor) -> None:
        impostor.hear(connection)
        connection.sendall(data)

    return answer


def _echoes(connection: socket.socket, impostor: Impostor) -> None:
    while data := impostor.hear(connection):
        connection.sendall(data)


@pytest.mark.parametrize("kind", [1, Frame.MESSAGE, Frame.ERROR])
@pytest.mark.parametrize("prefix", [b"", b"\x00", b"\x01"])
def test_a_listener_on_a_freed_port_gets_no_token_and_nothing_it_says_is_unpickled(
    kind: int, prefix: bytes, trap: Path
) -> None:
    impostor = Impostor(_says(prefix + _frame(kind, pickle.dumps(Touches(trap))) + bytes(200)))
    token = "1f" * 16
    with pytest.raises(SlotError, match=f"127.0.0.1:{impostor.port}"):
        Wire.connect("127.0.0.1", impostor.port, token).receive_message()
    assert impostor.connections == 1
    assert impostor.heard, "the impostor was not spoken to"
    assert token.encode() not in impostor.heard
    assert bytes.fromhex(token) not in impostor.heard
    impostor.close()


def test_a_listener_that_sends_everything_back_proves_nothing() -> None:
    impostor = Impostor(_echoes)
    with pytest.raises(SlotError, match=r"does not know|not a Penstock"):
        Wire.connect("127.0.0.1", impostor.port, "secret").receive_message()
    assert impostor.heard
    assert b"secret" not in impostor.heard
    impostor.close()


def test_a_client_that_sends_the_servers_own_proof_back_is_not_let_in(registry: SlotRegistry) -> None:
    with socket.create_connection(("127.0.0.1", registry.port), timeout=TIMEOUT_S) as stranger:
        stranger.sendall(b"penstock\x02" + bytes(32))
        answer = stranger.recv(65, socket.MSG_WAITALL)
        assert answer[:1] == b"\x01", "the registry answers a greeting"
        stranger.sendall(answer[33:] + _frame(Frame.MESSAGE, pickle.dumps({"op": "find", "slot": 0, "epoch": 0})))
        assert _until_closed(stranger)[:1] in (b"", b"\x00"), "it is closed, and no question was answered"


def test_a_listener_that_passes_everything_on_to_the_real_one_is_found_out(registry: SlotRegistry) -> None:
    passed: list[bytes] = []

    def passes_on(connection: socket.socket, impostor: Impostor) -> None:
        with socket.create_connection(("127.0.0.1", registry.port), timeout=TIMEOUT_S) as real:
            real.sendall(impostor.hear(connection))
            passed.append(real.recv(1 << 16))
            connection.sendall(passed[-1])
            impostor.hear(connection)

    impostor = Impostor(passes_on)
    with pytest.raises(SlotError, match="does not know"):
        Wire.connect("127.0.0.1", impostor.port, registry.token)
    assert passed[0], "the real registry was asked"
    impostor.close()


def test_a_client_with_another_token_says_so_and_tells_neither(registry: SlotRegistry) -> None:
    with pytest.raises(SlotError, match="does not know the token") as caught:
        Wire.connect("127.0.0.1", registry.port, "guess")
    assert "guess" not in str(caught.value)
    assert registry.token not in str(caught.value)


def test_a_stranger_at_a_slots_address_is_a_slot_that_is_gone(
    registry: SlotRegistry, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay asks for another instead of failing its task."""
    impostor = Impostor(_says(_frame(Frame.ERROR, pickle.dumps(Touches(trap)))))
    slot = Wire.connect("127.0.0.1", registry.port, registry.token)
    slot.send_message(
        {"op": "register", "slot": 0, "host": "127.0.0.1", "port": impostor.port, "pid": 7, "executor": 1}
    )
    assert "job" in slot.receive_message()
    registry.begin(plan(1))

    def start(*args: object) -> None:
        raise RuntimeError("another is started")

    monkeypatch.setattr("penstock.slot.client._Starting", start)
    address = RegistryAddress(host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1")
    with pytest.raises(RuntimeError, match="another is started"):
        open_slot(address, 0, 1)
    assert impostor.heard
    assert registry.token.encode() not in impostor.heard
    assert registry.token not in repr(address)
    slot.close()
    impostor.close()


@pytest.mark.parametrize("text", [b"\x00" + b"\x1b[31mred \xff" * 10_000, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_a_stranger_says_is_shown_short_and_plain(text: bytes) -> None:
    impostor = Impostor(_says(text))
    with pytest.raises(SlotError) as caught:
        Wire.connect("127.0.0.1", impostor.port, "secret")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    impostor.close()


def test_a_listener_that_never_answers_is_given_up_in_time() -> None:
    trickling = threading.Event()

    def trickles(connection: socket.socket, impostor: Impostor) -> None:
        connection.sendall(b"\x01")
        while not trickling.wait(0.05):  # each byte in time, all of them never
            connection.sendall(b"x")

    impostor = Impostor(trickles)
    with pytest.raises(TimeoutError):
        Wire.connect("127.0.0.1", impostor.port, "secret", timeout=0.5)
    trickling.set()
    impostor.close()


def test_a_huge_first_frame_takes_no_memory_and_is_not_unpickled(registry: SlotRegistry, trap: Path) -> None:
    payload = pickle.dumps([Touches(trap), bytes(8 << 20)])
    tracemalloc.start()
    try:
        with socket.create_connection(("127.0.0.1", registry.port), timeout=TIMEOUT_S) as stranger:
            base, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            with contextlib.suppress(ConnectionError):  # it may be turned away while it speaks
                stranger.sendall(_FRAME.pack(1 << 30, Frame.MESSAGE))
                for start in range(0, len(payload), 1 << 16):
                    stranger.sendall(payload[start : start + (1 << 16)])
            _until_closed(stranger)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - base < 1 << 20


def test_two_hundred_silent_connections_are_few_threads_and_do_not_keep_others_out(
    registry: SlotRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_WAITING", 20)
    monkeypatch.setattr(door, "ROOM_AFTER_S", 0.05)
    monkeypatch.setattr(door, "PATIENCE_S", 1.0)
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", registry.port), timeout=TIMEOUT_S) for _ in range(_SILENT)]
    most = 0

    def connected() -> None:
        wire = Wire.connect("127.0.0.1", registry.port, registry.token)
        wire.send_message({"op": "find", "slot": 0, "epoch": 5, "job_attempt": 0})
        assert "refused" in wire.receive_message()  # no epoch runs: it was let in and heard
        wire.close()

    ours = threading.Thread(target=connected)
    ours.start()
    while ours.is_alive():
        most = max(most, threading.active_count() - before - 1)
        time.sleep(0.002)
    ours.join()
    assert 0 < most < 100  # twenty who wait, ours, and threads of those that were turned away and have not ended yet
    for stranger in silent:
        _until_closed(stranger)  # none is kept for ever
        stranger.close()
    eventually(lambda: threading.active_count() <= before, "all threads have ended")


def test_a_stranger_that_trickles_is_turned_away_in_time(
    registry: SlotRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PATIENCE_S", 0.3)
    sent = 0
    with socket.create_connection(("127.0.0.1", registry.port), timeout=TIMEOUT_S) as stranger:
        with contextlib.suppress(ConnectionError):
            for byte in b"penstock\x02" + bytes(31):
                stranger.sendall(bytes([byte]))
                sent += 1
                time.sleep(0.5)
        assert sent < 40, "it was listened to for twenty seconds"


def test_a_frame_that_is_too_large_says_what_to_do_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = tcp_pair()
    sender, receiver = Wire(left), Wire(right)
    left.sendall(_FRAME.pack((1 << 30) + 1, Frame.ROWS))
    with pytest.raises(SlotError, match=r"penstock\.block\.size"):
        receiver.receive()
    monkeypatch.setattr("penstock.slot.wire._MAX_FRAME", 10)
    with pytest.raises(SlotError, match=r"11 bytes.*penstock\.block\.size"):
        sender.send(Frame.ROWS, bytes(11))
    sender.close()
    receiver.close()


def test_a_registry_that_runs_out_of_files_listens_again(
    registry: SlotRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = socket.socket.accept, iter([OSError(24, "Too many open files")] * 3)

    def accept(self: socket.socket) -> Any:
        for failure in failures:
            raise failure
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    Wire.connect("127.0.0.1", registry.port, registry.token).close()  # the accept that was under way
    Wire.connect("127.0.0.1", registry.port, registry.token).close()
    assert next(failures, None) is None


def test_a_slot_process_withstands_strangers_and_shows_its_token_to_nobody(registry: SlotRegistry) -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).print()
    described = env._describe("job")
    registry.change_job(
        cloudpickle.dumps(
            SlotJob(job_id="j", graph=described.graph, settings=described.settings, storage_url=None, job_parameters={})
        ),
        1,
    )
    address = RegistryAddress(host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1")
    starting = _Starting(address, 0, "127.0.0.1")
    (slot,) = eventually(lambda: registry.slots, "the slot is up")
    process = psutil.Process(slot.address.pid)
    assert registry.token not in " ".join(process.cmdline())
    assert Path(f"/proc/{slot.address.pid}/environ").stat().st_mode & 0o077 == 0
    Wire.connect("127.0.0.1", slot.address.port, registry.token).close()
    threads, memory = process.num_threads(), process.memory_info().rss
    silent = [socket.create_connection(("127.0.0.1", slot.address.port), timeout=TIMEOUT_S) for _ in range(_SILENT)]
    with contextlib.suppress(ConnectionError):
        silent[0].sendall(_FRAME.pack(1 << 30, Frame.MESSAGE))
        for _ in range(64):
            silent[0].sendall(bytes(1 << 20))
    Wire.connect("127.0.0.1", slot.address.port, registry.token).close()
    assert process.num_threads() - threads < 180  # 128 who wait, and threads that have not ended yet
    assert process.memory_info().rss - memory < 32 << 20
    for stranger in silent:
        stranger.close()
    starting._errors.close()


def _until_closed(connection: socket.socket) -> bytes:
    """What was said before the other side closed; an error if it does not."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            said += data
    return said
