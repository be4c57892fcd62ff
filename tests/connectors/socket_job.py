"""The driver that the tests kill: lines from a socket, through a receive log, into files."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.connectors.files import FileSink
from penstock.connectors.push import Inbox, PushSource, Receiver
from penstock.datastream import StreamExecutionEnvironment


class ResumingReceiver(Receiver):
    """Says where to go on, and acknowledges what is durable."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, inbox: Inbox, stopped: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            stream = connection.makefile("rwb")
            stream.write(b"%d\n" % inbox.received)
            stream.flush()
            for line in stream:
                inbox.deliver([line.rstrip(b"\n")])
                stream.write(b"%d\n" % inbox.received if inbox.received % 50 == 0 else b"")
                stream.flush()


def main(mode: str, port: int, folder: Path) -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "5 ms")
    config.set_string("penstock.epoch.max-records", "30")
    if mode == "plain":
        config.set_string("execution.checkpointing.num-retained", "100000")  # so that the log stays whole
    env = StreamExecutionEnvironment(config)
    if mode == "plain":
        lines = env.socket_text_stream("127.0.0.1", port, receive_log=folder / "received")
    else:
        source = PushSource(ResumingReceiver(port), receive_log=folder / "received")
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "resuming")
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    lines.uid("lines").sink_to(sink).uid("out")
    env.execute("socket job")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
