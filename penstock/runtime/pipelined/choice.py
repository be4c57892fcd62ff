"""`auto`: pipelined where sources, settings and free task slots allow it, else epochs; and it says which, and why."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from penstock.driver.client import RunningJob
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.runtime.epochs.job import SparkJob, SparkSource
from penstock.runtime.epochs.session import spark_session
from penstock.runtime.pipelined import spark_plan
from penstock.runtime.pipelined.job import PipelinedJob, slots_needed, too_few_slots, unfit

_SLOTS_S: Final = 5.0  # for executors to come; longer, and it runs in epochs

_log = logging.getLogger("penstock")


def auto_job(
    job: JobDescription, master: JobMaster, configuration: Mapping[str, str], spark_sources: Mapping[str, SparkSource]
) -> RunningJob:
    """The factory of the runtime `auto`."""
    needed = slots_needed(job)
    why = unfit(job, spark_sources)
    session = spark_session(configuration, task_slots=0 if why else needed)
    if why is None:
        why = spark_plan.missing(session)
    if why is None:
        free = spark_plan.await_task_slots(session, needed, at_most_s=_SLOTS_S, given_up=lambda: False)
        why = too_few_slots(job, free) if free < needed else None
    mode = "pipelined" if why is None else "epochs"
    reason = why or f"its sources allow it, and {needed} task slots are free"
    _log.info("job %r runs %s: %s", job.graph.job.job_name, mode, reason)
    master.say_execution(mode, reason)
    return PipelinedJob(job, master, session) if why is None else SparkJob(job, master, session, spark_sources)
