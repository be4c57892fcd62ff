"""What every test gets: reproducible Hypothesis runs and an environment without Penstock's own variables."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

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
