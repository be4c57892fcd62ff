"""Imports point downward: the table of docs/contributing.md, all of it."""

from __future__ import annotations

import ast
import re
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

# From the ground up. A package may import those of the rows above its own here; those of one row know nothing of each other,
# but for records and common.
LAYERS = (
    ("errors", "pickling"),
    ("records", "common"),
    ("protocol",),
    ("graph",),
    ("functions",),
    ("state",),
    ("checkpoint",),
    ("operators",),
    ("engine",),
    ("driver", "connectors"),
    ("runtime",),
    ("spark",),
    ("datastream",),
    ("compat",),
    ("service",),
    ("cli",),
    ("testing",),
)
WITH_PYSPARK = ("penstock/runtime/epochs/", "penstock/runtime/pipelined/", "penstock/spark/")


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


def all_imports(tree: ast.AST) -> Iterator[str]:
    """Also those for a type checker only: who names a type knows it."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module="penstock"):
                yield from (f"penstock.{alias.name}" for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module


def upward(root: Path) -> list[str]:
    """Imports of a package that is not in a layer below the importer's own."""
    layer = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    found = []
    for path in sorted(root.rglob("*.py")):
        own = path.relative_to(root).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for name in all_imports(ast.parse(path.read_text(encoding="utf-8"))):
            top, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if top != "penstock" or other in ("", own, "__version__") or {own, other} == {"records", "common"}:
                continue
            if layer[other] >= layer[own]:
                found.append(f"{path.relative_to(root)}: {name}")
    return found


def test_every_package_has_its_layer() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert found - {"py.typed"} == {package for packages in LAYERS for package in packages}


def test_every_package_says_what_is_in_it() -> None:
    silent = [
        path for path in PACKAGE.rglob("__init__.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_the_contributors_page_has_the_layers_in_this_order() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, flags=re.MULTILINE)
    told = [package for row in rows for package in re.findall(r"`(\w+)`", row)]
    assert told == [package for packages in LAYERS[1:] for package in packages]


def test_imports_point_downward() -> None:
    assert upward(PACKAGE) == []


def test_an_import_that_points_upward_is_found_wherever_it_stands(tmp_path: Path) -> None:
    for folder, code in (
        ("state", "from penstock.checkpoint import store"),
        ("operators", "if TYPE_CHECKING:\n    from penstock import engine"),
        ("driver", "def later():\n    import penstock.connectors.base"),
        ("common", "from penstock.records import Rows"),
        ("service", "from penstock.driver import job_master"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").write_text(code)
    assert upward(tmp_path) == [
        "driver/module.py: penstock.connectors.base",
        "operators/module.py: penstock.engine",
        "state/module.py: penstock.checkpoint",
    ]


def test_pyspark_is_imported_where_spark_runs_jobs_and_by_its_own_sink_only() -> None:
    found = offenders(PACKAGE, {"pyspark", "py4j"})
    assert found, "the runtime on Spark imports pyspark"
    assert [line for line in found if not line.startswith(WITH_PYSPARK)] == []


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
    on_spark = module.name.startswith(("penstock.spark", "penstock.runtime.epochs", "penstock.runtime.pipelined"))
    if not on_spark and not module.name.endswith("__main__"):
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
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PENSTOCK_EXECUTION_MODE": "embedded"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1, 3, 6]"), done.stderr
