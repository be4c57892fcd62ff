"""The picture of a job graph: everything is in it, and arrows do not run through boxes."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

from penstock.graph.explain import plan_svg
from penstock.graph.iterations import Iteration
from penstock.graph.job_graph import build_job_graph
from penstock.graph.partitioner import Hash, Partitioner
from penstock.protocol.ids import NodeId
from tests.graph.test_graphs import graph_of

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(text: str) -> tuple[ElementTree.Element, list[tuple[float, float, float, float]], list[ElementTree.Element]]:
    svg = ElementTree.fromstring(text)
    boxes = [
        (float(r.attrib["x"]), float(r.attrib["y"]), float(r.attrib["width"]), float(r.attrib["height"]))
        for r in svg.iter(f"{SVG}rect")
    ]
    return svg, boxes, [path for path in svg.iter(f"{SVG}path") if path.attrib["fill"] == "none"]


def _points(path: str) -> list[tuple[float, float]]:
    """Where an arrow goes: the ends of its parts, and between them halfway."""
    ends = []
    for command, numbers in re.findall(r"([MLC])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        ends.append((values[-2], values[-1]))
        assert command == "C" or len(values) == 2
    return [*ends, *(((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairwise(ends))]


def test_an_arrow_over_several_levels_runs_through_no_box() -> None:
    edges: list[tuple[int, int, Partitioner]] = [
        (0, 1, Hash(None)),
        (1, 2, Hash(None)),
        (2, 3, Hash(None)),
        (0, 3, Hash(None)),
        (1, 3, Hash(None)),
    ]
    nodes = [("source", 2), ("first", 2), ("second", 2), ("third", 2)]
    _, boxes, arrows = _drawn(plan_svg(build_job_graph(graph_of(nodes, edges))))
    assert (len(boxes), len(arrows)) == (4, 5)
    starts = [arrow.attrib["d"].partition("C")[0] for arrow in arrows]
    assert len(set(starts)) == 5, "each has a place of its own"
    for arrow in arrows:
        for x, y in _points(arrow.attrib["d"]):
            inside = [b for b in boxes if b[0] < x < b[0] + b[2] and b[1] < y < b[1] + b[3]]
            assert inside == [], (x, y)


def test_what_an_iteration_sends_back_is_a_dashed_arrow_inside_the_picture() -> None:
    graph = graph_of([("source", 2), ("step", 2)], [(0, 1, Hash(None))])
    graph.iterations.append(Iteration(head=NodeId(0), tail=NodeId(1)))
    svg, boxes, arrows = _drawn(plan_svg(build_job_graph(graph)))
    (back,) = [arrow for arrow in arrows if "stroke-dasharray" in arrow.attrib]
    assert "FEEDBACK" in [text.text for text in svg.iter(f"{SVG}text")]
    numbers = [float(x) for x in re.findall(r"[HM](-?[\d.]+)", back.attrib["d"])]
    assert min(numbers) >= 0
    assert max(numbers) < float(svg.attrib["width"])
    lowest = max(float(y) for y in re.findall(r"V(-?[\d.]+)", back.attrib["d"]))
    assert max(y + height for _, y, _, height in boxes) < lowest < float(svg.attrib["height"])
