"""All tests here need a real PostgreSQL server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.jobs import committers

_HERE = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture
def table() -> str:
    """A name that no other test uses; the test creates the table."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    while committers:
        committers.pop().close()
