"""Arguments of connectors' builders, checked when they are given: a mistake is an error where it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from penstock.errors import ConfigurationError

T = TypeVar("T")


def text(what: str, value: object) -> str:
    """Not empty, and not None, which would else become the word."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{what} takes a text that is not empty, not {value!r}")
    return value


def instance(what: str, value: T, kind: type) -> T:
    """The value if it is a `kind`, else ConfigurationError; `what` names the call."""
    if not isinstance(value, kind):
        raise ConfigurationError(f"{what} takes a {kind.__name__}, not {value!r}")
    return value


def function(what: str, value: T) -> T:
    """The value if it can be called, else ConfigurationError; `what` names the call."""
    if not callable(value):
        raise ConfigurationError(f"{what} takes a function of a record, not {value!r}")
    return value


def positive(what: str, value: object) -> int:
    """The value if it is a whole number above 0, else ConfigurationError; `what` names the call."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{what} takes a whole number above 0, not {value!r}")
    return value


def names(what: str, values: object) -> tuple[str, ...]:
    """A list of different texts. A single one would be taken for its letters."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(v, str) and v for v in values):
        raise ConfigurationError(f"{what} takes a list of names, such as ['id', 'name'], not {values!r}")
    if len(set(values)) < len(values):
        raise ConfigurationError(f"{what}: a name is there twice in {list(values)}")
    return tuple(values)
