"""The demo's own parts: the verification finds every kind of error, the view and the report show what happened."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.clickstream.clicks import Click
from examples.clickstream.history import History, Incident, Journal
from examples.clickstream.job import TOTALS, WINDOW_MS, WINDOWS
from examples.clickstream.report import Run, write_report
from examples.clickstream.shop import SPLITS, LiveClicks, Shop
from examples.clickstream.verify import Verdict, compare
from examples.clickstream.view import View, screen_text, sparkline
from penstock.engine.messages import EpochReport
from penstock.records import Rows

START = 1_700_000_000_000
SHOP = Shop(opens_ms=START, clicks=120_000)


# ---------------------------------------------------------------- verification


def answer(shop: Shop) -> dict[str, pa.Table]:
    """What a flawless job commits, made record by record, with every second straggler reported late."""
    clicks = [Click(*row.values()) for row in shop.table().to_pylist()]
    late_ids = set(shop.stragglers().to_pylist()[::2])
    totals = []
    windows: dict[tuple[str, int], tuple[int, int]] = {}
    state: dict[int, tuple[int, int]] = {}
    for click in clicks:
        number, spent = state.get(click.user, (0, 0))
        state[click.user] = number, spent = number + 1, spent + click.amount
        totals.append((click.user, click.event_id, number, spent))
        if click.event_id not in late_ids:
            window = click.page, click.event_time - click.event_time % WINDOW_MS
            count, revenue = windows.get(window, (0, 0))
            windows[window] = count + 1, revenue + click.amount
    return {
        "totals": table(totals, TOTALS),
        "windows": table([(*window, *value) for window, value in windows.items()], WINDOWS),
        "late": shop.table().take(sorted(late_ids)),
    }


def table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)), schema=schema)


def replaced(given: pa.Table, row: int, column: str, add: int) -> pa.Table:
    values = given[column].to_numpy().copy()
    values[row] += add
    return given.set_column(given.schema.get_field_index(column), given.schema.field(column), pa.array(values))


def without(given: pa.Table, row: int) -> pa.Table:
    return given.take(np.delete(np.arange(given.num_rows), row))


def doubled(given: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([given, given.slice(row, 1)])


@pytest.fixture(scope="module")
def right() -> dict[str, pa.Table]:
    return answer(SHOP)


def test_a_flawless_answer_is_exactly_once(right: dict[str, pa.Table]) -> None:
    verdict = compare(SHOP, **right)
    assert verdict.exact
    assert str(verdict) == "exactly once: 120,000 events in, 120,000 accounted for, 0 lost, 0 duplicated"
    assert verdict.late > 5
    assert verdict.windows > 100


def test_the_order_of_committed_rows_does_not_matter(right: dict[str, pa.Table]) -> None:
    shuffled = {name: given.take(np.random.default_rng(1).permutation(given.num_rows)) for name, given in right.items()}
    assert compare(SHOP, **shuffled).exact


@pytest.mark.parametrize("sink", ["totals", "windows", "late"])
def test_a_lost_row_is_found_in_every_sink(right: dict[str, pa.Table], sink: str) -> None:
    verdict = compare(SHOP, **{**right, sink: without(right[sink], 3)})
    assert not verdict.exact
    assert str(verdict).startswith("NOT exactly once")
    assert verdict.lost == (1 if sink == "totals" else 0)


@pytest.mark.parametrize("sink", ["totals", "windows", "late"])
def test_a_doubled_row_is_found_in_every_sink(right: dict[str, pa.Table], sink: str) -> None:
    verdict = compare(SHOP, **{**right, sink: doubled(right[sink], 3)})
    assert not verdict.exact
    assert verdict.duplicated == (1 if sink == "totals" else 0)


@pytest.mark.parametrize(
    ("sink", "column"),
    [
        ("totals", "user"), ("totals", "clicks"), ("totals", "spent"), ("totals", "event_id"),
        ("windows", "clicks"), ("windows", "revenue"), ("windows", "start"),
        ("late", "event_id"), ("late", "amount"), ("late", "event_time"),
    ],
)  # fmt: skip
def test_a_changed_value_is_found(right: dict[str, pa.Table], sink: str, column: str) -> None:
    assert not compare(SHOP, **{**right, sink: replaced(right[sink], 7, column, 1)}).exact


def test_a_punctual_click_called_late_is_found_even_if_its_window_lacks_it(right: dict[str, pa.Table]) -> None:
    stragglers = set(SHOP.stragglers().to_pylist())
    punctual = next(i for i in range(50_000, 60_000) if i not in stragglers)
    click = SHOP.table().slice(punctual, 1)
    page, time, amount = (click[name][0].as_py() for name in ("page", "event_time", "amount"))
    rows = right["windows"].to_pylist()
    row = next(i for i, r in enumerate(rows) if r["page"] == page and r["start"] == time - time % WINDOW_MS)
    windows = replaced(replaced(right["windows"], row, "clicks", -1), row, "revenue", -amount)
    verdict = compare(SHOP, totals=right["totals"], windows=windows, late=pa.concat_tables([right["late"], click]))
    assert verdict.problems == ["1 clicks were called late but came in time"]


def test_no_output_at_all_is_everything_lost() -> None:
    nothing = {"totals": TOTALS.empty_table(), "windows": WINDOWS.empty_table(), "late": SHOP.table().slice(0, 0)}
    verdict = compare(SHOP, **nothing)
    assert (verdict.accounted, verdict.lost) == (0, SHOP.clicks)


# ---------------------------------------------------------------- the shop


def test_the_source_never_runs_ahead_of_the_clock_and_finds_a_backlog_after_a_pause() -> None:
    enumerator = LiveClicks(SHOP).create_enumerator()
    assert enumerator.plan(now_ms=START - 5, max_records=None).records == 0
    first = enumerator.plan(now_ms=START + 100, max_records=None)
    assert first.records == 1_600
    resumed = LiveClicks(SHOP).create_enumerator()
    resumed.restore(first.state)
    assert resumed.plan(now_ms=START + 5_100, max_records=30_000).records == 30_000
    assert resumed.plan(now_ms=START + 5_100, max_records=None).records == 50_000


def test_the_splits_together_are_all_clicks_whatever_the_block_size() -> None:
    shop = Shop(opens_ms=START, clicks=1_001)
    plan = LiveClicks(shop).create_enumerator().plan(now_ms=START + 10_000, max_records=None)
    assert plan.finished
    assert len(plan.ranges) == SPLITS
    read: list[Click] = []
    for split in plan.ranges:
        for block in LiveClicks(shop).create_reader().read(split, 97):
            assert isinstance(block, Rows)
            read += block.values
    assert [click._asdict() for click in sorted(read)] == shop.table().to_pylist()


# ---------------------------------------------------------------- journal, view, report


def epoch(number: int, wall_ms: int, **changes: Any) -> EpochReport:
    vertex = {
        "name": "totals per user → totals.parquet", "parallelism": 2, "records_in": 8_000, "busy_ms": 250.0,
        "back_pressured_ms": 50.0, "state_entries": 4_321,
    }  # fmt: skip
    values: dict[str, Any] = {
        "epoch": number, "wall_ms": wall_ms, "checkpoint": True, "duration_ms": 400.0, "records_in": 8_000,
        "records_out": 8_000, "watermark": wall_ms - 900, "checkpoint_bytes": 150 * 1024, "generation": 1,
        "vertices": [vertex], "slots": ["host:11", "host:12"],
    }  # fmt: skip
    return EpochReport(**{**values, **changes})


def history() -> History:
    """Ten seconds: slot 12 is killed at 3 s and the driver at 6 s."""
    told = History(clicks=160_000)
    told.add([epoch(n, START + n * 500) for n in range(1, 7)])
    told.incidents.append(Incident(kind="worker", pid=12, killed_ms=START + 3_000, generation=1))
    after = ["host:11", "host:13"]
    told.add([epoch(7, START + 4_300, restored_tasks=3, slots=after)])
    told.add([epoch(n, START + 4_300 + (n - 7) * 500, slots=after) for n in range(8, 11)])
    told.incidents.append(Incident(kind="driver", pid=10, killed_ms=START + 6_000, generation=1))
    told.add([epoch(11, START + 10_000, generation=2, restored_tasks=6, slots=["host:21", "host:22"])])
    return told


def test_recoveries_are_told_from_the_journal() -> None:
    worker, driver = history().incidents
    assert worker.outcome() == "worker recovered in 1.3 s: 3 tasks restored, job not restarted"
    assert driver.outcome() == "driver recovered in 4.0 s: 6 tasks restored, job resumed"


def test_an_epoch_that_still_had_the_killed_slot_is_not_the_recovery() -> None:
    told = History(clicks=1)
    told.incidents.append(Incident(kind="worker", pid=12, killed_ms=START))
    assert told.add([epoch(1, START + 10)]) == []
    assert told.add([epoch(2, START + 900, slots=["host:11", "host:14"], job_attempt=1)]) == told.incidents
    assert "job resumed" in told.incidents[0].outcome()


def test_the_journal_skips_a_line_a_killed_driver_left_half_written(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    journal = Journal(path)
    assert journal.poll() == []
    whole = json.dumps(asdict(epoch(1, START)))
    path.write_text(whole + "\n" + whole[:50])
    assert [e.epoch for e in journal.poll()] == [1]
    path.write_text(whole + "\n" + whole[:50] + whole + "\n" + json.dumps(asdict(epoch(3, START))) + "\n")
    assert [e.epoch for e in journal.poll()] == [3]


def test_rate_and_lag_are_those_of_the_last_seconds() -> None:
    told = history()
    assert told.rate(START + 3_000, 2_000) == 16_000
    assert told.rate(START + 9_000, 2_000) == 0
    assert told.lag_ms(START + 10_100) == 1_000
    assert max(lag for _, lag in told.lag_series()) == pytest.approx(10.0 - 5.8 + 0.9, abs=0.01)


def test_the_view_fits_80_by_24_and_shows_what_the_issue_asks_for() -> None:
    told = history()
    view = View(told, START)
    view.state = "running"
    for second in range(9):
        view.note(START + second * 1000, f"note {second}")
    for incident in told.incidents:
        view.note(incident.recovered_ms or 0, incident.outcome())
    told.epochs[-1].vertices *= 3
    for earlier in told.epochs[:-1]:
        earlier.vertices *= 3
    text = screen_text(view, START + 10_050)
    lines = text.splitlines()
    assert len(lines) <= 23  # the cursor needs a line
    assert max(map(len, lines)) <= 80
    for word in ("events/s", "latency p50 / p99", "watermark lag", "checkpoint", "busy", "back pressure", "4,321", "21, 22",
                 "job not restarted", "150 KiB", "88,000 of 160,000"):  # fmt: skip
        assert word in text, f"{word!r} is not in\n{text}"


def test_the_view_has_something_to_say_before_the_first_epoch() -> None:
    view = View(History(clicks=10), START)
    assert "waiting for the first epoch" in screen_text(view, START + 10)
    assert view.line(START + 2_000) == "  2.0 s  starting   waiting for the first epoch"


def test_a_sparkline_is_scaled_to_its_largest_value() -> None:
    assert sparkline([0, 50, 100], 10) == "▁▅█"
    assert sparkline([1, 2, 0, 0], 2) == "▁▁"


def test_the_report_is_one_self_contained_page_with_both_kills(tmp_path: Path) -> None:
    verdict = Verdict(clicks=160_000, accounted=160_000, windows=9, late=4, users=7)
    run = Run(history=history(), verdict=verdict, started_ms=START, ended_ms=START + 11_000)
    page, *pictures = write_report(tmp_path, run)
    text = page.read_text()
    assert text.count("<svg") == 3
    assert text.count("worker killed") >= 3
    assert "recovered in 4.0 s: 6 tasks restored" in text
    assert "exactly once: 160,000 events in" in text
    assert "prefers-color-scheme: dark" in text
    assert not any(remote in text for remote in ("http:", "https:", "<script", "<link", "<img"))
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_of_a_failed_run_says_so_and_escapes_what_it_shows(tmp_path: Path) -> None:
    verdict = Verdict(clicks=5, lost=1, problems=["1 <click> has no running total"])
    run = Run(history=History(clicks=5), verdict=verdict, started_ms=START, ended_ms=START + 1)
    text = write_report(tmp_path, run)[0].read_text()
    assert 'class="card verdict bad"' in text
    assert "1 &lt;click&gt; has no running total" in text


def test_clicks_of_epochs_that_are_run_again_count_once() -> None:
    told = History(clicks=100)
    told.add([epoch(n, START + n * 100) for n in (1, 2, 3)])
    once = told.records
    told.add([epoch(n, START + 1_000 + n * 100, job_attempt=1) for n in (2, 3)])
    assert told.records == once


def test_the_latency_shown_is_that_of_the_slower_subtask() -> None:
    told = History(clicks=100)
    assert told.latency_ms() is None
    told.add([epoch(1, START)])
    told.epochs[-1].vertices[0]["operators"] = {
        "totals": {"user": {"latency_p50_ms": [4.0, None, 6.0], "latency_p99_ms": [9.0, None, 30.0]}}
    }
    assert told.latency_ms() == (6.0, 30.0)
