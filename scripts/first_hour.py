#!/usr/bin/env python3
"""The first hour with Penstock, done and written down: docs/first-hour.md, with what was really printed and how long it took.

    first_hour.py [--page FILE] [--pictures FOLDER] [--keep]

In a folder and a virtual environment that are made for it: install this checkout, a first job, a mistake, a misspelt setting, a
type checker, Ctrl-C, going on, the job manager and its page. Programs run at a terminal (a pty), as a newcomer's do. It fails if a
command does not do what the page says of it. Pictures need playwright and a Chromium, and are left out without them. Packages come
from where pip finds them; the folder is deleted at the end, unless --keep.
"""

import argparse
import os
import platform
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "first-hour.md"
PICTURES = ROOT / "docs" / "images"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")
LONGEST = 220  # characters of a line that is kept
PAUSE_S = 0.25  # a line that is not ended after it is shown as far as it is

INTRODUCTION = """\
# The first hour

A recording: what a newcomer types and sees, from an empty folder to a job in the page. `scripts/first_hour.py` does all of it and
writes this page, and fails where something is not as the page says. Long outputs are cut at a `…`. Where lines have times, these
are seconds since the command was typed; in brackets is how long it took in all. Recorded in {month} with Python {python} on
{cores} cores that other work shared, with packages in pip's cache; {minutes} minutes in all.
"""
CLICKS = """\
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

config = Configuration()
config.set_string("penstock.job.dir", "clicks-job")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(2)
env.enable_checkpointing(1000)

source = DataGeneratorSource(lambda n: ("ann", "bob", "cid")[n % 3], None, rate_per_second=300)
clicks = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
counts = clicks.map(lambda user: (user, 1)).key_by(lambda click: click[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
counts.filter(lambda count: count[1] % 100 == 0).print().uid("out")
env.execute("clicks")
"""
WRONG = """\
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
prices = env.from_collection(["12", "7", "n/a", "3"])
prices.map(lambda text: int(text)).name("parse").print()
env.execute("prices")
"""
TYPED = """\
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to", "be"])
lengths = words.map(len)
lengths.map(lambda n: n.upper()).print()
"""


def first_job() -> str:
    """The program of README.md."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.partition("## A first job")[2].partition("```python\n")[2].partition("```")[0]


@dataclass
class Shown:
    """What a command printed: pieces of text, each with the seconds since its start."""

    status: int = 0
    seconds: float = 0.0
    rows: list[tuple[float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.rows)

    def at(self, what: str) -> float:
        """When the first row that has this came."""
        return next((at for at, text in self.rows if what in text), float("inf"))


class Terminal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cache = subprocess.run(
            [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True
        ).stdout.strip()
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name in ("JAVA_HOME", "PATH")
        }
        self.environment = {
            **({"PIP_CACHE_DIR": cache} if cache else {}), **kept,
            "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}", "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb",
            "COLUMNS": "120", "NO_COLOR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "SHELL": "/bin/bash",
        }  # fmt: skip

    def start(self, command: str, log: str) -> subprocess.Popen[bytes]:
        """In the background, as in another terminal."""
        with (self.folder / log).open("wb") as output:
            return subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, command: str, *, until: Callable[[Shown], bool] | None = None, timeout_s: float = 600) -> Shown:
        """`until`: Ctrl-C is typed when it is true."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "-c", command], self.environment)
        shown, began, buffer = Shown(), time.monotonic(), ""
        typed = False

        def cut(text: str) -> str:
            for found, instead in ((str(self.folder), "~/first-hour"), (str(ROOT), "~/penstock")):
                text = text.replace(found, instead)
            return ANSI.sub("", text).rstrip()

        while True:
            ready, _, _ = select.select([terminal], [], [], PAUSE_S)
            now = time.monotonic() - began
            if ready:
                try:
                    data = os.read(terminal, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                *lines, buffer = (buffer + data.replace("\r\n", "\n")).split("\n")
                shown.rows += [(now, cut(line)) for line in lines if cut(line)]
            elif buffer.strip():
                shown.rows.append((now - PAUSE_S, cut(buffer)))
                buffer = "  "
            if until is not None and not typed and until(shown):
                os.write(terminal, b"\x03")
                typed = True
            if now > timeout_s:
                os.kill(process, signal.SIGKILL)
                raise SystemExit(f"{command!r} has not ended after {timeout_s:.0f} s:\n{shown.text}")
        if buffer.strip():
            shown.rows.append((time.monotonic() - began, cut(buffer)))
        shown.status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.close(terminal)
        shown.seconds = time.monotonic() - began
        return shown


class Record:
    """The page as it grows. A step that does not do what the page says ends it."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.parts: list[str] = []
        self.began = time.monotonic()

    def heading(self, text: str) -> None:
        self.parts.append(f"## {text}\n")
        print(f"## {text}", flush=True)

    def say(self, text: str) -> None:
        self.parts.append(f"{text}\n")

    def program(self, name: str, text: str) -> None:
        (self.terminal.folder / name).write_text(text, encoding="utf-8")
        self.parts.append(f"`{name}`:\n\n```python no-run: it was run for this page\n{text.rstrip()}\n```\n")

    def step(
        self,
        command: str,
        *needs: str,
        status: int | None = 0,
        within_s: tuple[str, float] | None = None,
        until: Callable[[Shown], bool] | None = None,
        show: int = 12,
        timed: bool = False,
        never: str = "",
    ) -> Shown:
        """`needs`: what must be in its output. `within_s`: a text and by when. `show`: how many rows are kept."""
        shown = self.terminal.run(command, until=until)
        print(f"$ {command}   ({shown.seconds:.1f} s, status {shown.status})", flush=True)
        wrong = [f"{need!r} is not there" for need in needs if need not in shown.text]
        wrong += [f"{never!r} is there"] if never and never in shown.text else []
        wrong += [f"it ended with {shown.status}"] if status is not None and shown.status != status else []
        if within_s is not None and shown.at(within_s[0]) > within_s[1]:
            wrong.append(f"{within_s[0]!r} came after {shown.at(within_s[0]):.1f} s, not within {within_s[1]:.0f}")
        if wrong:
            raise SystemExit(f"{command!r}: {'; '.join(wrong)}\n{shown.text}")
        rows = [(f"{at:6.1f} s  " if timed else "") + text[:LONGEST] for at, text in shown.rows]
        if len(rows) > show:
            rows = [*rows[: show - 3], "…", *rows[-2:]]
        block = "\n".join([f"$ {command.replace(str(ROOT), '~/penstock')}", *rows])
        self.parts.append(f"```console\n{block}\n```\n\n({shown.seconds:.1f} s)\n")
        return shown


def pictures(folder: Path, record: Record, target: Path) -> None:
    try:
        from playwright.sync_api import sync_playwright

        sys.path.insert(0, str(ROOT))
        from tests.servers.browser import find
    except ImportError:
        return
    chromium = find()
    address = re.search(r"http://127\.0\.0\.1:\d+", (folder / "jobmanager.log").read_text())
    token = (folder / ".penstock" / "token").read_text().strip()
    if chromium is None or address is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for name, width, height, dark in (("first-hour-page", 1100, 760, False), ("first-hour-phone", 390, 844, True)):
            page = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
            ).new_page()
            page.goto(f"{address[0]}/#token={token}")
            page.get_by_role("link", name="clicks").first.click()
            page.locator(".numbers").wait_for()
            page.wait_for_timeout(4000)
            page.screenshot(path=target / f"{name}.png")
        browser.close()
    record.say("![The job in the page](images/first-hour-page.png)\n\n![and on a phone](images/first-hour-phone.png)")


def hour(folder: Path, target: Path, within_s: float) -> Record:
    terminal = Terminal(folder)
    record = Record(terminal)
    record.heading("Install")
    record.step("python3 -m venv .venv")
    record.step(f"pip install --quiet 'penstock[spark,ui] @ file://{ROOT}'")
    record.step("pip list 2>/dev/null | grep -E '^(penstock|pyspark) '", "penstock", "pyspark")

    record.heading("A first job")
    record.say("The job of the README. A terminal sees what is done while Spark starts, and then the results.")
    record.program("words.py", first_job())
    words = record.step(
        "python words.py", "('to', 2)", "('question', 1)", within_s=("> (", within_s), show=20, timed=True
    )
    record.say(
        f"The first line was there after {words.at('penstock:'):.1f} s, the first result after {words.at('> ('):.1f} s."
    )
    record.say("Without Spark and Java, in the same process:")
    record.step("PENSTOCK_EXECUTION_MODE=embedded python words.py", "('to', 2)", show=6)

    record.heading("A mistake")
    record.say(
        "A function fails: its own error comes first, with file and line, then where in the job it was, and nothing of the JVM."
    )
    record.program("wrong.py", WRONG)
    record.step(
        "python wrong.py",
        "ValueError: invalid literal for int()",
        "wrong.py",
        "line 5",
        status=1,
        never="at org.apache",
        show=24,
    )
    record.say("A setting that does not exist:")
    record.step("penstock run -D execution.checkpointing.intervall=1s words.py", "did you mean", status=None, show=6)
    record.say("A type checker finds what does not fit before anything runs (an `int` has no `upper`):")
    record.program("typed.py", TYPED)
    record.step("pip install --quiet mypy")
    record.step("mypy typed.py", "typed.py:6: error", status=1)

    record.heading("Ctrl-C, and going on")
    record.say("A job without an end, with a checkpoint every second. Ctrl-C ends it with one line:")
    record.program("clicks.py", CLICKS)
    first = record.step(
        "python clicks.py", "^C", status=None, timed=True, show=14, never="Traceback",
        until=lambda shown: sum("> (" in text for _, text in shown.rows) >= 15,
    )  # fmt: skip
    record.say(
        "Started again, it goes on from its last checkpoint. `print` repeats what came last: no terminal says what it has shown."
    )
    second = record.step(
        "python clicks.py", "^C", status=None, timed=True, show=14, never="Traceback",
        until=lambda shown: sum("> (" in text for _, text in shown.rows) >= 9,
    )  # fmt: skip
    counted(first, second)

    record.heading("The job manager and its page")
    manager = terminal.start("penstock jobmanager --port 0", "jobmanager.log")
    try:
        eventually(lambda: "http://" in (folder / "jobmanager.log").read_text())
        record.say("`penstock jobmanager` runs in another terminal; `penstock ui` would open its page.")
        started = record.step("penstock run --detached clicks.py", "penstock info")
        job = re.findall(r"[0-9a-f]{32}", started.text)[0][:8]
        time.sleep(10)
        record.step("penstock list", "clicks", "RUNNING")
        record.step(f"penstock info {job}", "Reduce", show=20)
        pictures(folder, record, target)
        record.step(f"penstock stop {job}", "--from-savepoint")
        record.say("The savepoint is where a changed program may go on: the command that says so is the last line.")
    except BaseException:
        terminal.run("penstock cancel clicks")  # it outlives its command
        raise
    finally:
        manager.terminate()
        manager.wait(60)
    return record


def counted(first: Shown, second: Shown) -> None:
    """The second run goes on: for each name the counts of both follow each other, but for the last epoch, which may be repeated."""
    for name in ("ann", "bob", "cid"):
        before, after = (
            [int(n) for _, row in shown.rows for n in re.findall(rf"\('{name}', (\d+)\)", row)]
            for shown in (first, second)
        )
        expected = range(100, (after or [0])[-1] + 1, 100)
        if sorted({*before, *after}) != list(expected) or after[0] < 200:
            raise SystemExit(f"{name}: {before}, then {after}")


def eventually(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise SystemExit("the job manager has not started")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    parser.add_argument(
        "--within", type=float, default=15, metavar="SECONDS", help="until the first result of a job on Spark"
    )
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="first-hour-"))
    try:
        record = hour(folder, options.pictures, options.within)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    spent = time.monotonic() - record.began
    intro = INTRODUCTION.format(
        month=f"{date.today():%B %Y}",
        python=platform.python_version(),
        cores=os.cpu_count(),
        minutes=f"{spent / 60:.0f}",
    )
    options.page.write_text("\n".join([intro, *record.parts]), encoding="utf-8")
    print(f"{options.page}: {spent:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
