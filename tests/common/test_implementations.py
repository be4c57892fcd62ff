"""State backends and runtimes are chosen by name, and other packages may bring their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.common.implementations import RUNTIMES, STATE_BACKENDS, Implementations
from penstock.datastream import HashMapStateBackend, NamedStateBackend, StreamExecutionEnvironment
from penstock.errors import ConfigurationError

_TOY = """
from penstock.runtime.embedded.job import embedded_job
from penstock.state.keyspace import HashMapKeyspace

made = []

class ToyKeyspace(HashMapKeyspace):
    pass

def keyspaces(settings, max_parallelism, folder):
    def make():
        made.append((settings.backend, max_parallelism))
        return ToyKeyspace()
    return make

def runtime(job, master, configuration, spark_sources):
    made.append(job.settings.runtime)
    return embedded_job(job, master, configuration, spark_sources)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a backend and a runtime."""
    (tmp_path / "toy_of_this_test.py").write_text(_TOY)
    (tmp_path / "toy-1.dist-info").mkdir()
    (tmp_path / "toy-1.dist-info" / "METADATA").write_text("Name: toy\nVersion: 1\n")
    (tmp_path / "toy-1.dist-info" / "entry_points.txt").write_text(
        "[penstock.state_backends]\ntoy = toy_of_this_test:keyspaces\n\n"
        "[penstock.runtimes]\ntoy = toy_of_this_test:runtime\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_of_this_test", raising=False)


@pytest.mark.usefixtures("toy")
def test_a_job_runs_with_a_backend_and_on_a_runtime_of_another_package() -> None:
    config = Configuration.from_dict({"penstock.runtime": "toy", "state.backend.type": "toy"})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_max_parallelism(16)
    assert env.get_state_backend() == NamedStateBackend("toy")
    counted = env.from_collection([1, 2, 3]).key_by(lambda n: n % 2).reduce(lambda a, b: a + b)
    assert sorted(counted.execute_and_collect()) == [1, 2, 4]
    made = sys.modules["toy_of_this_test"].made
    assert made[0] == "toy"
    assert set(made[1:]) == {("toy", 16)}


def test_a_name_that_nobody_has_registered_is_refused_with_those_there_are() -> None:
    config = Configuration.from_dict({"penstock.runtime": "embedded", "state.backend.type": "toy"})
    with pytest.raises(ConfigurationError, match=f"{STATE_BACKENDS.allowed()}, but is 'toy'"):
        StreamExecutionEnvironment.get_execution_environment(config)
    with pytest.raises(ConfigurationError, match=f"no runtime 'toy'; choose {RUNTIMES.allowed()}"):
        RUNTIMES.factory("toy")


def test_older_names_of_flinks_are_read_as_what_they_meant() -> None:
    assert {name: STATE_BACKENDS.parse(name) for name in ("HashMap", "filesystem", "RocksDB")} == {
        "HashMap": "hashmap",
        "filesystem": "hashmap",
        "RocksDB": "rocksdb",
    }
    assert (
        StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"state.backend": "memory"})
        ).get_state_backend()
        == HashMapStateBackend()
    )


def test_one_whose_module_cannot_be_imported_names_the_extra_it_needs() -> None:
    some = Implementations(
        "engine", "penstock.engines", {"steam": "no_such_module_at_all:boiler"}, extras={"steam": "coal"}
    )
    with pytest.raises(
        ConfigurationError, match=r"engine 'steam' cannot be imported .*no_such_module.*penstock\[coal\]"
    ):
        some.factory("steam")


@pytest.mark.parametrize("one", [STATE_BACKENDS, RUNTIMES])
def test_every_name_of_our_own_leads_to_a_factory(one: Implementations) -> None:
    assert all(callable(one.factory(name)) for name in one.names)
