#!/usr/bin/env python3
"""How much of PyFlink runs on Penstock: PyFlink's own tests, and Flink's DataStream example programs, unchanged.

    score.py [--flink GITDIR] [--runtime embedded|spark]

Both are taken from a git directory of apache/flink, tag release-2.3.0: --flink, $FLINK_GIT, or a clone in the user's cache,
which is made if it can be. Nothing of them is kept here. Where there is none, it says so and ends well.

The last lines are the score. The exit status is 1 if a test fails that known.txt does not name, if one of those passes, if an
example fails, or if README.md tells another score (of the embedded runtime).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TAG = "release-2.3.0"
EXAMPLES = "flink-python/pyflink/examples/datastream/"
NEEDS = (  # what an example imports, and what it needs then that is not here
    (r"pyflink\.table", "the Table API"),
    (r"connectors\.kafka", "a Kafka broker"),
    (r"connectors\.elasticsearch", "Elasticsearch"),
    (r"connectors\.pulsar", "Pulsar"),
)


def skip(reason):
    print(f"compat: skipped: {reason}")
    raise SystemExit(0)


def git(directory, *arguments):
    return subprocess.run(["git", "--git-dir", str(directory), *arguments], capture_output=True, text=True)


def has_tag(directory):
    return directory.is_dir() and git(directory, "rev-parse", "--verify", "-q", TAG + "^{commit}").returncode == 0


def flink(given):
    """A git directory with the tag."""
    if given:
        return Path(given).absolute() if has_tag(Path(given)) else skip(f"{given} is no git directory with the tag {TAG}")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / f"flink-{TAG}.git"
    if not has_tag(cache):
        cache.parent.mkdir(parents=True, exist_ok=True)
        url = "https://github.com/apache/flink.git"
        command = ["git", "clone", "-q", "--bare", "--depth", "1", "--filter=blob:none", "--branch", TAG, url, str(cache)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            skip(f"apache/flink cannot be fetched ({error}); set FLINK_GIT to a git directory that has the tag {TAG}")
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1:]
            skip(f"apache/flink cannot be fetched ({''.join(why)}); set FLINK_GIT to a git directory that has the tag {TAG}")
    return cache


def known():
    lines = (HERE / "known.txt").read_text(encoding="utf-8").splitlines()
    return dict(map(str.strip, line.split("|", 1)) for line in lines if line.strip() and not line.startswith("#"))


def tests(directory, runtime, folder):
    """(passed, all, what is wrong)"""
    found = folder / "outcome.json"
    command = [sys.executable, str(HERE / "upstream.py"), "--checkout", str(ROOT), "--python", sys.executable]
    subprocess.run([*command, "--flink", str(directory), "--runtime", runtime, "--json", str(found)])
    if not found.exists():
        return 0, 0, ["PyFlink's tests could not be run"]
    outcome = json.loads(found.read_text(encoding="utf-8"))
    results, portable = outcome.get("results", {}), outcome["portable"]
    failed = {node for node in portable if results.get(node, {}).get("outcome") != "passed"}
    wrong = [f"fails, and is not in known.txt: {node}" for node in sorted(failed - known().keys())]
    wrong += [f"passes, and is in known.txt: {node}" for node in sorted(known().keys() - failed)]
    return len(portable) - len(failed), len(portable), wrong


def examples(directory, runtime, folder):
    """(run, all that can be, all, what is wrong)"""
    paths = git(directory, "ls-tree", "-r", "--name-only", TAG, EXAMPLES).stdout.split()
    programs = {path.removeprefix(EXAMPLES): git(directory, "show", f"{TAG}:{path}").stdout for path in paths if path.endswith(".py")}
    needs = {name: next((what for pattern, what in NEEDS if re.search(pattern, text)), None) for name, text in programs.items()}
    ran, wrong = 0, []
    for name, text in sorted(programs.items()):
        if needs[name]:
            print(f"  not run   {name}: needs {needs[name]}")
            continue
        script = folder / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, encoding="utf-8")
        environment = {**os.environ, "PENSTOCK_RUNTIME": runtime, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "penstock.cli", "run", "--pyflink", str(script)]
        try:
            done = subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=300)
            why = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = "it has not ended after five minutes"
        ran += not why
        print(f"  {'failed' if why else 'ran':<9} {name}{': ' + why if why else ''}", flush=True)
        wrong += [f"example {name}: {why}"] if why else []
    return ran, sum(not need for need in needs.values()), len(programs), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", default=os.environ.get("FLINK_GIT"))
    parser.add_argument("--runtime", default=os.environ.get("RUNTIME", "embedded"), choices=("embedded", "spark"))
    options = parser.parse_args()
    directory = flink(options.flink)
    with tempfile.TemporaryDirectory(prefix="compat-") as temporary:
        passed, portable, wrong = tests(directory, options.runtime, Path(temporary))
        print("\nFlink's example programs")
        ran, possible, every, more = examples(directory, options.runtime, Path(temporary) / "examples")
    wrong += more
    score = [f"{passed} of {portable} of PyFlink's own tests", f"{ran} of {possible} of Flink's example programs"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if options.runtime == "embedded":
        wrong += [f"README.md does not say {text!r}" for text in score if text not in " ".join(readme.split())]
    print()
    for text in wrong:
        print(f"compat: {text}")
    print(f"compat: {score[0]} pass, {score[1]} run that need neither a server nor the Table API ({every - possible} do)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
