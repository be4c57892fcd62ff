"""Does a job fail with the same error at the same place, again and again? Then trying once more is of little use, and a restart
strategy without end, which is the default, would hide that. It is said; what is done about it is for a person to decide."""

from __future__ import annotations

import re
from typing import Final

from penstock.driver.notices import Notices
from penstock.errors import failed_task

_KEY: Final = "same-failure"
_FEW: Final = 3  # in a row: what a hiccup of a network or a disk does not reach with the delays of a restart strategy
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|[0-9]+")  # addresses, ports, attempts: no two errors agree on them


class RepeatedFailures:
    """Belongs to the JobMaster's thread."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._same: tuple[str, ...] = ()
        self._epoch = 0
        self._in_a_row = 0

    def failed(self, error: BaseException, epoch: int, checkpoint: int | None) -> None:
        """`epoch` was not completed because of `error`, and the job goes back to `checkpoint`."""
        text = next(iter(str(error).splitlines()), "")
        same = (type(error).__qualname__, str(failed_task(error)), _NUMBERS.sub("#", text))
        if (same, epoch) != (self._same, self._epoch):
            self._forget()
            self._same, self._epoch = same, epoch
        self._in_a_row += 1
        if self._in_a_row >= _FEW:
            back = "its beginning" if checkpoint is None else f"checkpoint {checkpoint}"
            self._notices.say(
                _KEY,
                f"epoch {epoch} has failed {self._in_a_row} times in a row with the same error, and the job goes back to {back} "
                "each time: trying again will hardly help. Mend what the error names, or catch it in the function and put the "
                "record aside; then cancel the job and start it again: it goes on from its checkpoint. A restart-strategy.type of "
                f"fixed-delay or failure-rate ends such a job by itself. The error: {text[:500]}",
            )

    def epoch_completed(self, epoch: int) -> None:
        """What it failed at lies behind the job."""
        if self._in_a_row and epoch >= self._epoch:
            self._forget()

    def _forget(self) -> None:
        self._same, self._epoch, self._in_a_row = (), 0, 0
        self._notices.over(_KEY)
