"""`import pyflink` is Penstock: for programs written for PyFlink that should run unchanged.

    from penstock.compat import pyflink
    pyflink.install()                                # before the program imports pyflink

Aliases are the same module objects: `pyflink.datastream.functions` *is* `penstock.datastream.functions`. So classes keep
their own names, and what is pickled in a program with aliases loads in a process without them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from penstock import pickling
from penstock.common.absent import explain
from penstock.common.watermark_strategy import set_per_record_watermarks
from penstock.errors import ConfigurationError

_ROOT: Final = "pyflink"

# Where a module is not at the place its name says.
_MOVED: Final = {
    "pyflink": "penstock.compat.namespace",
    "pyflink.version": "penstock.compat.version",
    "pyflink.metrics": "penstock.compat.metrics",
    "pyflink.metrics.metricbase": "penstock.common.metrics",
    "pyflink.common": "penstock.compat.common",
    "pyflink.common.completable_future": "penstock.common.job",
    "pyflink.common.constants": "penstock.common.time",
    "pyflink.common.input_dependency_constraint": "penstock.common.execution_config",
    "pyflink.common.job_client": "penstock.driver.client",
    "pyflink.common.job_execution_result": "penstock.common.job",
    "pyflink.common.job_id": "penstock.common.job",
    "pyflink.common.job_status": "penstock.common.job",
    "pyflink.common.serializer": "penstock.common.serialization",
    "pyflink.datastream.async_retry_predicates": "penstock.functions.asynchronous",
    "pyflink.datastream.async_retry_strategies": "penstock.functions.asynchronous",
    "pyflink.datastream.checkpoint_storage": "penstock.datastream.checkpoint_config",
    "pyflink.datastream.checkpointing_mode": "penstock.datastream.checkpoint_config",
    "pyflink.datastream.execution_mode": "penstock.datastream.environment_settings",
    "pyflink.datastream.externalized_checkpoint_retention": "penstock.datastream.checkpoint_config",
    "pyflink.datastream.output_tag": "penstock.functions.process",
    "pyflink.datastream.time_domain": "penstock.functions.base",
    "pyflink.datastream.timerservice": "penstock.functions.base",
    "pyflink.datastream.time_characteristic": "penstock.datastream.environment_settings",
    "pyflink.datastream.connectors": "penstock.connectors",
    "pyflink.datastream.connectors.number_seq": "penstock.connectors.datagen",
    "pyflink.datastream.connectors.base": "penstock.connectors.base",
    "pyflink.datastream.connectors.kafka": "penstock.connectors.kafka",
    "pyflink.datastream.connectors.file_system": "penstock.connectors.files",
}
_MIRRORED: Final = ("pyflink.common.", "pyflink.datastream.")


class AbsentModuleError(ModuleNotFoundError):
    """A module of PyFlink that Penstock does not have; says what to use instead."""


class _AliasLoader(Loader):
    """Gives the module that is already there, and puts back what the import system overwrites in it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _AliasFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _ROOT and not fullname.startswith(f"{_ROOT}."):
            return None
        home = _home(fullname)
        if home is None:
            raise AbsentModuleError(explain(fullname), name=fullname)
        return ModuleSpec(fullname, _AliasLoader(home))


def _home(fullname: str) -> str | None:
    """The module of Penstock's that an alias stands for; None if there is none."""
    if fullname in _MOVED:
        return _MOVED[fullname]
    home = "penstock" + fullname.removeprefix(_ROOT)
    if fullname in ("pyflink.common", "pyflink.datastream"):
        return home
    if not fullname.startswith(_MIRRORED):
        return None
    try:
        return home if find_spec(home) is not None else None
    except ModuleNotFoundError:  # its package is not there either
        return None


_finder: Final = _AliasFinder()


def installed() -> bool:
    """True after `install` and before `uninstall`."""
    return _finder in sys.meta_path


def install() -> None:
    """From now on `import pyflink` gives Penstock in this process and in the slots of its jobs. May be called again."""
    if installed():
        return
    loaded = sys.modules.get(_ROOT)
    if loaded is not None and loaded.__name__ != _MOVED[_ROOT]:
        raise ConfigurationError(
            f"PyFlink itself has been imported already (from {getattr(loaded, '__file__', None)}): call "
            "penstock.compat.pyflink.install() before the first `import pyflink`"
        )
    sys.meta_path.insert(0, _finder)
    pickling.preludes.append(install)  # what a slot unpickles may live in a user's module that imports pyflink


def uninstall() -> None:
    """Forget the aliases; modules that were imported through them keep what they have."""
    if installed():
        sys.meta_path.remove(_finder)
        pickling.preludes.remove(install)
        for name in [name for name in sys.modules if name == _ROOT or name.startswith(f"{_ROOT}.")]:
            del sys.modules[name]


def per_record_watermarks() -> None:
    """Strategies made from now on emit after every record, as Flink would with an infinitely short interval."""
    set_per_record_watermarks(True)
