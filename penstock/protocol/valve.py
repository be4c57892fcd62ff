"""The watermark of many channels: the minimum over those that are active.

Rules, as in Flink: an idle channel does not hold the minimum back; one that comes back behind the current watermark is
left out until it has caught up; when the last active channel turns idle the largest watermark seen is released.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.protocol.events import MIN_WATERMARK

C = TypeVar("C", bound=Hashable)


@dataclass(slots=True)
class _Channel:
    watermark: int = MIN_WATERMARK
    idle: bool = False
    behind: bool = False  # came back from idleness behind the combined watermark: left out until it has caught up


class WatermarkValve(Generic[C]):
    """Feed it per-channel watermarks and idleness; it answers with the combined ones when they change."""

    def __init__(self, channels: Iterable[C] = ()) -> None:
        self._channels: dict[C, _Channel] = {channel: _Channel() for channel in channels}
        self.watermark = MIN_WATERMARK
        self.idle = False

    def __contains__(self, channel: C) -> bool:
        return channel in self._channels

    @property
    def channels(self) -> list[C]:
        """The channels, idle ones included."""
        return list(self._channels)

    def watermark_of(self, channel: C) -> int:
        """The watermark of one channel."""
        return self._channels[channel].watermark

    def add(self, channel: C) -> None:
        """A new channel counts from now on: the combined watermark waits for it, but never goes back."""
        self._channels.setdefault(channel, _Channel())

    def remove(self, channel: C) -> None:
        """Leaves a channel out from now on."""
        self._channels.pop(channel, None)

    def advance(self, channel: C, timestamp: int) -> int | None:
        """Returns the new combined watermark if it advanced. A watermark that goes back is ignored."""
        state = self._channels[channel]
        if timestamp > state.watermark:
            state.watermark = timestamp
            return self.recompute()
        return None

    def set_idle(self, channel: C, idle: bool) -> int | None:
        """Returns the new combined watermark if it advanced; read `idle` afterwards for the combined status."""
        state = self._channels[channel]
        if state.idle and not idle:
            state.behind = state.watermark < self.watermark
        state.idle = idle
        return self.recompute()

    def recompute(self) -> int | None:
        """The new watermark if it has moved on, else None; also finds out whether all channels are idle."""
        if not self._channels:
            return None
        active = [c for c in self._channels.values() if not c.idle]
        self.idle = not active
        if active:
            for channel in active:
                channel.behind = channel.behind and channel.watermark < self.watermark
            new = min((c.watermark for c in active if not c.behind), default=self.watermark)
        else:
            new = max(c.watermark for c in self._channels.values())
        if new > self.watermark:
            self.watermark = new
            return new
        return None

    def snapshot(self) -> dict[str, Any]:
        """JSON-able; channels are listed as pairs because JSON keys are strings."""
        return {
            "watermark": self.watermark,
            "channels": [[channel, c.watermark, c.idle, c.behind] for channel, c in self._channels.items()],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The channels are those of the snapshot. The combined watermark is where it was, even if the channels are further:
        nobody has been told yet; `recompute` says so."""
        self.watermark = snapshot["watermark"]
        self._channels = {channel: _Channel(*rest) for channel, *rest in snapshot["channels"]}
        self.idle = bool(self._channels) and all(c.idle for c in self._channels.values())
