"""Which checkpoints and plans of a job folder are its history, and which are a replaced driver's. Pure.

A store may carry out a write long after its driver was replaced, so a manifest can appear when a newer driver has already gone on
from an earlier checkpoint and has discarded what was staged behind it. Every driver therefore notes where it starts before it
discards anything. History is read backwards: what the newest generation has committed, behind the checkpoint it started from;
then what that checkpoint's generation had committed up to there; and so on. All else is an orphan, whenever it appears and
whatever its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.checkpoint.layout import GenerationStart
from penstock.protocol.ids import CheckpointId, Generation


def orphans(
    committed: Sequence[tuple[CheckpointId, Generation]], starts: Mapping[Generation, GenerationStart]
) -> frozenset[CheckpointId]:
    """Those that nobody may resume from. `committed` is ascending. Earlier releases noted no start: such a generation begins
    with the first manifest it has."""
    everyone = {generation for _, generation in committed} | starts.keys()
    history: set[CheckpointId] = set()
    left = list(committed)
    follow = max(everyone, default=Generation(0))
    while left:
        own = [checkpoint for checkpoint, generation in left if generation == follow]
        noted = starts.get(follow)
        start = min(own, default=left[-1][0] + 1) - 1 if noted is None else noted.checkpoint
        history.update(checkpoint for checkpoint in own if checkpoint > start)
        left = [
            (checkpoint, generation) for checkpoint, generation in left if checkpoint <= start and generation < follow
        ]
        if left:
            follow = left[-1][1]
    return frozenset(checkpoint for checkpoint, _ in committed if checkpoint not in history)


def plan_counts(epoch: int, by: Generation, starts: Mapping[Generation, GenerationStart]) -> bool:
    """Whether a plan is to be run again: not if a newer generation has begun without it, whose own plans are other ones."""
    return all(epoch <= start.planned for generation, start in starts.items() if generation > by)
