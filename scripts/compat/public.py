#!/usr/bin/env python3
"""Public PyFlink programs, unchanged, on a runtime of Penstock: what becomes of each.

    public.py [--repositories DIR] [--runtime embedded|spark] [--json FILE] [WORDS ...]

public.txt names them. Repositories are bare clones in DIR (owner+name, owner+name.git or owner+name/repo; the user's cache unless
given), and are cloned if they are not there; what cannot be had is said to be so. Each program runs in its own folder of a fresh
checkout, with its repository's folder on the module path, in a process of its own, by `penstock run --pyflink`. WORDS choose
programs: those whose line has one of them. Nothing of them is kept here.

The last line is the score. The exit status is 1 if the page docs/reference/compatibility.md says otherwise of a program.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / "programs"
COLUMN = {"embedded": 2, "spark": 3}  # of the page's table


def git(directory, *arguments):
    return subprocess.run(["git", "--git-dir", str(directory), *arguments], capture_output=True)


def repository(name, commit, folder):
    """A git directory that has the commit, or None."""
    plain = name.replace("/", "+")
    for candidate in (folder / plain / "repo", folder / f"{plain}.git", folder / plain / ".git", folder / plain):
        if candidate.is_dir() and git(candidate, "cat-file", "-e", commit + "^{commit}").returncode == 0:
            return candidate
    clone = CACHE / f"{plain}.git"
    if not clone.exists():
        clone.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["git", "clone", "-q", "--bare", f"https://github.com/{name}.git", str(clone)], timeout=300)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return clone if git(clone, "cat-file", "-e", commit + "^{commit}").returncode == 0 else None


def run(program, checkout, runtime, seconds):
    """(what became of it, its output)"""
    path = os.pathsep.join([str(ROOT), str(checkout)])
    environment = {**os.environ, "PYTHONPATH": path, "PENSTOCK_VERBOSE": "0"}
    command = [sys.executable, "-m", "penstock.cli", "run", "--pyflink", "--runtime", runtime, str(checkout / program)]
    folder = (checkout / program).parent
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {seconds} s", ""
    if done.returncode == 0:
        return "runs", done.stdout
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return next(
        (line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), (lines or ["?"])[-1]
    ), done.stdout


def told(runtime):
    """What the page says of each program: whether it runs."""
    page, name = {}, ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[1].endswith(".py"):
            name = cells[0].split(" ")[0] or name
            page[f"{name} {cells[1]}"] = cells[COLUMN[runtime]].startswith("runs")
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repositories", type=Path, default=CACHE)
    parser.add_argument("--runtime", default="embedded", choices=tuple(COLUMN))
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one program")
    parser.add_argument("--json", type=Path, help="write what became of each, and what it printed, here")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    lines = (HERE / "public.txt").read_text(encoding="utf-8").splitlines()
    chosen = [
        line
        for line in lines
        if line and line[0] != "#" and (not options.words or any(word in line for word in options.words))
    ]
    page, found, ran = told(options.runtime), [], 0
    wrong = []
    for line in chosen:
        name, commit, program = line.split(" ", 2)
        where = repository(name, commit, options.repositories)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="public-") as folder:
            if where is None:
                outcome, output = "not tried: its repository cannot be had", ""
            else:
                packed = git(where, "archive", commit)
                subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
                outcome, output = run(program, Path(folder), options.runtime, options.timeout)
        seconds = time.monotonic() - started
        print(f"  {seconds:5.1f} s  {name} {program}: {outcome}", flush=True)
        found.append(
            {"repository": name, "program": program, "outcome": outcome, "seconds": round(seconds, 1), "output": output}
        )
        ran += outcome == "runs"
        if where is not None and page.get(f"{name} {program}") != (outcome == "runs"):
            wrong.append(f"{PAGE.name} says otherwise of {name} {program}: {outcome}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for text in wrong:
        print(f"public: {text}")
    print(f"public: {ran} of {len(chosen)} run ({options.runtime})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
