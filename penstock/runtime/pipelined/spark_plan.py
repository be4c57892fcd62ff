"""The one place below PySpark's public API: makes Spark run all stages of a job at once and stream rows between them.

Spark's planner marks an exchange as pipelined only for its own real-time queries, in which Python operators are not allowed. The
mark is a field of the physical plan, and a batch DataFrame's plan can be rebuilt with it through PySpark's gateway. What of
Spark this needs is looked at before a job starts (`missing`); `tests/pipelined/test_spark_plan.py` tells when a new Spark lacks it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

LevelFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SCHEMA: Final = "target int, payload binary"
BATCH_BYTES: Final = 32  # make a batch for a worker: a row without a payload is less, any frame is more
_SINCE: Final = (4, 3)

_NEEDED: Final = "spark.python.udf.pipelined.enabled"
_SLOT_POLL_S: Final = 0.05

# With these Spark refuses a job with a pipelined exchange.
_UNWANTED: Final = {
    "spark.speculation": "a second copy of a task that streams would be read as well",
    "spark.dynamicAllocation.enabled": "all tasks run at once, on executors that are there",
}

# SQL settings that tasks read. A plan that is run by hand does not hand them on: they travel as local properties.
_TASK_PROPERTIES: Final = {
    "spark.sql.execution.id": "1",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.execution.pandas.udf.buffer.size": "64",  # else it waits for 64 KiB
}


def missing(session: SparkSession) -> str | None:
    """Why a job cannot be pipelined in this session, in words; None if it can."""
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < _SINCE:
        return f"Spark {pyspark.__version__} cannot stream between stages; 4.3 or later can"
    if session.conf.get(_NEEDED, "false") != "true":
        return f"the session was made without {_NEEDED} = true; let Penstock make the session, or set it before the session is made"
    for key, reason in _UNWANTED.items():
        if session.sparkContext.getConf().get(key, "false") == "true":
            return f"Spark streams between stages only without {key}: {reason}"
    try:
        exchange = _jvm(session).org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
        fields = [str(method.getName()) for method in _reflected(session, exchange).getDeclaredMethods()]
    except Exception as error:  # whatever the gateway says: this Spark is not as it should be
        return f"this Spark's exchanges cannot be looked at: {error}"
    if "pipelined" not in fields:
        return "this Spark's exchanges have no mark `pipelined`"
    return None


def task_slots(session: SparkSession) -> int:
    """How many tasks may run at once, on the executors that Spark has now. It is what Spark compares a pipelined job with."""
    scheduler = session.sparkContext._jsc.sc()
    return int(scheduler.maxNumConcurrentTasks(scheduler.resourceProfileManager().defaultResourceProfile()))


def free_task_slots(session: SparkSession) -> int:
    """How many tasks may start now: other jobs, and tasks of an attempt that is over and have not ended yet, hold some."""
    infos = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return max(0, task_slots(session) - sum(int(info.numRunningTasks()) for info in infos))


def await_task_slots(session: SparkSession, needed: int, *, at_most_s: float, given_up: Callable[[], bool]) -> int:
    """Waits for so many free task slots, and returns how many there are: an executor registers a while after the session was
    made, a lost one is replaced by and by, and tasks that were cancelled end a moment later. A local Spark has what it has."""
    grows = not re.match(r"local(\[|$)", str(session.sparkContext.master))
    until = time.monotonic() + at_most_s
    while (free := free_task_slots(session)) < needed and time.monotonic() < until and not given_up():
        if not grows and task_slots(session) < needed:
            break
        time.sleep(_SLOT_POLL_S)
    return free


def cores(session: SparkSession) -> int:
    """The processors that tasks have. A local Spark may have more threads than that."""
    local = str(session.sparkContext.master).startswith("local")
    return (os.cpu_count() or 1) if local else task_slots(session)


def frame_of(session: SparkSession, partitions: int, levels: list[LevelFunction]) -> DataFrame:
    """range ─▶ level 0 ═▶ level 1 ═▶ …; `target` names the partition of a row at the next level.

    The JVM hands a batch to a worker when it holds enough bytes *and* the row behind it is there. So behind an exchange every row
    is made two, itself and a follower without a payload: the follower is there at once, lets the row go, and becomes the first of
    the next batch.
    """
    session.conf.set("spark.sql.adaptive.enabled", "false")  # an adaptive plan hides its exchanges
    frame = session.range(0, partitions, 1, partitions).mapInArrow(levels[0], SCHEMA)
    for level in levels[1:]:
        came = frame.repartitionById(partitions, F.col("target"))
        followed = came.select(F.explode(F.array(F.col("payload"), F.lit(None))).alias("payload"))
        frame = followed.mapInArrow(level, SCHEMA)
    return frame


def planned(session: SparkSession, partitions: int, levels: list[LevelFunction]) -> Any:
    """The physical plan of `frame_of`. It can be run again and again, which saves an attempt the planning."""
    _jvm(session).org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # per thread
    return frame_of(session, partitions, levels)._jdf.queryExecution().executedPlan()


def run(session: SparkSession, plan: Any, *, group: str, description: str, properties: Mapping[str, str]) -> None:
    """Runs the plan with pipelined exchanges, to its end. In a thread of PySpark's (`InheritableThread`). Its tasks find
    `properties` in their context."""
    jvm, context = _jvm(session), session.sparkContext
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # per thread
    context.setJobGroup(group, description, interruptOnCancel=True)
    for key, value in {**_TASK_PROPERTIES, **properties}.items():
        context.setLocalProperty(key, value)
    _pipelined(session, plan).executeCollect()


def _pipelined(session: SparkSession, plan: Any) -> Any:
    """The plan with every exchange marked. Exchanges are new ones each time, so that Spark takes none for done."""
    jvm = _jvm(session)
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    children = jvm.java.util.ArrayList()
    for child in converters.asJava(plan.children()):
        children.add(_pipelined(session, child))
    if children.size():
        plan = plan.withNewChildren(converters.asScala(children).toSeq())
    if plan.getClass().getSimpleName() == "ShuffleExchangeExec":
        plan = plan.copy(
            plan.outputPartitioning(), plan.child(), plan.shuffleOrigin(), plan.advisoryPartitionSize(), True
        )
    return plan


def _jvm(session: SparkSession) -> Any:
    return session._jvm  # type: ignore[attr-defined,unused-ignore]


def _reflected(session: SparkSession, java_class: Any) -> Any:
    return _jvm(session).java.lang.Class.forName(java_class._fqn)
