"""Whether a job may go on from a checkpoint: all of its state must find its operator again."""

from __future__ import annotations

from penstock.checkpoint.manifest import Manifest
from penstock.errors import JobDefinitionError
from penstock.graph.job_graph import JobGraph


def check_claims(manifest: Manifest, graph: JobGraph, *, ignore_unclaimed: bool) -> None:
    """State that no operator of this job would pick up is refused, not dropped."""
    if manifest.max_parallelism != graph.max_parallelism:
        raise JobDefinitionError(
            f"{manifest.kind} {manifest.checkpoint_id} was taken with max parallelism {manifest.max_parallelism}, this job has "
            f"{graph.max_parallelism}: keys would belong to other key groups. Call env.set_max_parallelism"
            f"({manifest.max_parallelism})"
        )
    unclaimed = sorted(set(manifest.stateful) - set(graph.operators()))
    if unclaimed and not ignore_unclaimed:
        raise JobDefinitionError(
            f"{manifest.kind} {manifest.checkpoint_id} holds state of operators {unclaimed} that this job does not have (it has "
            f"{sorted(graph.operators())}). Give the operators their old uids, or set "
            "execution.state-recovery.ignore-unclaimed-state to true to drop that state"
        )
