"""How a stream gets timestamps and watermarks. A strategy only describes; the runtime generates."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.absent import missing_name
from penstock.common.time import Duration
from penstock.errors import JobDefinitionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimestampAssigner(ABC):
    """Gives every record its event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of `value` in milliseconds since the epoch. `record_timestamp` is the one it has already,
        the smallest long if it has none. Called once a record, in order; called again when an epoch is replayed."""


class ColumnTimestampAssigner(TimestampAssigner):
    """Event time is a column of the record (not in PyFlink): a timestamp, or milliseconds. Columnar streams read the whole
    column at once instead of calling Python for every record."""

    def __init__(self, column: str) -> None:
        self.column = column

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self.millis(value[self.column])

    @staticmethod
    def millis(stamp: Any) -> int:
        """Milliseconds of what the column holds for a record."""
        if not isinstance(stamp, datetime):
            if isinstance(stamp, bool) or not hasattr(stamp, "__index__"):
                raise TypeError(f"event time must be an integer (milliseconds) or a datetime, but is {stamp!r}")
            return operator.index(stamp)
        # As for a column of timestamps: without a zone it is UTC, and it is rounded down to a millisecond.
        moment = stamp.replace(tzinfo=UTC) if stamp.tzinfo is None else stamp
        return (moment - _EPOCH) // timedelta(milliseconds=1)


class IngestionTimeAssigner(TimestampAssigner):
    """Event time is when the record came in (not in PyFlink): the processing time of the epoch that reads it, which is
    logged with the epoch, so that a replay stamps it the same. The runtime stamps whole blocks; called by hand it gives the
    time of the call."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(time.time() * 1000)


class WatermarkOutput(ABC):
    """Takes the watermarks of a generator."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """No record with a timestamp <= `watermark` (ms) will follow. One that does not advance is ignored."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Nothing is expected for a while: do not hold the others back. The next watermark ends this."""

    @abstractmethod
    def mark_active(self) -> None:
        """Count this output again, before its next watermark."""


class WatermarkGenerator(ABC):
    """A custom generator; there is one per split or, in the middle of a job, per subtask. Its attributes are part of
    checkpoints, so they must be picklable."""

    @abstractmethod
    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        """Called for every record; what it emits here comes right behind the record (punctuated watermarks)."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called regularly, at least at the end of every epoch (periodic watermarks)."""


@dataclass(frozen=True, slots=True)
class Monotonous:
    """Timestamps never fall: the watermark is the last one minus 1 ms."""


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness:
    """Records are at most `bound_ms` behind: the watermark is the largest timestamp - bound - 1 ms."""

    bound_ms: int


@dataclass(frozen=True, slots=True)
class NoWatermarks:
    """Never a watermark before the end of the input."""


@dataclass(frozen=True, slots=True)
class IngestionTime:
    """Records are stamped as they come in: the watermark is the epoch's processing time - 1 ms, with or without records."""


@dataclass(frozen=True, slots=True)
class CustomGenerator:
    """A user's generator, made anew for every split."""

    factory: Callable[[], WatermarkGenerator]


GeneratorSpec: TypeAlias = Monotonous | BoundedOutOfOrderness | NoWatermarks | IngestionTime | CustomGenerator


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkAlignment:
    """Sources of one group do not run further ahead of the slowest than `max_drift_ms`."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkStrategy:
    """A generator, and what goes with it. Immutable and picklable; every `with_*` returns a new strategy.

    (PyFlink's `with_idleness` and `with_watermark_alignment` forget a timestamp assigner set before; here, as in
    Flink, the order of the calls does not matter.)

    Example:

        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).with_idleness(Duration.of_minutes(1))
    """

    generator: GeneratorSpec
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None
    per_record: bool = False  # emit after every record instead of periodically

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never fall within a split."""
        return WatermarkStrategy(generator=Monotonous(), per_record=_per_record)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Once a record of time t was seen, none older than t - `max_out_of_orderness` is expected."""
        bound_ms = max_out_of_orderness.to_millis()
        if bound_ms < 0:
            raise JobDefinitionError(f"max_out_of_orderness cannot be negative, but is {max_out_of_orderness}")
        return WatermarkStrategy(generator=BoundedOutOfOrderness(bound_ms), per_record=_per_record)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """For jobs that only use processing time."""
        return WatermarkStrategy(generator=NoWatermarks())

    @staticmethod
    def for_ingestion_time() -> WatermarkStrategy:
        """Event time is when a record came in (Flink's IngestionTimeExtractor; not in PyFlink). Nothing is ever late, and
        windows end without waiting for the next record."""
        return WatermarkStrategy(generator=IngestionTime(), timestamp_assigner=IngestionTimeAssigner())

    @staticmethod
    def for_generator(factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks from a user's generator (not in PyFlink). `factory` travels pickled to the slots."""
        if not callable(factory):
            raise JobDefinitionError(
                f"for_generator takes a factory such as the generator's class or a lambda, not {factory!r}: "
                "every split needs a generator of its own"
            )
        return WatermarkStrategy(generator=CustomGenerator(factory))

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Takes event timestamps from the records with `timestamp_assigner.extract_timestamp(value,
        record_timestamp)`, in milliseconds. Without it the source's timestamps count.

        Example:

            class PaymentTime(TimestampAssigner):
                def extract_timestamp(self, value, record_timestamp):
                    return value.paid_at_ms

            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(PaymentTime())
        """
        if not callable(getattr(timestamp_assigner, "extract_timestamp", None)):
            raise JobDefinitionError(
                f"{timestamp_assigner!r} is not a TimestampAssigner: pass an object with a method "
                "extract_timestamp(value, record_timestamp)"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """A split without records for this long no longer holds the watermark back, until its next record."""
        if idle_timeout.to_millis() <= 0:
            raise JobDefinitionError(f"idle_timeout must be at least one millisecond, but is {idle_timeout}")
        return replace(self, idle_timeout_ms=idle_timeout.to_millis())

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: Duration, update_interval: Duration | None = None
    ) -> WatermarkStrategy:
        """Sources with the same group wait for each other: a split whose watermark is more than the drift ahead of the
        group's least gets no records until the others have come closer. Decided once an epoch at most, and not more often than
        the interval (1 s). For strategies of `from_source`; idle and ended splits do not hold the group back."""
        interval = Duration.of_seconds(1) if update_interval is None else update_interval
        if not watermark_group or max_allowed_watermark_drift.to_millis() < 0 or interval.to_millis() <= 0:
            raise JobDefinitionError(
                f"watermark alignment needs the name of a group, a drift that is not negative and an interval above 0, but has "
                f"{watermark_group!r}, {max_allowed_watermark_drift} and {interval}"
            )
        alignment = WatermarkAlignment(
            group=watermark_group,
            max_drift_ms=max_allowed_watermark_drift.to_millis(),
            update_interval_ms=interval.to_millis(),
        )
        return replace(self, alignment=alignment)


_per_record = False


def set_per_record_watermarks(enabled: bool) -> None:
    """Make the strategies that `for_monotonous_timestamps` and `for_bounded_out_of_orderness` create from now on emit
    after every record. For tests that compare with Flink: periodic watermarks depend on when the period ends."""
    global _per_record
    _per_record = enabled


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
