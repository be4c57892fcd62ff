"""The page as a person opens it, and what a person does on it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, Route, expect

from penstock.service.endpoint import Endpoint
from tests.service.programs import ENDLESS

SHOTS = Path(__file__).parents[2] / "reports" / "web"
CLICKS = ENDLESS.replace("enable_checkpointing(10)", "enable_checkpointing(200)")
LAPTOP, PHONE = (1280, 800), (390, 844)
PATIENCE_MS = 60_000  # a driver starts in a second, or in twenty if others have the cores


def open_page(
    chromium: Browser, endpoint: Endpoint, size: tuple[int, int] = LAPTOP, *, dark: bool = False, known: bool = True
) -> tuple[Page, list[str]]:
    """A tab, opened as `penstock ui` does unless the token is not `known`; and what went wrong in it."""
    context = chromium.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        device_scale_factor=2 if size == PHONE else 1,
    )
    page, wrong = context.new_page(), list[str]()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(f"{request.url}: {request.failure}"))
    page.on(
        "request", lambda r: None if r.url.startswith(endpoint.address) else wrong.append(f"from elsewhere: {r.url}")
    )
    page.goto(f"{endpoint.address}/#token={endpoint.token}" if known else endpoint.address)
    return page, wrong


def shoot(page: Page, name: str) -> None:
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def submit(page: Page, file: Path, **fields: str) -> None:
    page.get_by_role("button", name="Submit job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Python file").set_input_files(file)
    for label, text in fields.items():
        dialog.get_by_label(label.capitalize()).fill(text)
    dialog.get_by_label("Runtime").select_option("embedded")
    dialog.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("#/jobs/[0-9a-f]{32}$"))


def figure(page: Page, name: str) -> Locator:
    return page.locator(".numbers div", has_text=name).first.locator("dd")


def number(text: Locator) -> int:
    return int(re.sub(r"\D", "", text.inner_text()) or 0)


def state(page: Page) -> Locator:
    return page.locator(".head .state")


def act(page: Page, action: str, confirm: str) -> None:
    page.get_by_role("button", name=f"{action}…").first.click()
    page.get_by_role("dialog").get_by_role("button", name=confirm).click()


def held(page: Page, late: list[Route]) -> None:
    """Wait until a request that is routed into `late` has come: one that was under way before may come first."""
    for _ in range(PATIENCE_MS // 20):
        if late:
            return
        page.wait_for_timeout(20)
    raise AssertionError("the page did not ask")
