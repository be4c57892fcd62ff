"""Every public method of the DataStream API has an example, and every example runs, on the embedded runtime.

An example may use what `names` gives. Where its last line says `# gives …`, that is compared: with the value, or, of a stream,
with its records in order. A stream that is left over is run; what needs another system is only built.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import pkgutil
import sys
import textwrap
import warnings
import zipfile
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock.datastream
from penstock import common, connectors
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import NumberSequenceSource
from penstock.connectors.files import FileSink
from penstock.connectors.program import DiscardingSink
from penstock.datastream import (
    DataStream,
    StreamExecutionEnvironment,
    aggregates,
    checkpoint_config,
    environment_settings,
    functions,
    slot_sharing_group,
    state,
    state_backend,
    window,
)
from penstock.datastream.formats import csv as csv_format
from penstock.datastream.formats import json as json_format
from penstock.datastream.formats import parquet as parquet_format

_METHODS = (FunctionType, property, cached_property, staticmethod, classmethod)
# What settings are made of is the product's own affair, and programs are kept for streams that are used again.
_INNER = ("EarlierPrograms", "LeftBehind")


def public_methods() -> Iterator[tuple[str, str]]:
    """The name of each method of a public class of the API, with its docstring: also of those it has from a private base. One that
    overrides a documented one and says nothing has that one's."""
    seen = set()
    for found in pkgutil.walk_packages(penstock.datastream.__path__, "penstock.datastream."):
        for owner in vars(import_module(found.name)).values():
            if not inspect.isclass(owner) or owner.__name__.startswith("_") or owner.__name__ in _INNER:
                continue
            for base in owner.__mro__:
                if not base.__module__.startswith("penstock.datastream"):
                    continue
                for name, member in vars(base).items():
                    if isinstance(member, _METHODS) and not name.startswith("_") and name != "to_settings":
                        text = getattr(member, "__doc__", None)
                        if text and (base, name) not in seen:
                            seen.add((base, name))
                            yield f"{base.__name__}.{name}", inspect.cleandoc(text)


METHODS = sorted(set(public_methods()))
# `NumbersAndText` and others are given; Spark and a socket are not there.
_ONLY_BUILT = {
    "EnvironmentSources.socket_text_stream",
    "ConnectedIterativeStreams.close_with",
}  # the second waits for a second
_ONLY_COMPILED = {"EnvironmentSources.from_spark", "StreamExecutionEnvironment.get_execution_environment"}


def test_every_public_method_has_an_example() -> None:
    assert len(METHODS) > 200
    assert [name for name, text in METHODS if "Example:\n\n" not in text] == []


class SecondOfPair(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


class WordsAndPairs(functions.CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value[0]


class NumbersAndText(functions.CoMapFunction):
    def map1(self, value: Any) -> Any:
        return str(value)

    def map2(self, value: Any) -> Any:
        return value


class Echo(functions.AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0)
        return [value]


class Both(functions.ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left, right


def names(folder: Path) -> dict[str, Any]:
    """What examples find."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.execution.mode": "embedded", "parallelism.default": "1"})
    )
    (folder / "lines.txt").write_text("to be or not\nto be!\n")
    (folder / "helpers.py").write_text("")
    (folder / "requirements.txt").write_text("")
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr("model.txt", "")
    pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondOfPair())
    row = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
    clicks = env.from_collection([("ann", 3), ("bob", 4)], row)
    given = {
        "env": env,
        "json": json,
        "sys": sys,
        "pa": pa,
        "pc": pc,
        "words": env.from_collection(["to", "be", "to"], Types.STRING()),
        "lines": env.from_collection(["to be or", "not be"], Types.STRING()),
        "numbers": env.from_collection([1, 2, 3], Types.LONG()),
        "pairs": pairs,
        "events": pairs.assign_timestamps_and_watermarks(in_order),
        "clicks": clicks.assign_timestamps_and_watermarks(in_order),
        **{found.__name__: found for found in (SecondOfPair, WordsAndPairs, NumbersAndText, Echo, Both)},
        **{found.__name__: found for found in (FileSink, DiscardingSink, NumberSequenceSource)},
    }
    homes = (
        common, connectors, penstock.datastream, functions, state, window, aggregates, checkpoint_config,
        environment_settings, slot_sharing_group, state_backend, csv_format, json_format, parquet_format,
    )  # fmt: skip
    for home in homes:
        given = {**{name: value for name, value in vars(home).items() if name[0] != "_"}, **given}
    return given


def outcome(code: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """The value of the last line, if it has one, and what the example says it is; both None if it says nothing."""
    tree = ast.parse(code)
    last = tree.body[-1]
    said = code.splitlines()[-1].partition("# gives ")[2]
    if not isinstance(last, ast.Expr):
        assert not said
        exec(compile(tree, "<example>", "exec"), given)
        return None, None
    exec(compile(ast.Module(tree.body[:-1], []), "<example>", "exec"), given)
    value = eval(compile(ast.Expression(last.value), "<example>", "eval"), given)
    return value, eval(said, given) if said else None


@pytest.fixture(autouse=True)
def _default_parallelism() -> Iterator[None]:
    """An example sets it, for the whole process."""
    before = StreamExecutionEnvironment.get_default_local_parallelism()
    yield
    StreamExecutionEnvironment.set_default_local_parallelism(before)


@pytest.mark.parametrize(("name", "text"), METHODS, ids=[name for name, _ in METHODS])
def test_an_example_runs_and_gives_what_it_says(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = textwrap.dedent(text.partition("Example:\n\n")[2])
    if name in _ONLY_COMPILED:
        compile(code, name, "exec")
        return
    monkeypatch.chdir(tmp_path)
    given = names(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyFlink's names that have no effect here say so
        warnings.simplefilter("ignore", DeprecationWarning)
        value, said = outcome(code, given)
        if name in _ONLY_BUILT:
            return
        if isinstance(value, DataStream) and type(value).execute_and_collect is DataStream.execute_and_collect:
            with value.execute_and_collect() as results:
                value = sorted(results, key=repr)
    if "# gives" in code:
        assert value == said
