"""Some hundred simulated runs with everything at once, that what should go wrong in them did, and that the oracle would notice."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.simulate import Outcome, oracle, simulate
from penstock.testing.simulate.demon import ACTS, HARMS, POINTS

RUNS, AT_ONCE = 300, 50


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """Of the runs that have been judged so far."""
    return []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, RUNS, AT_ONCE))
def test_nothing_is_lost_twice_late_or_out_of_order_whatever_happens(first: int, outcomes: list[Outcome]) -> None:
    runs = [simulate(seed) for seed in range(first, first + AT_ONCE)]
    outcomes += runs
    assert [str(run) for run in runs if not run.exact] == []


@pytest.mark.long
def test_what_should_go_wrong_in_these_runs_did(outcomes: list[Outcome]) -> None:
    if len(outcomes) < RUNS:
        pytest.skip("only when all runs are")
    fired = sum((run.fired for run in outcomes), Counter[str]())
    assert {point for point in POINTS if not fired[f"crash at {point}"] and not point.endswith("savepoint")} == set()
    assert {act for act in ACTS if not fired[act]} - {"crash", "drain"} == set()
    harms = Counter(fault.rpartition(": ")[2] for fault in fired.elements() if ": " in fault)
    assert {harm: harms[harm] for harm in HARMS if harms[harm] < 10} == {}
    assert fired["replaced while storage is slow"] > 3
    assert fired["declined"] > 3, "checkpoints were declined and the job went on"


def test_a_seed_tells_the_same_story_in_any_process() -> None:
    """Another hash of strings, other processes, another day."""

    def told(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "penstock.testing.simulate", "--seed", "13"]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    first = told("1")
    assert first.count(b"\n") > 10
    assert told("2") == first
    assert "\n".join(simulate(13).story).encode() == first.strip()


def test_a_deed_can_be_left_undone() -> None:
    seed = next(seed for seed in range(50) if simulate(seed).fired["died"])
    planned = len([line for line in simulate(seed).story if line.startswith("  planned: ")])
    calm = simulate(seed, without=range(planned * 10))
    assert calm.exact
    assert not calm.fired["died"]


def test_a_few_runs_are_exact() -> None:
    """For those who leave the long ones out."""
    assert [str(run) for run in map(simulate, range(RUNS, RUNS + 20)) if not run.exact] == []


# ---------------------------------------------------------------- the oracle

RECORDS: dict[str, list[oracle.Record]] = {
    "a0": [("a", "a0.0", 10), ("b", "a0.1", 900), ("a", "a0.2", 1_500)],
    "b0": [("a", "b0.0", 120), ("a", "b0.1", 2_000)],
}
ANSWER: dict[str, list[Any]] = {
    "windows": [
        ("a", 0, ("a0.0", "b0.0")),
        ("b", 0, ("a0.1",)),
        ("a", 1_000, ("a0.2",)),
        ("a", 2_000, ("b0.1",)),
    ],
    "late windows": [],
    "counts": [
        ("count", "a", 1, "a0.0"),
        ("count", "b", 1, "a0.1"),
        ("count", "a", 2, "b0.0"),
        ("timer", "a", 700),
        ("timer", "b", 1_400),
        ("count", "a", 3, "a0.2"),
        ("count", "a", 4, "b0.1"),
        ("timer", "a", 2_100),
    ],
    "prefixes": [
        ("a", ["a0.0"]),
        ("a", ["a0.0", "b0.0"]),
        ("b", ["a0.1"]),
        ("a", ["a0.0", "b0.0", "a0.2"]),
        ("a", ["a0.0", "b0.0", "a0.2", "b0.1"]),
    ],
    "sessions": [
        ("a", 10, ("a0.0", "b0.0")),
        ("b", 900, ("a0.1",)),
        ("a", 1_500, ("a0.2",)),
        ("a", 2_000, ("b0.1",)),
    ],
    "late sessions": [],
    "loops": [(3, "a0.0"), (3, "a0.1"), (3, "a0.2"), (3, "b0.0"), (3, "b0.1")],
    "pairs": [("a0.0", "b0.0")],
    "rules": [("b0.0", 1), ("b0.0", 1), ("b0.1", 2), ("b0.1", 2)],
    "singles": [(list(record), record[2]) for records in RECORDS.values() for record in records],
    "untimed": [(f"c0.{number}", -(2**63)) for number in range(6)],
    "totals": [
        ("a", 0, 2, 10, 120, 2.0**62, timedelta(milliseconds=2)),
        ("b", 0, 1, 900, 900, 2.0**62, timedelta(milliseconds=2)),
        ("a", 1_000, 1, 1_500, 1_500, 2.0**62, timedelta(milliseconds=3)),
        ("a", 2_000, 1, 2_000, 2_000, 2.0**62, timedelta(milliseconds=2)),
    ],
    "sums": [
        ("a", 0, 2, 10, 120, 0.5, Decimal("246913578024691357802469135780.0")),
        ("b", 0, 1, 900, 900, 0, Decimal("123456789012345678901234567890.1")),
        ("a", 1_000, 1, 1_500, 1_500, 1, Decimal("123456789012345678901234567890.2")),
        ("a", 2_000, 1, 2_000, 2_000, 0, Decimal("123456789012345678901234567890.1")),
    ],
}
ANSWER["tenths"] = ANSWER["counts"]
TRUTH = oracle.Truth(splits=RECORDS)


def test_the_oracle_agrees_with_the_answer_worked_out_by_hand() -> None:
    assert oracle.judge(TRUTH, ANSWER).exact


@pytest.mark.parametrize(
    ("branch", "index"), [(branch, index) for branch, results in ANSWER.items() for index in range(len(results))]
)
def test_the_oracle_misses_every_single_result_and_finds_every_repetition(branch: str, index: int) -> None:
    results = ANSWER[branch]
    if branch == "rules":  # as often as there are subtasks
        index -= index % 2
        without, twice = results[:index] + results[index + 2 :], [*results, (results[index][0], 3)]
    else:
        without, twice = results[:index] + results[index + 1 :], [*results, results[index]]
    assert not oracle.judge(TRUTH, {**ANSWER, branch: without}).exact
    assert not oracle.judge(TRUTH, {**ANSWER, branch: twice}).exact


@pytest.mark.parametrize(
    ("branch", "results"),
    [
        ("windows", [*ANSWER["windows"][:3], ("a", 3_000, ("b0.1",))]),  # in another window
        ("windows", [("a", 0, ("a0.0",)), *ANSWER["windows"]]),  # fired early, or twice: cumulative is right …
        ("sessions", [("a", 10, ("a0.0",)), ("a", 120, ("b0.0",)), *ANSWER["sessions"][1:]]),
        ("counts", [ANSWER["counts"][index] for index in (2, 1, 0, 3, 4, 5, 6, 7)]),
        ("prefixes", [ANSWER["prefixes"][index] for index in (1, 0, 2, 3, 4)]),
        ("loops", [(2, "a0.0"), *ANSWER["loops"][1:]]),
        ("pairs", [*ANSWER["pairs"], ("a0.2", "b0.1")]),
        ("rules", [("b0.0", 1), ("b0.1", 1)]),
        ("singles", [*ANSWER["singles"][:4], (ANSWER["singles"][4][0], 2**63 - 1)]),
        ("untimed", [*ANSWER["untimed"][:5], ("c0.5", None)]),
        ("totals", [*ANSWER["totals"][:3], ("a", 2_000, 1, 2_000, 2_000, -(2.0**62), timedelta(milliseconds=2))]),
        ("sums", [*ANSWER["sums"][:3], ("a", 2_000, 1, 2_000, 2_000, 0.5, ANSWER["sums"][3][6])]),
    ],
)
def test_the_oracle_notices_what_is_neither_lost_nor_repeated(branch: str, results: list[Any]) -> None:
    exact = branch == "windows" and len(results) == 5  # … with allowed lateness a window fires again, with all it has
    assert oracle.judge(TRUTH, {**ANSWER, branch: results}).exact == exact


def test_a_late_record_is_in_the_side_output_or_in_a_window_never_in_both_or_neither() -> None:
    late = oracle.Truth(splits=RECORDS, late=True)
    moved = {**ANSWER, "windows": ANSWER["windows"][:3], "late windows": [("a", "b0.1", 2_000)]}
    assert oracle.judge(late, moved).exact
    assert not oracle.judge(TRUTH, moved).exact
    assert oracle.judge(late, {**moved, "late windows": []}).lost == 1
    assert oracle.judge(late, {**moved, "windows": ANSWER["windows"]}).duplicated == 1


def test_at_least_once_may_repeat_and_must_not_lose() -> None:
    truth = oracle.Truth(splits=RECORDS, repeats=True)
    assert oracle.judge(truth, {"loops": [*ANSWER["loops"], ANSWER["loops"][0]]}).exact
    assert oracle.judge(truth, {"loops": ANSWER["loops"][1:]}).lost == 1


def test_event_time_is_where_the_slowest_split_is_that_goes_on() -> None:
    a0, b0 = RECORDS["a0"], RECORDS["b0"]
    assert oracle.event_time([(a0, 2), (b0, 1)]) == 119
    assert oracle.event_time([(a0, 2), (b0, 2)]) == 899, "b0 has ended"
    assert oracle.event_time([(a0, 2), (b0, 0)]) is None, "nobody knows where b0 begins"
    assert oracle.event_time([(a0, 3), (b0, 2)]) is None


def test_what_was_cut_off_has_been_read_up_to_the_same_place_by_all() -> None:
    truth = oracle.Truth(splits=RECORDS, cut=frozenset("b"))
    loops, prefixes = ANSWER["loops"], ANSWER["prefixes"]
    assert oracle.judge(truth, {"loops": loops[:4], "prefixes": prefixes[:4]}).exact
    assert not oracle.judge(truth, {"loops": loops[:4], "prefixes": prefixes}).exact


def test_the_oracle_uses_nothing_of_penstock() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert {str(name).partition(".")[0] for name in imported} <= {
        "__future__",
        "collections",
        "dataclasses",
        "datetime",
        "itertools",
        "typing",
    }
