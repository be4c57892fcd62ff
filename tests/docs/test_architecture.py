"""Pages name files and classes that are there: a reader's path must not end in the middle."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/architecture.md", *sorted((ROOT / "docs/design").glob("*.md"))]
PATHS = re.compile(r"`((?:penstock|tests|examples|benchmarks)/[\w/.-]*)`")
NEIGHBOURS = re.compile(r"`([a-z_]+\.py)`")
MEMBERS = re.compile(r"`([A-Z]\w+)\.([a-z_]\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in PATHS.findall(text) if not (ROOT / path).exists()]
    names = {path.name for folder in ("penstock", "tests", "examples") for path in (ROOT / folder).rglob("*.py")}
    missing += [name for name in NEIGHBOURS.findall(text) if name not in names]
    assert missing == []


def test_the_readers_paths_name_methods_that_are_there() -> None:
    members: dict[str, set[str]] = {}
    for path in (ROOT / "penstock").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                here = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                members.setdefault(node.name, set()).update(here)
    text = (ROOT / "docs/architecture.md").read_text()
    assert "A reader's path: completing a checkpoint" in text
    assert "A reader's path: recovering from a lost host" in text
    unknown = [f"{owner}.{name}" for owner, name in MEMBERS.findall(text) if name not in members.get(owner, set())]
    assert unknown == []
