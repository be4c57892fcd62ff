"""The benchmark's own judgement: reference answers, verification and rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.dataset import MARKER_KEY, WINDOW_MS, Dataset, Longs
from benchmarks.rates import EpochEnd, Run, percentile
from benchmarks.reference import (
    WrongAnswerError,
    check_running,
    check_windows,
    read_columns,
    totals_of,
    windows_of,
)

SMALL = Dataset(events=4_000, keys=50, files=8)


def test_window_reference_equals_a_count_by_hand() -> None:
    key, time, amount = SMALL.columns()
    by_hand: dict[tuple[int, int], tuple[int, int]] = {}
    for k, t, a in zip(key.tolist(), time.tolist(), amount.tolist(), strict=True):
        count, total = by_hand.get((t // WINDOW_MS * WINDOW_MS, k), (0, 0))
        by_hand[(t // WINDOW_MS * WINDOW_MS, k)] = (count + 1, total + a)
    windows = windows_of(key, time, amount)
    found = zip(*(c.tolist() for c in (windows.start, windows.key, windows.count, windows.total)), strict=True)
    assert [((s, k), (c, t)) for s, k, c, t in found] == sorted(by_hand.items())


def test_the_reference_itself_passes_in_any_order() -> None:
    key, time, amount = SMALL.columns()
    windows = windows_of(key, time, amount)
    order = np.random.default_rng(1).permutation(len(windows.key))
    assert not np.array_equal(windows.start[order], windows.start)
    check_windows(windows, *(c[order] for c in (windows.key, windows.start, windows.count, windows.total)))


def test_a_lost_a_repeated_and_a_wrong_window_are_noticed() -> None:
    key, time, amount = SMALL.columns()
    windows = windows_of(key, time, amount)
    columns = (windows.key, windows.start, windows.count, windows.total)
    with pytest.raises(WrongAnswerError, match="entries instead of"):
        check_windows(windows, *(c[1:] for c in columns))
    with pytest.raises(WrongAnswerError, match="entries instead of"):
        check_windows(windows, *(np.append(c, c[-1]) for c in columns))
    wrong = windows.total.copy()
    wrong[3] += 1
    with pytest.raises(WrongAnswerError, match="total of the windows: 1 of"):
        check_windows(windows, windows.key, windows.start, windows.count, wrong)


def _running(key: Longs, amount: Longs) -> Longs:
    sums: dict[int, int] = {}
    out = []
    for k, a in zip(key.tolist(), amount.tolist(), strict=True):
        sums[k] = sums.get(k, 0) + a
        out.append(sums[k])
    return np.array(out)


def test_running_sums_pass_whatever_order_the_events_of_a_key_had() -> None:
    key, _, amount = SMALL.columns()
    other = np.random.default_rng(2).permutation(len(key))
    assert not np.array_equal(np.sort(_running(key, amount)), np.sort(_running(key[other], amount[other])))
    check_running(totals_of(key, amount), key, _running(key, amount))
    check_running(totals_of(key, amount), key[other], _running(key[other], amount[other]))


def test_a_lost_and_a_doubled_event_of_a_key_are_noticed() -> None:
    key, _, amount = SMALL.columns()
    with pytest.raises(WrongAnswerError):
        check_running(totals_of(key, amount), key[:-1], _running(key[:-1], amount[:-1]))
    twice_key, twice_amount = np.append(key, key[-1]), np.append(amount, amount[-1])
    with pytest.raises(WrongAnswerError):
        check_running(totals_of(key, amount), twice_key, _running(twice_key, twice_amount))


def test_output_is_read_without_the_marker_and_without_hidden_files(tmp_path: Path) -> None:
    table = pa.table({"key": [MARKER_KEY, 3], "total": [0, 9]})
    (tmp_path / "out" / ".staging").mkdir(parents=True)
    pq.write_table(table, tmp_path / "out" / "part-1.parquet")
    pq.write_table(table, tmp_path / "out" / ".staging" / "part-2.parquet")
    key, total = read_columns(tmp_path / "out", ["key", "total"])
    assert (key.tolist(), total.tolist()) == ([3], [9])


def test_the_dataset_is_the_same_every_time_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = SMALL.ensure()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert SMALL.ensure() == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    files = sorted(folder.glob("*.parquet"))
    read = pa.concat_tables([pq.read_table(path) for path in files])
    assert len(files) == SMALL.files + 1
    assert read.column("key").to_pylist() == [*SMALL.columns()[0].tolist(), MARKER_KEY]


def test_the_steady_rate_is_that_of_the_second_half_without_the_marker() -> None:
    ends = [EpochEnd(at=10.0, records=90), EpochEnd(at=12.0, records=90), EpochEnd(at=13.0, records=100)]
    run = Run(started=0.0, epochs=[*ends, EpochEnd(at=14.0, records=100), EpochEnd(at=20.0, records=1)])
    assert run.steady_rate == 100.0
    assert run.total_rate == 381 / 20
    assert Run.from_json(run.to_json()) == run


def test_a_run_without_epochs_after_the_warm_up_has_no_steady_rate() -> None:
    with pytest.raises(ValueError, match="too few"):
        _ = Run(started=0.0, epochs=[EpochEnd(at=1.0, records=1), EpochEnd(at=2.0, records=1)]).steady_rate


def test_percentiles_interpolate() -> None:
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([7.0], 90) == 7.0
