"""Starting a slot: what it imports from."""

from __future__ import annotations

import os
import sys

import pytest

from penstock.runtime.epochs.client import _python_path


def test_shipped_zips_stay_before_what_is_installed_and_only_pysparks_own_go_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = [
        "/c/pyspark.zip",
        "/c/py4j-0.10.9.9-src.zip",
        "",
        "/c/shipped.zip",
        "/c/py4j-helpers.zip",
        "/usr/site-packages",
    ]
    monkeypatch.setattr(sys, "path", path)
    assert _python_path().split(os.pathsep) == [
        "/c/shipped.zip",
        "/c/py4j-helpers.zip",
        "/usr/site-packages",
        "/c/pyspark.zip",
        "/c/py4j-0.10.9.9-src.zip",
    ]
