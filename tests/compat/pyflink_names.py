"""Which of PyFlink's names Penstock has, with signatures that a PyFlink program can call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("pyflink_names.json").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A name that is missing, or that a program written for PyFlink could not use as it does."""

    name: str
    found: str


def count() -> int:
    return sum(1 + len(entry["members"]) for entry in NAMES["names"].values())


def differences() -> Iterator[Difference]:
    """Needs `penstock.compat.pyflink.install()`."""
    for name, entry in NAMES["names"].items():
        home, problem = _import(name, entry["modules"])
        if home is None:
            yield Difference(name=name, found=problem)
            for member in entry["members"]:
                yield Difference(name=f"{name}.{member}", found=f"no {name}")
            continue
        if isinstance(entry["is"], list):
            problem = _compare(home, entry["is"], bound=False)
            if problem:
                yield Difference(name=name, found=problem)
        for member, expected in entry["members"].items():
            problem = _member(home, member, expected)
            if problem:
                yield Difference(name=f"{name}.{member}", found=problem)


def _import(name: str, modules: list[str]) -> tuple[Any, str]:
    """It must be found in every module that offers it."""
    found = None
    for module in modules:
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            return None, f"not in {module}"
    return found, ""


def _member(owner: Any, path: str, expected: list[str] | str) -> str:
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
        if owner is None:
            return f"no {part}"
    if name == "__init__":
        assert isinstance(expected, list)
        if not inspect.isclass(owner):
            return "is not a class"
        return "" if inspect.isabstract(owner) else _compare(owner, expected, bound=False)
    static = inspect.getattr_static(owner, name, None)
    if static is None and name not in _attributes(owner):
        return "missing"
    if not isinstance(expected, list):
        return "" if not inspect.isfunction(static) else f"is a method, not a {expected}"
    if isinstance(static, property):
        return "is a property, not a method"
    attribute = getattr(owner, name)
    # What is called on instances has `self` in front when looked up on the class.
    return _compare(attribute, expected, bound=inspect.isfunction(static))


def _attributes(owner: type) -> set[str]:
    return {name for base in owner.__mro__ for name in (*vars(base), *getattr(base, "__annotations__", ()))}


def _compare(function: Any, expected: list[str], *, bound: bool) -> str:
    """Every call that fits PyFlink's signature must fit ours."""
    try:
        ours = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    except (TypeError, ValueError):
        return ""  # built in C, such as an Enum's: there is nothing to compare
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in ours)
    takes_names = any(p.kind is p.VAR_KEYWORD for p in ours)
    names = [p.name for p in ours if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name: p for p in ours}
    known = {e.strip("*=") for e in expected}
    for position, text in enumerate(e for e in expected if not e.startswith("*")):
        name, optional = text.rstrip("="), text.endswith("=")
        if name not in by_name:
            if not (takes_any and takes_names):
                return f"takes no {name}"
        elif by_name[name].kind is inspect.Parameter.KEYWORD_ONLY or names.index(name) != position:
            return f"has {name} at another position"
        elif optional and by_name[name].default is inspect.Parameter.empty:
            return f"needs {name}"
    if any(e.startswith("*") and not e.startswith("**") for e in expected) and not takes_any:
        return "takes no list of arguments"
    for p in ours:
        required = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if required and p.name not in known:
            return f"needs {p.name}, which PyFlink does not have"
    return ""
