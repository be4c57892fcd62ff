"""Charts of metrics that somebody chooses, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from penstock.service.endpoint import Endpoint
from tests.driver.jobs import eventually
from tests.service.programs import program
from tests.web.pages import CLICKS, LAPTOP, PHONE, act, open_page, shoot, state, submit


def _points(chart: Locator) -> int:
    return len(re.findall(r"[ML]", chart.locator(".line").last.get_attribute("d") or ""))


def _choose(page: Page, of: str, metric: str) -> Locator:
    page.locator("select[name=of]").select_option(label=of)
    page.locator("select[name=metric]").select_option(metric)
    page.get_by_role("button", name="Add chart").click()
    return page.get_by_role("region", name=re.compile(f"^{re.escape(metric)} of"))


@pytest.mark.parametrize(("size", "dark"), [(LAPTOP, False), (PHONE, True)], ids=["laptop", "phone"])
def test_what_is_chosen_is_drawn_while_it_happens_and_stays_chosen(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    page, wrong = open_page(chromium, dispatcher, size, dark=dark)
    submit(page, program(tmp_path, "charts.py", CLICKS), parallelism="2")
    expect(state(page)).to_have_text("RUNNING")
    page.get_by_role("link", name="Metrics").click()
    read = page.get_by_role("region", name=re.compile("^numRecordsInPerSecond of numbers"))
    expect(read).to_be_visible()  # there is something to see at first
    epochs = _choose(page, "the job", "numEpochs")
    size_of = _choose(page, page.locator("select[name=of]").locator("option").last.inner_text(), "stateEntries")
    expect(epochs.locator(".line")).not_to_have_count(0)
    eventually(lambda: _points(epochs) >= 3, "the line grows")
    expect(size_of.locator(".reading strong")).to_have_text("10")  # ten keys, over two subtasks
    size_of.get_by_role("combobox").select_option("spread")
    expect(size_of.locator(".band")).to_have_count(1)
    expect(size_of.locator(".reading")).to_contain_text("over subtasks")

    # History goes on in the other tabs.
    before = _points(epochs)
    page.get_by_role("link", name="Exceptions").click()
    for _ in range(4):  # the last answer may not be drawn yet, and the first may be of the tab before
        with page.expect_response(re.compile(r"/jobs/[0-9a-f]+/metrics\?")):
            pass
    page.get_by_role("link", name="Metrics").click()
    expect(epochs.locator(".line")).not_to_have_count(0)
    assert _points(epochs) >= before + 2
    epochs.scroll_into_view_if_needed()
    box = epochs.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 30)
    expect(epochs.locator(".pointed")).to_have_attribute("visibility", "visible")
    expect(epochs.locator(".reading")).not_to_contain_text("now")
    page.wait_for_timeout(1500)
    expect(epochs.locator(".reading")).not_to_contain_text("now")  # also after it was drawn anew
    page.mouse.move(0, 0)
    expect(epochs.locator(".reading")).to_contain_text("now")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    shoot(page, f"metrics-{'phone-dark' if size == PHONE else 'laptop'}")

    page.get_by_role("button", name="Remove the chart of numRecordsInPerSecond").first.click()
    expect(read).to_have_count(0)
    assert wrong == []  # a reload ends what is under way
    page.reload()
    expect(epochs).to_be_visible()
    expect(size_of.get_by_role("combobox")).to_have_value("spread")
    expect(read).to_have_count(0)
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")


def test_hosts_tell_their_memory_and_what_they_print(chromium: Browser, dispatcher: Endpoint, tmp_path: Path) -> None:
    page, wrong = open_page(chromium, dispatcher)
    submit(page, program(tmp_path, "hosts.py", CLICKS), parallelism="2")
    expect(state(page)).to_have_text("RUNNING")
    page.get_by_role("link", name="Hosts").click()
    row = page.get_by_role("region", name="Hosts").locator("tbody tr")
    expect(row).to_have_count(1)  # the embedded runtime is one process
    expect(row).to_contain_text(re.compile(r"[1-9][\d.]* MiB.*[1-9][\d.]* GiB of [1-9][\d.]* GiB free"))
    row.get_by_role("button", name=re.compile("^Log of")).click()
    expect(page.get_by_role("region", name="Log of a process").locator("pre")).to_contain_text("the program's words")
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    expect(page.get_by_text("its processes are gone")).to_be_visible()
    assert wrong == []
