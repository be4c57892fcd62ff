"""The five measurements. Competitors run one after the other, each in a process of its own, on the same files."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.competitor import Measured, Side, compete
from benchmarks.dataset import BOUND_MS, FILES_PER_EPOCH, WINDOW_FILES_PER_EPOCH, WINDOW_MS, Dataset, first_files
from benchmarks.reference import (
    WrongAnswerError,
    check_rows,
    check_running,
    check_windows,
    read_columns,
    totals_of,
    windows_of,
)

CHECKPOINT_MS = 1_000
CHECKPOINT_COST_GOAL = 0.10
QUIET = 0.05  # other programs use at most this share of the machine
STATE_API_FILES = 3 * FILES_PER_EPOCH + FILES_PER_EPOCH  # transformWithState is slow: fewer files, four triggers


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table. `ok` is None for what has no goal of its own."""

    number: str
    what: str
    penstock: str
    other: str
    ratio: str
    goal: str
    ok: bool | None
    noise: str  # share of the machine that other programs used in the runs behind this line


@dataclass(slots=True, kw_only=True)
class Results:
    lines: list[Line] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Suite:
    work: Path
    dataset: Dataset
    rounds: int
    empty_warm_up: int
    empty_epochs: int
    say: Callable[[str], None]
    results: Results = field(default_factory=Results)
    _runs: int = 0

    def run(self, chosen: set[str]) -> Results:
        for number, measure in (
            ("1", self.windows),
            ("2", self.keyed),
            ("3", self.empty),
            ("4", self.checkpoint_cost),
            ("5", self.pipelined),
        ):
            if number in chosen:
                measure()
        return self.results

    # ---------------------------------------------------------------- competitors

    def _compete(self, label: str, side: Side, spec: dict[str, Any]) -> Measured:
        self._runs += 1
        self.say(f"{label} …")
        measured = compete(side, spec, self.work / f"{self._runs:02d}-{side}-{spec['job']}")
        run = measured.run
        self.results.raw.setdefault(label, []).append(
            {
                "events": run.events,
                "steady_per_s": round(run.steady_rate) if run.events else None,
                "total_per_s": round(run.total_rate) if run.events else None,
                "events_per_cpu_s": round(run.events / measured.cpu_s),
                "cpu_s": measured.cpu_s,
                "others": measured.others,
                "details": run.details,
            }
        )
        if run.events:
            self.say(f"    {run.steady_rate:,.0f} events/s steady, {run.total_rate:,.0f} in all")
        return measured

    def _penstock(
        self,
        label: str,
        job: str,
        *,
        checkpoints: bool,
        mode: str = "epochs",
        dataset: Dataset | None = None,
        **more: Any,
    ) -> Measured:
        events = dataset or self.dataset
        an_epoch = (WINDOW_FILES_PER_EPOCH if job == "window" else FILES_PER_EPOCH) * events.file_rows
        spec = {
            "job": job,
            "input": str(events.ensure()),
            "mode": mode,
            "max_records": an_epoch if mode == "epochs" else None,
            "checkpoint_interval_ms": CHECKPOINT_MS if checkpoints else None,
            **more,
        }
        measured = self._compete(label, "penstock_side", spec)
        self._check(job, measured, None, events)
        return measured

    def _check(self, job: str, measured: Measured, files: int | None, dataset: Dataset | None = None) -> None:
        key, time, amount = (dataset or self.dataset).columns(files)
        if job == "rows":
            check_rows(amount, read_columns(measured.folder / "out", ["key", "price"])[1])
        elif job == "keyed":
            check_running(totals_of(key, amount), *read_columns(measured.folder / "out", ["key", "total"]))
        else:
            names = ["key", "window_start", "number", "total"]
            check_windows(windows_of(key, time, amount), *read_columns(measured.folder / "out", names))

    # ---------------------------------------------------------------- 1: columnar windows

    def windows(self) -> None:
        source = str(self.dataset.ensure())
        ours, spark, through_spark, discarding = [], [], [], []
        for _ in range(self.rounds):
            ours.append(self._penstock("window: Penstock", "window", checkpoints=True))
            spark.append(
                self._compete("window: Spark", "spark_side", {"job": "window", "input": source, "sink": "parquet"})
            )
            self._check("window", spark[-1], None)
            through_spark.append(self._penstock("window: Penstock, from_spark", "window-from-spark", checkpoints=True))
            discarding.append(
                self._compete(
                    "window: Spark, no sink", "spark_side", {"job": "window", "input": source, "sink": "noop"}
                )
            )
            self._check_observed(discarding[-1])
        goal = "≥ 2×"
        self._rates(
            "1", "tumbling count and sum, columnar, against Spark's aggregation on RocksDB", ours, spark, goal, 2.0
        )
        self._rates("1a", "… read by Spark (from_spark)", through_spark, spark, "", None)
        self._rates("1b", "… against Spark without a sink", ours, discarding, "", None)
        rate, quiet = _median_rate(ours), max(measured.others for measured in ours) <= QUIET
        self.results.lines.append(
            Line(
                number="1c",
                what="… events/s where the machine is quiet",
                penstock=f"{rate:,.0f}/s",
                other="",
                ratio="" if quiet else "undecided: not quiet",
                goal="≥ 1,000,000/s",
                ok=rate >= 1_000_000 if quiet or rate >= 1_000_000 else None,
                noise=_noise(ours),
            )
        )

    def _check_observed(self, measured: Measured) -> None:
        expected = self.dataset.columns()
        found = measured.run.details["observed"]
        wanted = {"number": len(expected[0]), "total": int(expected[2].sum())}
        if found != wanted:
            raise WrongAnswerError(f"Spark without a sink counted {found} instead of {wanted}")

    # ---------------------------------------------------------------- 2: a Python function with value state

    def keyed(self) -> None:
        source = self.dataset.ensure()
        few = first_files(source, STATE_API_FILES, self.work / "few-files")
        ours, spark = [], []
        for _ in range(self.rounds):
            ours.append(self._penstock("keyed: Penstock", "keyed", checkpoints=True))
            spec = {"job": "keyed", "input": str(few), "sink": "parquet"}
            spark.append(self._compete("keyed: transformWithState", "spark_side", spec))
            self._check("keyed", spark[-1], STATE_API_FILES)
        what = "KeyedProcessFunction with value state, against transformWithState (rows)"
        self._rates("2", what, ours, spark, "≥ 10×", 10.0)

    # ---------------------------------------------------------------- 3: the fixed price of an epoch

    def empty(self) -> None:
        spec = {
            "job": "empty",
            "checkpoint_interval_ms": 0,
            "warm_up": self.empty_warm_up,
            "epochs": self.empty_epochs,
            "settings": {
                "penstock.epoch.quiet-interval": "0 ms",
                "spark.sql.streaming.numRecentProgressUpdates": str(self.empty_epochs),
            },
        }
        measured = self._compete("empty epochs", "penstock_side", spec)
        period = measured.run.details["period_ms"]
        self.results.lines.append(
            Line(
                number="3",
                what="empty epoch of three levels, commit to commit, a checkpoint in each",
                penstock=f"p50 {period['p50']:.0f} ms, p90 {period['p90']:.0f} ms",
                other="",
                ratio="",
                goal="p50 ≤ 250 ms",
                ok=period["p50"] <= 250,
                noise=_noise([measured]),
            )
        )

    # ---------------------------------------------------------------- 4: what checkpoints cost

    def checkpoint_cost(self) -> None:
        for letter, job, name in (("a", "window", "columnar windows"), ("b", "keyed", "keyed process function")):
            with_: list[Measured] = []
            without: list[Measured] = []
            for turn in range(self.rounds + 1):
                order = (True, False) if turn % 2 else (False, True)  # neither always comes first
                for checkpoints in order:
                    label = f"checkpoint cost, {name}: {'every second' if checkpoints else 'none'}"
                    (with_ if checkpoints else without).append(self._penstock(label, job, checkpoints=checkpoints))
            cost = 1 - _median_rate(with_) / _median_rate(without)
            spread = max(_spread(with_), _spread(without))
            # Runs of one and the same job that differ by more than the goal cannot say whether it is met.
            decided = spread <= CHECKPOINT_COST_GOAL
            self.results.lines.append(
                Line(
                    number=f"4{letter}",
                    what=f"a checkpoint every second, {name}",
                    penstock=f"{_median_rate(with_):,.0f}/s with",
                    other=f"{_median_rate(without):,.0f}/s without",
                    ratio=f"costs {cost:.0%}, runs differ by {spread:.0%}{'' if decided else ': undecided'}",
                    goal=f"≤ {CHECKPOINT_COST_GOAL:.0%}",
                    ok=cost <= CHECKPOINT_COST_GOAL if decided else None,
                    noise=_noise([*with_, *without]),
                )
            )

    # ---------------------------------------------------------------- 5: pipelined

    def pipelined(self) -> None:
        """Three times as many events: a pipelined job has read the others before the JVM is warm. Its readers take a file each,
        an epoch ten of them, so event time is out of order by as many: both sides get a bound that allows for it."""
        files = max(3 * self.dataset.events, 12_000_000) // 100_000
        many = replace(self.dataset, events=files * 100_000, files=files)
        bound_ms = WINDOW_FILES_PER_EPOCH * WINDOW_MS // 4 + BOUND_MS
        for letter, job, what, goal, least in (
            ("a", "window", "tumbling count and sum, columnar", "≥ 2.5×", 2.5),
            ("b", "keyed", "KeyedProcessFunction with value state", "≥ 1×", 1.0),
            ("c", "rows", "stateless Python functions (map, filter)", "≥ 1×", 1.0),
        ):
            streamed, epochs = [], []
            for _ in range(self.rounds):
                streamed.append(
                    self._penstock(
                        f"{job}: pipelined",
                        job,
                        checkpoints=True,
                        mode="pipelined",
                        dataset=many,
                        bound_ms=bound_ms,
                        files=2,
                    )
                )
                epochs.append(self._penstock(f"{job}: epochs", job, checkpoints=True, dataset=many, bound_ms=bound_ms))
            self._rates(f"5{letter}", f"{what}: pipelined against epochs", streamed, epochs, goal, least)

    # ---------------------------------------------------------------- lines

    def _rates(
        self, number: str, what: str, ours: list[Measured], theirs: list[Measured], goal: str, least: float | None
    ) -> None:
        ratio = _median_rate(ours) / _median_rate(theirs)
        self.results.lines.append(
            Line(
                number=number,
                what=what,
                penstock=f"{_median_rate(ours):,.0f}/s",
                other=f"{_median_rate(theirs):,.0f}/s",
                ratio=f"{ratio:.1f}× ({_per_cpu(ours) / _per_cpu(theirs):.1f}× per CPU second)",
                goal=goal,
                ok=None if least is None else ratio >= least,
                noise=_noise([*ours, *theirs]),
            )
        )


def _median_rate(runs: list[Measured]) -> float:
    return statistics.median(measured.run.steady_rate for measured in runs)


def _per_cpu(runs: list[Measured]) -> float:
    """Events per CPU second of all the competitor's processes, starting them included: what other programs do moves it
    less than it moves the clock."""
    return statistics.median(measured.run.events / measured.cpu_s for measured in runs)


def _spread(runs: list[Measured]) -> float:
    """How far apart runs of the same job are, relative to their median."""
    rates = [measured.run.steady_rate for measured in runs]
    return (max(rates) - min(rates)) / statistics.median(rates)


def _noise(runs: list[Measured]) -> str:
    return f"{min(m.others for m in runs):.0%}–{max(m.others for m in runs):.0%}"
