"""Documents of REST from facts that a driver may write."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.service.documents.jobs import event_time

_NONE = MIN_WATERMARK


@pytest.mark.parametrize(
    ("source", "window", "archive", "expected"),
    [
        ([_NONE, _NONE], [50, 40], [_NONE], 40),  # watermarks are made behind the source; the archive has none
        ([70, _NONE], [50, 50], [60], 50),  # a subtask of the source is idle
        ([70, 70], [_NONE, _NONE], [_NONE], None),  # not there yet
        ([MAX_WATERMARK] * 2, [MAX_WATERMARK] * 2, [MAX_WATERMARK], MAX_WATERMARK),
    ],
)
def test_event_time_is_what_has_come_to_the_ends_of_the_job(
    source: list[int], window: list[int], archive: list[int], expected: int | None
) -> None:
    def vertex(number: int, marks: list[int], *inputs: int) -> dict[str, Any]:
        return {"id": number, "inputs": [{"vertex": i} for i in inputs], "subtasks": {"watermark": marks}}

    vertices = [vertex(1, source), vertex(2, window, 1), vertex(3, archive, 1)]
    assert event_time({"vertices": vertices}) == expected
    assert event_time({"vertices": [{"id": 1, "inputs": [], "subtasks": {}}]}) is None
