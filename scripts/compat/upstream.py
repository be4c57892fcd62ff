#!/usr/bin/env python3
"""Runs PyFlink's own DataStream tests on Penstock.

    upstream.py [--checkout DIR] [--python EXE] [--flink GITDIR] [--runtime embedded|spark] [--json FILE] [-- PYTEST ARGUMENTS]

The tests are taken from a git directory of apache/flink (tag release-2.3.0) and laid out in a temporary folder;
nothing of them is kept. adapter.py is what stands between them and Penstock, not_portable.txt says which of them are not
run and why. Defaults: the checkout is the current folder ($PENSTOCK_CHECKOUT), the interpreter is its .venv/bin/python
($PENSTOCK_PYTHON), the git directory is $FLINK_GIT.

The last line is `upstream: P passed, F failed, of N portable (S not portable)`; the exit status is 1 if any failed, 2 if
nothing could be run.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TAG = "release-2.3.0"
FOLDERS = ("datastream", "common")


def refuse(text):
    print(f"upstream: not run: {text}")
    raise SystemExit(2)


def git(directory, *arguments):
    done = subprocess.run(["git", "--git-dir", str(directory), *arguments], capture_output=True)
    if done.returncode:
        refuse(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def lay_out(flink, folder):
    """Upstream's test files as folder/datastream/test_*.py and folder/common/test_*.py."""
    for part in FOLDERS:
        (folder / part).mkdir()
        root = f"flink-python/pyflink/{part}/tests/"
        for path in git(flink, "ls-tree", "--name-only", TAG, root).decode().split():
            name = path.removeprefix(root)
            if name.startswith("test_") and name != "test_util.py":
                (folder / part / name).write_bytes(git(flink, "show", f"{TAG}:{path}"))
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def one_line(text, width=230):
    joined = " ".join(text.split())
    return joined if len(joined) <= width else joined[: width - 1] + "…"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", default=os.environ.get("PENSTOCK_CHECKOUT", "."))
    parser.add_argument("--python", default=os.environ.get("PENSTOCK_PYTHON"))
    parser.add_argument("--flink", default=os.environ.get("FLINK_GIT", "flink.git"))
    parser.add_argument("--runtime", default=os.environ.get("RUNTIME", "embedded"), choices=("embedded", "spark"))
    parser.add_argument("--timeout", default="120", help="seconds for one test")
    parser.add_argument("--json", help="write every outcome here")
    parser.add_argument("rest", nargs="*", metavar="PYTEST ARGUMENT")
    options = parser.parse_args()

    checkout = Path(options.checkout).absolute()
    python = Path(options.python).absolute() if options.python else checkout / ".venv/bin/python"
    flink = Path(options.flink).absolute()
    if not python.exists():
        refuse(f"there is no interpreter {python}: pass --python or --checkout")
    if not (flink / "objects").is_dir():
        refuse(f"{flink} is no git directory: pass one of apache/flink with --flink or $FLINK_GIT")
    if subprocess.run(["git", "--git-dir", str(flink), "rev-parse", "--verify", "-q", TAG + "^{commit}"], capture_output=True).returncode:
        refuse(f"{flink} has no tag {TAG}")

    with tempfile.TemporaryDirectory(prefix="upstream-") as temporary:
        folder = Path(temporary) / "tests"
        folder.mkdir()
        (Path(temporary) / "sinks").mkdir()
        lay_out(flink, folder)
        outcome = Path(temporary) / "outcome.json"
        environment = {
            **os.environ,
            "PENSTOCK_RUNTIME": options.runtime,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(checkout)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "UPSTREAM_SINKS": str(Path(temporary) / "sinks"),
            "UPSTREAM_OUTCOME": str(outcome),
        }
        command = [str(python), "-m", "pytest", "-p", "adapter", "-p", "no:cacheprovider", "--rootdir", str(folder), "-q",
                   "--tb=short", f"--timeout={options.timeout}", *options.rest, str(folder)]
        done = subprocess.run(command, cwd=folder, env=environment)
        if not outcome.exists():
            refuse(f"pytest ended with {done.returncode} and left no outcome")
        found = json.loads(outcome.read_text(encoding="utf-8"))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return summary(found, done.returncode)


def summary(found, status):
    results = found.get("results", {})
    portable, left = found.get("portable", []), found.get("not portable", [])
    failed = [node for node in portable if results.get(node, {}).get("outcome") != "passed"]
    print("\nper file: passed, failed, not portable")
    rows = collections.defaultdict(lambda: [0, 0, 0])
    for node in portable:
        rows[node.split("::")[0]][node in failed] += 1
    for node in left:
        rows[node.split("::")[0]][2] += 1
    for file, (passed, bad, not_portable) in sorted(rows.items()):
        print(f"  {file:<62}{passed:>4}{bad:>4}{not_portable:>4}")
    if failed:
        print("\nfailed")
    for node in failed:
        result = results.get(node, {"error": "not run", "text": ""})
        print(f"  {node}: {one_line(result.get('error', result.get('outcome', '')) + ': ' + result.get('text', ''))}")
    for note in found.get("notes", []):
        print(f"note: {note}")
    if status not in (0, 1):
        print(f"pytest ended with {status}: the numbers below may be of a part only")
    print(f"upstream: {len(portable) - len(failed)} passed, {len(failed)} failed, of {len(portable)} portable ({len(left)} not portable)")
    return 0 if portable and not failed and status in (0, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
