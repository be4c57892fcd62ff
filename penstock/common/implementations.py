"""What a job chooses by name: its state backend and its runtime.

Each is a module with a factory, and a line in one of the tables here; it is imported when it is chosen. Another package adds
its own as an entry point, under the name that jobs choose it by:

    [project.entry-points."penstock.state_backends"]
    mine = "my_package.my_module:my_factory"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from penstock.common.option_types import Choice, OptionType, each
from penstock.errors import ConfigurationError


class Implementations(OptionType[str]):
    """The names in a table, and those that other packages have registered: the type of the option that chooses one.

    `table` says where each factory is: `module:function`. `older` holds names that are read as another one, `extras` which
    extra of Penstock's one needs. Entry points are looked for only if a name is not in the table.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        table: Mapping[str, str],
        *,
        older: Mapping[str, str] | None = None,
        extras: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.group = kind, group
        self._table, self._extras = table, extras or {}
        self._names = Choice(each(*table), older or {})

    @property
    def names(self) -> tuple[str, ...]:
        """Those of Penstock's own."""
        return tuple(self._table)

    def allowed(self) -> str:
        return self._names.allowed()

    def parse(self, text: str) -> str:
        try:
            return self._names.parse(text)
        except ValueError:
            if not entry_points(group=self.group, name=text):
                raise
            return text

    def factory(self, name: str) -> Any:
        """What makes the one of this name. Its module is imported now."""
        target = self._table.get(name) or next((one.value for one in entry_points(group=self.group, name=name)), None)
        if target is None:
            raise ConfigurationError(f"there is no {self.kind} {name!r}; choose {self.allowed()}")
        module, _, attribute = target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ImportError as error:
            extra = f"; install it with `pip install 'penstock[{self._extras[name]}]'`" if name in self._extras else ""
            raise ConfigurationError(f"{self.kind} {name!r} cannot be imported ({error}){extra}") from error


# A factory gets (StateSettings, max parallelism, folder) and gives what makes a Keyspace: see penstock/state/backends.py.
# Flink's names before 1.13 said in one word where state and where checkpoints are kept; these were hash maps.
STATE_BACKENDS: Final = Implementations(
    "state backend",
    "penstock.state_backends",
    {
        "hashmap": "penstock.state.keyspace:hashmap_keyspaces",
        "rocksdb": "penstock.state.rocksdb:rocksdb_keyspaces",
    },
    older={"jobmanager": "hashmap", "memory": "hashmap", "filesystem": "hashmap"},
)

# A factory gets (JobDescription, JobMaster, configuration, Spark's sources) and gives a RunningJob: see penstock/runtime/launch.py.
RUNTIMES: Final = Implementations(
    "runtime",
    "penstock.runtimes",
    {
        "auto": "penstock.runtime.pipelined.choice:auto_job",
        "pipelined": "penstock.runtime.pipelined.job:pipelined_job",
        "epochs": "penstock.runtime.epochs.job:spark_job",
        "embedded": "penstock.runtime.embedded.job:embedded_job",
    },
    older={"spark": "auto"},
    extras=dict.fromkeys(("auto", "pipelined", "epochs"), "spark"),
)
