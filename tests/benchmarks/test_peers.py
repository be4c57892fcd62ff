"""The judgement of `make bench-peers`: a wrong answer is no rate, and a system that cannot be had is a row with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import environments
from benchmarks.dataset import MARKER_KEY
from benchmarks.environments import NotToBeHadError
from benchmarks.peers import results
from benchmarks.peers.harness import measure
from benchmarks.peers.systems import SYSTEMS, System
from benchmarks.peers.workloads import DISORDER_MS, WORKLOADS, check, dataset, one_after_the_other, side_by_side
from benchmarks.reference import WrongAnswerError, windows_of

EVENTS = 200_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock-bench"


def system(kind: str, **more: Any) -> System:
    return System(
        title=kind,
        module="tests.benchmarks.peer_program",
        sizes=dict.fromkeys(WORKLOADS, (EVENTS, 5 * EVENTS)),
        note="",
        settings=lambda: {"system": kind},
        **more,
    )


def test_the_rate_is_that_of_the_further_events_over_the_further_time() -> None:
    row = measure(system("right"), "W1")
    assert row["events"] == 4 * EVENTS
    assert row["rate"] == pytest.approx(row["events"] / row["seconds"])
    assert 100_000 < row["rate"] < 1e7  # it sleeps for as long
    assert row["memory"] > 0
    assert row["per_cpu_second"] > 0


def test_a_wrong_answer_has_no_rate() -> None:
    row = measure(system("wrong"), "W1")
    assert "rate" not in row
    assert "prices: 99" in row["wrong"]


def test_a_system_that_fails_says_how() -> None:
    row = measure(system("fails"), "W1")
    assert "rate" not in row
    assert "no such luck" in row["wrong"]


def test_what_a_system_cannot_express_is_skipped_with_the_reason() -> None:
    assert measure(system("right", absent={"W3": "has no keys"}), "W3") == {"skipped": "has no keys"}


def test_a_system_that_cannot_be_had_is_skipped_with_the_reason() -> None:
    def python() -> Path:
        raise NotToBeHadError("no wheel")

    assert measure(system("right", python=python), "W1") == {"skipped": "no wheel"}


def test_an_environment_whose_packages_are_not_there_is_not_to_be_had(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> None:
        if "pip" in command:
            raise subprocess.CalledProcessError(1, command, stderr="looking\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NotToBeHadError, match=r"bytewax==.* cannot be installed: ERROR: No matching"):
        environments.interpreter("bytewax")
    assert not list(cache.glob("bytewax*/made"))


def test_both_layouts_hold_the_same_events_of_which_some_are_as_late_as_the_workload_says() -> None:
    columns = np.array(dataset(EVENTS).columns())
    one, two = (pq.read_table(layout(EVENTS)) for layout in (one_after_the_other, side_by_side))
    in_order = np.array([column.to_numpy() for column in one.columns])
    assert np.array_equal(in_order[:, in_order[0] != MARKER_KEY], columns)
    both = np.array([column.to_numpy() for column in two.columns])
    assert np.array_equal(both[:, np.lexsort(both)], columns[:, np.lexsort(columns)])
    behind = np.maximum.accumulate(columns[1]) - columns[1]
    assert DISORDER_MS * 0.9 < behind.max() < DISORDER_MS


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_output_is_read_whatever_its_format_and_a_missing_row_is_noticed(tmp_path: Path, suffix: str) -> None:
    windows = windows_of(*dataset(EVENTS).columns())
    columns = [windows.key, windows.start, windows.count, windows.total]

    def write(folder: Path, rows: slice) -> None:
        folder.mkdir()
        if suffix == "csv":
            np.savetxt(folder / "part-0", np.array(columns).T[rows], fmt="%d", delimiter=",")
        else:
            pq.write_table(pa.table([c[rows] for c in columns], names=WORKLOADS["W2"].columns), folder / "part-0")
        (folder / ".staged").write_text("not to be seen")

    write(tmp_path / "whole", slice(None))
    check("W2", EVENTS, tmp_path / "whole")
    write(tmp_path / "less", slice(1, None))
    with pytest.raises(WrongAnswerError, match="entries instead of"):
        check("W2", EVENTS, tmp_path / "less")
    (tmp_path / "none").mkdir()
    with pytest.raises(WrongAnswerError, match="holds no output"):
        check("W2", EVENTS, tmp_path / "none")


def test_the_page_has_ratios_reasons_and_what_was_wrong_and_pieces_are_kept(tmp_path: Path) -> None:
    row = {"rate": 2e6, "events": 10, "seconds": 1.0, "per_cpu_second": 1e6, "memory": 5e6, "others": 0.02}
    found: results.Found = {
        "W1": {
            "penstock-pipelined": row,
            "spark": {**row, "rate": 1e6},
            "bytewax": {"skipped": "no wheel"},
            "flink-sql": {**row, "others": 0.4},
            "pathway": {"wrong": "prices:\n3 entries"},
        }
    }
    results.write(found, tmp_path)
    assert results.load(tmp_path) == found
    lines = (tmp_path / "peers.md").read_text().splitlines()
    assert "| Spark Structured Streaming | 1,000,000 | 2.00× | 1,000,000 | 5 | 10 in 1.0 s | 2% |" in lines
    assert "| Flink SQL | 2,000,000 |  | 1,000,000 | 5 | 10 in 1.0 s | 40% |" in lines
    assert "| Bytewax | skipped: no wheel | | | | | |" in lines
    assert "| Pathway | wrong: prices: 3 entries | | | | | |" in lines
    assert (tmp_path / "peers.svg").stat().st_size
    assert [results.is_quiet(each) for each in found["W1"].values()] == [True, True, False, False, False]


def test_every_system_is_asked_every_workload_or_says_why_not() -> None:
    for name, known in SYSTEMS.items():
        assert set(known.sizes) | set(known.absent) == set(WORKLOADS), name
        assert all(few < many for few, many in known.sizes.values()), name
