"""Which checkpoints of a job folder are its history, and which are orphans. Pure.

A store may carry out a write long after its driver was replaced, so a manifest can appear when a newer driver has already gone on
from an earlier checkpoint and has discarded what was staged behind it. Every driver therefore notes where it starts before it
discards anything. History is read backwards: what the newest generation has committed, behind the checkpoint it started from;
then what that checkpoint's generation had committed up to there; and so on. All else is an orphan, whenever it appears and
whatever its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.protocol.ids import CheckpointId, Generation


def orphans(
    committed: Sequence[tuple[CheckpointId, Generation]], starts: Mapping[Generation, CheckpointId]
) -> frozenset[CheckpointId]:
    """Those that nobody may resume from. `committed` is ascending; `starts` says behind which checkpoint (0: none) a generation
    began. Earlier releases noted no start: such a generation begins with the first manifest it has."""
    everyone = {generation for _, generation in committed} | starts.keys()
    history: set[CheckpointId] = set()
    left = list(committed)
    follow = max(everyone, default=Generation(0))
    while left:
        own = [checkpoint for checkpoint, generation in left if generation == follow]
        start = starts.get(follow, CheckpointId(min(own, default=left[-1][0] + 1) - 1))
        history.update(checkpoint for checkpoint in own if checkpoint > start)
        left = [
            (checkpoint, generation) for checkpoint, generation in left if checkpoint <= start and generation < follow
        ]
        if left:
            follow = left[-1][1]
    return frozenset(checkpoint for checkpoint, _ in committed if checkpoint not in history)
