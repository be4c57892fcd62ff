"""Pickling of records and committables between the processes of a job."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final

import cloudpickle

# Called in the other process before what travels there is unpickled. Each must be safe to repeat.
preludes: Final[list[Callable[[], None]]] = []


def dump_by_value(value: Any) -> bytes:
    """Plain pickle, which is fast. Objects of classes that only the user's own script knows travel with their class, which
    `pickle.loads` then finds again: the same class for every payload of the job."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data


# Modules that have moved since an earlier release wrote their objects into checkpoints, and where those classes are now.
_MOVED: Final = {
    "penstock.connectors.collect_sink": "penstock.connectors.program",
    "penstock.connectors.file_commit": "penstock.connectors.files.commit",
    "penstock.connectors.print_sink": "penstock.connectors.program",
}


class _StoredUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(_MOVED.get(module, module), name)


def load_stored(data: bytes) -> Any:
    """Unpickles what may be of an earlier release: classes of ours that have moved since are found where they are now."""
    return _StoredUnpickler(io.BytesIO(data)).load()


class _Call:
    """Pickles as a call."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __reduce__(self) -> tuple[Any, ...]:
        return (self._function, ())


class _Travelling:
    """Pickles as its content, with calls before it."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return (_second, ([_Call(prelude) for prelude in preludes], self._content))  # unpickled in this order


def _second(done: list[None], content: Any) -> Any:
    return content


def travelling(content: Any) -> Any:
    """What to pickle instead of `content`, so that the `preludes` are called first where it is unpickled."""
    return _Travelling(content) if preludes else content
