"""What pages say twice, or say of the code, is the same in both places."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

from typer.main import get_command

import penstock.common
import penstock.datastream
from penstock.cli.main import app
from penstock.common.known_keys import flink_keys
from penstock.common.options import SECTIONS, options_of
from penstock.driver.faults import KillPoint
from penstock.functions.state_ttl import StateTtlConfig
from tests.docs.test_snippets import PAGES, ROOT, name_of

TEXTS = [*PAGES, ROOT / "CHANGELOG.md"]
MAKEFILE = (ROOT / "Makefile").read_text()
KEYS = re.compile(r"`((?:execution|state|penstock|pipeline|restart-strategy|parallelism|python)\.[a-z0-9.-]+)`")
ELSEWHERE = {
    "penstock.max.records.per.epoch",  # properties of the Kafka connector
    "penstock.wait.ms",
    "penstock.runtimes",  # groups of entry points
    "penstock.state_backends",
}


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def is_there(name: str) -> bool:
    """A module, or a name in one."""
    for end in range(name.count(".") + 1, 0, -1):
        parts = name.split(".")
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_every_page_can_be_reached_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+\.md)", text_of("docs/index.md")))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - linked == {"index.md"}


def test_every_module_and_class_that_a_page_names_by_its_path_is_there() -> None:
    keys = {key for section in SECTIONS for option in options_of(section) for key in option.keys}
    for page in TEXTS:
        named = set(re.findall(r"`(penstock(?:\.\w+)+)(?:\(.*?\))?`", page.read_text(encoding="utf-8")))
        unknown = {name for name in named if name not in keys and not is_there(name)}
        assert unknown - ELSEWHERE == set(), name_of(page)


def test_every_setting_that_a_page_names_exists() -> None:
    keys = {key for section in SECTIONS for option in options_of(section) for key in option.keys} | flink_keys()
    for page in TEXTS:
        named = set(KEYS.findall(page.read_text(encoding="utf-8")))
        unknown = {key for key in named if key not in keys and not is_there(key)}
        assert unknown - ELSEWHERE == set(), name_of(page)


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M))
    for page in TEXTS:
        named = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text(encoding="utf-8")))
        assert named - targets == set(), name_of(page)


def test_the_page_of_tests_and_the_makefile_give_the_same_times() -> None:
    page = text_of("docs/tests.md")
    for target in ("quick", "test"):
        told = re.search(rf"^{target}:.*## .*\((\d+ minutes)", MAKEFILE, re.M)
        listed = re.search(rf"^\| `make {target}` \|.*\| (\d+ minutes) \|$", page, re.M)
        assert told is not None
        assert listed is not None
        assert told[1] == listed[1], target


def test_the_points_at_which_a_driver_can_be_killed_are_listed() -> None:
    page = text_of("docs/howto/testing-a-job.md")
    listed = re.search(r"The points are (.*?)\.", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`([a-z-]+)`", listed[1]) == list(get_args(KillPoint))


def calls_without_effect() -> Iterator[str]:
    """By their docstrings, of all classes a program can name."""
    classes = {
        thing
        for module in (penstock.common, penstock.datastream)
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__.startswith("penstock.")
    }
    for owner in (*classes, StateTtlConfig.Builder):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if (inspect.getdoc(method) or "").startswith("Accepted without effect"):
                yield name


def test_calls_without_effect_are_on_the_page_and_say_so_themselves() -> None:
    section = text_of("docs/reference/pyflink-names.md").partition("## Here without effect")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.M)
    listed = {name.rpartition(".")[2] for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert listed == set(calls_without_effect())


def test_figures_of_the_comparison_are_those_of_the_last_benchmark() -> None:
    page, results = text_of("docs/comparison.md"), text_of("benchmarks/results/latest.md")
    ratios = set(re.findall(r"(\d+\.\d+)×", page.replace(" to ", "× to ")))
    assert ratios
    assert {ratio for ratio in ratios if f"{ratio}×" not in results} == set()
    pipelined, empty = re.findall(r"(\d+) ms \(p50\)", page)
    assert f"p50 {empty} ms" in results
    runs = json.loads(text_of("benchmarks/results/latency.json"))
    job, epochs, spark = (runs[f"{how}, 20,000/s"] for how in ("pipelined", "epochs", "Spark micro-batches"))
    levels = runs["pipelined, 6 levels, 20,000/s"]
    assert int(pipelined) == round(job["p50"])
    told = page.partition("## Latency")[2].partition("## Speed")[0]
    for run in (epochs, spark, levels):
        assert f"{round(run['p50'])} and {round(run['p99'])} ms" in " ".join(told.split())


def test_what_the_comparison_says_of_other_systems_is_what_was_measured() -> None:
    page = " ".join(text_of("docs/comparison.md").split())
    peers = json.loads(text_of("benchmarks/results/peers.json"))["found"]
    for workload in ("W1", "W2", "W3"):
        rates = [peers[workload][system]["rate"] / 1e6 for system in ("penstock-pipelined", "flink-sql")]
        assert f"| {rates[0]:.1f} | {rates[1]:.1f} |" in page
    runs = json.loads(text_of("benchmarks/results/nexmark.json"))
    rate = {(run["query"], run["mode"]): run["rate"] for run in runs if "rate" in run and not run["wrong"]}
    for peer, says in (
        ("flink-sql", "of {} that Flink SQL was asked, Penstock is ahead in {},"),
        ("spark", "of {} that Spark was asked, in all."),
    ):
        asked = [query for query, mode in rate if mode == peer]
        ahead = [query for query in asked if rate[query, "pipelined"] >= rate[query, peer]]
        assert says.format(len(asked), len(ahead)) in page
        assert peer != "spark" or ahead == asked


def test_the_reference_of_the_command_has_its_commands_and_options_and_no_others() -> None:
    page = text_of("docs/reference/cli.md")
    command: Any = get_command(app)
    assert [name for name in command.commands if f"penstock {name}" not in page] == []
    options = {
        option
        for each in command.commands.values()
        for parameter in each.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert options - named == {"--open"}  # what `penstock ui` does anyway
    assert named - options == {
        "--help",
        "--install-completion",
        "--input",
    }  # typer's own, and an argument of the example
