"""Imports point inward: which package may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "penstock"
PURE = {
    "abc",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "html",
    "itertools",
    "json",
    "math",
    "re",
    "typing",
}


def imports(node: ast.AST) -> Iterator[str]:
    """Modules that are imported when the code runs, now or later: those for a type checker only are left out."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module)):
            yield module
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            for otherwise in node.orelse:
                yield from imports(otherwise)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from imports(child)


def offenders(folder: Path, forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imports(ast.parse(path.read_text(encoding="utf-8")))
        if name.split(".")[0] in forbidden
    ]


def test_pyspark_is_imported_in_the_spark_package_only() -> None:
    found = offenders(PACKAGE, {"pyspark", "py4j"})
    assert found, "the Spark package itself imports pyspark"
    assert [line for line in found if not line.startswith("penstock/spark/")] == []


@pytest.mark.parametrize(
    ("package", "may_import"), [("protocol", {"penstock.protocol"}), ("graph", {"penstock.graph", "penstock.protocol"})]
)
def test_the_protocol_and_the_graphs_are_pure(package: str, may_import: set[str]) -> None:
    inward = {*may_import, "penstock.errors"}
    for path in sorted((PACKAGE / package).rglob("*.py")):
        for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            of_ours = name.startswith("penstock.") and ".".join(name.split(".")[:2]) in inward
            assert of_ours or name.split(".")[0] in PURE | {"__future__"}, f"{path.name} imports {name}"


def test_the_walk_sees_lazy_imports_and_leaves_out_those_for_type_checkers() -> None:
    code = """
if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    import early
def later():
    with something:
        import pyspark.sql
"""
    assert list(imports(ast.parse(code))) == ["early", "pyspark.sql"]


WITHOUT_SPARK = """
import importlib, importlib.abc, pkgutil, sys

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
import penstock
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.startswith("penstock.spark") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)

from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
total = env.from_collection([1, 2, 3]).key_by(lambda n: 0).reduce(lambda a, b: a + b)
print(list(total.execute_and_collect()))
assert "pyspark" not in sys.modules
"""


def test_everything_else_can_be_imported_and_a_job_runs_embedded_without_pyspark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_SPARK],
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PENSTOCK_RUNTIME": "embedded"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1, 3, 6]"), done.stderr
