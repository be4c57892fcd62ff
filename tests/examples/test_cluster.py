"""The cluster demo's job, without a cluster, and its check of the output, which must notice what it is there for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from examples.cluster.demo import DemoFailed, Watch, verify
from examples.cluster.job import main
from examples.cluster.view import View, Worker


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    main(str(tmp_path / "output"), 1000, 1e6)
    return tmp_path / "output"


def test_the_job_writes_every_reading_once(output: Path) -> None:
    verify(output, 1000)
    assert sorted(pq.read_table(output).column("index").to_pylist()) == list(range(1000))


@pytest.mark.parametrize("damage", ["lost", "twice", "miscounted"])
def test_a_wrong_output_is_noticed(output: Path, damage: str) -> None:
    table = pq.read_table(output)
    one = max(output.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.read_table(one)
    match damage:
        case "lost":
            pq.write_table(rows.slice(1), one)
        case "twice":
            pq.write_table(rows.slice(0, 1), output / "again.parquet")
        case "miscounted":
            totals = [total + 1 for total in rows.column("total").to_pylist()]
            pq.write_table(rows.set_column(3, "total", [totals]), one)
    assert table.num_rows == 1000
    with pytest.raises(DemoFailed, match="wrong"):
        verify(output, 1000)


def _view(console: Console) -> View:
    view = View(console=console, readings=1000)
    view.read = 400
    view.workers = [
        Worker(number=0, pid=11, alive=True, executors=[15], slots=[(0, 21), (1, 22)]),
        Worker(number=1, pid=12, alive=False, executors=[], slots=[]),
    ]
    for number in range(1, 200):
        restored = 2 if number == 199 else 0
        view.epochs[number] = {
            "epoch": number, "duration_ms": 100.0 * number, "records_in": 5, "restored_tasks": restored, "checkpoint_bytes": 2048,
        }  # fmt: skip
    view.note(
        "kill -9 12: worker 1 is gone, and its executor and slots with it, which is a long line to tell", "bold red"
    )
    return view


@pytest.mark.parametrize("width", [80, 110])
def test_the_screen_shows_workers_slots_epochs_and_the_story_and_fits_the_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=32, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(_view(console))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 24
    screen = "\n".join(lines)
    for words in (
        "400 of 1,000",
        "executor 15",
        "slot 0 (21), slot 1 (22)",
        "✗ worker 1",
        "epoch 199: 5 readings",
        "kill -9 12",
    ):
        assert words in screen


def test_without_a_terminal_the_story_is_told_line_by_line() -> None:
    out = io.StringIO()
    _view(Console(file=out, width=80))
    assert out.getvalue().count("\n") == 1
    assert "kill -9 12" in out.getvalue()


class _Process:
    def __init__(self, pid: int) -> None:
        self.pid, self.dead = pid, False

    def poll(self) -> int | None:
        return -9 if self.dead else None


class _Cluster:
    def __init__(self) -> None:
        self.workers: Any = [_Process(11), _Process(12)]

    def kill_worker(self, number: int) -> int:
        self.workers[number].dead = True
        return int(self.workers[number].pid)

    def worker_of(self, slot_pid: int) -> int | None:
        return {21: 0, 22: 1, 23: 1}.get(slot_pid)

    def executors_of(self, number: int) -> list[int]:
        return []


def test_the_recovery_is_the_first_epoch_without_the_lost_slots() -> None:
    def facts(slots: list[int], *restored: int) -> dict[str, Any]:
        epochs = [{"epoch": i + 1, "restored_tasks": tasks} for i, tasks in enumerate(restored)]
        return {
            "epochs": epochs, "slot_processes": [f"host:{slot}" for slot in slots], "totals": {"records_in": 9},
            "state": "RUNNING", "transitions": [],
        }  # fmt: skip

    view = View(console=Console(file=io.StringIO()), readings=10)
    watch = Watch(_Cluster(), view)
    watch.look(None)
    watch.look(facts([21, 22], 0, 0))
    assert watch.a_worker_with_a_slot() == 0
    watch.kill(0)
    watch.look(facts([21, 22], 0, 0, 0))  # it was under way
    too_early = watch.recovery_s
    watch.look(facts([23, 22], 0, 0, 0, 2))
    assert too_early is None
    assert watch.recovery_s is not None
    assert [worker.alive for worker in view.workers] == [False, True]
    assert view.workers[1].slots == [(0, 23), (1, 22)]
    assert "epoch 4 is complete without them" in view.notes[-1][1]
    assert "2 subtasks were restored" in view.notes[-1][1]
