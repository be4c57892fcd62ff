from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from penstock.common import Configuration, Duration, Types
from penstock.common.typeinfo import RowTypeInfo
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.checkpoint_config import CheckpointConfig, CheckpointingMode, ExternalizedCheckpointRetention
from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from penstock.datastream.state_backend import EmbeddedRocksDBStateBackend, FsStateBackend, MemoryStateBackend
from penstock.engine.settings import JobSettings
from penstock.errors import ConfigurationError
from penstock.functions.process import OutputTag


def test_checkpointing_is_off_until_an_interval_is_set() -> None:
    config = CheckpointConfig()
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == -1
    assert config.set_checkpoint_interval(100).is_checkpointing_enabled()
    assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE


def test_checkpoint_settings_are_given_back() -> None:
    config = (
        CheckpointConfig()
        .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpoint_timeout(1000)
        .set_min_pause_between_checkpoints(5)
        .set_max_concurrent_checkpoints(2)
        .set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        .enable_unaligned_checkpoints()
        .set_alignment_timeout(Duration.of_seconds(1))
        .set_force_unaligned_checkpoints()
    )
    restored = pickle.loads(pickle.dumps(config))
    assert vars(restored) == vars(config)
    assert config.is_externalized_checkpoints_enabled()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(1)
    assert config.is_force_unaligned_checkpoints()
    assert config.to_settings()["execution.checkpointing.unaligned.enabled"] == "true"
    assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()


def test_failing_on_checkpoint_errors_means_tolerating_none() -> None:
    config = CheckpointConfig().set_fail_on_checkpointing_errors(False)
    assert config.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    assert config.set_fail_on_checkpointing_errors(True).is_fail_on_checkpointing_errors()


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.set_checkpoint_interval(9),
        lambda config: config.set_checkpoint_timeout(9),
        lambda config: config.set_min_pause_between_checkpoints(-1),
        lambda config: config.set_max_concurrent_checkpoints(0),
        lambda config: config.set_tolerable_checkpoint_failure_number(-1),
    ],
)
def test_impossible_checkpoint_settings_are_refused(change: Callable[[CheckpointConfig], object]) -> None:
    with pytest.raises(ConfigurationError, match="must be at least"):
        change(CheckpointConfig())


def test_output_tags_are_equal_by_id_also_after_pickle() -> None:
    tag = OutputTag("late", Types.INT())
    assert pickle.loads(pickle.dumps(tag)) == tag
    assert pickle.loads(pickle.dumps(tag)).type_info == Types.INT()
    assert len({tag, OutputTag("late"), OutputTag("other")}) == 2
    assert OutputTag("x").type_info == Types.PICKLED_BYTE_ARRAY()
    assert OutputTag("x", [Types.INT()]).type_info == RowTypeInfo([Types.INT()])
    with pytest.raises(ValueError, match="non-empty"):
        OutputTag("")
    with pytest.raises(TypeError, match="OutputTag 'x'"):
        OutputTag("x", "int")  # type: ignore[arg-type]


def test_memory_sizes_are_ordered_and_shown_in_the_largest_exact_unit() -> None:
    assert MemorySize(1) < MemorySize.of_mebi_bytes(1) <= MemorySize(2**20)
    assert [str(MemorySize(n)) for n in (0, 1023, 2048, 3 * 2**20, 2**40)] == [
        "0bytes",
        "1023bytes",
        "2kb",
        "3mb",
        "1tb",
    ]
    assert MemorySize.of_mebi_bytes(2048).get_gibi_bytes() == 2


def test_a_slot_sharing_group_has_all_resources_or_none() -> None:
    plain = SlotSharingGroup.builder("a").build()
    assert (plain.get_name(), plain.get_cpu_cores(), plain.get_external_resources()) == ("a", None, {})
    sized = SlotSharingGroup.builder("a").set_cpu_cores(1.5).set_task_heap_memory_mb(64).set_external_resource("gpu", 1)
    assert sized.build() == sized.build() != plain
    assert sized.build().get_task_heap_memory() == MemorySize.of_mebi_bytes(64)
    with pytest.raises(ConfigurationError, match="not both CPU cores and task heap memory"):
        SlotSharingGroup.builder("a").set_managed_memory_mb(1).build()


def test_a_configuration_with_an_unknown_key_or_value_is_refused_where_it_is_handed_over() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'execution\.checkpointing\.interval'"):
        StreamExecutionEnvironment(Configuration.from_dict({"execution.checkpoint.interval": "1 s"}))
    env = StreamExecutionEnvironment(Configuration().set_integer("parallelism.default", 3))
    with pytest.raises(ConfigurationError, match=r"did you mean 'penstock\.block\.size'"):
        env.configure(Configuration().set_integer("penstock.blocksize", 5))
    with pytest.raises(ConfigurationError, match=r"'parallelism\.default' should be .* from 1 to 32768, but is '0'"):
        env.configure(Configuration().set_integer("parallelism.default", 0))
    assert env.get_parallelism() == 3
    env.configure(Configuration().set_integer("parallelism.default", 4))
    assert env.get_parallelism() == 4


def test_the_parallelism_of_the_execution_config_is_that_of_the_environment() -> None:
    env = StreamExecutionEnvironment(Configuration().set_integer("parallelism.default", 3))
    assert env.get_config().get_parallelism() == 3
    env.get_config().set_parallelism(2)
    assert env.get_parallelism() == 2
    assert env.from_sequence(1, 9)._node.parallelism == 2
    env.set_parallelism(5)
    assert env.get_config().get_parallelism() == 5


def test_key_groups_are_configured_or_set_in_code() -> None:
    env = StreamExecutionEnvironment(Configuration().set_integer("pipeline.max-parallelism", 48))
    env.from_collection([1]).print()
    assert env._stream_graph(None, pickled=False).max_parallelism == env.get_max_parallelism() == 48
    env.set_max_parallelism(96)
    assert env._stream_graph(None, pickled=False).max_parallelism == 96
    with pytest.raises(ConfigurationError, match=r"'pipeline\.max-parallelism' should be .* from 1 to 32768"):
        StreamExecutionEnvironment(Configuration().set_integer("pipeline.max-parallelism", 0))


def test_snapshots_are_compressed_when_the_program_says_so() -> None:
    env = StreamExecutionEnvironment()
    assert JobSettings.of(env._effective_configuration()).snapshot_compression is None
    env.get_config().set_use_snapshot_compression(True)
    assert JobSettings.of(env._effective_configuration()).snapshot_compression == "lz4"


def test_state_backends_become_options() -> None:
    rocksdb = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)
    rocksdb.set_db_storage_paths("/fast/1", "/fast/2")
    settings = JobSettings.of(rocksdb.to_settings())
    assert (settings.state.backend, settings.incremental) == ("rocksdb", False)
    assert settings.state.rocksdb.local_dirs == ("/fast/1", "/fast/2")
    memory = JobSettings.of(MemoryStateBackend(savepoint_path="/sp", max_state_size=1000).to_settings())
    assert (memory.storage, memory.driver_max_state_size, memory.savepoint_dir) == ("jobmanager", 1000, "/sp")
    folder = JobSettings.of(FsStateBackend("/cp", file_state_size_threshold=7).to_settings())
    assert (folder.storage, folder.checkpoint_dir, folder.inline_threshold) == ("filesystem", "/cp", 7)


@pytest.mark.parametrize(
    ("timeout", "key", "value"),
    [(0, "execution.buffer-timeout.interval", "0 ms"), (-1, "execution.buffer-timeout.enabled", "false")],
)
def test_the_buffer_timeout_is_a_setting_of_the_job(timeout: int, key: str, value: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    assert not [name for name in env._effective_configuration() if "buffer-timeout" in name]
    assert env.set_buffer_timeout(timeout)._effective_configuration()[key] == value
