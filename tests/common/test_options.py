"""The table of options: its types, what it refuses, and that nothing else knows a key."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pytest

import penstock
from penstock.common.config_options import ConfigOption
from penstock.common.configuration import Configuration
from penstock.common.known_keys import OPTIONS, check, flink_keys
from penstock.common.option_types import (
    BOOLEAN,
    TEXT,
    Choice,
    DurationMs,
    MemoryBytes,
    Number,
    OptionType,
    Text,
    Texts,
    Whole,
    each,
)
from penstock.common.option_types import Path as PathType
from penstock.common.options import SECTIONS, CheckpointingOptions, JobOptions, StateBackendOptions, options_of
from penstock.connectors.kafka.client import MAX_RECORDS_PROPERTY, WAIT_PROPERTY
from penstock.engine.settings import AutoscaleSettings, JobSettings
from penstock.errors import ConfigurationError
from penstock.state.backends import RocksDBSettings, StateSettings

PACKAGE = Path(penstock.__file__).parent
ROOT = PACKAGE.parent
ALL = [option for section in SECTIONS for option in options_of(section)]
COLORS: Choice[int] = Choice({"dark-red": 1, "BLUE": 2}, {"azure": 2})
SHARE = Number(0.01, 0.9)
CENTURY = 36_500 * 86_400_000


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Whole(), " -7 ", -7),
        (Whole(2, 4), "2", 2),
        (Whole(2, 4), "4", 4),
        (Number(), "1e3", 1000.0),
        (SHARE, "0.01", 0.01),
        (SHARE, "0.9", 0.9),
        (DurationMs(), "250", 250),
        (DurationMs(), "250ms", 250),
        (DurationMs(), "2 milliseconds", 2),
        (DurationMs(), "3 secs", 3000),
        (DurationMs(), " 1.5 MIN ", 90_000),
        (DurationMs(), "2 m", 120_000),
        (DurationMs(), "1 hour", 3_600_000),
        (DurationMs(), "2 days", 172_800_000),
        (DurationMs(), "36500 d", CENTURY),
        (DurationMs(1), "1 ms", 1),
        (MemoryBytes(), "20480", 20480),
        (MemoryBytes(), "3 b", 3),
        (MemoryBytes(), "64k", 64 << 10),
        (MemoryBytes(), "1.5 MiB", 3 << 19),
        (MemoryBytes(), "2 gb", 2 << 30),
        (MemoryBytes(), "1t", 1 << 40),
        (MemoryBytes(8 << 20), "8 mb", 8 << 20),
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (COLORS, "Dark_Red", 1),
        (COLORS, "blue", 2),
        (COLORS, "azure", 2),
        (TEXT, " as it\nis ", " as it\nis "),
        (Text("digits", "[0-9]+"), "12", "12"),
        (PathType(), "s3://bucket/a b", "s3://bucket/a b"),
        (Texts(), "a,b,,c", ("a", "b", "c")),
        (Texts(",;:|"), "/a:/b;/c", ("/a", "/b", "/c")),
        (Texts(), "", ()),
    ],
)
def test_a_type_reads_what_people_write(type_: OptionType[Any], text: str, value: object) -> None:
    assert type_.read("key", text) == value
    assert type_.parse(type_.write(value)) == value  # what it writes, it reads
    assert pickle.loads(pickle.dumps(type_)) == type_


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        (Whole(), "1.0", "a whole number"),
        (Whole(), "", "a whole number"),
        (Whole(), "9" * 5000, "a whole number"),
        (Whole(2), "1", "a whole number of at least 2"),
        (Whole(2, 4), "1", "a whole number from 2 to 4"),
        (Whole(2, 4), "5", "a whole number from 2 to 4"),
        (Number(most=3.5), "3.6", "a number of at most 3.5"),
        (SHARE, "0", "a number from 0.01 to 0.9"),
        (SHARE, "0.91", "a number from 0.01 to 0.9"),
        (SHARE, "nan", "a number from 0.01 to 0.9"),
        (Number(1.0), "nan", "a number of at least 1.0"),
        (SHARE, "half", "a number from 0.01 to 0.9"),
        (DurationMs(), "soon", "a duration"),
        (DurationMs(), "-1 s", "a duration"),
        (DurationMs(), "5 weeks", "a duration"),
        (DurationMs(), "", "a duration"),
        (DurationMs(), "36501 d", "a duration"),
        (DurationMs(), "9" * 5000, "a duration"),
        (DurationMs(2000), "1999 ms", "a duration of at least 2 s"),
        (MemoryBytes(), "much", "a size"),
        (MemoryBytes(), "1 pb", "a size"),
        (MemoryBytes(8 << 20), "8388607", "a size of at least 8 mb"),
        (BOOLEAN, "yes", "true or false"),
        (COLORS, "green", "'dark-red' or 'BLUE'"),
        (Text("digits", "[0-9]+"), "12\n", "digits"),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_is_expected(
    type_: OptionType[Any], text: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        type_.read("some.key", text)
    assert f"'some.key' should be {expected}, but is {text!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [(DurationMs(), 0, "0 ms"), (DurationMs(), 1500, "1500 ms"), (DurationMs(), 600_000, "10 min"),
     (MemoryBytes(), 5 << 20, "5 mb"), (MemoryBytes(), 1000, "1000 bytes"), (COLORS, 2, "BLUE")],
)  # fmt: skip
def test_values_are_written_in_the_largest_unit_that_fits(type_: OptionType[Any], value: object, text: str) -> None:
    assert type_.write(value) == text


@pytest.mark.parametrize("option", ALL, ids=str)
def test_every_option_has_a_default_that_its_type_allows_and_refuses_another_value(option: ConfigOption[Any]) -> None:
    if option.default is not None:
        assert option.get({option.key: option.type.write(option.default)}) == option.default
    assert option.get({}) == option.default
    bounds = [getattr(option.type, name, None) for name in ("least", "most")]
    for bound, beyond in zip(bounds, (-1, 1), strict=True):
        if bound is not None:
            assert option.get({option.key: option.type.write(bound)}) == bound
            outside = bound + beyond
            with pytest.raises(ConfigurationError, match=f"^Configuration key '{re.escape(option.key)}' should be "):
                option.get({option.key: str(outside)})


def test_no_key_stands_for_two_options_and_none_is_also_one_without_meaning() -> None:
    keys = [key for option in ALL for key in option.keys]
    assert len(keys) == len(set(keys)) == len(OPTIONS) > 75
    assert not flink_keys() & set(keys)
    assert len(flink_keys()) > 700


def test_an_older_key_is_read_where_the_newer_one_is_not_set() -> None:
    option = CheckpointingOptions.NUM_RETAINED
    assert option.get({"state.checkpoints.num-retained": "3"}) == 3
    assert option.get({"state.checkpoints.num-retained": "3", "execution.checkpointing.num-retained": "2"}) == 2
    with pytest.raises(ConfigurationError, match=r"'state\.checkpoints\.num-retained' should be"):
        option.get({"state.checkpoints.num-retained": "0"})
    assert StateBackendOptions.BACKEND.get({"state.backend": "filesystem"}) == "hashmap"


def test_an_empty_path_counts_as_not_set() -> None:
    set_twice = {"execution.checkpointing.dir": " ", "state.checkpoints.dir": "/older"}
    assert CheckpointingOptions.DIR.get(set_twice) == "/older"
    assert CheckpointingOptions.JOB_DIR.get({"penstock.job.dir": ""}) is None


def test_an_option_sets_what_it_allows_in_a_configuration_and_in_a_dictionary() -> None:
    configuration, values = Configuration(), dict[str, str]()
    CheckpointingOptions.TIMEOUT.set(configuration, 5000)
    CheckpointingOptions.TIMEOUT.set(values, 5000)
    assert configuration.to_dict() == values == {"execution.checkpointing.timeout": "5 s"}
    assert CheckpointingOptions.TIMEOUT.get(configuration) == 5000
    mode: ConfigOption[Literal["A", "B"]] = ConfigOption("mode", Choice(each("A", "B")), "A")
    with pytest.raises(ConfigurationError, match=r"'penstock.block.size' should be .* at least 1, but is '0'"):
        JobOptions.BLOCK_SIZE.set(values, 0)
    with pytest.raises(ConfigurationError, match="should be 'A' or 'B', but is 'C'"):
        mode.set(values, "C")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("penstock.epoch.intervall", "penstock.epoch.interval"),
        ("penstock.checkpoint.driver-max-state-size", "penstock.checkpoint.driver.max-state-size"),
        ("penstok.runtime", "penstock.runtime"),
        ("execution.checkpoint.interval", "execution.checkpointing.interval"),
        ("excution.checkpointing.mode", "execution.checkpointing.mode"),
        ("execution.runtime_mode", "execution.runtime-mode"),
        ("Parallelism.Default", "parallelism.default"),
        ("parallelism.defualt", "parallelism.default"),
        ("state.backend.typ", "state.backend.type"),
        ("state.checkpoint.dir", "state.checkpoints.dir"),
        ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        ("pipeline.object.reuse", "pipeline.object-reuse"),
        ("taskmanager.numberOfTaskSlot", "taskmanager.numberOfTaskSlots"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check({key: "7 s"})
    expected = f", which takes {OPTIONS[meant].type.allowed()}" if meant in OPTIONS else ""
    found = f"Configuration key {key!r} (its value is '7 s') is not known: did you mean {meant!r}{expected}?"
    assert str(caught.value) == found


def test_every_unknown_key_of_our_own_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'penstock\.wholly\.unheard-of' .* is not known: docs/reference"):
        check({"penstock.wholly.unheard-of": "1"})
    with pytest.raises(ConfigurationError, match=r"its value is \*+\) is not known"):
        check({"penstock.pasword.token": "hunter2"})


def test_a_value_is_checked_even_where_nobody_would_read_it() -> None:
    with pytest.raises(ConfigurationError, match=r"'restart-strategy\.fixed-delay\.delay' should be a duration"):
        check({"restart-strategy.type": "none", "restart-strategy.fixed-delay.delay": "soon"})


@pytest.mark.parametrize(
    "key",
    [
        "taskmanager.memory.process.size",
        "execution.checkpointing.interval-during-backlog",
        "state.backend.rocksdb.memory.fixed-per-tm",
        "state.backend.rocksdb.log.dir",
        "execution.checkpointing.unaligned.forced",
        "cleanup-strategy.fixed-delay.delay",
        "metrics.reporter.mine.factory.class",
        "table.exec.state.ttl",
        "spark.sql.shuffle.partitions",
        "spark.penstock.runtime",
        "my.company.setting",
        "parallelism",
    ],
)
def test_keys_of_flink_spark_and_others_pass(key: str) -> None:
    check({key: "anything"})


def test_all_keys_of_flink_and_ours_pass() -> None:
    check(dict.fromkeys(flink_keys(), "anything"))
    check({key: option.type.write(option.default) for key, option in OPTIONS.items() if option.default is not None})


def strings(tree: ast.AST) -> list[ast.Constant]:
    """Texts of a program, without its docstrings."""
    bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, bodies) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def literals(source: str) -> list[str]:
    """Texts that are a key, or the beginning of one that another part is put behind."""
    texts = [str(node.value) for node in strings(ast.parse(source))]
    beginnings = {key[: dot.end()] for key in OPTIONS for dot in re.finditer(r"\.", key)}
    return [t for t in texts if (t in OPTIONS and "." in t) or (t in beginnings and t.count(".") > 1)]


def mentioned(source: str) -> set[str]:
    """What looks like a key in a message. A dot at its end ends the sentence."""
    of_flink = r"(?:execution|restart-strategy)\.[a-z.-]*[a-z]"
    not_a_module = r"(?:penstock|state)(?:\.[a-z][a-z-]*)+-[a-z.-]*[a-z]"
    found = rf"(?<![\w./-])({of_flink}|{not_a_module})"
    return {key for node in strings(ast.parse(source)) for key in re.findall(found, str(node.value))}


def sources() -> dict[str, str]:
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def test_only_the_table_knows_a_key_as_text() -> None:
    """Programs know them, too, and what is in penstock.testing writes configurations as a program does."""
    found = {name: literals(source) for name, source in sources().items() if not name.startswith("testing/")}
    assert set(found.pop("common/options.py")) >= {option.key for option in ALL}
    assert {name: keys for name, keys in found.items() if keys} == {}


def test_keys_that_messages_name_exist() -> None:
    named = {key for source in sources().values() for key in mentioned(source)}
    assert len(named) > 10
    assert named - OPTIONS.keys() - flink_keys() == set()


def test_the_search_sees_literals_and_messages_and_no_docstrings() -> None:
    source = '''
"""Reads penstock.job.dir and penstock.no-such."""
a = "penstock.job.dir", "penstock.job." + x, "penstock.engine.settings", "state."
raise Error(f"{a}: set execution.checkpointing.min-pause. Or penstock.epoch.no-such, now")
'''
    assert literals(source) == ["penstock.job.dir", "penstock.job."]
    assert mentioned(source) == {"execution.checkpointing.min-pause", "penstock.epoch.no-such"}


def test_the_page_reads_only_keys_that_exist() -> None:
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "service/web").rglob("*.js"))
    named = set(re.findall(r'"user-config"\]\["([^"]+)"\]', scripts))
    assert named
    assert named <= set(OPTIONS)


def test_every_option_is_read_somewhere() -> None:
    text = "\n".join(source for name, source in sources().items() if name != "common/options.py")
    unread = [
        f"{section.__name__}.{name}"
        for section in SECTIONS
        for name in vars(section)
        if name.isupper() and not re.search(rf"\b({section.__name__}|options)\.{name}\b", text)
    ]
    assert unread == []


def test_no_two_settings_of_a_job_come_from_one_option() -> None:
    kinds = (JobSettings, AutoscaleSettings, StateSettings, RocksDBSettings)
    used = [f.metadata["option"].key for kind in kinds for f in fields(kind) if "option" in f.metadata]
    assert len(used) == len(set(used)) > 35


def test_keys_on_other_pages_of_the_documentation_exist() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    namespaces = "execution|restart-strategy|parallelism|pipeline|state[.](?:backend|checkpoint|savepoint)|penstock"
    named = set(re.findall(rf"[`'\" ]((?:{namespaces})[.][a-z][a-z.-]*[a-z])[`'\"=]", text))
    of_kafka = {WAIT_PROPERTY, MAX_RECORDS_PROPERTY}  # properties of a source
    misspelt = {"execution.checkpointing.intervall"}  # in the first hour, to show the answer
    packages = tuple(f"penstock.{path.name}" for path in PACKAGE.iterdir() if path.is_dir())
    unknown = {key for key in named - OPTIONS.keys() - flink_keys() if "-" in key or not key.startswith(packages)}
    assert len(named & OPTIONS.keys()) > 60
    assert unknown - of_kafka == misspelt
