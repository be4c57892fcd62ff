"""What an epoch's report says about each subtask."""

from __future__ import annotations

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction, RuntimeContext


class _Counting(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_metrics_group().counter("seen")

    def map(self, value: int) -> int:
        self._seen.inc()
        return value


def test_every_subtask_reports_its_records_times_snapshots_and_own_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    configuration = Configuration.from_dict(
        {"penstock.job.dir": str(tmp_path_factory.mktemp("job")), "execution.checkpointing.interval": "0 ms"}
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(3)
    env.from_sequence(1, 99).key_by(lambda n: n).map(_Counting()).uid("count").filter(lambda n: n > 90).print()
    client = env.execute_async()
    client.get_job_execution_result().result()
    report = client.epoch_reports()[0]
    source, keyed = (vertex["subtasks"] for vertex in report.vertices)
    assert sum(source["records_out"]) == 99
    assert [len(column) for column in keyed.values()] == [3] * len(keyed)
    assert sum(keyed["records_in"]) == sum(report.vertices[1]["operators"]["count"]["user"]["seen"]) == 99
    assert all(bytes_ > 0 for bytes_ in keyed["snapshot_bytes"])
    assert sum(keyed["snapshot_bytes"]) + sum(source["snapshot_bytes"]) == report.checkpoint_bytes
    assert all(busy > 0 for busy in keyed["busy_ms"])
    assert all(0 < waited <= report.duration_ms for waited in keyed["alignment_ms"])
    assert source["alignment_ms"] == [0.0] * 3  # nothing to align before a source
