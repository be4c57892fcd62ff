"""A source that makes its records up: seeded, replayable, as fast as a generator over arrays allows.

Randomness without state: number i of stream k is a hash of (seed, k, i).

A stateful generator would have to be wound forward to a range's start; a hash of the counter gives any record at once,
whatever was read before it, which is what replay needs. The mixing function is SplitMix64's finalizer. Every function
exists twice, over arrays and over Python ints, and both give the same numbers: integer arithmetic only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Columns, Rows
from penstock.records.sizes import BLOCK_BYTES, gathered

IndexArray: TypeAlias = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def mix(value: int) -> int:
    """SplitMix64's finalizer: a bijection of 64-bit ints in which every input bit moves every output bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def stream_key(seed: int, stream: int) -> int:
    """The key of one independent stream of numbers."""
    return mix(mix(seed + _GOLDEN) + stream * _GOLDEN)


def random_u64(seed: int, stream: int, index: IndexArray) -> IndexArray:
    """One 64-bit number for each index."""
    value = index * np.uint64(_GOLDEN)
    value += np.uint64(stream_key(seed, stream))
    value ^= value >> np.uint64(30)
    value *= np.uint64(_MIX_1)
    value ^= value >> np.uint64(27)
    value *= np.uint64(_MIX_2)
    value ^= value >> np.uint64(31)
    return value


def random_u64_at(seed: int, stream: int, index: int) -> int:
    """`random_u64` for one index."""
    return mix(index * _GOLDEN + stream_key(seed, stream))


def below(seed: int, stream: int, index: IndexArray, bound: int) -> IndexArray:
    """Uniform over 0..bound-1; bound is at most 2**32."""
    value = random_u64(seed, stream, index)
    value >>= np.uint64(32)
    value *= np.uint64(bound)
    value >>= np.uint64(32)
    return value


def below_at(seed: int, stream: int, index: int, bound: int) -> int:
    """`below` for one index."""
    return ((random_u64_at(seed, stream, index) >> 32) * bound) >> 32


CATCH_UP_MS = 2_000  # a plan that comes late makes up for at most this much time
UNLIMITED_EPOCH_RECORDS = 100_000  # an epoch's size when neither count, rate nor max_records bounds it


class ColumnGenerator(ABC):
    """Makes whole columns. Must be picklable and pure: row i depends on (seed, index[i]) only, never on its
    neighbours. `random_u64_at` and `below_at` give random numbers that are."""

    event_time_column: str | None = None  # an int64 column of milliseconds that becomes the records' timestamps

    @abstractmethod
    def generate(self, index: IndexArray, seed: int) -> pa.RecordBatch:
        """One row for each index, in that order, always with the same schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    """How the records 0, 1, 2, … are dealt to the splits: record g is number g // splits of split g % splits, so the
    records do not depend on the number of splits."""

    count: int | None
    splits: int
    fixed: bool = True  # the number of splits is the program's; else that of subtasks, or what a checkpoint has

    def name(self, split: int) -> str:
        """Where the number of splits is not fixed, the name tells it to the reader."""
        return str(split) if self.fixed or self.splits == 1 else f"{split}/{self.splits}"

    def splits_of(self, name: str) -> int:
        """The number of splits that one of this name is one of."""
        return self.splits if self.fixed else int(name.partition("/")[2] or 1)

    def position(self, split: int, dealt: int) -> int:
        """How many of the first `dealt` records are in `split`."""
        return (dealt - split + self.splits - 1) // self.splits


class DataGeneratorSource(Source):
    """`count` records (endless when None) from `generator`, dealt to `splits` splits in turn; as many as the source has subtasks
    if none are given. A job that goes on from a checkpoint keeps the number it was taken with.

    `generator` is a function of the record's index (0, 1, 2, … over all splits) giving a value, or a `ColumnGenerator`
    giving Arrow columns. Both must be pure, so any range can be read again. `seed` goes to the `ColumnGenerator`; a
    function that wants one closes over it. `timestamp_of` takes the timestamp in ms out of a function's value.

    `rate_per_second` is for all splits together. It is kept by the enumerator: what the time since the first plan
    allows, catching up at most 2 s worth; the time a job was down earns nothing.

    Example:

        numbers = DataGeneratorSource(lambda index: index, 1_000, splits=4)
        env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    """

    def __init__(
        self,
        generator: Callable[[int], Any] | ColumnGenerator,
        count: int | None,
        *,
        splits: int | None = None,
        rate_per_second: float | None = None,
        seed: int = 0,
        timestamp_of: Callable[[Any], int] | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise JobDefinitionError(f"DataGeneratorSource: count={count} must not be negative")
        if splits is not None and splits < 1:
            raise JobDefinitionError(f"DataGeneratorSource: splits={splits} must be at least 1")
        if rate_per_second is not None and not rate_per_second > 0:
            raise JobDefinitionError(f"DataGeneratorSource: rate_per_second={rate_per_second} must be positive")
        if timestamp_of is not None and isinstance(generator, ColumnGenerator):
            raise JobDefinitionError(
                "DataGeneratorSource: timestamp_of is for row functions; a ColumnGenerator sets event_time_column"
            )
        self._generator = generator
        self._sequence = _Sequence(count=count, splits=splits or 1, fixed=splits is not None)
        self._rate = rate_per_second
        self._seed = seed
        self._timestamp_of = timestamp_of
        self._type_info = type_info

    def for_parallelism(self, parallelism: int) -> Source:
        if self._sequence.fixed:
            return self
        settled = copy(self)
        settled._sequence = replace(self._sequence, splits=parallelism)
        return settled

    def create_enumerator(self) -> SplitEnumerator:
        return _DataGeneratorEnumerator(self._sequence, self._rate)

    def create_reader(self) -> SplitReader:
        if isinstance(self._generator, ColumnGenerator):
            return _ColumnReader(self._generator, self._sequence, self._seed)
        return _RowReader(self._generator, self._sequence, self._timestamp_of)

    gives_columns = False

    @property
    def bounded(self) -> bool:
        return self._sequence.count is not None

    @property
    def has_timestamps(self) -> bool:
        if isinstance(self._generator, ColumnGenerator):
            return self._generator.event_time_column is not None
        return self._timestamp_of is not None

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _DataGeneratorEnumerator(SplitEnumerator):
    def __init__(self, sequence: _Sequence, rate_per_second: float | None) -> None:
        self._sequence = sequence
        self._rate = rate_per_second
        self._dealt = 0
        self._planned_before = False
        self._base: tuple[int, int] | None = None  # the moment, and the record, from which the rate counts

    def restore(self, state: Json) -> None:
        positions = state["positions"]
        if not self._sequence.fixed:
            self._sequence = replace(self._sequence, splits=len(positions))
        if len(positions) != self._sequence.splits:
            raise JobDefinitionError(
                f"DataGeneratorSource: the checkpoint has {len(positions)} splits, the program has "
                f"{self._sequence.splits}. Resume with the same number of splits."
            )
        self._dealt = sum(positions)
        count = self._sequence.count
        if count is not None and self._dealt > count:
            raise JobDefinitionError(
                f"DataGeneratorSource: the checkpoint is at record {self._dealt}, the program ends at {count}. "
                "Resume with a count at least as large."
            )
        # The base is not in the state: the first plan sets it anew, so the time the job was down brings no burst.
        self._planned_before = True

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        before = self._dealt
        self._dealt += self._admitted(now_ms, max_records)
        count, splits = self._sequence.count, self._sequence.splits
        ranges = []
        for split in range(splits):
            start, end = self._sequence.position(split, before), self._sequence.position(split, self._dealt)
            total = None if count is None else self._sequence.position(split, count)
            if self._planned_before and start == total:
                continue  # its last range was given by an earlier plan
            ranges.append(
                SplitRange(split=self._sequence.name(split), ordinal=split, start=start, end=end, last=end == total)
            )
        self._planned_before = True
        state = {"positions": [self._sequence.position(split, self._dealt) for split in range(splits)]}
        return SourcePlan(
            ranges=tuple(ranges), state=state, finished=self._dealt == count, records=self._dealt - before
        )

    def splits_found(self) -> int:
        return self._sequence.splits

    def _admitted(self, now_ms: int, max_records: int | None) -> int:
        limits = [limit for limit in (max_records, self._left(), self._due(now_ms)) if limit is not None]
        return min(limits, default=UNLIMITED_EPOCH_RECORDS)

    def _due(self, now_ms: int) -> int | None:
        """What the rate allows now; counted from a base rather than added up, so that fractions do not get lost."""
        if self._rate is None:
            return None
        base_ms, base_dealt = self._base or (now_ms, self._dealt)
        due = (now_ms - base_ms) * self._rate / 1000 - (self._dealt - base_dealt)
        # At a rate below one record in 2 s the cap must still let one record through.
        most = max(1.0, self._rate * CATCH_UP_MS / 1000)
        if due > most or due < 0:  # too late, or the clock was set back
            due = most if due > most else 0.0
            base_ms, base_dealt = now_ms - int(due * 1000 / self._rate), self._dealt
        self._base = (base_ms, base_dealt)
        return int(due)

    def _left(self) -> int | None:
        return None if self._sequence.count is None else self._sequence.count - self._dealt


class _RowReader(SplitReader):
    def __init__(
        self, generator: Callable[[int], Any], sequence: _Sequence, timestamp_of: Callable[[Any], int] | None
    ) -> None:
        self._generator = generator
        self._sequence = sequence
        self._timestamp_of = timestamp_of

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        splits = self._sequence.splits_of(split.split)
        first, last = (at * splits + split.ordinal for at in (split.start, split.end))
        timestamp_of = self._timestamp_of
        for values in gathered(map(self._generator, range(first, last, splits)), block_size):
            yield Rows(values, None if timestamp_of is None else [timestamp_of(value) for value in values])


class _ColumnReader(SplitReader):
    def __init__(self, generator: ColumnGenerator, sequence: _Sequence, seed: int) -> None:
        self._generator = generator
        self._sequence = sequence
        self._seed = seed
        self._fitting = 100  # rows in a block of bytes: until the first ones are there, a guess

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        start = split.start
        while start < split.end:
            index = np.arange(start, min(start + min(block_size, self._fitting), split.end), dtype=np.uint64)
            start += len(index)
            index *= np.uint64(self._sequence.splits_of(split.split))
            index += np.uint64(split.ordinal)
            batch = self._generator.generate(index, self._seed)
            if batch.num_rows != len(index):
                raise UserFunctionError(
                    f"{type(self._generator).__name__}.generate was asked for {len(index)} rows (from index "
                    f"{int(index[0])}) and gave {batch.num_rows}: it must give one row for each index"
                )
            name = self._generator.event_time_column
            timestamps = None if name is None else batch.column(name).to_numpy(zero_copy_only=False)
            yield Columns(batch, timestamps)
            self._fitting = max(1, BLOCK_BYTES * batch.num_rows // max(batch.nbytes, 1))


class NumberSequenceSource(DataGeneratorSource):
    """The numbers from `start` to `end`, both included, as `env.from_sequence` gives them: bounded, and read in parallel."""

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise JobDefinitionError(f"NumberSequenceSource: the start ({start}) must not be above the end ({end})")
        super().__init__(_Counting(start), end - start + 1, type_info=BasicTypeInfo(BasicType.LONG))


class _Counting:
    def __init__(self, start: int) -> None:
        self._start = start

    def __call__(self, index: int) -> int:
        return self._start + index
