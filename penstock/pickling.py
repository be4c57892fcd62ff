"""Pickling: between the processes of a job, and out of what earlier releases have stored."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final

import cloudpickle

# Called in the other process before what travels there is unpickled. Each must be safe to repeat.
preludes: Final[list[Callable[[], None]]] = []

# Classes that snapshots and committables of earlier releases name in one of these modules, or in a module of one of these packages,
# are in another one today: public classes where the API has them, wherever they are defined.
MOVED: Final = {
    "penstock.connectors.collect_sink": "penstock.connectors.program",
    "penstock.connectors.file_commit": "penstock.connectors.files.commit",
    "penstock.connectors.print_sink": "penstock.connectors.program",
    "penstock.datastream.functions": "penstock.datastream.functions",
    "penstock.datastream.output_tag": "penstock.datastream",
    "penstock.datastream.state_ttl": "penstock.datastream.state",
    "penstock.datastream.time_domain": "penstock.datastream",
    "penstock.datastream.window": "penstock.datastream.window",
}


def dump_by_value(value: Any) -> bytes:
    """Plain pickle, which is fast. Objects of classes that only the user's own script knows travel with their class, which
    `pickle.loads` then finds again: the same class for every payload of the job."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data


def load_stored(data: bytes) -> Any:
    """An object out of a snapshot or a committable, which an earlier release may have written."""
    try:
        return pickle.loads(data)
    except (ModuleNotFoundError, AttributeError):
        return _Moved(io.BytesIO(data)).load()


class _Moved(pickle.Unpickler):
    """Finds classes where they are today."""

    def find_class(self, module: str, name: str) -> Any:
        for former, now in MOVED.items():
            if module == former or module.startswith(f"{former}."):
                return super().find_class(now, name)
        return super().find_class(module, name)


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
