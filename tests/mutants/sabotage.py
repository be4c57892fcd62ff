"""How a mutant is tried: in a copy of the tree, with one text replaced by another, its tests or a simulated run have to fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old` stands exactly once in `file`. Of `tests` (what pytest takes), at least one must fail with `new` in its place."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    out_of_reach: str = ""  # why no simulated run can notice it; empty: one of 2,000 seeds has to

    def source(self) -> str:
        return (ROOT / self.file).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    mutant: Mutant
    caught: bool
    by: str  # the first test that failed, or what happened instead
    seconds: float


def try_all(mutants: Iterable[Mutant]) -> Iterator[Trial]:
    healthy: dict[tuple[str, ...], tuple[int, str]] = {}  # by tests: a test that fails anyway notices nothing
    with _copy_of_the_tree() as tree:
        for mutant in mutants:
            if mutant.tests not in healthy:
                healthy[mutant.tests] = _run(mutant.tests, tree)
            status, first = healthy[mutant.tests]
            if status:
                yield Trial(mutant=mutant, caught=False, by=f"its tests fail without it: {first}", seconds=0.0)
            else:
                yield _try(mutant, tree)


def simulate_all(mutants: Iterable[Mutant], seeds: int) -> Iterator[Trial]:
    """As `try_all`, with simulated runs in place of tests: seeds from 0 on, until one is not exact. Only a seed that is exact
    without the mutant notices it."""
    with _copy_of_the_tree() as healthy, _copy_of_the_tree() as tree:
        for mutant in mutants:
            with _sabotaged(mutant, tree) as fits:
                yield _simulate(mutant, seeds, tree, healthy) if fits else _does_not_fit(mutant)


def _simulate(mutant: Mutant, seeds: int, tree: Path, healthy: Path) -> Trial:
    started, first = time.monotonic(), 0
    while (left := _TIMEOUT_S - (time.monotonic() - started)) > 0 and first < seeds:
        found = _first_inexact(range(first, seeds), tree, left)
        if found is None:
            break
        seed, verdict = found
        if _first_inexact(range(seed, seed + 1), healthy, _TIMEOUT_S) is None:
            return Trial(mutant=mutant, caught=True, by=verdict, seconds=time.monotonic() - started)
        first = seed + 1
    seconds = time.monotonic() - started
    why = f"not done after {seconds:.0f} s" if left <= 0 else f"NOBODY: {seeds} seeds are exact"
    return Trial(mutant=mutant, caught=False, by=why, seconds=seconds)


def _first_inexact(seeds: range, tree: Path, timeout_s: float) -> tuple[int, str] | None:
    """The first of `seeds` that is not exact, and the verdict; None: all are, or time is up."""
    arguments = ["--seeds", f"{seeds.start}..{seeds.stop - 1}", "--stop-at-first"]
    command = [sys.executable, "-m", "penstock.testing.simulate", *arguments]
    try:
        done = subprocess.run(
            command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    first = next((line for line in done.stdout.splitlines() if line.startswith("seed ")), None)
    if first is None:
        if done.returncode:
            raise RuntimeError(f"the simulator itself broke off: {done.stderr[-500:]}")
        return None
    verdict = first.partition("; python -m")[0]
    return int(verdict.removeprefix("seed ").partition(":")[0]), verdict


@contextmanager
def _copy_of_the_tree() -> Iterator[Path]:
    """Not the tree itself: a run that is interrupted must not leave a sabotaged product behind."""
    with TemporaryDirectory(prefix="penstock-mutants-") as made:
        tree = Path(made)
        for name in ("penstock", "tests", "examples", "benchmarks", "docs", "pyproject.toml", "README.md", "Makefile"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, tree / name)
        yield tree


@contextmanager
def _sabotaged(mutant: Mutant, tree: Path) -> Iterator[bool]:
    """Inside, the tree has the mutant; False: its text is not there."""
    file = tree / mutant.file
    healthy = file.read_text(encoding="utf-8")
    file.write_text(healthy.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield healthy.count(mutant.old) == 1
    finally:
        file.write_text(healthy, encoding="utf-8")


def _does_not_fit(mutant: Mutant) -> Trial:
    return Trial(mutant=mutant, caught=False, by="its text does not stand exactly once in its file", seconds=0.0)


def _try(mutant: Mutant, tree: Path) -> Trial:
    with _sabotaged(mutant, tree) as fits:
        if not fits:
            return _does_not_fit(mutant)
        started = time.monotonic()
        status, first = _run(mutant.tests, tree)
    # 1: tests ran and some failed. Anything else (nothing collected, an error of usage) is no proof.
    return Trial(mutant=mutant, caught=status == 1, by=first, seconds=time.monotonic() - started)


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def _run(tests: tuple[str, ...], tree: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"hung for {_TIMEOUT_S} s"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode == 0:
        return 0, "NOBODY: all of its tests passed"
    return done.returncode, failed[0].split(" - ")[0] if failed else done.stdout.strip()[-200:]
