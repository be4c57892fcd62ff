"""A source over values that the program holds: the data travels with the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import JobDefinitionError
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Rows
from penstock.records.sizes import gathered

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

_SPLIT = "0"


class CollectionSource(Source):
    """Bounded, one split; a record's position is its index in `values`.

    `epochs` forces cuts: the k-th epoch ends at `epochs[k]` at the latest (values must not decrease; an equal one
    gives an empty epoch) and the rest follows in one more epoch. `max_records` of `plan` cuts further.
    """

    def __init__(
        self,
        values: Sequence[Any],
        type_info: TypeInformation | None = None,
        *,
        epochs: Sequence[int] | None = None,
    ) -> None:
        self._values = list(values)
        self._type_info = type_info
        self._cuts = tuple(epochs or ())
        if any(a > b for a, b in zip(self._cuts, self._cuts[1:], strict=False)) or any(
            not 0 <= cut <= len(self._values) for cut in self._cuts
        ):
            raise JobDefinitionError(
                f"CollectionSource: epochs={list(self._cuts)} must not decrease and must lie in 0..{len(self._values)}"
            )

    def create_enumerator(self) -> SplitEnumerator:
        return _CollectionEnumerator(len(self._values), self._cuts)

    def create_reader(self) -> SplitReader:
        return _CollectionReader(self._values)

    gives_columns = False

    @property
    def bounded(self) -> bool:
        return True

    @property
    def has_timestamps(self) -> bool:
        return False

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _CollectionEnumerator(SplitEnumerator):
    def __init__(self, size: int, cuts: tuple[int, ...]) -> None:
        self._size = size
        self._cuts = cuts
        self._position = 0
        self._cuts_passed = 0
        self._finished = False

    def restore(self, state: Json) -> None:
        position, cuts_passed, finished = state["position"], state["cuts_passed"], state["finished"]
        if position > self._size:
            raise JobDefinitionError(
                f"CollectionSource: cannot go on from position {position}: the collection has only {self._size} "
                "values. Resume with the collection that the checkpoint was taken with."
            )
        self._position, self._cuts_passed, self._finished = position, cuts_passed, finished

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        if self._finished:
            return SourcePlan(ranges=(), state=self._state(), finished=True, records=0)
        start = self._position
        cut = self._cuts[self._cuts_passed] if self._cuts_passed < len(self._cuts) else self._size
        cut = max(cut, start)  # the cuts may have changed since the checkpoint
        end = cut if max_records is None else min(cut, start + max_records)
        if end == cut:
            self._cuts_passed = min(self._cuts_passed + 1, len(self._cuts))
        self._position = end
        self._finished = end == self._size and self._cuts_passed >= len(self._cuts)
        split = SplitRange(split=_SPLIT, ordinal=0, start=start, end=end, last=self._finished)
        return SourcePlan(ranges=(split,), state=self._state(), finished=self._finished, records=end - start)

    def _state(self) -> Json:
        return {"position": self._position, "cuts_passed": self._cuts_passed, "finished": self._finished}


class _CollectionReader(SplitReader):
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        for part in gathered(self._values[split.start : split.end], block_size):
            yield Rows(part)
