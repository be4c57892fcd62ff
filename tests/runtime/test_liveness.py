"""A host that vanishes closes no connection: it is noticed all the same, and a slot that is only busy is left alone."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.connection.liveness import GONE_S
from penstock.runtime.connection.messages import Register, SlotAddress
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.registry import SlotRegistry

_OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")


def _namespaces() -> bool:
    """Whether this user may have a network of its own."""
    return (
        shutil.which("unshare") is not None and subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0
    )


@pytest.mark.skipif(not _namespaces(), reason="no network namespaces here")
def test_a_slot_whose_host_vanishes_is_lost_to_the_driver_and_to_its_relays_and_a_busy_one_is_not() -> None:
    run = subprocess.run(
        ["unshare", "-rn", sys.executable, "-m", "tests.runtime.vanishing"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "slots before": 1,
        "a busy slot was left alone": True,
        "slots after": 0,
        "lost": 1,
        "told": ["a:1:4711"],
        "relay gave up": True,
    }


def test_both_ends_of_a_connection_are_watched() -> None:
    registry = SlotRegistry("127.0.0.1", b"job")
    wire = Wire.connect("127.0.0.1", registry.port, registry.token)
    wire.send_message(Register(slot=0, address=SlotAddress("127.0.0.1", 1, 1), name="a:1:1", executor=1))
    wire.receive_message()
    try:
        for sock in (wire._sock, registry.slots[0].wire._sock):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle, every, probes = (sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in _OPTIONS)
            assert idle + every * probes <= GONE_S
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == GONE_S * 1000
        wire.be_patient()
        assert wire._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    finally:
        wire.close()
        registry.close()
