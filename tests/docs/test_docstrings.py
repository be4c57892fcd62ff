"""Public modules, classes, methods, properties and functions say what they do.

A method that overrides a documented one has its contract. The text that `dataclass` generates is none.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import penstock

METHODS = (FunctionType, property, cached_property, staticmethod, classmethod)
ROOMS = sorted(found.name for found in pkgutil.iter_modules(penstock.__path__))


def modules(room: str) -> Iterator[ModuleType]:
    yield import_module(f"penstock.{room}")
    for found in pkgutil.walk_packages([f"{penstock.__path__[0]}/{room}"], f"penstock.{room}."):
        if not found.name.endswith("__main__"):
            yield import_module(found.name)


def is_silent(thing: Any) -> bool:
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return not text or text.startswith(f"{thing.__name__}(")


def silent_members(owner: type, path: str) -> Iterator[str]:
    """Of this class and of the classes inside it; what it inherits from another package's class is not ours to say."""
    for name in sorted({name for base in owner.__mro__ for name in vars(base)}):  # dir() hides properties of enums
        home = next((base for base in owner.__mro__ if name in vars(base)), owner)
        value = vars(home).get(name)
        # A test's name is its sentence.
        if name.startswith(("_", "test_")) or not home.__module__.startswith("penstock."):
            continue
        if inspect.isclass(value) and value.__qualname__ == f"{owner.__qualname__}.{name}":
            yield from silent(value, f"{path}.{name}")
        elif isinstance(value, METHODS) and not any(
            getattr(vars(base).get(name), "__doc__", None) for base in owner.__mro__
        ):
            yield f"{path}.{name}"


def silent(thing: Any, path: str) -> Iterator[str]:
    if is_silent(thing):
        yield path
    if inspect.isclass(thing):
        yield from silent_members(thing, path)


def silent_names(module: ModuleType) -> Iterator[str]:
    if not module.__doc__:
        yield module.__name__
    for name, thing in vars(module).items():
        defined_here = getattr(thing, "__module__", None) == module.__name__
        if defined_here and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield from silent(thing, f"{module.__name__}.{name}")


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    assert [name for module in modules(room) for name in silent_names(module)] == []


def examples(room: str) -> Iterator[tuple[str, str]]:
    """By file and line, the code behind `Example:` in docstrings."""
    home = Path(penstock.__path__[0])
    for path in [home / f"{room}.py"] if (home / f"{room}.py").exists() else sorted((home / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                _, found, code = (ast.get_docstring(node) or "").partition("Example:\n\n")
                if found:
                    yield f"{path}:{node.lineno}", textwrap.dedent(code)


def test_examples_in_docstrings_are_python() -> None:
    found = [example for room in ROOMS for example in examples(room)]
    assert len(found) > 20
    for where, code in found:
        compile(code, where, "exec")
