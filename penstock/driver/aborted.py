"""Checkpoints that were begun and will never be complete: what listeners are told after a failure."""

from __future__ import annotations


class AbortedCheckpoints:
    def __init__(self) -> None:
        self._begun: set[int] = set()
        self.to_tell: tuple[int, ...] = ()  # until an epoch has completed, and with it every task has heard of them

    def begun(self, checkpoint: int) -> None:
        self._begun.add(checkpoint)

    def committed(self, checkpoint: int) -> None:
        self._begun.discard(checkpoint)

    def declined(self, checkpoint: int) -> None:
        """It could not be stored; the job goes on."""
        self._begun.discard(checkpoint)
        self.to_tell = (*self.to_tell, checkpoint)

    def epoch_completed(self) -> None:
        self.to_tell = ()

    def went_back_to(self, epoch: int) -> None:
        """What was begun after `epoch` has failed. One that is not after it was committed, though nobody could say so."""
        self.to_tell = tuple(sorted({*self.to_tell, *(c for c in self._begun if c > epoch)}))
        self._begun.clear()
