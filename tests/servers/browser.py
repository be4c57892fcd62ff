"""A real Chromium for the tests of the web page: the system's, or the one Playwright has fetched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Read at import: each test runs without Penstock's own variables.
_GIVEN = os.environ.get("PENSTOCK_CHROMIUM")


def find() -> str | None:
    """The path of an executable; None if there is none."""
    if _GIVEN is not None:
        return _GIVEN
    installed = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    if installed is not None:
        return installed
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None
