"""A Chromium for all tests of the page, and a dispatcher for those of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from penstock.service.endpoint import Endpoint
from tests.servers.browser import find
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable
from tests.service.programs import jobmanager
from tests.web.pages import PATIENCE_MS, SHOTS


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    path = find()
    if path is None:
        unavailable(ServerUnavailable("no Chromium: run `make browser`, or name one in PENSTOCK_CHROMIUM"))
        raise AssertionError
    SHOTS.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # Without a sandbox of its own: containers and CI run as root, and the page is ours.
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with jobmanager(tmp_path_factory.mktemp("home"), "--slots", "16") as endpoint:
        yield endpoint
        for job in endpoint.ask("GET", "/jobs", timeout_s=10).body["jobs"]:
            endpoint.ask("PATCH", f"/jobs/{job['id']}", {"mode": "cancel"}, timeout_s=10)
