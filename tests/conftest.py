"""What every test gets: a part of the suite, reproducible Hypothesis runs, an environment without Penstock's own variables.

A test's markers say what it needs; those of a fixture that starts something are put on here. The needs make the parts: `spark`,
`servers` (Kafka, PostgreSQL, S3, a browser), `long`, and what needs none of it and is short, `embedded` and `plain`. `make quick`
runs the last two, `make test` all of them (`tests/parts.py`); a test marked `nightly` runs only with `--nightly`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers.fixtures import (  # noqa: F401 - fixtures for every folder below
    kafka_server,
    postgres,
    postgres_server,
    s3,
    s3_server,
    topics,
)

# No deadline: two cores shared with a JVM make single examples slow now and then, which is no fault of the code.
settings.register_profile("ci", derandomize=False, print_blob=True, deadline=None)
# For work on one failing property: no forced seed, so Hypothesis replays the failures it saved in .hypothesis/.
settings.register_profile("dev", parent=settings.get_profile("ci"))
settings.load_profile("ci")

_STARTED_BY = {
    "spark": "spark",
    "kafka_server": "kafka",
    "postgres_server": "postgres",
    "s3_server": "s3",
    "chromium": "browser",
}
_HERE = Path(__file__).parent
_PARTS = ("plain", "embedded", "long", "servers", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("penstock")
    group.addoption("--part", action="append", choices=_PARTS, help="only this part of the suite; may be repeated")
    group.addoption("--nightly", action="store_true", help="also what `make test` leaves to the night")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing all test modules takes ten seconds: a folder that cannot have a test of the only part asked for is left out."""
    if config.getoption("--part") not in (["embedded"], ["plain"]) or collection_path.parent != _HERE:
        return None
    in_embedded = collection_path.name == "embedded"
    return True if in_embedded != (config.getoption("--part") == ["embedded"]) else None


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in _STARTED_BY.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    parts, nightly = config.getoption("--part") or _PARTS, config.getoption("--nightly")
    chosen = [item for item in items if _part(item) in parts and (nightly or not _has(item, "nightly"))]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def _part(item: pytest.Item) -> str:
    if _has(item, "spark"):
        return "spark"
    if any(_has(item, marker) for marker in _STARTED_BY.values()):
        return "servers"
    if _has(item, "long"):
        return "long"
    return "embedded" if item.path.is_relative_to(_HERE / "embedded") else "plain"


def _has(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


@pytest.hookimpl(tryfirst=True)  # before Hypothesis' own plugin reads the option
def pytest_configure(config: pytest.Config) -> None:
    """Every run explores other examples, and every run can be repeated: choose a seed unless one was given."""
    if config.getoption("--hypothesis-profile") == "dev" or config.getoption("--hypothesis-seed") is not None:
        return
    config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--hypothesis-seed")
    return None if seed is None else f"hypothesis seed: {seed} (repeat with --hypothesis-seed={seed})"


@pytest.fixture(autouse=True)
def _no_penstock_variables() -> Iterator[None]:
    """PENSTOCK_* of the developer's shell must not steer a test, nor those a test sets the next one."""
    before = _take_penstock_variables()
    yield
    _take_penstock_variables()
    os.environ.update(before)


def _take_penstock_variables() -> dict[str, str]:
    return {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PENSTOCK_")}
