"""From sampled stacks to a tree, and who takes samples when."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from penstock.driver.control import flame_graph as module
from penstock.driver.control.flame_graph import FlameGraphs, flame_graph
from penstock.engine.sampling import Place, Sample
from tests.driver.jobs import eventually

A, B, C, D = (Place(f"job.{name}:1", "job") for name in "abcd")


def shape(node: dict[str, Any]) -> Any:
    return (node["stackTraceLocation"][-3:-2], node["hitCount"], [shape(child) for child in node["children"]])


def test_stacks_that_begin_alike_share_their_beginning_and_the_most_seen_comes_first() -> None:
    root = flame_graph([((A, B), 3), ((A, C), 5), ((A,), 1), ((D,), 2)])
    assert root["stackTraceLocation"] == "root"
    assert root["hitCount"] == 11
    assert [shape(child) for child in root["children"]] == [("a", 9, [("c", 5, []), ("b", 3, [])]), ("d", 2, [])]
    assert root["children"][0]["origin"] == "job"


def test_without_a_sample_there_is_an_empty_root() -> None:
    assert flame_graph([]) == {"stackTraceLocation": "root", "origin": "engine", "hitCount": 0, "children": []}


def test_branches_of_less_than_a_thousandth_are_left_out() -> None:
    root = flame_graph([((A,), 2000), ((B,), 1)])
    assert [child["stackTraceLocation"] for child in root["children"]] == ["job.a:1"]
    assert root["hitCount"] == 2001


SEEN = Counter({Sample(1, 0, True, (A,)): 4, Sample(1, 1, False, (B,)): 2, Sample(2, 0, True, (C,)): 8})


def test_a_graph_is_sampled_when_it_is_asked_for_and_not_again_while_it_is_fresh(monkeypatch: Any) -> None:
    taken, go = [], threading.Event()

    def sample(seconds: float) -> Counter[Sample]:
        taken.append(seconds)
        assert go.wait(10)
        return SEEN

    graphs = FlameGraphs(sample, seconds=0.25)
    assert taken == []
    assert graphs.of(1, subtask=None, kind="full") == {"endTimestamp": 0, "root": None}
    assert graphs.of(2, subtask=None, kind="full")["root"] is None
    go.set()
    eventually(lambda: graphs.of(1, subtask=None, kind="full")["root"], "samples")
    assert taken == [0.25], "asked for twice, sampled once"
    hits = {
        (vertex, subtask, kind): graphs.of(vertex, subtask=subtask, kind=kind)["root"]["hitCount"]
        for vertex, subtask, kind in [
            (1, None, "full"), (1, None, "on_cpu"), (1, None, "off_cpu"), (1, 1, "full"), (1, 1, "on_cpu"),
            (2, None, "full"), (3, None, "full"),
        ]
    }  # fmt: skip
    assert list(hits.values()) == [6, 4, 2, 2, 0, 8, 0]
    assert taken == [0.25]
    monkeypatch.setattr(module, "_FRESH_S", -1.0)
    eventually(lambda: graphs.of(1, subtask=None, kind="full") and len(taken) > 1, "it is sampled again when it is old")


def test_a_job_that_cannot_be_sampled_now_is_asked_again_later(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_FRESH_S", -1.0)
    failures = [OSError("the slot is gone")]

    def sample(seconds: float) -> Counter[Sample]:
        if failures:
            raise failures.pop()
        return SEEN

    graphs = FlameGraphs(sample)
    eventually(lambda: graphs.of(2, subtask=None, kind="full")["root"], "samples, the second time")
