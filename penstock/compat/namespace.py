"""What `import pyflink` gives when `penstock.compat.pyflink` is installed.

It is a module of Penstock's own, with its own name, so that a function that uses `pyflink.common.Types` can be pickled
here and loaded in a slot process, where nobody has heard of `pyflink`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from penstock.common.absent import explain

__path__: list[str] = []  # a package to the import system; its modules are found by the alias finder

_MODULES: Final = {
    "common": "penstock.compat.common",
    "datastream": "penstock.datastream",
    "metrics": "penstock.compat.metrics",
    "version": "penstock.compat.version",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(explain(f"pyflink.{name}"))
