"""Nexmark's queries asked of other systems: the same events, the same judgement, pieces that add up to a page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environments import NotToBeHadError
from benchmarks.nexmark import __main__ as nexmark
from benchmarks.nexmark import peers
from benchmarks.nexmark.answers import ANSWERS, of_duckdb
from benchmarks.nexmark.events import KINDS, Site
from benchmarks.nexmark.queries import NAMES

SITE = Site(events=2_000, rate=100, disorder=100)


@pytest.mark.parametrize("query", ["q0", "q7"])
def test_files_in_order_hold_the_same_events_and_a_marker_where_windows_must_close(tmp_path: Path, query: str) -> None:
    sides, ordered = peers.side_by_side(tmp_path, SITE, query), peers.in_order(tmp_path, SITE, query)
    for kind in KINDS:
        whole, last = f"select * from {kind} order by all", f"select max(date_time) from {kind}"
        assert of_duckdb(sides, whole) == of_duckdb(ordered, whole.replace(" order", " where extra != '-1' order"))
        later = of_duckdb(ordered, last)[0][0] - of_duckdb(sides, last)[0][0]
        assert later > peers.CHECKED.bound_ms * 1000 if query == "q7" else later == 0
        paths = sorted((ordered / kind).iterdir(), key=lambda path: path.stat().st_mtime)
        assert [path.name for path in paths] == [f"part-{number}.parquet" for number in range(len(paths))]


def _answering(monkeypatch: pytest.MonkeyPatch, rows: list[Any]) -> None:
    """A system that answers with these rows, in a second for the short run and three for the long one."""

    def run(python: Path, module: str, spec: dict[str, Any], log: Path) -> None:
        folder = Path(spec["folder"])
        (folder / "output").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "run.json").write_text(json.dumps({"seconds": [1.0, 3.0], "cpu_s": 6.0, "others": 0.05}))

    monkeypatch.setattr(peers, "run_program", run)
    monkeypatch.setattr(peers, "FEW", 10_000)
    monkeypatch.setattr(peers, "CHECKED", SITE)


def test_a_right_answer_has_a_rate_and_a_wrong_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = [list(row) for row in of_duckdb(peers.side_by_side(tmp_path, SITE, "q2"), ANSWERS["q2"].sql)]
    assert right
    (tmp_path / "run").mkdir()
    _answering(monkeypatch, right)
    row = peers.measure("spark", "q2", 20_000, tmp_path, tmp_path / "run")
    assert row["wrong"] is None
    assert row["rate"] == 9_200 / 2  # bids of ten thousand events, in the two seconds that they took longer
    assert row["cores"] == {"all": 2.0, "others": 0.1}
    _answering(monkeypatch, right[1:])
    assert "missing 1" in peers.measure("spark", "q2", 20_000, tmp_path, tmp_path / "run")["wrong"]


def test_what_cannot_be_asked_or_had_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def python() -> Path:
        raise NotToBeHadError("no wheel")

    assert peers.measure("spark", "q9", 20_000, tmp_path, tmp_path)["skipped"] == "streams have no ranks"
    monkeypatch.setitem(peers.PEERS, "spark", dataclasses.replace(peers.PEERS["spark"], python=python))
    assert peers.measure("spark", "q2", 20_000, tmp_path, tmp_path)["skipped"] == "no wheel"


def test_pieces_add_up_to_a_page_with_a_line_for_each_query(tmp_path: Path) -> None:
    def row(query: str, mode: str, rate: float) -> dict[str, Any]:
        return {"query": query, "mode": mode, "rate": rate, "start_up_s": 1.0, "cores": {"all": 1.5}, "wrong": None}

    nexmark.write("nexmark", [row("q5", "spark", 5e5), row("q5", "pipelined", 1e6)], tmp_path)
    pieces = [*nexmark.load("nexmark", tmp_path), {**row("q0", "flink-sql", 1.0), "wrong": "no rows"}]
    nexmark.write("nexmark", [*pieces, row("q0", "pipelined", 2e6)], tmp_path)
    lines = (tmp_path / "nexmark.md").read_text().splitlines()
    assert "| query | pipelined | epochs | Flink SQL | × | PyFlink | × | Spark | × |" in lines
    assert "| q0 | 2,000,000 | – | wrong |  | – |  | – |  |" in lines
    assert "| q5 | 1,000,000 | – | – |  | – |  | 500,000 | 2.00 |" in lines
    assert "| q0 | flink-sql | wrong: no rows | | |" in lines
    assert set(peers.PEERS["spark"].absent) < set(NAMES)
