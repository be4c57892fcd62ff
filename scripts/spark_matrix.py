"""`make spark-matrix`: tests and programs on each version of Spark, in an environment of its own, and the table of what runs where.

    python scripts/spark_matrix.py [--spark 4.1 …] [--only NAME …] [--write]

Environments are made in `build/spark-matrix`, from package names; jars of table formats are fetched from Maven Central as
the lock files in `tests/spark` say. Results are kept there, too, so that a run may do a part. `--write` puts the table into
`docs/reference/spark-versions.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build" / "spark-matrix"
PAGE: Final = ROOT / "docs" / "reference" / "spark-versions.md"
VERSIONS: Final = ("4.1", "4.2", "4.3")
_BEGIN, _END = "<!-- table: make spark-matrix -->", "<!-- end of table -->"

# What is run of the suite, and what a row of the table says.
PARTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "pipelined": ("a pipelined job", ("tests/spark/test_versions.py", "-k", "pipelined")),
    "epochs": (
        "jobs in epochs: operators, joins, iterations, state, savepoints, rescaling",
        (
            "tests/spark/test_versions.py",
            "tests/spark/test_functions_on_spark.py",
            "tests/spark/test_joins_on_spark.py",
            "tests/spark/test_iterations_on_spark.py",
            "tests/spark/test_state_backends.py",
            "tests/spark/test_savepoints_on_spark.py",
            "tests/spark/test_live_rescale_on_spark.py",
            "tests/spark/test_operating.py",
        ),
    ),
    "from_spark": ("`env.from_spark`", ("tests/spark/test_from_spark.py",)),
    "data_source": ("Penstock's sources in plain PySpark", ("tests/spark/test_data_source.py",)),
    "spark_sink": ("`SparkSink`: Parquet, JSON, your own function", ("tests/spark/test_spark_sink.py",)),
    "delta": (
        "Delta: `from_spark` to `SparkSink`, killed and resumed",
        ("tests/spark/test_table_formats.py", "-k", "format and delta or table and delta"),
    ),
    "iceberg": ("Iceberg: the same", ("tests/spark/test_table_formats.py", "-k", "iceberg")),
}
# PySpark before 4.3 leaves the socket of a collected frame to the garbage collector, which is a warning, and so an error, in tests.
_PYTEST: Final = ("-q", "-p", "no:cacheprovider", "-W", "ignore:unclosed:ResourceWarning")


def python_of(version: str) -> Path:
    """The interpreter of an environment with this Spark, which is made if it is not there."""
    folder = BUILD / version
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        print(f"making {folder.relative_to(ROOT)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages(version)], check=True)
        (folder / ".installed").touch()
    return python


def packages(version: str) -> list[str]:
    """By name: what the product needs, this Spark, and what these tests import."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(name for extra in ("spark", "rocksdb", "kafka", "postgres", "ui") for name in extras[extra]),
    ]
    tests = ("pytest", "hypothesis", "httpx", "duckdb", "moto", "flask")
    return [*wanted, *(name for name in extras["dev"] if name.startswith(tests)), f"pyspark=={version}.*"]


def run(version: str, part: str) -> dict[str, Any]:
    """The counts of one part, and what was skipped and why."""
    python, report = python_of(version), BUILD / f"{version}-{part}.xml"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [str(python), "-m", "pytest", *PARTS[part][1], *_PYTEST, f"--junitxml={report}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout[-4000:], flush=True)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    reasons = set()
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            counts["skipped"] += 1
            reasons.add(skipped.get("message", ""))
        elif case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        else:
            counts["passed"] += 1
    exact = subprocess.run(
        [str(python), "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    )
    return {**counts, "reasons": sorted(reasons), "spark": exact.stdout.strip()}


def cell(result: dict[str, Any] | None) -> str:
    """A result in the table's words."""
    if result is None:
        return "not run"
    if result["failed"]:
        return f"**{result['failed']} of {result['failed'] + result['passed']} fail**"
    if not result["passed"]:
        return f"no: {'; '.join(result['reasons'])}"
    return f"{result['passed']} passed" + (f", {result['skipped']} skipped" if result["skipped"] else "")


def table(results: dict[str, dict[str, Any]]) -> str:
    """The matrix, as Markdown."""
    names = [next((r["spark"] for r in results.get(version, {}).values()), version) for version in VERSIONS]
    lines = [f"| what | {' | '.join(f'Spark {name}' for name in names)} |", "| --- |" + " --- |" * len(VERSIONS)]
    for part, (words, _) in PARTS.items():
        cells = [cell(results.get(version, {}).get(part)) for version in VERSIONS]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Runs what is asked for, prints the matrix, and fails if a test did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark", nargs="*", choices=VERSIONS, default=list(VERSIONS))
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    arguments = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    failed = 0
    for version in arguments.spark:
        for part in arguments.only:
            result = results.setdefault(version, {})[part] = run(version, part)
            failed += result["failed"]
            print(f"Spark {result['spark']}, {part}: {cell(result)}", flush=True)
            kept.write_text(json.dumps(results, indent=1))
    print(f"\n{table(results)}")
    if arguments.write:
        before, rest = PAGE.read_text().split(_BEGIN)
        PAGE.write_text(f"{before}{_BEGIN}\n{table(results)}\n{_END}{rest.split(_END)[1]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
