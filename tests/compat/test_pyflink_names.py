"""A program written for PyFlink finds its names: at least 95 of 100, and the documentation lists the others."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock.common import ExecutionConfig, Row, Types
from penstock.common.serialization import RowFieldExtractorSchema
from penstock.common.types import RowKind
from penstock.datastream import (
    CheckpointConfig,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    OutputTag,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from penstock.datastream.slot_sharing_group import MemorySize
from penstock.errors import ConfigurationError, JobDefinitionError
from tests.compat import pyflink_names

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pyflink-names.md"
LEAST = 0.95
pytestmark = pytest.mark.usefixtures("pyflink_aliases")


def test_the_share_of_pyflinks_names_that_work_does_not_fall() -> None:
    missing = list(pyflink_names.differences())
    share = 1 - len(missing) / pyflink_names.count()
    assert share >= LEAST, "\n".join(f"{d.name}: {d.found}" for d in missing)


def test_the_documentation_lists_exactly_the_names_that_are_missing_or_differ() -> None:
    """A class stands for its members."""
    section = PAGE.read_text().partition("## Not here")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.M)
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    differing = {difference.name for difference in pyflink_names.differences()}
    assert names <= differing
    assert {name for name in differing if name not in names and name.split(".")[0] not in names} == set()


def test_the_number_of_names_that_the_readme_gives_is_the_one_counted_here() -> None:
    total = pyflink_names.count()
    here = total - len(list(pyflink_names.differences()))
    assert f"{here} of {total}" in (PAGE.parents[2] / "README.md").read_text()
    assert f"{here} of {total}" in PAGE.read_text()


def test_the_comparison_notices_what_a_pyflink_program_would_trip_over() -> None:
    compare = pyflink_names._compare

    def ours(a: int, b: int = 0) -> None: ...

    assert compare(ours, ["a", "b="], bound=False) == ""
    assert compare(ours, ["a"], bound=False) == ""
    assert compare(ours, ["a="], bound=False) == "needs a"
    assert compare(ours, ["b", "a"], bound=False) == "has b at another position"
    assert compare(ours, ["a", "c="], bound=False) == "takes no c"
    assert compare(ours, [], bound=False) == "needs a, which PyFlink does not have"
    assert compare(ours, ["a", "*rest"], bound=False) == "takes no list of arguments"


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("pyflink.datastream.functions", "SourceFunction", "Source"),
        ("pyflink.datastream.state_backend", "CustomStateBackend", "HashMapStateBackend"),
        ("pyflink.datastream.checkpoint_storage", "CustomCheckpointStorage", "FileSystemCheckpointStorage"),
        ("pyflink.common", "AssignerWithPeriodicWatermarksWrapper", "for_generator"),
        ("pyflink.common.watermark_strategy", "AssignerWithPeriodicWatermarksWrapper", "for_generator"),
    ],
)
def test_a_class_that_only_wraps_java_says_what_to_use_instead(module: str, name: str, advice: str) -> None:
    with pytest.raises(ImportError, match=f"no {name}: .*{advice}"):
        exec(f"from {module} import {name}", {})
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = import_module(module).Nonsense


def test_a_module_that_only_wraps_java_says_what_to_use_instead() -> None:
    with pytest.raises(ImportError, match="FileSource"):
        import_module("pyflink.common.io")


@pytest.mark.parametrize(
    ("owner", "name", "advice"),
    [
        (Types.STRING(), "get_java_type_info", "to_arrow"),
        (RowKind.INSERT, "to_j_row_kind", "JVM"),
        (OutputTag("late"), "get_java_output_tag", "JVM"),
        (MemorySize(1), "get_java_memory_size", "JVM"),
        (SlotSharingGroup("a"), "get_java_slot_sharing_group", "JVM"),
        (StreamExecutionEnvironment(), "create_input", "from_source"),
    ],
)
def test_a_method_that_only_reaches_java_says_what_to_use_instead(owner: Any, name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=advice):
        getattr(owner, name)
    assert not hasattr(owner, "nonsense")


def test_the_job_client_is_found_where_pyflink_has_it() -> None:
    home = import_module("penstock.driver.client").JobClient
    assert import_module("pyflink.common").JobClient is home
    assert import_module("pyflink.common.job_client").JobClient is home


# -------------------------------------------------------------------- what the names do


def test_javas_serializers_can_be_asked_for_and_what_was_asked_for_is_told() -> None:
    config = ExecutionConfig()
    assert not config.is_force_kryo_enabled()
    assert not config.is_force_avro_enabled()
    assert config.enable_force_kryo().is_force_kryo_enabled()
    assert not config.is_force_avro_enabled()
    assert config.enable_force_avro().is_force_avro_enabled()
    assert not config.disable_force_kryo().is_force_kryo_enabled()
    assert not config.disable_force_avro().is_force_avro_enabled()


def test_a_cached_file_is_not_copied_and_that_is_said() -> None:
    with pytest.warns(UserWarning, match=r"register_cached_file\('/data/labels', 'labels'\): the file is not copied"):
        StreamExecutionEnvironment().register_cached_file("/data/labels", "labels", True)


def test_what_writes_and_reads_files_in_bulk_has_pyflinks_classes() -> None:
    factory = import_module("pyflink.common.serialization").BulkWriterFactory
    files = import_module("pyflink.datastream.connectors.file_system")
    parquet = import_module("pyflink.datastream.formats.parquet")
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    assert isinstance(parquet.ParquetBulkWriters.for_row_type(row), factory)
    assert isinstance(parquet.ParquetColumnarRowInputFormat(row), files.BulkFormat)


def test_generated_uids_can_be_forbidden() -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).uid("numbers").map(lambda n: n).name("Same").print().uid("out")
    env.get_config().disable_auto_generated_uids()
    with pytest.raises(JobDefinitionError, match=r"'Same' .* has no uid"):
        env.get_execution_plan()
    env.get_config().enable_auto_generated_uids()
    env.get_execution_plan()


def test_records_of_undeclared_type_can_be_forbidden() -> None:
    env = StreamExecutionEnvironment()
    numbers = env.from_collection([1], Types.LONG())
    numbers.map(lambda n: n, Types.LONG()).print()
    env.get_config().disable_generic_types()
    env.get_execution_plan()
    numbers.map(str).name("Text").print()
    with pytest.raises(JobDefinitionError, match=r"'Text' .* does not say what it emits"):
        env.get_execution_plan()


def test_chaining_can_be_disabled_for_a_whole_job() -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).map(lambda n: n).print()
    assert env.is_chaining_enabled()
    assert "1 vertices" in env.explain()
    env.disable_operator_chaining()
    assert not env.is_chaining_enabled()
    assert "3 vertices" in env.explain()


def test_operators_of_different_max_parallelism_are_chained_unless_the_configuration_forbids_it() -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).map(lambda n: n).set_max_parallelism(4).print()
    assert "1 vertices" in env.explain()
    env._configuration.set_string("pipeline.operator-chaining.chain-operators-with-different-max-parallelism", "false")
    assert not env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    assert "3 vertices" in env.explain()


def test_an_operator_wider_than_its_own_max_parallelism_is_refused() -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).map(lambda n: n).uid("wide").set_max_parallelism(2).set_parallelism(3).print()
    with pytest.raises(JobDefinitionError, match=r"'wide'.*parallelism 3 but allows at most 2"):
        env.get_execution_plan()


def test_force_non_parallel_makes_one_subtask() -> None:
    env = StreamExecutionEnvironment().set_parallelism(4)
    stream = env.from_collection([1]).map(lambda n: n).force_non_parallel()
    assert stream._node.parallelism == stream._node.max_parallelism == 1


def test_a_uid_hash_names_the_state_and_must_look_like_one() -> None:
    env = StreamExecutionEnvironment()
    stream = env.from_collection([1])
    assert stream.set_uid_hash("AB" * 16)._node.operator_id == "ab" * 16
    with pytest.raises(JobDefinitionError, match="32 hexadecimal digits"):
        stream.set_uid_hash("numbers")


def test_checkpoint_storages_say_where_checkpoints_go_and_how_large_an_inlined_snapshot_is() -> None:
    env = StreamExecutionEnvironment()
    config = env.get_checkpoint_config()
    config.set_checkpoint_storage(FileSystemCheckpointStorage("/shared/checkpoints", 1000))
    settings = env._effective_configuration()
    assert settings["execution.checkpointing.dir"] == "/shared/checkpoints"
    assert settings["penstock.checkpoint.inline-threshold"] == "1000 bytes"
    config.set_checkpoint_storage(JobManagerCheckpointStorage())
    settings = env._effective_configuration()
    assert settings["execution.checkpointing.storage"] == "jobmanager"
    assert settings["penstock.checkpoint.driver.max-state-size"] == str(5 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="checkpoint_path"):
        FileSystemCheckpointStorage()
    with pytest.raises(ConfigurationError, match="file_state_size_threshold"):
        FileSystemCheckpointStorage("/shared", 2 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="CheckpointStorage"):
        CheckpointConfig().set_checkpoint_storage("/shared")  # type: ignore[arg-type]


def test_environments_made_later_have_the_default_local_parallelism() -> None:
    before = StreamExecutionEnvironment.get_default_local_parallelism()
    try:
        StreamExecutionEnvironment.set_default_local_parallelism(3)
        assert StreamExecutionEnvironment().get_parallelism() == 3
    finally:
        StreamExecutionEnvironment.set_default_local_parallelism(before)
    assert StreamExecutionEnvironment().get_parallelism() == before


def test_a_row_field_that_holds_bytes_is_passed_on_as_it_is() -> None:
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row("key", b"value")) == b"value"
    with pytest.raises(TypeError, match="map the field to bytes"):
        schema.serialize(Row("key", "value"))
    with pytest.raises(ValueError, match="non-negative, but is -1"):
        RowFieldExtractorSchema(-1)
