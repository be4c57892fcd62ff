"""Tables and connections of the tests of PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.postgres.jobs import committers


@pytest.fixture
def table() -> str:
    """A name that no other test uses; the test creates the table."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    while committers:
        committers.pop().close()
