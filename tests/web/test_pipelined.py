"""What the page shows of tasks that run all the time: busy, back-pressured, idle, latencies, how a checkpoint went."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from penstock.service.endpoint import Endpoint
from tests.service.programs import jobmanager
from tests.web.pages import LAPTOP, PHONE, figure, open_page, shoot
from tests.web.told import COUNT, JOB, pipelined_facts, tell


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    home: Path = tmp_path_factory.mktemp("home")
    tell(home, pipelined_facts())
    with jobmanager(home) as endpoint:
        yield endpoint


def _rows(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name).locator("tbody tr")


def _expect_nothing_cut_off(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    for scrolled in page.locator(".scroll").all():
        assert scrolled.evaluate("e => e.scrollWidth - e.clientWidth") <= 0, "no figure is cut off"


@pytest.mark.parametrize(("size", "dark"), [(LAPTOP, False), (LAPTOP, True), (PHONE, False), (PHONE, True)])
def test_subtasks_show_where_their_time_goes_how_even_they_are_and_their_latency(
    chromium: Browser, told: Endpoint, size: tuple[int, int], dark: bool
) -> None:
    page, wrong = open_page(chromium, told, size, dark=dark)
    expect(page.locator("tbody tr").first).to_contain_text("pipelined")
    page.goto(f"{told.address}/#/jobs/{JOB}")
    expect(page.locator(".mode")).to_have_text("pipelined: all of the job's operators can run so")
    expect(figure(page, "Records in")).to_have_text("120,000and 2,500 again")
    expect(figure(page, "Latency")).to_have_text("9 msp99 36 ms")
    expect(page.get_by_role("heading", name="Epochs")).to_be_hidden()
    page.locator(f'[data-vertex="{COUNT}"]').click()
    expect(page.get_by_role("heading", name="Subtasks of count for each user")).to_be_visible()

    bar = _rows(page, "Subtasks").last.locator(".meter")
    expect(bar).to_have_attribute("aria-label", "busy 5 %, back-pressured 0 %, idle 95 %")
    first = _rows(page, "Subtasks").nth(3).locator(".meter i")
    assert [part.get_attribute("style") for part in first.all()] == ["width: 97%;", "width: 0%;", "width: 3%;"]
    rows = [" ".join(row.inner_text().split()) for row in _rows(page, "Subtasks").all()[:3]]
    assert [re.search(r"\b(min|median|max)\b", row) is not None for row in rows] == [True] * 3
    assert "2,000" in rows[0]
    assert "5,000" in rows[1]
    assert "108,000" in rows[2]
    expect(page.locator(".uneven")).to_have_text("130 %")

    latency = _rows(page, "Latency of the vertex")
    expect(latency).to_have_count(5)
    assert [text.strip() for text in latency.first.locator("td.n").all_inner_texts()][-5:] == [
        "9 ms", "18 ms", "36 ms", "81 ms", "4,800",
    ]  # fmt: skip
    _expect_nothing_cut_off(page)
    shoot(page, f"pipelined-{'phone' if size == PHONE else 'laptop'}-{'dark' if dark else 'light'}")

    page.get_by_role("link", name="Checkpoints").click()
    page.get_by_role("button", name="Subtasks of checkpoint 7").click()
    subtask = page.get_by_role("region", name="Subtasks of checkpoint").locator("tbody tr").first
    words = " ".join(subtask.inner_text().split())
    for value in ("4.0 KiB", "30 ms", "12 ms", "64.0 KiB", "1.5 ms", "6 ms"):
        assert value in words, words
    _expect_nothing_cut_off(page)
    shoot(page, f"pipelined-checkpoint-{'phone' if size == PHONE else 'laptop'}-{'dark' if dark else 'light'}")

    page.get_by_role("link", name="Hosts").click()
    expect(page.get_by_role("heading", name="Hosts (2)")).to_be_visible()
    words = " ".join(_rows(page, "Hosts").first.inner_text().split())
    for value in ("worker-1:40001:211", "300.0 MiB", "9.0 GiB of 16.0 GiB free", "8", "127 %"):
        assert value in words, words
    _expect_nothing_cut_off(page)
    shoot(page, f"hosts-{'phone' if size == PHONE else 'laptop'}-{'dark' if dark else 'light'}")
    assert wrong == []
