"""A checkpoint that somebody asked for ends with its number, or with the reason why there is none."""

from __future__ import annotations

import pytest

from penstock.driver.asked_checkpoints import AskedCheckpoints, CheckpointRequest, PendingCheckpointRequest
from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.errors import CheckpointFailedError


def test_each_one_waits_for_its_own_end() -> None:
    statistics, asked = StatisticsKeeper(None, lambda: 0), AskedCheckpoints()
    requests = {epoch: CheckpointRequest() for epoch in (3, 5, 7)}
    for epoch, request in requests.items():
        asked.planned(epoch, PendingCheckpointRequest(request))
    asked.planned(6, None)
    statistics.restored(3)  # an earlier driver's
    statistics.completed(4, 1, 1.0)
    asked.answer(statistics.statistics)
    assert not any(request.answer.done() for request in requests.values())
    statistics.completed(3, 1, 1.0)
    statistics.failed(5, "disk full")
    asked.answer(statistics.statistics)
    assert requests[3].answer.result(0) == 3
    with pytest.raises(CheckpointFailedError, match="checkpoint 5 was declined: disk full"):
        requests[5].answer.result(0)
    assert not requests[7].answer.done()
    asked.give_up("the job goes back")
    with pytest.raises(CheckpointFailedError, match="checkpoint 7 was not completed: the job goes back"):
        requests[7].answer.result(0)
