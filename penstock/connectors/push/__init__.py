"""Sources that are pushed to and cannot be asked again: sockets, web hooks, brokers without a log.

`PushSource` runs a `Receiver` on the driver. With a receive log every record is durable before the job knows of it, so
that the source is exactly once from receipt on.
"""

from __future__ import annotations

from penstock.connectors.push.receive_log import ReceiveLog
from penstock.connectors.push.receiver import Inbox, Receiver, SocketTextReceiver
from penstock.connectors.push.source import PushSource

__all__ = ["Inbox", "PushSource", "ReceiveLog", "Receiver", "SocketTextReceiver"]
