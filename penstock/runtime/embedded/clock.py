"""Time that only moves when told to."""

from __future__ import annotations


class ManualClock:
    """Milliseconds since 1970, for a JobMaster's `clock`. The embedded runtime moves it by the epoch interval with every epoch
    it plans and by the delay of every restart; a test may move it further."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        """Negative: the machine's clock was set back."""
        self.now_ms += milliseconds
