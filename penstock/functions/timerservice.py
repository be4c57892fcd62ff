"""Time and timers, as functions see them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.functions.time_domain import TimeDomain

__all__ = ["TimeDomain", "TimerService"]


class TimerService(ABC):
    """The clocks of a subtask and the timers of the current key.

    There is at most one timer per key, time domain and timestamp: registering it again changes nothing. Timers are
    part of every checkpoint. Only functions on a keyed stream may register or delete timers.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Milliseconds since the epoch; one value for a whole epoch of the job, so that a replay sees the same."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's event time; the smallest long before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once processing time has reached `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once the watermark has reached `timestamp`; if it already has, at the next advance."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget this timer of the current key; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget this timer of the current key; nothing happens if there is none."""
