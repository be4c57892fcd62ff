"""A function whose process is killed in the middle of a job, once, and which proves it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import CheckpointListener, MapFunction
from penstock.driver.client import JobClient
from tests.pipelined.jobs import environment
from tests.pipelined.uneven_job import running

_SOME = 200  # records of a subtask: by then a machine that is not busy has completed a checkpoint


RATE = 500.0  # records a second, of sources that could give all they have before the first barrier


class Mortal(MapFunction, CheckpointListener):
    """Subtask 0 kills its process with SIGKILL at a record behind the first completed checkpoint. Until then all are slow, and the
    slower the longer it takes, so that there is such a record; its source must not have ended before the first barrier."""

    def __init__(self, folder: Path, pause_s: float = 0.002) -> None:
        self.proof, self.pause_s = folder / "killed", pause_s
        self.dies = self.completed = False
        self.seen = 0

    def open(self, runtime_context: Any) -> None:
        self.waits = not self.proof.exists()
        self.dies = self.waits and runtime_context.get_index_of_this_subtask() == 0

    def map(self, value: Any) -> Any:
        if self.dies and self.completed:
            self.proof.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        if self.waits and not self.completed:
            self.seen += 1
            time.sleep(self.pause_s if self.seen < _SOME else 20 * self.pause_s)
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed = True


def mortal_environment(folder: Path, parallelism: int = 2, **settings: Any) -> StreamExecutionEnvironment:
    """As `environment`, of a job that restarts at once, and reads little at a time."""
    strategy = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_delay": "10 ms"}
    return environment(folder, parallelism, penstock_epoch_max__records=50, **strategy, **settings)


def assert_was_killed(folder: Path, client: JobClient) -> None:
    """The process was killed, and the job went on in another attempt, from a checkpoint."""
    assert int((folder / "killed").read_text()) > 1
    assert running(client).master.job_attempt == 1
    (failure,) = client.life_cycle()["exceptions"]
    assert (folder / "killed").read_text() in failure["message"]
    assert client.checkpoint_statistics().completed > 1
