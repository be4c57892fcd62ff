"""`make slow-sink`: a sink becomes slow for minutes under a source that does not wait. Penstock has to name it, keep epochs
and memory within bounds, lose nothing, and be as fast as before when the sink is.

The job runs on Spark, submitted to a dispatcher; everything but memory is seen through REST. Bounds: see `judge`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from penstock.connectors.files import committed_files
from penstock.driver.admission import FIRST_RECORDS
from penstock.service.endpoint import Endpoint
from tests.chaos.slow_sink_job import KEYS
from tests.servers.browser import find
from tests.service.programs import jobmanager

SHOT: Final = Path(__file__).parents[2] / "reports" / "web" / "slow-sink-on-spark.png"
SINK: Final = "files"
TARGET_MS: Final = 1000
HEAP_MIB: Final = 512  # of Spark's JVM; its RSS is more: classes, compiled code, threads, buffers
SETTLE_S: Final = 15.0  # ratios are over ten seconds, and admission needs an epoch or two to learn
# How the sink is slow, and what an epoch is then expected to take: a commit takes its time whatever the epoch brings.
SLOW: Final = {"write": {"write_s": 0.001}, "commit": {"commit_s": 1.5}}
EPOCH_MS: Final = {"write": TARGET_MS, "commit": 1500 + TARGET_MS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float  # since the phase began
    driver_mib: float = 0.0
    jvm_mib: float = 0.0
    slots_mib: float = 0.0  # slots and Spark's Python workers
    bottleneck: str | None = None
    pressure: str = "ok"  # of the source
    records: int = 0  # that have come to the sink since the job began

    @property
    def python_mib(self) -> float:
        return self.driver_mib + self.slots_mib


@dataclass(slots=True)
class Phase:
    name: str
    began_ms: float = field(default_factory=lambda: time.time() * 1000)
    samples: list[Sample] = field(default_factory=list)
    epochs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def settled(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.at_s >= SETTLE_S]

    def rate(self) -> float:
        """Records a second at the sink, in the second half of the phase."""
        first, *_, last = self.samples[len(self.samples) // 2 - 1 :]
        return (last.records - first.records) / (last.at_s - first.at_s)

    def durations(self) -> list[float]:
        ended = self.began_ms + SETTLE_S * 1000
        return sorted(epoch["duration_ms"] for epoch in self.epochs.values() if epoch["wall_ms"] >= ended)

    def admitted(self, *, from_s: float = 0.0) -> list[int]:
        """How many records a source might read, epoch by epoch. Says what the job has learnt of its speed."""
        began = self.began_ms + from_s * 1000
        return [int(epoch["admitted"]) for epoch in self.epochs.values() if epoch["wall_ms"] >= began]

    def see(self, epochs: Iterable[Mapping[str, Any]]) -> None:
        self.epochs |= {epoch["epoch"]: epoch for epoch in epochs if epoch["wall_ms"] >= self.began_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    what: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def passed(self) -> bool:
        return (self.least is None or self.found >= self.least) and (self.most is None or self.found <= self.most)


def judge(before: Phase, slow: Phase, after: Phase, *, epoch_ms: float = TARGET_MS) -> list[Check]:
    """Only what was measured `SETTLE_S` after the phase began counts, but for peaks of memory. A JVM takes what its heap may
    have sooner or later, whatever happens, so it is held against that."""
    settled, durations = slow.settled(), slow.durations()
    peak = max(sample.python_mib for sample in slow.samples)
    slowly = median(slow.admitted(from_s=SETTLE_S))
    quarter = max(1, len(settled) // 4)
    early = median(sample.python_mib for sample in settled[:quarter])
    late = median(sample.python_mib for sample in settled[-quarter:])
    return [
        Check(what="samples that name the sink", found=_share(settled, lambda s: s.bottleneck == SINK), least=0.95),
        Check(
            what="samples in which the source waits", found=_share(settled, lambda s: s.pressure != "ok"), least=0.95
        ),
        Check(what="median epoch, ms", found=median(durations), most=1.3 * epoch_ms),
        Check(what="95 % of epochs, ms", found=durations[int(len(durations) * 0.95)], most=2 * epoch_ms),
        Check(what="Python, MiB late in the slow time", found=late, most=early * 1.05 + 16),
        Check(what="Python, MiB at its peak", found=peak, most=max(s.python_mib for s in before.samples) * 1.1 + 32),
        Check(what="JVM, MiB at its peak", found=max(s.jvm_mib for s in slow.samples), most=HEAP_MIB + 400),
        Check(what="records of an epoch while slow, of the first", found=slowly / FIRST_RECORDS, most=0.9),
        Check(what="records of an epoch after, of while slow", found=max(after.admitted()) / slowly, least=2),
        Check(what="records/s after, of before", found=after.rate() / before.rate(), least=0.8),
    ]


def _share(samples: Sequence[Sample], true: Callable[[Sample], bool]) -> float:
    return sum(map(true, samples)) / len(samples)


class Watch:
    """A running job, through REST and /proc."""

    def __init__(self, rest: Endpoint, job_id: str, console: Console) -> None:
        self._rest, self._path, self._console = rest, f"/jobs/{job_id}", console

    def get(self, path: str = "") -> dict[str, Any]:
        return answered(self._rest, "GET", self._path + path)

    def wait_for(self, state: str, timeout_s: float, epochs: int = 0) -> None:
        deadline = time.monotonic() + timeout_s
        while (job := self.get())["state"] != state or job["totals"]["epochs"] < epochs:
            if time.monotonic() > deadline or job["state"] == "FAILED":
                log = self.get("/log?size=4000").get("text")
                raise RuntimeError(
                    f"after {job['totals']['epochs']} epochs the job is {job['state']}, awaited: {state}:\n{log}"
                )
            time.sleep(0.2)

    def phase(self, name: str, seconds: float, every_s: float) -> Phase:
        phase, began = Phase(name), time.monotonic()
        while (at_s := time.monotonic() - began) < seconds:
            phase.samples.append(self._sample(phase, at_s))
            self._tell(phase)
            time.sleep(max(0.0, every_s - (time.monotonic() - began - at_s)))
        return phase

    def stop(self, timeout_s: float = 120.0) -> None:
        """Drained: every record that was read is in the output."""
        answered(self._rest, "POST", self._path + "/stop", {"drain": True})
        self.wait_for("FINISHED", timeout_s)

    def cancel(self) -> None:
        self._rest.ask("PATCH", self._path)

    def slow_line(self, timeout_s: float = 60.0) -> float:
        """In what part of the time that the sink's flame graph shows it is seen to wait where the job makes it wait."""
        sink = next(v for v in self.get()["vertices"] if v["name"] == SINK)
        deadline = time.monotonic() + timeout_s
        while (root := self.get(f"/vertices/{sink['id']}/flamegraph")["root"]) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no flame graph of {SINK} within {timeout_s:.0f} s")
            time.sleep(0.5)
        return innermost(root, ".wait:") / max(1, int(root["hitCount"]))

    def _sample(self, phase: Phase, at_s: float) -> Sample:
        job = self.get()
        phase.see(job["epochs"])
        source = self.get(f"/vertices/{job['vertices'][0]['id']}/backpressure")
        named = source["bottleneck-vertex"]
        return Sample(
            at_s=at_s,
            **memory_mib(self.get("/facts")["process"]["pid"]),
            bottleneck=None if named is None else named["name"],
            pressure=source["backpressureLevel"],
            records=job["totals"]["records_out"],
        )

    def _tell(self, phase: Phase) -> None:
        if len(phase.samples) == 1:
            self._console.print(
                "  phase    time   driver     JVM   slots  records/s   epoch  admitted  source  bottleneck"
            )
        now = phase.samples[-1]
        ago = next(s for s in phase.samples if s.at_s > now.at_s - 10)
        rate = (now.records - ago.records) / (now.at_s - ago.at_s) if now is not ago else 0.0
        epoch = phase.epochs[max(phase.epochs)] if phase.epochs else {"duration_ms": 0.0, "admitted": None}
        self._console.print(
            f"{phase.name:>7} {now.at_s:6.0f}s {now.driver_mib:8.0f} {now.jvm_mib:7.0f} {now.slots_mib:7.0f} {rate:10.0f} "
            f"{epoch['duration_ms']:5.0f}ms {epoch['admitted'] or 0:9} {now.pressure:>7}  {now.bottleneck or '–'}",
            highlight=False,
        )


def answered(rest: Endpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    answer = rest.ask(method, path, body=body)
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {answer.body}")
    return answer.body


def innermost(place: Mapping[str, Any], name: str) -> int:
    """In how many samples a place of that name is the innermost."""
    below = sum(child["hitCount"] for child in place["children"])
    own = place["hitCount"] - below if name in place["stackTraceLocation"] else 0
    return int(own + sum(innermost(child, name) for child in place["children"]))


def memory_mib(driver: int) -> dict[str, float]:
    """What a driver and everything below it has in memory."""
    found = {"driver_mib": 0.0, "jvm_mib": 0.0, "slots_mib": 0.0}
    process = psutil.Process(driver)
    for member in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error), member.oneshot():
            part = "driver_mib" if member.pid == driver else "jvm_mib" if member.name() == "java" else "slots_mib"
            found[part] += member.memory_info().rss / (1 << 20)
    return found


def look_at_page(rest: Endpoint, job_id: str) -> str | None:
    """Which vertex the page frames as the bottleneck, in a real browser; keeps a screenshot. None: there is no browser."""
    browser = find()
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{rest.address}/#token={rest.token}")  # as `penstock ui` does; the page takes it out of its address
        page.wait_for_function("!location.hash.includes('token')", timeout=20_000)
        page.goto(f"{rest.address}/#/jobs/{job_id}")
        named = page.locator(".vertex.bottleneck").get_attribute("aria-label", timeout=20_000)
        SHOT.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOT, full_page=True)
        chromium.close()
    return named


def check_output(folder: Path, read: int) -> str | None:
    """What is wrong with the committed output of the first `read` numbers, or None."""
    tables = [pq.read_table(file) for file in committed_files(folder)]
    index = np.concatenate([table["index"].to_numpy() for table in tables])
    nth = np.concatenate([table["nth"].to_numpy() for table in tables])
    if len(index) != read or not np.array_equal(np.sort(index), np.arange(read)):
        return f"{len(index)} records, {len(np.unique(index))} of them different, where {read} were read"
    pairs = np.sort(index % KEYS * read + nth)  # of each key the counts 1, 2, 3, …, each once
    expected = np.sort(np.arange(read) % KEYS * read + np.arange(read) // KEYS + 1)
    return None if np.array_equal(pairs, expected) else "the counts of a key have gaps or repetitions"


def run(
    folder: Path,
    *,
    how: str,
    before_s: float,
    slow_s: float,
    after_s: float,
    every_s: float,
    console: Console,
    runtime: str = "epochs",
    rate: float = 8_000,
) -> list[Check]:
    """One run from start to verdict. At the end of the slow time the page is looked at, too."""
    settings = {"spark.master": "local[2,4]", "spark.driver.memory": f"{HEAP_MIB}m"} if runtime != "embedded" else {}
    request = {
        "entry": "tests.chaos.slow_sink_job", "module": True, "runtime": runtime, "flinkConfiguration": settings,
        "programArgsList": [str(folder), f"rate={rate}", f"penstock.epoch.target={TARGET_MS} ms"],
    }  # fmt: skip
    switch = folder / "slow"
    with jobmanager(folder / "home") as rest:
        job_id = answered(rest, "POST", "/jobs", request)["jobid"]
        watch = Watch(rest, job_id, console)
        try:
            watch.wait_for("RUNNING", 200, epochs=5)  # a loaded machine starts a JVM slowly
            before = watch.phase("before", before_s, every_s)
            make_slow(switch, SLOW[how])
            slow = watch.phase("slow", slow_s, every_s)
            shown = look_at_page(rest, job_id)
            blamed = watch.slow_line() if how == "write" else None  # commits are the driver's, and no subtask's
            switch.unlink()
            after = watch.phase("after", after_s, every_s)
            watch.stop()
        except BaseException:
            watch.cancel()
            raise
        read = watch.get()["totals"]["records_in"]
    wrong = check_output(folder / "output", read)
    if wrong is not None:
        raise RuntimeError(f"the answer is not exact: {wrong}")
    console.print(f"{read} records, each once in the output", highlight=False)
    console.print("no browser: the page was not looked at" if shown is None else f"the page: {shown}", highlight=False)
    named = Check(what="the page names the sink", found=float(shown is None or shown.startswith(SINK)), least=1)
    line = [] if blamed is None else [Check(what="samples that find the slow line", found=blamed, least=0.8)]
    return [*judge(before, slow, after, epoch_ms=EPOCH_MS[how]), named, *line]


def make_slow(switch: Path, slow: Mapping[str, float]) -> None:
    staged = switch.with_suffix(".new")  # readers must not see half of it
    staged.write_text(json.dumps(slow))
    staged.rename(switch)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A slow sink, watched on Spark.")
    parser.add_argument("--slow", choices=(*SLOW, "both"), default="both", help="what of the sink is slow")
    parser.add_argument("--minutes", type=float, default=5, help="how long it is slow")
    parser.add_argument("--before", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--after", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="between two samples")
    parser.add_argument("--rate", type=float, default=8_000, help="records a second that come")
    parser.add_argument("--runtime", choices=("epochs", "pipelined", "embedded"), default="epochs")
    arguments = parser.parse_args(argv)
    console, failed = Console(width=140), False
    for how in SLOW if arguments.slow == "both" else [arguments.slow]:
        console.print(f"[bold]A sink that is slow in its {how}: {SLOW[how]}[/]")
        with tempfile.TemporaryDirectory(prefix="penstock-slow-sink-") as folder:
            checks = run(
                Path(folder), how=how, before_s=arguments.before, slow_s=arguments.minutes * 60, after_s=arguments.after,
                every_s=arguments.every, console=console, runtime=arguments.runtime, rate=arguments.rate,
            )  # fmt: skip
        table = Table("measure", "found", "least", "most", "")
        for check in checks:
            verdict = "[green]passed[/]" if check.passed else "[bold red]FAILED[/]"
            bounds = ["" if bound is None else f"{bound:.4g}" for bound in (check.least, check.most)]
            table.add_row(check.what, f"{check.found:.4g}", *bounds, verdict)
        console.print(table)
        failed = failed or not all(check.passed for check in checks)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
