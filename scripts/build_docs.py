"""Builds the site: the pages of this repository at their places, and an API reference from the docstrings. Broken links fail.

    python scripts/build_docs.py [--out build/site]

The pages are copied first, with the layout they have here, so that one link works on GitHub and in the site.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE")
# What users import, in the order of the menu.
API = (
    "penstock.datastream",
    "penstock.common",
    "penstock.functions",
    "penstock.functions.window",
    "penstock.connectors.files",
    "penstock.connectors.kafka",
    "penstock.connectors.postgres",
    "penstock.connectors.push",
    "penstock.connectors.datagen",
    "penstock.functions.connectors",
    "penstock.spark.sink",
    "penstock.spark.sink_writes",
    "penstock.spark.data_source",
    "penstock.testing",
    "penstock.errors",
)


def public_names(module: str) -> list[str]:
    """The names in a module's `__all__`; without one, its public classes and functions."""
    base = ROOT.joinpath(*module.split("."))
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            try:
                return sorted(ast.literal_eval(node.value))
            except ValueError:
                break  # put together from other modules
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return sorted(name for name in defined if not name.startswith("_"))


def collect() -> None:
    """Copies pages and writes one reference page for each module of `API`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES / "docs")
    shutil.copytree(ROOT / "benchmarks" / "results", PAGES / "benchmarks" / "results")
    for name in BESIDE:
        shutil.copy(ROOT / name, PAGES / name)
    for page in PAGES.rglob("*.md"):  # the site's Markdown knows no words after a block's language
        page.write_text(re.sub(r"(?m)^(```[a-z]+) .*$", r"\1", page.read_text()))
    reference = PAGES / "docs" / "reference" / "api"
    reference.mkdir()
    rows = []
    for module in API:
        names = public_names(module)
        body = "\n\n".join(f"::: {module}.{name}" for name in names)
        (reference / f"{module}.md").write_text(f"# {module}\n\n{body}\n")
        rows.append(f"- [{module}]({module}.md): {', '.join(f'`{name}`' for name in names)}")
    (reference / "index.md").write_text("# API reference\n\n" + "\n".join(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(ROOT / "build" / "site"))
    out = parser.parse_args().out
    collect()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", out]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("the site was not built: mend what is named above")
    print(f"{out}/index.html")


if __name__ == "__main__":
    main()
