"""RocksDB in the slots, checkpoints in the driver: a slot dies and its state comes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.program import CollectionSource
from penstock.datastream import (
    EmbeddedRocksDBStateBackend,
    JobManagerCheckpointStorage,
    StreamExecutionEnvironment,
)
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor

pytestmark = pytest.mark.spark


class CountPerValue(KeyedProcessFunction):
    """Its slot dies once, in the middle of an epoch."""

    def __init__(self, once: Path) -> None:
        self._once = once

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == 333 and not self._once.exists():
            self._once.touch()
            os._exit(9)
        self.seen.put(value % 10, (self.seen.get(value % 10) or 0) + 1)
        yield sum(self.seen.values())


@pytest.mark.parametrize("storage", ["driver", "folder"])
def test_a_lost_slot_gets_its_rocksdb_state_back(storage: str, configuration: Configuration, tmp_path: Path) -> None:
    """Every snapshot, however small, is stored in the background."""
    local = tmp_path / "local"
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths(str(local))
    configuration.set_string("penstock.checkpoint.inline-threshold", "0")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_state_backend(backend)
    if storage == "driver":
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    source = CollectionSource(list(range(500)), epochs=[100, 250, 300, 400])
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.key_by(lambda n: n % 4).process(CountPerValue(tmp_path / "died"))
    with counts.execute_and_collect() as results:
        found = sorted(results)
    assert (tmp_path / "died").exists()
    assert found == sorted(n for _ in range(4) for n in range(1, 126))
    assert (tmp_path / "job").exists() == (storage == "folder")
