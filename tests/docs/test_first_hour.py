"""The recording of the first hour is of the script as it is, and of the README's job as it is."""

from __future__ import annotations

import ast
import re

from tests.docs.test_snippets import ROOT

SCRIPT = ROOT / "scripts" / "first_hour.py"
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")


def _pattern(argument: ast.expr) -> str:
    """What a command of the script looks like on the page: what is put into it may be anything."""
    parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts)


def test_the_page_has_the_commands_of_the_script_in_their_order() -> None:
    calls = [node for node in ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    steps = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "step"]
    patterns = [_pattern(call.args[0]) for call in sorted(steps, key=lambda call: call.lineno)]
    commands = re.findall(r"^\$ (.*)$", PAGE, re.M)
    assert len(commands) == len(patterns) > 10
    assert [c for c, pattern in zip(commands, patterns, strict=True) if not re.fullmatch(pattern, c)] == []


def test_the_first_job_is_the_readmes() -> None:
    found = re.search(r"## A first job\n+```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    assert found[1] in PAGE


def test_the_first_result_was_there_within_fifteen_seconds() -> None:
    found = re.search(r"the first result after ([\d.]+) s", PAGE)
    assert found is not None
    assert float(found[1]) < 15
