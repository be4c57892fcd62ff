"""The two ends of a loop inside a job that is a DAG.

    epoch n     input ─▶ head ─▶ body ─▶ tail     keeps what came: it is on the way back when barrier n passes
    epoch n+1   kept  ─▶ head ─▶ body ─▶ tail     keeps what came now

What the tail keeps is operator state, so it is in every checkpoint, is dealt out when the job is rescaled, and a retried
epoch finds it unchanged. The head keeps nothing. In epochs the runtime hands it what the tail of the same subtask confirmed;
in a stream the tail sends back what it keeps at once, and forgets what its head had taken before a barrier when that barrier
comes to it: the rest was on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from penstock.common.typeinfo import TypeInformation
from penstock.operators.base import Operator
from penstock.protocol.events import LatencyMarker
from penstock.records import Block
from penstock.records.codec import decode_block, encode_block
from penstock.records.convert import to_columns, to_rows, travels_as_arrow

FEEDBACK = "feedback"

# (epoch it came to the tail in, records, kind and bytes of the block). Bytes, because the state of a subtask is pickled at
# every barrier: that is then a copy of memory, whatever the records are.
Feedback: TypeAlias = tuple[int, int, int, bytes]


class IterationHead(Operator):
    """Where input and feedback meet. Event time is that of the input; records keep the timestamps they came back with."""

    def __init__(self, *, feedback_only: bool = False) -> None:
        """`feedback_only`: the input is another stream of the body; from here come only the records that come back."""
        super().__init__()
        self.feedback_only = feedback_only

    def process(self, input: int, block: Block) -> None:
        if not self.feedback_only:
            self._pass(block)

    def inject(self, feedback: Iterable[Feedback]) -> None:
        """Called once an epoch, before its input: the records of earlier epochs that are due in this one."""
        for _, _, kind, payload in feedback:
            self._pass(decode_block(kind, payload))

    def _pass(self, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        self.ctx.metrics.records_out += len(block)
        self.ctx.output.block(block)


class IterationTail(Operator):
    """The end of the feedback stream. `head_type` is what the head's followers expect, `input_type` what comes."""

    def __init__(self, head_type: TypeInformation | None, input_type: TypeInformation | None) -> None:
        super().__init__()
        self.head_type, self.input_type = head_type, input_type
        self._epoch = 0
        self._kept: list[Feedback] = []
        self._forgotten = 0  # blocks, since the last restore
        self.send_back: Callable[[Feedback], None] | None = None  # None: the runtime comes for what is kept

    def restore_state(self) -> None:
        """What a checkpoint holds is due at once, whatever number its epoch had."""
        self._kept = self.ctx.state.operator_list(FEEDBACK)
        self._kept[:] = [(0, count, kind, payload) for _, count, kind, payload in self._kept]

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch = epoch

    def process(self, input: int, block: Block) -> None:
        if not len(block):
            return
        self.ctx.metrics.records_in += len(block)
        if not travels_as_arrow(self.head_type):
            block = to_rows(block, self.input_type)
        elif self.head_type is not None:
            block = to_columns(block, self.head_type, f"the feedback of {self.ctx.name!r}")
        self._kept.append((self._epoch, len(block), *encode_block(block)))
        if self.send_back is not None:
            self.send_back(self._kept[-1])

    def on_marker(self, marker: LatencyMarker) -> None:
        """It has come as far as it goes: round the loop it would go for ever."""
        self.note_marker(marker)

    def forget(self, taken: int) -> None:
        """The head gets everything up to the end of epoch `taken` in the epoch that starts: it is no longer ours."""
        self._kept[:] = [item for item in self._kept if item[0] > taken]

    def forget_first(self, taken: int) -> None:
        """The head has taken so many blocks since the last restore, before the barrier that has now come here."""
        del self._kept[: taken - self._forgotten]
        self._forgotten = taken

    @property
    def kept(self) -> Sequence[Feedback]:
        """What is on the way back, oldest first."""
        return tuple(self._kept)

    @property
    def waiting(self) -> int:
        """Records on the way back."""
        return sum(count for _, count, _, _ in self._kept)
