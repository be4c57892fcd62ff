"""In which order a recovery treats the sinks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.checkpoint.ownership import StartPermit
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.driver.sink_commits import SinkCommits
from penstock.driver.waiting import LatencyTracker


class _Calls(Committer, Sink):
    def __init__(self, calls: list[str]) -> None:
        self._calls, self._sink_id = calls, ""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        raise AssertionError("nothing is written")

    def create_committer(self, sink_id: str) -> Committer:
        self._sink_id = sink_id
        return self

    def take_over(self) -> None:
        self._calls.append(f"{self._sink_id} takes over")
        if self._sink_id == "one":
            raise ConnectionError("not now")

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        raise AssertionError("nothing is to be committed")

    def discard_after(self, epoch: int) -> None:
        self._calls.append(f"{self._sink_id} discards after {epoch}")


def test_all_sinks_take_over_before_the_first_of_them_commits() -> None:
    """What one has left open may be in the way of another's commit; that one is away does not keep the others from it."""
    calls: list[str] = []
    commits = SinkCommits(
        {name: _Calls(calls) for name in ("one", "two")}, None, reach=lambda point, epoch: None, timeout_ms=1000,
        now_ms=lambda: 0, latency=LatencyTracker.__new__(LatencyTracker),
    )  # fmt: skip
    commits.recover(None, 3, StartPermit.without_folder())
    assert calls == ["one takes over", "two takes over", "one discards after 3", "two discards after 3"]
