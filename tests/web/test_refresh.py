"""The page draws itself anew every second: what a person does meanwhile is not lost, and what answers late is not shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from penstock.service.endpoint import Endpoint
from tests.driver.jobs import eventually
from tests.service.programs import FAILING, jobmanager, program
from tests.web.pages import CLICKS, act, figure, held, number, open_page, state, submit

TALL = (1280, 1700)


@pytest.fixture
def watched(chromium: Browser, dispatcher: Endpoint, tmp_path: Path) -> Iterator[Page]:
    """The page of a running job."""
    page, wrong = open_page(chromium, dispatcher, TALL)
    submit(page, program(tmp_path, "watched.py", CLICKS), arguments='"one that is watched"')
    expect(page.get_by_role("heading", name="Subtasks of")).to_be_visible()
    yield page
    page.unroute_all()
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []
    page.close()


def refreshed(page: Page) -> None:
    """Wait until the page has drawn something new."""
    before = number(figure(page, "Records in"))
    eventually(lambda: number(figure(page, "Records in")) > before, "a refresh")


def middle(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_click_counts_though_the_page_is_drawn_anew_between_press_and_release(watched: Page) -> None:
    page = watched
    page.mouse.move(*middle(page.get_by_role("button", name="Rescale…")))
    page.mouse.down()
    refreshed(page)
    page.mouse.up()
    expect(page.get_by_role("dialog").get_by_label("Parallelism")).to_be_visible()
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Rescale…").focus()
    page.keyboard.down(" ")
    refreshed(page)
    page.keyboard.up(" ")
    expect(page.get_by_role("dialog").get_by_label("Parallelism")).to_be_visible()
    page.keyboard.press("Escape")
    refreshed(page)


def test_of_two_vertices_the_one_chosen_last_is_shown(watched: Page) -> None:
    page = watched
    expect(page.get_by_role("heading", name="Subtasks of numbers")).to_be_visible()
    late: list[Route] = []
    page.route("**/jobs/*/vertices/*", lambda route: late.append(route), times=1)
    held(page, late)  # about the first vertex, and it is not answered yet
    page.locator(".vertex").last.click()
    expect(page.get_by_role("heading", name="Subtasks of Reduce")).to_be_visible()
    page.route("**/jobs/*", lambda route: None)  # no later refresh repairs what the late answer does
    with page.expect_response(re.compile("/vertices/")):
        late.pop().continue_()
    page.wait_for_timeout(300)
    expect(page.get_by_role("heading", name="Subtasks of Reduce")).to_be_visible()


def test_of_two_questions_about_state_the_last_one_is_answered(watched: Page) -> None:
    page = watched
    page.get_by_role("link", name="State").click()
    choices = page.locator("select[name=state]")
    expect(choices.locator("option", has_text="newest")).to_have_count(1)
    choices.select_option(label=choices.locator("option", has_text="newest").inner_text())
    late: list[Route] = []
    page.route(re.compile("key=3"), lambda route: late.append(route))
    page.get_by_label("Key").fill("3")
    page.get_by_role("button", name="Look up").click()
    held(page, late)
    page.get_by_label("Key").fill("4")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_text("reduce of 4 as of")).to_be_visible()
    page.get_by_label("Key").fill("5")  # not asked for
    with page.expect_response(re.compile("key=3")):
        late.pop().continue_()
    page.wait_for_timeout(300)
    expect(page.get_by_text("reduce of 4 as of")).to_be_visible()


def test_what_fails_after_its_dialog_was_closed_is_told(watched: Page) -> None:
    page = watched
    late: list[Route] = []
    page.route("**/jobs/*/savepoints", lambda route: late.append(route))
    page.get_by_role("button", name="Savepoint…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Folder").fill("relative")
    dialog.get_by_role("button", name="Take savepoint").click()
    held(page, late)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    late.pop().continue_()
    expect(page.get_by_role("log", name="Messages")).to_contain_text("'relative' is a relative path")
    page.get_by_role("button", name="Dismiss message").click()


def test_the_focus_is_not_lost_with_what_had_it(watched: Page) -> None:
    page = watched
    page.get_by_role("link", name="Checkpoints").click()
    first = page.locator("button[data-key^=subtasks-]").last  # details of ten are kept, and five come every second
    expect(first).to_be_visible()
    drawn = first.element_handle()
    key = drawn.get_attribute("data-key")
    drawn.focus()
    expect(page.locator(f"[data-key={key}]")).to_have_count(0)
    expect(page.locator("[data-key^=subtasks-]:focus")).to_have_count(1)


def test_a_wide_table_stays_where_it_was_scrolled_to(watched: Page) -> None:
    page = watched
    page.set_viewport_size({"width": 700, "height": 900})
    table = page.locator(".scroll", has=page.get_by_role("columnheader", name="Watermark")).first
    drawn = table.element_handle()
    drawn.evaluate("element => { element.scrollLeft = 60; }")
    eventually(lambda: not drawn.evaluate("element => element.isConnected"), "the table is drawn anew")
    assert table.evaluate("element => element.scrollLeft") == 60


def test_an_exception_that_was_closed_stays_closed(chromium: Browser, dispatcher: Endpoint, tmp_path: Path) -> None:
    page, wrong = open_page(chromium, dispatcher, TALL)
    submit(page, program(tmp_path, "failing.py", FAILING))
    expect(state(page)).to_have_text("FAILED")
    page.get_by_role("link", name="Exceptions").click()
    details = page.locator("details")
    expect(details).to_have_attribute("open", "")
    page.locator("summary").click()
    with page.expect_response(re.compile("/exceptions$")):
        pass
    with page.expect_response(re.compile("/exceptions$")):  # the answer to the one before has been drawn
        pass
    assert details.get_attribute("open") is None
    assert wrong == []
    page.close()


def test_names_and_numbers_of_any_length_fit(chromium: Browser, tmp_path: Path) -> None:
    with jobmanager(tmp_path / "home") as endpoint:
        page, wrong = open_page(chromium, endpoint, (390, 844))
        submit(page, program(tmp_path, "a name with blanks.py", CLICKS), arguments="NameWithoutBlanks" * 30)
        expect(page.get_by_role("heading", level=1)).to_contain_text("NameWithoutBlanks")
        heading = page.get_by_role("heading", level=1).bounding_box()
        assert heading is not None
        assert heading["height"] < 130, "three lines"
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wider) == 0
        shown = page.evaluate(
            "import('/format.js').then(f => [987654321987654, 12345678901, 1234567890, 0].map(f.short).join('; '))"
        )
        assert shown == "987.7 T; 12.3 G; 1,234,567,890; 0"
        act(page, "Cancel", "Cancel job")
        expect(state(page)).to_have_text("CANCELED")
        page.get_by_role("link", name="All jobs").click()
        expect(page.get_by_role("link", name=re.compile("NameWithoutBlanks"))).to_be_visible()
        assert page.evaluate(wider) == 0
        assert wrong == []
