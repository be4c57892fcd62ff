"""What Spark's own pipelined shuffle does that a job must know of: a small program for each, without Penstock's runtime.

`python scripts/spark_faults.py [name…]` (PySpark 4.3) prints what is seen; docs/design/0010-faults-of-spark.md says what Penstock
does about each. Only the marking of the plan is Penstock's (`penstock.runtime.pipelined.spark_plan`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import psutil
import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.runtime.pipelined import spark_plan

Batches = Iterator[pa.RecordBatch]

SCHEMA: Final = "target int, payload binary"
PROPERTIES: Final = {
    "spark.sql.execution.id": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
FOLDER: Final = Path(os.environ.get("FAULTS_FOLDER", "") or tempfile.mkdtemp(prefix="spark-faults-"))


def session(master: str = "local[8]", **more: str) -> SparkSession:
    """`more` by key, with _ for a dot."""
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    settings = {
        "spark.python.udf.pipelined.enabled": "true",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
        **{f"spark.{key.replace('_', '.')}": value for key, value in more.items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def rows(*payloads: bytes) -> pa.RecordBatch:
    """All to partition 0 of the next level."""
    return pa.record_batch(
        {"target": pa.array([0] * len(payloads), pa.int32()), "payload": pa.array(payloads, pa.binary())}
    )


def marked(spark: SparkSession, *levels: Callable[[Batches], Batches]) -> Any:
    """range ─▶ level 0 ═▶ level 1 ═▶ …, as Spark plans it, with pipelined exchanges."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    frame = spark.range(0, 2, 1, 2).mapInArrow(levels[0], SCHEMA)
    for level in levels[1:]:
        frame = frame.repartitionById(2, F.col("target")).mapInArrow(level, SCHEMA)
    return spark_plan._pipelined(spark, frame._jdf.queryExecution().executedPlan())


def run(spark: SparkSession, *levels: Callable[[Batches], Batches], group: str = "faults", by_row: bool = True) -> None:
    """`by_row`: with local properties, so that tasks hand on each row."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    spark.sparkContext.setJobGroup(group, "faults", interruptOnCancel=True)
    for key, value in PROPERTIES.items():
        if by_row or key == "spark.sql.execution.id":
            spark.sparkContext.setLocalProperty(key, value)
    marked(spark, *levels).executeCollect()


def first_line(error: BaseException) -> str:
    """Of Java's message, without the stack."""
    text = next((line for line in str(error).splitlines() if "[" in line or "Exception" in line), str(error))
    return text.strip()[:220]


def nothing(batches: Batches) -> Batches:
    """Reads all, and says nothing."""
    for _ in batches:
        pass
    return iter(())


def note(name: str, text: object) -> None:
    """For the program that started the tasks."""
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


def noted(name: str) -> list[str]:
    path = FOLDER / name
    return path.read_text().splitlines() if path.exists() else []


def until(condition: Callable[[], Any], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


# ---------------------------------------------------------------- the programs


def slots() -> str:
    """A job is refused when its task slots are not all there at that very moment; nobody waits for them."""
    spark = session("local[3]")
    began = time.monotonic()
    try:
        run(spark, nothing, nothing)
    except Exception as error:
        return f"refused after {time.monotonic() - began:.1f} s, for want of one slot of four: {first_line(error)}"
    return "it ran"


def speculation() -> str:
    """With speculation Spark refuses the job, though no task would ever be slow."""
    spark = session(speculation="true")
    try:
        run(spark, nothing, nothing)
    except Exception as error:
        return f"refused: {first_line(error)}"
    return "it ran"


def again() -> str:
    """A marked plan can be run once: its exchanges belong to the first job."""
    spark = session()
    plan = marked(spark, nothing, nothing)
    plan.executeCollect()
    try:
        plan.executeCollect()
    except Exception as error:
        return f"the second run is refused: {first_line(error)}"
    return "it ran twice"


def settings() -> str:
    """Tasks of a plan that is run by hand do not see the session's SQL settings: a row waits for 10,000 others."""
    spark = session()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")

    def source(batches: Batches) -> Batches:
        for _ in batches:
            pass
        for _ in range(40):
            yield rows(str(time.time()).encode(), b"")
            time.sleep(0.05)

    def last(batches: Batches) -> Batches:
        for batch in batches:
            for payload in batch.column(1).to_pylist():
                if payload:
                    note(name, time.time() - float(payload))
        return iter(())

    waits = {}
    for name in ("as it is", "as local properties"):
        run(spark, source, last, by_row=name == "as local properties")
        waits[name] = sorted(map(float, noted(name)))[len(noted(name)) // 2]
    return ", ".join(f"{name}: p50 {seconds * 1000:.0f} ms" for name, seconds in waits.items())


def nudge() -> str:
    """The JVM hands a row on only when it has seen the next one."""
    spark = session()

    def source(nudged: bool) -> Callable[[Batches], Batches]:
        def levels(batches: Batches) -> Batches:
            for _ in batches:
                pass
            for _ in range(40):
                yield rows(str(time.time()).encode())
                if nudged:
                    yield rows(b"")
                time.sleep(0.1)

        return levels

    def last(name: str) -> Callable[[Batches], Batches]:
        def level(batches: Batches) -> Batches:
            for batch in batches:
                for payload in batch.column(1).to_pylist():
                    if payload:
                        note(name, time.time() - float(payload))
            return iter(())

        return level

    waits = {}
    for name in ("alone", "followed by an empty row"):
        run(spark, source(name != "alone"), last(name))
        waits[name] = sorted(map(float, noted(name)))[len(noted(name)) // 2]
    return "a row each 100 ms: " + ", ".join(f"{name} p50 {s * 1000:.0f} ms" for name, s in waits.items())


def cancelled() -> str:
    """A job is cancelled while a Python function hangs: its process lives on."""
    spark = session()

    def hangs(batches: Batches) -> Batches:
        note("hangs", os.getpid())
        time.sleep(45)
        return iter(())

    def quietly() -> None:
        try:
            run(spark, hangs, nothing, group="cancelled")
        except Exception as error:
            note("ended", first_line(error))

    job = InheritableThread(target=quietly)
    job.start()
    until(lambda: len(noted("hangs")) == 2, 30)
    began = time.monotonic()
    spark.sparkContext.cancelJobGroup("cancelled")
    until(lambda: noted("ended"), 20)
    ended = time.monotonic() - began
    time.sleep(10)
    alive = [pid for pid in map(int, noted("hangs")) if psutil.pid_exists(pid)]
    return f"the job has ended after {ended:.1f} s; {len(alive)} of 2 processes are there 10 s later"


def killed() -> str:
    """A worker dies: no task is tried again, the whole job fails, however many failures a task may have."""
    spark = session("local[8,8]", task_maxFailures="8")

    def dies(batches: Batches) -> Batches:
        note("starts", os.getpid())
        time.sleep(1)
        os.kill(os.getpid(), 9)
        return iter(())

    began = time.monotonic()
    try:
        run(spark, dies, nothing)
    except Exception as error:
        return f"{len(noted('starts'))} starts of 2 tasks, {time.monotonic() - began:.1f} s: {first_line(error)}"
    return "it ran"


def goodbye() -> str:
    """The last level has ended: Spark hangs up on workers of the level before while they say their last word."""
    spark = session()

    def talks(batches: Batches) -> Batches:
        for _ in batches:
            pass
        said = 0
        try:
            for said in range(1, 101):  # noqa: B007
                yield rows(b"x" * 1000)
                time.sleep(0.05)
        finally:
            note("said", said)

    def leaves(batches: Batches) -> Batches:
        return iter(())  # and reads nothing

    began = time.monotonic()
    try:
        run(spark, talks, leaves)
        end = "without an error"
    except Exception as error:
        end = first_line(error)
    return f"the job ended after {time.monotonic() - began:.1f} s {end}; the first level had said {noted('said')} of 100 words"


PROGRAMS: Final = {f.__name__: f for f in (slots, speculation, again, settings, nudge, cancelled, killed, goodbye)}


def main(names: list[str]) -> int:
    """Each in a process of its own: they need sessions that differ."""
    if len(names) == 1 and "FAULTS_FOLDER" in os.environ:
        print(PROGRAMS[names[0]](), flush=True)
        return 0
    for name in names or PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="spark-faults-") as folder:
            environment = {**os.environ, "FAULTS_FOLDER": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(
                [sys.executable, __file__, name],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        said = done.stdout.strip().splitlines() or [done.stderr.strip()[-800:]]
        print(f"{name}: {(PROGRAMS[name].__doc__ or '').strip()}\n    {said[-1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
