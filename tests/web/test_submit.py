"""What the dialog of the page submits, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from penstock.service.endpoint import Endpoint
from tests.service.programs import program
from tests.web.pages import PHONE, SHOTS, open_page, shoot, state

_PYFLINK = """
from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from shouting import shout

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to", "be"], type_info=Types.STRING())
words.map(shout, output_type=Types.STRING()).print()
env.execute("pyflink words")
"""


def test_a_pyflink_program_is_submitted_with_the_modules_it_imports(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher)
    page.get_by_role("button", name="Submit job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Python file").set_input_files(program(tmp_path, "words.py", _PYFLINK))
    dialog.get_by_label("PyFlink program").check()
    dialog.get_by_label("Modules it imports").set_input_files(
        program(tmp_path, "shouting.py", "def shout(word):\n    return word.upper() + '!'\n")
    )
    dialog.get_by_label("Runtime").select_option("embedded")
    shoot(page, "submit-dialog")
    dialog.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("#/jobs/[0-9a-f]{32}$"))
    expect(state(page)).to_have_text("FINISHED")
    page.get_by_role("link", name="Log").click()
    expect(page.locator("pre")).to_contain_text("TO!")

    # Run again, it brings the same: the switch and the module are in the form already.
    page.get_by_role("button", name="Resume…").first.click()
    expect(dialog.get_by_label("PyFlink program")).to_be_checked()
    expect(dialog.get_by_label("with shouting.py")).to_be_checked()
    first = page.url
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog).to_have_count(0)
    expect(page).not_to_have_url(first)
    expect(state(page)).to_have_text("FINISHED")

    # Without the module it is another program, which fails.
    page.get_by_role("button", name="Resume…").first.click()
    dialog.get_by_label("with shouting.py").uncheck()
    dialog.get_by_role("button", name="Submit").click()
    expect(state(page)).to_have_text("FAILED")
    expect(page.locator(".note.bad")).to_contain_text("shouting")
    assert wrong == []


def test_the_dialog_fits_a_phone(chromium: Browser, dispatcher: Endpoint) -> None:
    page, wrong = open_page(chromium, dispatcher, PHONE, dark=True)
    page.get_by_role("button", name="Submit job").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("PyFlink program")).to_be_visible()
    assert dialog.evaluate("d => d.scrollWidth - d.clientWidth") == 0
    page.screenshot(path=SHOTS / "submit-dialog-phone-dark.png")
    assert wrong == []
