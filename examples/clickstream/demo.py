"""`make demo`: run the clickstream job, kill a worker, kill the driver, and show that every click counts exactly once.

This process only watches, kills and checks. The job runs in a driver process of its own, whose output goes to
`demo-output/driver-*.log`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import psutil
from rich.console import Console
from rich.live import Live

from examples.clickstream.history import History, Incident, Journal
from examples.clickstream.report import Run, write_report
from examples.clickstream.shop import Shop
from examples.clickstream.verify import verify
from examples.clickstream.view import View
from examples.kill import ChosenProcess, NotOurs, kill

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "demo-output"
CLICKS = 400_000  # 25 s at 16 clicks a millisecond
OPENS_AFTER_MS = 8_000  # time for the JVM to start; where it needs longer, the job begins with a backlog
START_TIMEOUT_S = 90.0
PROGRESS_TIMEOUT_S = 60.0
KILL_WORKER_AT, KILL_DRIVER_AT = 0.33, 0.62  # of all clicks
_JOB = "examples.clickstream.job"


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


class Driver:
    """The driver process and what it starts: a JVM and Spark's Python workers, which hold the job's tasks."""

    def __init__(self, folder: Path, shop: Shop) -> None:
        self._folder = folder
        self._arguments = [str(folder), f"opens_ms={shop.opens_ms}", f"clicks={shop.clicks}"]
        self._starts = 0
        self._log: IO[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        self._close_log()
        self._log = self.log_path.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", _JOB, *self._arguments],
            cwd=PROJECT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the driver in order
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log_path(self) -> Path:
        return self._folder / f"driver-{self._starts}.log"

    def ended(self) -> int | None:
        """The exit code, None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def log_tail(self, lines: int = 15) -> str:
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def kill(self) -> int:
        """SIGKILL to the driver and its JVM, as when the machine they are on is gone."""
        pid = self.pid
        targets = [ChosenProcess.of(pid, command_contains=_JOB)]
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a child that has ended meanwhile
                if "java" in child.name():
                    targets.append(ChosenProcess.of(child.pid, command_contains="pyspark"))
        for target in targets:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill(target)
        assert self.process is not None
        self.process.wait(10)
        return pid

    def stop(self, slots: Iterable[ChosenProcess]) -> None:
        """End whatever of ours is still there. Workers end themselves when their driver is gone; if not, we do it."""
        family: list[psutil.Process] = []
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                me = psutil.Process(self.process.pid)
                family = [me, *me.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, alive = psutil.wait_procs(family, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        deadline = time.monotonic() + 5
        left = [slot for slot in slots if _alive(slot)]
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left = [slot for slot in left if _alive(slot)]
        for slot in left:
            with contextlib.suppress(psutil.Error, NotOurs):
                kill(slot)
        self._close_log()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _alive(target: ChosenProcess) -> bool:
    """Whether it is still there; its pid alone may by now be somebody else's."""
    try:
        process = psutil.Process(target.pid)
        return process.create_time() == target.started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Screen:
    """Rich's live display on a terminal; elsewhere a line a second, and each note as it comes."""

    def __init__(self, view: View, console: Console) -> None:
        self._view = view
        self._console = console
        self._live: Live | None = None
        self._printed_notes = 0
        self._next_line_ms = 0

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            self.refresh()
            return
        with Live(self._view.render(now_ms()), console=self._console, auto_refresh=False) as self._live:
            yield
            self.refresh()

    def refresh(self) -> None:
        now = now_ms()
        if self._live is not None:
            self._live.update(self._view.render(now), refresh=True)
            return
        for note in self._view.notes[self._printed_notes :]:
            print(self._view.note_line(note), flush=True)
        self._printed_notes = len(self._view.notes)
        if now >= self._next_line_ms:
            print(self._view.line(now), flush=True)
            self._next_line_ms = now + (1000 if self._view.state != "starting" else 5000)


class Demo:
    """The plot: watch, kill a worker, kill the driver, wait for the end."""

    def __init__(self, folder: Path, shop: Shop, started_ms: int) -> None:
        self.folder, self.shop, self.started_ms = folder, shop, started_ms
        self.history = History(clicks=shop.clicks)
        self.journal = Journal(folder / "job" / "epochs.jsonl")
        self.view = View(self.history, started_ms)
        self.driver = Driver(folder, shop)
        self.slots: dict[int, ChosenProcess] = {}  # every process the job's tasks ever had
        self._screen: Screen | None = None

    def run(self, screen: Screen) -> None:
        self._screen = screen
        self.driver.start()
        self.view.note(
            now_ms(), f"driver {self.driver.pid} started, log in {self.driver.log_path.relative_to(PROJECT)}"
        )
        self._wait("the first epoch", lambda: bool(self.history.epochs), START_TIMEOUT_S)
        self.view.state = "running"
        self._wait("a third of the clicks", lambda: self._done() >= KILL_WORKER_AT, PROGRESS_TIMEOUT_S)
        self._kill_worker()
        self._wait("the job to come back without the killed worker", self._recovered, PROGRESS_TIMEOUT_S)
        self._wait("two thirds of the clicks", lambda: self._done() >= KILL_DRIVER_AT, PROGRESS_TIMEOUT_S)
        self._kill_driver()
        self._wait("the new driver's first epoch", self._recovered, START_TIMEOUT_S)
        self._wait("the job to end", lambda: self.driver.ended() == 0, START_TIMEOUT_S, until_exit=True)
        self._follow()
        self.view.state = "finished"
        self.view.note(now_ms(), "all clicks read, job finished", "green")

    def _kill_worker(self) -> None:
        serving = [self.slots[pid] for slot in self.history.epochs[-1].slots if (pid := _pid(slot)) in self.slots]
        target = next((slot for slot in reversed(serving) if _alive(slot)), None)
        if target is None:
            raise DemoFailed("there is no worker to kill: those of the last epoch have ended by themselves")
        pid = target.pid
        kill(target)
        self._killed("worker", pid)
        self.view.note(now_ms(), f"Python worker {pid} killed (SIGKILL)", "bold red")

    def _kill_driver(self) -> None:
        # The moment is noted before: the kill itself takes a while until the JVM is really gone.
        self._killed("driver", self.driver.pid)
        pid = self.driver.kill()
        self.view.note(now_ms(), f"driver {pid} and its JVM killed (SIGKILL)", "bold red")
        self.driver.start()
        self.view.note(now_ms(), f"driver {self.driver.pid} started with the same arguments")

    def _killed(self, kind: str, pid: int) -> None:
        newest = self.history.epochs[-1]
        self.history.incidents.append(
            Incident(
                kind="worker" if kind == "worker" else "driver",
                pid=pid,
                killed_ms=now_ms(),
                slots=tuple(newest.slots),
                generation=newest.generation,
                job_attempt=newest.job_attempt,
            )
        )
        self.view.state = "recovering"

    def _recovered(self) -> bool:
        return all(incident.recovered_ms is not None for incident in self.history.incidents)

    def _done(self) -> float:
        return self.history.records / self.shop.clicks

    def _follow(self) -> None:
        epochs = self.journal.poll()
        for pid in {_pid(slot) for epoch in epochs for slot in epoch.slots} - self.slots.keys():
            with contextlib.suppress(psutil.Error, NotOurs):  # it may be gone already
                self.slots[pid] = ChosenProcess.of(pid, command_contains="penstock.runtime.pipelined.daemon")
        for incident in self.history.add(epochs):
            self.view.state = "running"
            self.view.note(incident.recovered_ms or now_ms(), incident.outcome(), "bold green")
        assert self._screen is not None
        self._screen.refresh()

    def _wait(self, what: str, happened: Callable[[], bool], timeout_s: float, *, until_exit: bool = False) -> None:
        """Follow the job until something has happened. A new epoch renews the time there is."""
        deadline = time.monotonic() + timeout_s
        seen = len(self.history.epochs)
        while not happened():
            self._follow()
            if len(self.history.epochs) > seen:
                seen, deadline = len(self.history.epochs), time.monotonic() + timeout_s
            code = self.driver.ended()
            if code is not None and not (until_exit and code == 0):
                self._follow()
                if happened():
                    return
                raise DemoFailed(f"the driver ended with code {code} while the demo waited for {what}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {timeout_s:.0f} s for {what}, and no epoch completed in that time")
            time.sleep(0.2)


def _pid(slot: str) -> int:
    return int(slot.rpartition(":")[2])


def now_ms() -> int:
    return int(time.time() * 1000)


def main() -> int:
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    started = now_ms()
    shop = Shop(opens_ms=started + OPENS_AFTER_MS, clicks=CLICKS)
    demo = Demo(FOLDER, shop, started)
    screen = Screen(demo.view, console)
    try:
        with screen.shown():
            demo.run(screen)
    except KeyboardInterrupt:
        print("\nstopped; ending the driver …", flush=True)
        return 130
    except DemoFailed as failure:
        print(
            f"\nThe demo failed: {failure}.\nThe end of {demo.driver.log_path}:\n{demo.driver.log_tail()}", flush=True
        )
        return 1
    finally:
        demo.driver.stop(demo.slots.values())
    print("verifying against an independent computation …", flush=True)
    verdict = verify(FOLDER, shop)
    ended = now_ms()
    run = Run(history=demo.history, verdict=verdict, started_ms=started, ended_ms=ended)
    files = write_report(FOLDER, run)
    console.print(str(verdict), style="bold green" if verdict.exact else "bold red", highlight=False)
    late = f"{verdict.late:,} late clicks in their own file"
    console.print(f"  {verdict.users:,} users, {verdict.windows:,} windows, {late}", highlight=False)
    for incident in demo.history.incidents:
        console.print(f"  {incident.outcome()}", highlight=False)
    print(f"  report: {', '.join(str(file.relative_to(PROJECT)) for file in files)}")
    print(f"  the whole run took {(now_ms() - started) / 1000:.1f} s")
    return 0 if verdict.exact else 1


if __name__ == "__main__":
    sys.exit(main())
