from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs of these tests are kept in a folder of their own, not in the user's."""
    path = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(path))
    return path
