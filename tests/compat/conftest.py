from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.compat import pyflink as compat


@pytest.fixture
def pyflink_aliases() -> Iterator[None]:
    """`import pyflink` is Penstock during the test."""
    was_installed = compat.installed()
    compat.install()
    yield
    if not was_installed:
        compat.uninstall()
