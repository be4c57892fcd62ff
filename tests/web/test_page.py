"""The web page in a real Chromium, as a person uses it. Screenshots are kept in reports/web."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from penstock.cli.jobmanager import ui
from penstock.service.endpoint import Endpoint
from tests.driver.jobs import eventually
from tests.service.programs import FAILING, jobmanager, program
from tests.web.pages import CLICKS, LAPTOP, PHONE, act, figure, held, number, open_page, shoot, state, submit

SLOW = """
import time
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

def write(n):
    time.sleep(0.001)
    return False

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda index: index, None, rate_per_second=5000)
clicks = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks").map(lambda n: (n % 7, n)).name("parse")
newest = clicks.key_by(lambda c: c[0]).reduce(lambda a, b: max(a, b)).name("newest for each user").uid("newest")
newest.rebalance().filter(write).name("write slowly").print().name("to the database")
env.execute("slow sink")
"""
LOOP = """
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(200)
source = DataGeneratorSource(lambda index: (index, index % 20 + 5), None, rate_per_second=500)
loop = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").iterate()
step = loop.key_by(lambda p: p[0] % 7).map(lambda p: (p[0], p[1] - 1)).name("count down").uid("down")
loop.close_with(step.filter(lambda p: p[1] > 0))
step.filter(lambda p: p[1] == 0).print().name("arrived").uid("arrived")
env.execute("rounds")
"""


def look_up(page: Page, key: str) -> None:
    page.get_by_role("link", name="State").click()
    choices = page.locator("select[name=state]")
    expect(choices.locator("option", has_text="newest")).to_have_count(1)
    choices.select_option(label=choices.locator("option", has_text="newest").inner_text())
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Look up").click()


def test_a_job_is_submitted_watched_saved_rescaled_stopped_and_resumed(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher)
    expect(page.get_by_text("No job is running")).to_be_visible()
    submit(page, program(tmp_path, "clicks.py", CLICKS), arguments="clickstream", parallelism="2")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("clicks"))
    expect(state(page)).to_have_text("RUNNING")

    # The graph is there and moves.
    expect(page.locator(".vertex")).to_have_count(2)
    expect(page.locator(".vertex").first).to_have_attribute(
        "aria-label", re.compile(r"numbers.*parallelism 2.*in [1-9]")
    )
    expect(page.locator(".edge.moving")).to_have_count(1)
    expect(page.locator(".edge-label")).to_have_text("HASH")
    before = number(figure(page, "Records in"))
    eventually(lambda: number(figure(page, "Records in")) > before, "more records are shown")
    shoot(page, "job-light")

    act(page, "Savepoint", "Take savepoint")
    saved = page.locator(".toast", has_text="Savepoint:")
    expect(saved).to_contain_text("savepoint-")
    page.get_by_role("link", name="Checkpoints").click()
    expect(page.get_by_role("button", name=re.compile("Resume from savepoint"))).to_have_count(1)
    page.get_by_role("button", name=re.compile("Subtasks of checkpoint")).first.click()
    expect(page.get_by_role("heading", name=re.compile("Subtasks of checkpoint"))).to_be_visible()
    shoot(page, "checkpoints")
    page.get_by_role("button", name="Checkpoint now").click()
    expect(page.locator(".toast", has_text="is complete")).to_be_visible()

    page.get_by_role("button", name="Rescale…").click()
    page.get_by_role("dialog").get_by_label("Parallelism").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Rescale").click()
    expect(page.locator(".toast", has_text="Rescaled")).to_be_visible()
    expect(page.locator(".vertex").last.locator(".slot")).to_have_count(3)

    # Some of a state's entries, one key's, and the server's words when that cannot be.
    page.get_by_role("link", name="State").click()
    expect(page.locator("select[name=state] option")).to_have_text(
        "newest · reduce (reducing)"
    )  # nothing of the engine's
    expect(page.get_by_role("status").filter(has_text="10 entries")).to_be_visible()
    expect(page.get_by_role("status").locator("tbody tr")).to_have_count(10)
    shoot(page, "state")
    look_up(page, "seven")
    expect(page.locator(".error", has_text="is not JSON")).to_be_visible()
    look_up(page, "7")
    expect(page.locator("pre")).to_have_text(re.compile(r"^\d*7$"))

    act(page, "Stop", "Stop job")
    expect(state(page)).to_have_text("FINISHED")
    stopped = page.locator(".toast", has_text="Stopped with savepoint:")
    path = stopped.locator("p").inner_text().partition(": ")[2]
    unable = page.get_by_role("button", name="Savepoint…")
    expect(unable).to_have_attribute("aria-disabled", "true")
    expect(unable).to_have_attribute("title", "The job is FINISHED.")
    read = number(figure(page, "Records in"))

    # Resumed, it goes on where it stopped: the first number it reads is the next one.
    stopped.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Savepoint or checkpoint")).to_have_value(path)
    # What the job was given is in the form already.
    expect(dialog.get_by_label("Arguments")).to_have_value("clickstream")
    expect(dialog.get_by_label("Parallelism")).to_have_value("2")
    expect(dialog.get_by_label("Runtime")).to_have_value("embedded")
    dialog.get_by_label("Arguments").fill("resumed")
    shoot(page, "resume-dialog")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("resumed")
    expect(state(page)).to_have_text("RUNNING")
    look_up(page, "7")
    expect(page.locator("pre")).to_have_text(re.compile(r"^\d*7$"))
    assert number(page.locator("pre")) >= read - 10
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


def test_a_failing_job_shows_its_exception(chromium: Browser, dispatcher: Endpoint, tmp_path: Path) -> None:
    page, wrong = open_page(chromium, dispatcher, dark=True)
    submit(page, program(tmp_path, "failing.py", FAILING))
    expect(state(page)).to_have_text("FAILED")
    expect(page.locator(".note.bad")).to_contain_text("ZeroDivisionError: division by zero")
    page.locator(".note.bad").get_by_role("link", name="Details").click()
    expect(page.locator("pre").first).to_contain_text("ZeroDivisionError: division by zero")
    expect(page.locator("details p")).to_contain_text("in Collection Source → Map")
    shoot(page, "exception-dark")
    assert wrong == []


def test_a_slow_sink_is_named_and_what_feeds_it_is_coloured_as_waiting(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher)
    submit(page, program(tmp_path, "slow.py", SLOW), parallelism="2", settings="penstock.epoch.target: 200 ms")
    expect(page.locator(".vertex.bottleneck")).to_have_attribute(
        "aria-label", re.compile("write slowly.*the bottleneck")
    )
    expect(page.locator(".note")).to_contain_text("The bottleneck is write slowly")
    expect(page.locator(".note")).to_contain_text("records an epoch now")
    expect(page.get_by_role("row", name=re.compile("clicks.*high"))).to_be_visible()
    shoot(page, "bottleneck")
    page.get_by_role("link", name="Flame graph").click()
    expect(page.get_by_label("Vertex").locator("option:checked")).to_have_text(re.compile("^write slowly"))
    slow = page.locator(".place.job", has_text="__main__.write:").first
    expect(slow).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("__main__.write:")).first).to_be_visible()
    shoot(page, "flame-graph")
    slow.focus()
    page.keyboard.press("Enter")
    expect(slow).to_have_attribute("style", re.compile("left: 0%; width: 100%"))
    expect(slow).to_be_focused()
    page.get_by_label("Time").select_option("off_cpu")
    expect(slow).to_be_visible()
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_what_an_iteration_sends_back_is_drawn_and_latency_is_shown(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path, size: tuple[int, int]
) -> None:
    page, wrong = open_page(chromium, dispatcher, size)
    submit(page, program(tmp_path, "rounds.py", LOOP), parallelism="2")
    back = page.locator(".edge.feedback.moving")
    expect(back).to_have_count(1)
    head, tail = (page.locator(".vertex").nth(i).get_attribute("data-vertex") for i in (0, 1))
    assert [back.get_attribute(f"data-{end}") for end in ("from", "to")] == [tail, head]
    plan = dispatcher.ask("GET", f"/jobs/{page.url.rpartition('/')[2]}/plan", timeout_s=10).body["plan"]
    assert plan["nodes"][0]["feedback"] == [{"id": tail, "ship_strategy": "FEEDBACK"}]
    label = page.locator(".edge-label", has_text="FEEDBACK")
    expect(label).to_have_text(re.compile(r"FEEDBACK · [1-9][\d,]* on the way"))
    inside(label, page.locator(".graph svg"))
    expect(page.locator(".legend", has_text="iteration")).to_be_visible()

    expect(figure(page, "Latency")).to_have_text(re.compile(r"^[\d.]+ m?sp99 [\d.]+ m?s$"))
    row = page.get_by_role("region", name="Latency").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("numbers")
    expect(row).to_contain_text("arrived")
    pair = dispatcher.ask("GET", f"/jobs/{page.url.rpartition('/')[2]}", timeout_s=10).body["latency"][0]
    assert (pair["source"], pair["sink"]) == ("numbers", "arrived")
    assert 0 <= pair["p50_ms"] <= pair["p99_ms"]
    shoot(page, f"iteration-{'phone' if size == PHONE else 'laptop'}")
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


def inside(inner: Locator, outer: Locator) -> None:
    a, b = inner.bounding_box(), outer.bounding_box()
    assert a is not None
    assert b is not None
    assert b["x"] <= a["x"]
    assert a["x"] + a["width"] <= b["x"] + b["width"]
    assert b["y"] <= a["y"]
    assert a["y"] + a["height"] <= b["y"] + b["height"]


_COMMITTING = """async () => {
  const { graph } = await import("./graph.js");
  const rates = { "records-in-per-second": 5, "records-out-per-second": 0, busy: 0.02, committing: 0.8, "back-pressured": 0 };
  const vertex = { id: "a", name: "sink", level: 0, parallelism: 40, operators: [{ name: "sink", stateful: false }], rates };
  const job = { state: "RUNNING", vertices: [vertex], epochs: [], bottleneck: "a", plan: { nodes: [{ id: "a", inputs: [] }] } };
  return [...graph(job, { onSelect() {}, upright: false, room: 800 }).querySelectorAll("text")].map((e) => e.textContent);
}"""


def test_a_sink_whose_commits_are_slow_is_not_shown_as_idle(chromium: Browser, dispatcher: Endpoint) -> None:
    page, _ = open_page(chromium, dispatcher)
    words = page.evaluate(_COMMITTING)
    assert "committing 80 %" in words
    assert "+31" in words, "slots that do not fit into the box"
    assert "bottleneck" in words


_HELD_BACK = """async () => {
  const { notes } = await import("./job.js");
  const job = { vertices: [], epochs: [], drivers: 1, "held-back": [{ name: "clicks", subtasks: [1, 2], of: 4 }] };
  return notes(job, null).flat(9).filter((note) => note).map((note) => note.textContent);
}"""


def test_a_source_that_holds_event_time_back_is_named(chromium: Browser, dispatcher: Endpoint) -> None:
    page, _ = open_page(chromium, dispatcher)
    [note] = page.evaluate(_HELD_BACK)
    assert note.startswith("Event time has not begun: clicks has no watermark in 2 of its 4 subtasks")


_NOTICE = """async () => {
  const { notes } = await import("./job.js");
  const job = { vertices: [], epochs: [], drivers: 1, notices: [{ key: "no-executor", text: "no executor <b>yet</b>" }] };
  return notes(job, null).flat(9).filter((note) => note).map((note) => [note.getAttribute("role"), note.textContent]);
}"""


def test_what_keeps_a_running_job_from_getting_on_is_shown(chromium: Browser, dispatcher: Endpoint) -> None:
    page, _ = open_page(chromium, dispatcher)
    assert page.evaluate(_NOTICE) == [["alert", "no executor <b>yet</b>"]]


_TITLES = """async () => {
  const { graph } = await import("/graph.js");
  const operators = ["Window(WWWWWWWWWWWWWWWWWWWWWWWWWW)", "iiiiiiiiiiiiiiii"].map((name) => ({ name, stateful: true }));
  const vertex = { id: "w", name: "w", parallelism: 64, operators, rates: {} };
  const job = { state: "RUNNING", epochs: [], vertices: [vertex], plan: { nodes: [{ id: "w", inputs: [] }] } };
  document.body.append(graph(job, { selected: null, onSelect: () => {}, upright: false, room: 900 }));
  const texts = [...document.querySelectorAll(".vertex text")].map((t) => ({ text: t.textContent, box: t.getBBox() }));
  return texts.slice(0, 6).map(({ text, box }) => [text, box.x, box.x + box.width]);
}"""


def test_a_long_name_in_the_graph_ends_before_what_stands_beside_it(chromium: Browser, dispatcher: Endpoint) -> None:
    page, _ = open_page(chromium, dispatcher)
    title, parallelism, long, state, short, other = page.evaluate(_TITLES)
    assert (parallelism[0], state[0], other[0]) == ("×64", "state", "state")
    assert title[0].endswith("…")
    assert long[0].endswith("…")
    assert short[0] == "i" * 16, "narrow letters fit"
    for left, right in ((title, parallelism), (long, state), (short, other)):
        assert left[2] + 2 < right[1], (left, right)


def test_another_tab_leaves_the_page_and_the_focus_where_they_are(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher, (1280, 400))
    submit(page, program(tmp_path, "tabs.py", CLICKS))
    expect(page.get_by_role("region", name="Latency")).to_be_visible()
    page.get_by_role("link", name="Checkpoints").focus()
    before = page.evaluate("scrollY")
    assert before > 0
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    assert page.evaluate("scrollY") == before
    expect(page.get_by_role("link", name="Checkpoints")).to_be_focused()
    expect(page.get_by_role("link", name="Checkpoints")).to_have_attribute("aria-current", "page")
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


def test_a_tab_that_is_loading_or_short_does_not_move_the_page(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher, (1280, 400))
    submit(page, program(tmp_path, "short.py", CLICKS))
    expect(page.get_by_role("heading", name="Subtasks of")).to_be_visible()
    # What the page asked for the tab before comes only after the person has gone on to the next one.
    late: list[Route] = []
    page.route("**/jobs/*/vertices/*", lambda route: late.append(route))
    page.route("**/jobs/*/exceptions*", lambda route: late.append(route))
    held(page, late)
    page.get_by_role("link", name="Exceptions").focus()
    before = page.evaluate("scrollY")
    assert before > 0
    with page.expect_request(re.compile("/exceptions")):
        page.keyboard.press("Enter")
    with page.expect_response(re.compile("/vertices/")):
        late.pop(0).continue_()
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") == before, "while it is loading"
    page.unroute_all()  # which lets go what was held
    expect(page.get_by_text("None.", exact=True)).to_be_visible()
    assert page.evaluate("scrollY") == before, "with little to show"
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


def test_a_job_that_was_not_uploaded_is_run_again_from_where_its_program_is(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    entry = program(tmp_path, "here.py", CLICKS)
    asked = {"entry": str(entry), "programArgsList": ["two words"], "runtime": "embedded", "parallelism": 2}
    job_id = dispatcher.ask(
        "POST", "/jobs", body={**asked, "flinkConfiguration": {"a.password": "x", "b": "c: d"}}
    ).body["jobid"]
    page, wrong = open_page(chromium, dispatcher)
    page.goto(f"{dispatcher.address}/#/jobs/{job_id}")
    expect(state(page)).to_have_text("RUNNING")
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    page.get_by_role("button", name="Resume…").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Arguments")).to_have_value('"two words"')
    expect(dialog.get_by_label("Settings")).to_have_value("b: c: d")  # no secrets
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("two words")
    expect(state(page)).to_have_text("RUNNING")
    assert job_id not in page.url
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    assert wrong == []


def test_what_the_server_refuses_is_said_in_its_words(chromium: Browser, dispatcher: Endpoint, tmp_path: Path) -> None:
    page, _ = open_page(chromium, dispatcher)
    page.get_by_role("button", name="Submit job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Python file").set_input_files(program(tmp_path, "bad name.py", ""))
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("bad_name.py is empty")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.goto(f"{dispatcher.address}/#/jobs/{'0' * 32}")
    expect(page.get_by_role("alert")).to_contain_text("there is no job 000000")


def test_the_page_fits_a_phone_has_two_themes_and_works_from_the_keyboard(
    chromium: Browser, dispatcher: Endpoint, tmp_path: Path
) -> None:
    page, wrong = open_page(chromium, dispatcher, PHONE)
    submit(page, program(tmp_path, "phone.py", CLICKS))
    expect(page.locator(".vertex")).to_have_count(2)
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wider) == 0
    shoot(page, "job-phone")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    shoot(page, "job-phone-dark")

    # Focus stays where it is while the page refreshes, and a vertex is chosen with Enter.
    vertex = page.locator(".vertex").last
    vertex.focus()
    before = number(figure(page, "Records in"))
    eventually(lambda: number(figure(page, "Records in")) > before, "a refresh")
    page.keyboard.press("Enter")
    expect(page.locator(".vertex").last).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("heading", name=re.compile("Subtasks of Reduce"))).to_be_visible()

    # A dialog gives the focus back to its button, though that was drawn anew behind it.
    page.get_by_role("button", name="Rescale…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Parallelism")).to_be_focused()
    before = number(figure(page, "Records in"))
    eventually(lambda: number(figure(page, "Records in")) > before, "a refresh")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Rescale…")).to_be_focused()
    act(page, "Cancel", "Cancel job")
    expect(state(page)).to_have_text("CANCELED")
    page.get_by_role("link", name="All jobs").click()
    expect(page.get_by_role("heading", name=re.compile("Ended"))).to_be_visible()
    assert page.evaluate(wider) == 0
    shoot(page, "jobs-phone-dark")
    assert wrong == []


def test_a_token_is_asked_for_once(chromium: Browser, tmp_path: Path) -> None:
    with jobmanager(tmp_path / "home", token="sesame") as endpoint:
        page, _ = open_page(chromium, endpoint, known=False)
        page.get_by_role("textbox", name="Token").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("alert")).to_have_text("That token was not accepted.")
        page.get_by_role("textbox", name="Token").fill("sesame")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("No job is running")).to_be_visible()
        page.reload()
        expect(page.get_by_text("No job is running")).to_be_visible()
        other = page.context.new_page()
        other.goto(endpoint.address)
        expect(other.get_by_text("No job is running")).to_be_visible()


def test_the_address_that_the_command_opens_asks_for_no_token_and_does_not_keep_it(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with jobmanager(tmp_path / "home", token="se%sa&me/#1") as endpoint:
        ui(directory=tmp_path / "home")
        assert "se%" not in opened[0]
        assert stat.S_IMODE((tmp_path / "home" / "open.html").stat().st_mode) == 0o600
        page = chromium.new_page()
        told: list[str] = []
        page.on("request", lambda request: told.append(f"{request.url} {request.headers.get('referer')}"))
        page.goto(opened[0])
        expect(page.get_by_text("No job is running")).to_be_visible()
        assert page.url == f"{endpoint.address}/#/"
        assert told
        assert not [line for line in told if "se%" in line or "token" in line]
        page.close()


def test_a_dispatcher_that_goes_away_is_told_and_waited_for(chromium: Browser, tmp_path: Path) -> None:
    with jobmanager(tmp_path / "home") as endpoint:
        page, _ = open_page(chromium, endpoint)
        expect(page.get_by_text("No job is running")).to_be_visible()
    expect(page.locator("#connection")).to_contain_text("does not answer")
    expect(page.get_by_text("No job is running")).to_be_visible()  # what was known stays
