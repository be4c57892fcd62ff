"""PushSource: a receiver on the driver as a source of epochs.

                            with a receive log                                    without
    driver   receiver ─▶ log (fsync) ─▶ plan: records 7–12          receiver ─▶ memory ─▶ plan: the records themselves
    slot                 log ─▶ records 7–12                                    plan ─▶ the records themselves

Without a log, records are durable once the epoch that reads them is planned (if the job takes checkpoints: plans are
logged). What waits in memory for its epoch is lost when the driver dies or the job goes back to a checkpoint.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.common.time import now_ms
from penstock.connectors.push.receive_log import Received, ReceiveLog
from penstock.connectors.push.receiver import LoggedInbox, MemoryInbox, Receiver, Receiving
from penstock.errors import JobDefinitionError, StorageError
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Rows
from penstock.records.sizes import gathered

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

_SPLIT: Final = "0"


class PushSource(Source):
    """One split; a record's timestamp is the time of its receipt, so that without any assigner event time is ingestion time.

    `receive_log` is a folder that the driver can write to and every slot can read, for this source of this job alone: a
    job without a checkpoint starts with the oldest record in it. Records that the last `retained_checkpoints`
    checkpoints do not need are deleted.

    Example:

        source = PushSource(MyReceiver(), receive_log="/data/received")
        env.from_source(source, WatermarkStrategy.no_watermarks(), "received")
    """

    bounded = False

    def __init__(
        self,
        receiver: Receiver,
        schema: DeserializationSchema | None = None,
        *,
        receive_log: str | os.PathLike[str] | None = None,
        retained_checkpoints: int = 1,
        type_info: TypeInformation | None = None,
    ) -> None:
        if not isinstance(receiver, Receiver):
            raise JobDefinitionError(f"PushSource takes a Receiver, not a {type(receiver).__name__}")
        if retained_checkpoints < 1:
            raise JobDefinitionError(f"PushSource: retained_checkpoints={retained_checkpoints} must be at least 1")
        self._receiver = receiver
        self._schema = SimpleStringSchema() if schema is None else schema
        self._folder = None if receive_log is None else os.path.abspath(receive_log)
        self._retained = retained_checkpoints
        self._type_info = type_info

    def create_enumerator(self) -> SplitEnumerator:
        if self._folder is None:
            return _MemoryEnumerator(self._receiver)
        return _LogEnumerator(self._receiver, ReceiveLog(self._folder), self._retained)

    def create_reader(self) -> SplitReader:
        return _PushReader(None if self._folder is None else ReceiveLog(self._folder), self._schema)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info if self._type_info is not None else self._schema.get_produced_type()


class _LogEnumerator(SplitEnumerator):
    """Starts to receive when the first epoch is planned: not while an earlier run's plans are still replayed."""

    # By folder. One that an attempt left behind without closing it is stopped by the next: a folder has one writer.
    _live: Final[dict[str, Receiving]] = {}

    def __init__(self, receiver: Receiver, log: ReceiveLog, retained: int) -> None:
        self._receiver, self._log = receiver, log
        self._position: int | None = None
        self._kept: deque[int] = deque(maxlen=retained)
        self._receiving: Receiving | None = None

    def restore(self, state: Json) -> None:
        self._position = state["position"]

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        if self._position is None:
            self._position = self._log.first()
        ended, available = self._available()
        start = self._position
        if available < start:
            raise StorageError(
                f"receive log {self._log.folder} ends at record {available}, but the job has read {start} records of it: it is not "
                "the log this job was started with. Name the right folder, or start the job without its checkpoint"
            )
        end = available if max_records is None else min(available, start + max_records)
        self._position = end
        finished = ended and end == available
        split = SplitRange(split=_SPLIT, ordinal=0, start=start, end=end, last=finished)
        return SourcePlan(ranges=(split,), state={"position": end}, finished=finished, records=end - start)

    def splits_found(self) -> int:
        return 1

    def _available(self) -> tuple[bool, int]:
        """Whether the stream has ended, and the number after the last durable record."""
        ended_at = self._log.ended_at()
        if ended_at is not None:
            return True, ended_at
        if self._receiving is None:
            folder = str(self._log.folder)
            left_behind = self._live.pop(folder, None)
            if left_behind is not None:
                left_behind.stop()
            stopped = threading.Event()
            self._receiving = Receiving(self._receiver, LoggedInbox(self._log, now_ms), stopped)
            self._live[folder] = self._receiving
        ended = self._receiving.check()  # before what is available: what came before the end is not to be missed
        return ended, self._receiving.inbox.received

    def checkpoint_complete(self, state: Json) -> None:
        self._kept.append(state["position"])
        if len(self._kept) == self._kept.maxlen:
            with suppress(OSError):  # what stays is deleted with the next checkpoint
                self._log.truncate(self._kept[0])

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.stop()
            self._live.pop(str(self._log.folder), None)
            self._receiving = None


class _MemoryEnumerator(SplitEnumerator):
    """The records of an epoch are part of its plan."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._position = 0
        self._finished = False
        self._receiving: Receiving | None = None
        self._inbox: MemoryInbox | None = None

    def restore(self, state: Json) -> None:
        self._position, self._finished = state["position"], state["finished"]

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        records: list[Received] = []
        if not self._finished:
            if self._receiving is None:
                self._start()
            assert self._receiving is not None
            assert self._inbox is not None
            ended = self._receiving.check()
            records = self._inbox.take(max_records)
            self._finished = ended and self._position + len(records) == self._inbox.received
        start = self._position
        self._position += len(records)
        end = [start, *([r.received_ms, r.data.decode("latin-1")] for r in records)] if records else start
        split = SplitRange(split=_SPLIT, ordinal=0, start=start, end=end, last=self._finished)
        state = {"position": self._position, "finished": self._finished}
        return SourcePlan(ranges=(split,), state=state, finished=self._finished, records=len(records))

    def splits_found(self) -> int:
        return 1

    def _start(self) -> None:
        stopped = threading.Event()
        self._inbox = MemoryInbox(self._position, now_ms, stopped)
        self._receiving = Receiving(self._receiver, self._inbox, stopped)

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.stop()
            self._receiving = None


class _PushReader(SplitReader):
    def __init__(self, log: ReceiveLog | None, schema: DeserializationSchema) -> None:
        self._log, self._schema = log, schema

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        for part in gathered(self._records(split), block_size):
            values = [(self._schema.deserialize(data), received_ms) for received_ms, data in part]
            kept = [(value, stamp) for value, stamp in values if value is not None]
            yield Rows([value for value, _ in kept], [stamp for _, stamp in kept])

    def _records(self, split: SplitRange) -> Iterator[tuple[int, bytes]]:
        if self._log is None:
            for received_ms, text in split.end[1:]:
                yield received_ms, text.encode("latin-1")
        else:
            for record in self._log.read(split.start, split.end):
                yield record.received_ms, record.data
