"""What `make slow-sink` finds wrong. That a slow sink is named on Spark: tests/spark/test_slow_sink_on_spark.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.chaos.slow_sink import Phase, Sample, judge

STEADY = Sample(at_s=0, driver_mib=100, jvm_mib=500, slots_mib=200)


def phase(name: str, *, rate: int, epoch_ms: float = 1000, admitted: int | None = None, **of_samples: Any) -> Phase:
    seconds = range(0, 60, 2)
    made = Phase(name, began_ms=0.0)
    made.samples = [replace(STEADY, at_s=at, records=at * rate, **of_samples) for at in seconds]
    epoch = {"duration_ms": epoch_ms, "admitted": rate if admitted is None else admitted}
    made.see({"epoch": at, "wall_ms": at * 1000, **epoch} for at in seconds)
    return made


SLOW: dict[str, Any] = {"bottleneck": "files", "pressure": "high"}


def failed(before: Phase, slow: Phase, after: Phase) -> list[str]:
    return [check.what for check in judge(before, slow, after) if not check.passed]


def test_what_is_named_bounded_and_regained_passes() -> None:
    assert failed(phase("before", rate=1000), phase("slow", rate=100, **SLOW), phase("after", rate=900)) == []


def test_each_shortcoming_is_found() -> None:
    before, slow, after = phase("before", rate=1000), phase("slow", rate=100, **SLOW), phase("after", rate=900)
    assert failed(before, phase("slow", rate=100, pressure="high"), after) == ["samples that name the sink"]
    assert failed(before, phase("slow", rate=100, bottleneck="files"), after) == ["samples in which the source waits"]
    late = phase("slow", rate=100, epoch_ms=2500, **SLOW)
    assert failed(before, late, after) == ["median epoch, ms", "95 % of epochs, ms"]
    assert failed(before, slow, phase("after", rate=700)) == ["records/s after, of before"]
    full = phase("slow", rate=100, admitted=10_000, **SLOW)
    assert failed(before, full, phase("after", rate=900, admitted=20_000)) == [
        "records of an epoch while slow, of the first"
    ]
    assert failed(before, slow, phase("after", rate=900, admitted=150)) == ["records of an epoch after, of while slow"]
    slow.samples = [replace(s, slots_mib=200 + 10 * s.at_s) for s in slow.samples]
    assert failed(before, slow, after) == ["Python, MiB late in the slow time", "Python, MiB at its peak"]
    slow = phase("slow", rate=100, jvm_mib=1000, **SLOW)
    assert failed(before, slow, after) == ["JVM, MiB at its peak"]
