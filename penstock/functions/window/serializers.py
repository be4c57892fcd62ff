"""Windows as bytes: big-endian and of fixed length, so that time windows of positive time sort as they are written."""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

from penstock.common.serializer import TypeSerializer
from penstock.functions.window.windows import CountWindow, GlobalWindow, TimeWindow

_TWO_LONGS: Final = struct.Struct(">qq")
_LONG: Final = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end, 16 bytes."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        stream.write(_TWO_LONGS.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        start, end = _TWO_LONGS.unpack(stream.read(_TWO_LONGS.size))
        return TimeWindow(start, end)


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The id, 8 bytes."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        (window_id,) = _LONG.unpack(stream.read(_LONG.size))
        return CountWindow(window_id)


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One zero byte."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()
