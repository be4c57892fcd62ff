"""In a network of its own: `unshare -rn python -m tests.slot.vanishing`. Its only link goes down, as when a host's cable is
pulled: nobody is told. Prints what was noticed, for test_liveness."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import threading
import time
from typing import Any

from penstock.slot import liveness

_GONE_S = 1.5
liveness.watch_peer.__defaults__ = (_GONE_S,)

from penstock.checkpoint.upload import SlotLost  # noqa: E402 - after the time was shortened
from penstock.slot.liveness import PULSE, Pulses  # noqa: E402
from penstock.slot.registry import SlotRegistry  # noqa: E402
from penstock.slot.wire import Frame, Wire  # noqa: E402

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def _link(up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = struct.unpack("16sh", fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))[:18])[1]
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


class _BusySlot:
    """Accepts relays and reads nothing they send but the first message."""

    def __init__(self, token: str) -> None:
        self._server, self._token = socket.create_server(("127.0.0.1", 0)), token
        self.port = self._server.getsockname()[1]
        self.wires: list[Wire] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            self.wires.append(Wire.accept(self._server.accept()[0], self._token))


def _send_for_ever(wire: Wire, ended: dict[str, float], name: str) -> None:
    try:
        while True:
            wire.send(Frame.ROWS, bytes(1 << 20))
    except OSError:
        ended[name] = time.monotonic()


def main() -> None:
    _link(up=True)
    events: list[Any] = []
    registry = SlotRegistry("127.0.0.1", b"job", on_upload=events.append)
    slot = Wire.connect("127.0.0.1", registry.port, registry.token)
    slot.send_message(
        {"op": "register", "slot": 0, "host": "127.0.0.1", "port": 1, "pid": 4711, "executor": 1, "name": "a:1:4711"}
    )
    slot.receive_message()
    busy = _BusySlot(registry.token)
    ended: dict[str, float] = {}
    with_pulse = Wire.connect("127.0.0.1", busy.port, registry.token)
    pulses = Pulses()

    def pulse() -> Wire:
        wire = Wire.connect("127.0.0.1", busy.port, registry.token)
        wire.send_message({"op": PULSE})
        return wire

    pulses.watch(with_pulse, "127.0.0.1", busy.port, pulse)
    with_pulse.be_patient()
    with_pulse.set_timeout(None)
    threading.Thread(target=_send_for_ever, args=(with_pulse, ended, "relay"), daemon=True).start()
    time.sleep(2 * _GONE_S)  # the slot reads nothing, as when a function takes its time
    facts: dict[str, Any] = {"slots before": len(registry.slots), "a busy slot was left alone": "relay" not in ended}
    _link(up=False)
    down = time.monotonic()
    while time.monotonic() < down + 60 and not (events and "relay" in ended):
        time.sleep(0.05)
    facts |= {
        "slots after": len(registry.slots),
        "lost": registry.lost,
        "told": [event.process for event in events if isinstance(event, SlotLost)],
        "relay gave up": "relay" in ended,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
