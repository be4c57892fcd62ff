"""`import pyflink` is Penstock: the same modules, loadable anywhere, with errors that say what to use instead."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

from penstock.common import watermark_strategy
from penstock.common.watermark_strategy import WatermarkStrategy, set_per_record_watermarks
from penstock.compat import pyflink as compat
from penstock.errors import ConfigurationError
from penstock.pickling import travelling

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("pyflink_aliases")


@pytest.mark.parametrize(
    ("alias", "home"),
    [
        ("pyflink.common", "penstock.compat.common"),
        ("pyflink.common.typeinfo", "penstock.common.typeinfo"),
        ("pyflink.common.watermark_strategy", "penstock.common.watermark_strategy"),
        ("pyflink.common.job_client", "penstock.driver.client"),
        ("pyflink.datastream", "penstock.datastream"),
        ("pyflink.datastream.functions", "penstock.datastream.functions"),
        ("pyflink.datastream.state", "penstock.datastream.state"),
        ("pyflink.datastream.window", "penstock.datastream.window"),
        ("pyflink.datastream.output_tag", "penstock.functions.process"),
        ("pyflink.datastream.connectors.base", "penstock.connectors.base"),
        ("pyflink.datastream.connectors.file_system", "penstock.connectors.files"),
        ("pyflink.metrics", "penstock.compat.metrics"),
        ("pyflink.metrics.metricbase", "penstock.common.metrics"),
    ],
)
def test_an_alias_is_the_module_itself_and_leaves_it_as_it_was(alias: str, home: str) -> None:
    module = import_module(alias)
    assert module is import_module(home)
    assert module.__name__ == home
    assert module.__spec__ is not None
    assert module.__spec__.name == home


def test_install_twice_is_install_once_and_uninstall_forgets_every_alias() -> None:
    compat.install()
    assert sum(type(finder).__name__ == "_AliasFinder" for finder in sys.meta_path) == 1
    import_module("pyflink.common")
    compat.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "pyflink"]
    with pytest.raises(ModuleNotFoundError):
        import_module("pyflink.common")
    compat.uninstall()
    compat.install()
    assert import_module("pyflink").common is import_module("penstock.compat.common")


def test_real_pyflink_that_is_loaded_already_is_not_replaced_behind_its_users_back() -> None:
    compat.uninstall()
    sys.modules["pyflink"] = ModuleType("pyflink")
    try:
        with pytest.raises(ConfigurationError, match="before the first `import pyflink`"):
            compat.install()
    finally:
        del sys.modules["pyflink"]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("pyflink.table", "Spark SQL"),
        ("pyflink.table.expressions", "Spark SQL"),
        ("pyflink.java_gateway", "no Flink in a JVM"),
        ("pyflink.datastream.connectors.pulsar", "env.from_spark"),
        ("pyflink.common.no_such_thing", "penstock.common"),
    ],
)
def test_a_module_that_is_not_here_says_what_to_use_instead(module: str, text: str) -> None:
    with pytest.raises(ImportError, match=text):
        import_module(module)


def test_a_class_that_is_not_here_says_what_to_use_instead() -> None:
    with pytest.raises(ImportError, match=r"penstock\.connectors\.base\.Source"):
        exec("from pyflink.datastream import SourceFunction", {})
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = import_module("pyflink.datastream").NoSuchName


def test_a_method_that_is_not_here_says_what_to_use_instead() -> None:
    env = import_module("pyflink.datastream").StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(AttributeError, match=r"'create_input': .*from_source"):
        env.create_input(None)
    with pytest.raises(AttributeError, match=r"^'KeyedStream' object has no attribute 'no_such_method'$"):
        env.from_collection([1]).key_by(lambda n: n).no_such_method()


def test_per_record_watermarks_are_for_strategies_made_from_then_on() -> None:
    before = watermark_strategy._per_record
    try:
        set_per_record_watermarks(False)
        periodic = WatermarkStrategy.for_monotonous_timestamps()
        compat.per_record_watermarks()
        assert WatermarkStrategy.for_monotonous_timestamps().per_record
        assert not periodic.per_record
    finally:
        set_per_record_watermarks(before)


def _load_elsewhere(data: bytes, then: str, *paths: Path) -> str:
    """Unpickle in a process that has never called install, and evaluate `then` with `loaded`."""
    code = f"import cloudpickle, sys; loaded = cloudpickle.loads(sys.stdin.buffer.read()); print({then})"
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": ":".join(map(str, (ROOT, *paths)))}
    done = subprocess.run(command, input=data, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_function_that_uses_the_aliases_loads_in_a_process_without_them() -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    program = """
        import pyflink
        import pyflink.common.types
        from pyflink.common import Row
        from pyflink.datastream.functions import MapFunction

        class Wrap(MapFunction):
            def map(self, value):
                return Row(value, str(pyflink.common.Types.INT()), pyflink.common.types.RowKind.INSERT.name)
    """
    exec(textwrap.dedent(program), namespace)
    data = cloudpickle.dumps(namespace["Wrap"]())  # type: ignore[operator]
    assert _load_elsewhere(data, "list(loaded.map(7))").startswith("[7, ")


def test_a_slot_that_must_import_a_users_module_knows_the_aliases_by_then(tmp_path: Path) -> None:
    (tmp_path / "users_pyflink_job.py").write_text(
        "from pyflink.datastream.functions import MapFunction\n\n\n"
        "class Twice(MapFunction):\n    def map(self, value):\n        return 2 * value\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        function = import_module("users_pyflink_job").Twice()
        data = cloudpickle.dumps(travelling(function))
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("users_pyflink_job", None)
    assert _load_elsewhere(data, "loaded.map(21)", tmp_path) == "42"


def test_without_the_aliases_nothing_travels_but_the_content() -> None:
    compat.uninstall()
    content = object()
    assert travelling(content) is content


def test_a_kafka_program_of_pyflink_builds_with_its_own_imports() -> None:
    base = import_module("pyflink.datastream.connectors.base")
    kafka = import_module("pyflink.datastream.connectors.kafka")
    text = import_module("pyflink.common.serialization").SimpleStringSchema()
    assert import_module("pyflink.datastream.formats.json").JsonRowDeserializationSchema.builder()
    source = kafka.KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t").set_group_id("g")
    source.set_starting_offsets(kafka.KafkaOffsetsInitializer.latest()).set_value_only_deserializer(text)
    assert not source.build().bounded
    serializer = kafka.KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(text)
    sink = kafka.KafkaSink.builder().set_bootstrap_servers("b:1").set_record_serializer(serializer.build())
    assert sink.set_delivery_guarantee(base.DeliveryGuarantee.AT_LEAST_ONCE).build()
