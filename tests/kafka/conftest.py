"""All tests here need a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.kafka)
