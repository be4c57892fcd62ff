"""The documentation is tested: its Python blocks run, its links lead somewhere, its reference pages are complete.

A block that starts with ```python is run on the embedded runtime, in an empty folder; the blocks of one page run in order
and share their names. One that cannot run there says why: ```python no-run: needs a Spark session.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import pytest

from penstock.common.option_page import rendered
from penstock.common.options import SECTIONS
from penstock.engine.messages import EpochReport

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: where its code starts, its info string and its lines."""

    line: int
    info: str
    code: str

    @property
    def is_python(self) -> bool:
        return self.info.split(" ")[0] in ("python", "py")

    @property
    def runs(self) -> bool:
        return self.info == "python"


def blocks(text: str) -> Iterator[Block]:
    opened: re.Match[str] | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence is not None:
                opened, lines, start = fence, [], number + 1
        elif fence is not None and fence["ticks"] == opened["ticks"] and not fence["info"].strip():
            yield Block(line=start, info=opened["info"].strip(), code="\n".join(lines))
            opened = None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"the block that starts in line {start - 1} is not closed"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The blocks' namespace is a real module, as a user's would be: their classes can be pickled by name."""
    made = ModuleType("penstock_snippets_of_this_page")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def run(page: Path, text: str, module: ModuleType) -> list[int]:
    """Run the blocks that are meant to; the lines where they start."""
    ran = []
    for block in blocks(text):
        if block.runs:
            # Empty lines in front, so that a traceback shows the line of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), module.__dict__)
            ran.append(block.line)
    return ran


WITH_CODE = [page for page in PAGES if any(block.runs for block in blocks(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_python_blocks_of_a_page_run_in_order(
    page: Path, module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    text = page.read_text(encoding="utf-8")
    assert run(page, text, module) == [block.line for block in blocks(text) if block.runs]
    for suite in (value for name, value in vars(module).items() if name.startswith("Test")):
        for number, test in enumerate(name for name in dir(suite) if name.startswith("test_")):
            folder = tmp_path / f"{suite.__name__}-{number}"
            folder.mkdir()
            getattr(suite(), test)(folder)


def test_a_block_that_fails_is_an_error_at_its_line_of_the_page(module: ModuleType) -> None:
    text = "# Page\n\n```python\nhalf = 1\n```\n\n```python\nhalf /= 2\nassert half == 1\n```\n"
    with pytest.raises(AssertionError) as failed:
        run(Path("page.md"), text, module)
    assert [entry.lineno + 1 for entry in failed.traceback if str(entry.path).endswith("page.md")] == [9]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_python_block_that_is_not_run_compiles_and_says_why(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.is_python and not block.runs:
            assert re.fullmatch(r"python no-run: \S.*", block.info), f"{name_of(page)}:{block.line}: {block.info!r}"
            compile(block.code, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_a_file(page: Path) -> None:
    missing = []
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = (match[1] or match[2]).partition("#")[0]
        if target and "://" not in target and not (page.parent / target).exists():
            missing.append(target)
    assert missing == []


def headings(page: Path) -> set[str]:
    """The anchors of a page, as its host makes them of headings."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_into_a_page_lead_to_one_of_its_headings(page: Path) -> None:
    missing = []
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        target, _, anchor = (match[1] or match[2]).partition("#")
        into = page.parent / target if target else page
        if anchor and "://" not in target and into.suffix == ".md" and anchor not in headings(into):
            missing.append(f"{target}#{anchor}")
    assert missing == []


def test_source_files_that_a_page_names_are_there() -> None:
    """`penstock/graph/explain.py`, or `explain.py` where the folder is clear: each is the end of some file's path."""
    folders = ("penstock", "tests", "examples", "benchmarks", "scripts")
    paths = {path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    ends = {"/".join(path.split("/")[start:]) for path in paths for start in range(path.count("/") + 1)}
    of_the_reader = {"README.md": {"words.py"}, "docs/first-hour.md": {"words.py", "wrong.py"}}
    for page in PAGES:
        named = set(re.findall(r"`([\w./-]+\.py)(?:::\w+)?`", page.read_text(encoding="utf-8")))
        assert named - ends - of_the_reader.get(name_of(page), set()) == set(), name_of(page)


def test_the_runner_sees_blocks_as_a_reader_does() -> None:
    text = "```python\na = 1\n```\n\n  ```python no-run: needs Spark\n  b\n  ```\n````text\n```python\n```\n````\n"
    assert [(b.line, b.info, b.code, b.is_python, b.runs) for b in blocks(text)] == [
        (2, "python", "a = 1", True, True),
        (6, "python no-run: needs Spark", "b", True, False),
        (9, "text", "```python\n```", False, False),
    ]


def test_the_front_page_and_the_how_tos_have_blocks_that_run() -> None:
    front = [b for b in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if b.runs]
    how_tos = [b for page in (ROOT / "docs/howto").glob("*.md") for b in blocks(page.read_text("utf-8")) if b.runs]
    assert front
    assert len(how_tos) >= 10


def test_the_configuration_reference_is_what_the_table_of_options_says() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert page == rendered(page), "run `make reference`"
    missing = {section.__name__ for section in SECTIONS} - set(re.findall(r"<!-- (\w+Options) -->", page))
    assert missing == {"InternalOptions"}


def test_every_field_of_an_epoch_report_is_in_the_metrics_reference() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(EpochReport) if f"`{field.name}`" not in text] == []


def test_the_tests_that_the_page_of_faults_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/reference/faults.md").read_text())
    assert len(named) > 20
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert missing == []
