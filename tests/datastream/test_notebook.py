"""What a notebook shows of streams, plans and jobs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from penstock.datastream import StreamExecutionEnvironment


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    made = StreamExecutionEnvironment.get_execution_environment()
    made.set_parallelism(2)
    return made


def test_a_plan_is_text_that_is_shown_as_a_graph(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1, 2]).map(lambda n: n).name("<b>double</b>").key_by(lambda n: n).reduce(max).print()
    plan = env.explain()
    assert plan.startswith("penstock job: 3 vertices")
    html = plan._repr_html_()  # type: ignore[attr-defined]
    svg = ElementTree.fromstring(html[: html.index("<details>")])
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "<b>double</b>" in texts  # as text
    assert "HASH" in texts
    assert "<b>" not in html


def test_a_stream_shows_what_leads_to_it(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2]).map(lambda n: n).name("first").uid("one")
    env.from_collection([3]).name("other")
    html = numbers.map(lambda n: n).name("second").key_by(lambda n: n)._repr_html_()
    rows = [[cell.text for cell in row] for row in ElementTree.fromstring(html).iter("tr")]
    assert [row[0] for row in rows[1:]] == ["Collection Source", "first", "second"]
    assert rows[2][2] == "one"
    assert "KeyedStream, partitioned by HASH" in html


def test_a_job_shows_its_state_and_last_epoch(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1, 2, 3]).key_by(lambda n: n).reduce(max).print()
    client = env.execute_async("shown")
    client.get_job_execution_result().result()
    html = client._repr_html_()
    assert "shown: FINISHED, epoch 1 took" in html
    shown = ElementTree.fromstring(f"<div>{html}</div>")
    rows = [[cell.text for cell in row] for row in shown.iter("tr")]
    assert [row[rows[0].index("records in")] for row in rows[1:]] == ["3", "3"]
    assert len(list(shown.iter("{http://www.w3.org/2000/svg}rect"))) == 2
