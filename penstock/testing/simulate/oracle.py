"""The answer, computed from the input alone. Nothing of Penstock is used here: what the engine got wrong, this cannot.

A record is `(label, id, event time)`; ids name their split and their place in it, `a0.7`. Every branch of a job answers to the
same records, so one that saw a record which another did not is found out even where nobody knows how far the job should
have come.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

Record: TypeAlias = tuple[str, str, int]  # label of the key, id, event time in ms

WINDOW_MS: Final = 1_000
TIMER_MS: Final = 700
GAP_MS: Final = 333  # event times are multiples of 10: none are exactly this far apart
REACH_MS: Final = 300
HOPS: Final = 3
WEIGHT: Final = 2**62  # two of them are more than 63 bits hold; their mean is not
UNTIMED: Final = tuple(f"c0.{number}" for number in range(6))  # records without event time
_NO_TIME: Final = -(2**63)  # what they are told of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a run was given, and how much of exactness it may be held to."""

    splits: Mapping[str, Sequence[Record]]  # in their order
    cut: frozenset[str] = frozenset()  # inputs that were not read to their end: any beginning of each split is right
    late: bool = False  # records may be late: a split may be idle
    repeats: bool = False  # at least once

    def records(self) -> list[Record]:
        """All records, of all splits."""
        return [record for records in self.splits.values() for record in records]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """How a run's output differs from the truth."""

    lost: int = 0
    duplicated: int = 0
    wrong: list[str] = field(default_factory=list)  # anything else

    @property
    def exact(self) -> bool:
        """True if nothing was lost, repeated or otherwise wrong."""
        return not (self.lost or self.duplicated or self.wrong)

    def __str__(self) -> str:
        if self.exact:
            return "exact: lost 0, duplicated 0"
        return "; ".join([f"lost {self.lost}, duplicated {self.duplicated}", *self.wrong[:6]])


def timer_of(at: int) -> int:
    """The time of the timer that the workload registers for a record at `at`."""
    return (at // TIMER_MS + 1) * TIMER_MS


def took_ms(record_id: str) -> int:
    """How long the asynchronous request of a record takes."""
    return _place(record_id)[1] + 1


def x_of(record_id: str) -> int | float:
    """Halved as what it is: 3 becomes 1, and 2.5 becomes 1.25."""
    number = _place(record_id)[1]
    return number + 0.5 if number % 3 == 0 else number


def price_of(record_id: str) -> str:
    """The price that counts for a record."""
    return f"123456789012345678901234567890.{_place(record_id)[1] % 10}"


def event_time(splits: Iterable[tuple[Sequence[Record], int]]) -> int | None:
    """Where it has come to when so many records of each split are read: right before the last one of the slowest that goes on.
    None: one has brought nothing yet, or none goes on."""
    last = [records[read - 1][2] if read else None for records, read in splits if read < len(records)]
    known = [at for at in last if at is not None]
    return min(known) - 1 if known and len(known) == len(last) else None


def judge(truth: Truth, visible: Mapping[str, list[Any]]) -> Verdict:
    """`visible` is what each branch has brought about: `windows`, `late`, `counts`, …"""
    verdict = Verdict()
    seen = {branch: ids for branch in visible if (ids := _ids(branch, visible)) is not None}
    records = _read(truth, seen)
    expected = Counter(record[1] for record in records)
    for branch, ids in seen.items():
        found, due = Counter(ids), expected
        if branch == "rules":  # of the other input, and as often as there are subtasks
            found, due = Counter(set(ids)), Counter(i for i in expected if i.startswith("b"))
        lost, more = due - found, found - due
        if lost:
            verdict.lost += lost.total()
            verdict.wrong.append(f"{branch}: lost {sorted(lost)[:5]}")
        if more and not (truth.repeats and set(more) <= set(due)):
            verdict.duplicated += more.total()
            verdict.wrong.append(f"{branch}: too often {sorted(more)[:5]}")
    if not truth.repeats:
        for branch, check in _CHECKS.items():
            if branch in visible:
                verdict.wrong += check(truth, records, visible)
    return verdict


def _ids(branch: str, visible: Mapping[str, list[Any]]) -> list[str] | None:
    """The records that a branch accounts for. A late one is in no window, so both together have each once."""
    results = visible[branch]
    match branch:
        case "windows" | "sessions":
            last = {(label, start): ids for label, start, ids in results} if branch == "windows" else None
            windows = [ids for _, _, ids in results] if last is None else list(last.values())
            return [i for ids in windows for i in ids] + [record[1] for record in visible[f"late {branch}"]]
        case "counts" | "tenths":
            return [result[3] for result in results if result[0] == "count"]
        case "prefixes":
            return [ids[-1] for _, ids in results]
        case "singles":
            return [record[1] for record, _ in results]
        case "loops":
            return [record_id for _, record_id in results]
        case "rules":
            return [record_id for record_id, _ in results]
    return None


def _place(record_id: str) -> tuple[str, int]:
    split, _, number = record_id.partition(".")
    return split, int(number)


def _read(truth: Truth, seen: Mapping[str, Iterable[str]]) -> list[Record]:
    """The records that the job has read: all, or up to the last that any branch knows of."""
    furthest: Counter[str] = Counter()
    for ids in seen.values():
        for split, number in map(_place, ids):
            furthest[split] = max(furthest[split], number + 1)
    return [
        record
        for split, records in truth.splits.items()
        for record in (records[: furthest[split]] if split[0] in truth.cut else records)
    ]


# ---------------------------------------------------------------- what each branch should bring about


def _windows(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    fired: defaultdict[tuple[str, int], list[tuple[str, ...]]] = defaultdict(list)
    for label, start, ids in visible["windows"]:
        fired[label, start].append(ids)
    start_of = {record[1]: (record[0], record[2] // WINDOW_MS * WINDOW_MS) for record in records}
    for window, firings in fired.items():
        for before, after in itertools.pairwise(firings):
            if not set(before) < set(after):
                yield f"window {window} fired with {before} and then with {after}"
        if strangers := [i for i in firings[-1] if start_of.get(i) != window]:
            yield f"window {window} has {strangers[:3]}"
    if not truth.late:
        yield from _nothing_late("windows", visible)
        whole: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for record_id, window in start_of.items():
            whole[window].append(record_id)
        yield from _same(
            "windows", [(*w, tuple(sorted(ids))) for w, ids in whole.items()], [(*w, f[-1]) for w, f in fired.items()]
        )


def _sessions(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if truth.late:
        return
    yield from _nothing_late("sessions", visible)
    whole: list[tuple[str, int, list[str]]] = []
    last: int | None = None
    for label, record_id, at in sorted(records, key=lambda record: (record[0], record[2])):
        if last is None or whole[-1][0] != label or at > last + GAP_MS:
            whole.append((label, at, []))
        whole[-1][2].append(record_id)
        last = at
    yield from _same("sessions", [(label, at, tuple(sorted(ids))) for label, at, ids in whole], visible["sessions"])


def _counts(
    truth: Truth, records: list[Record], visible: Mapping[str, list[Any]], name: str = "counts"
) -> Iterator[str]:
    counted: Counter[str] = Counter()
    latest: dict[tuple[str, str], int] = {}
    for result in visible[name]:
        if result[0] == "count":
            _, label, count, record_id = result
            counted[label] += 1
            if count != counted[label]:
                yield f"key {label!r} was counted {count} as its {counted[label]}. record, {record_id}"
            split, number = _place(record_id)
            if latest.get((label, split), -1) >= number:
                yield f"{record_id} came behind {split}.{latest[label, split]} of the same key"
            latest[label, split] = number
    if not truth.late:
        due = {("timer", label, timer_of(at)) for label, _, at in records}
        yield from _same("timers", due, [result for result in visible[name] if result[0] == "timer"])


def _prefixes(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    before: dict[str, list[str]] = {}
    for label, ids in visible["prefixes"]:
        if ids[:-1] != before.get(label, []):
            yield f"key {label!r}: {ids} follows {before.get(label)}"
        before[label] = ids


def _pairs(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if truth.late or truth.cut:
        return
    due = [
        (a[1], b[1])
        for a in records
        for b in records
        if a[1][0] == "a" and b[1][0] == "b" and a[0] == b[0] and abs(a[2] - b[2]) <= REACH_MS
    ]
    yield from _same("pairs", due, visible["pairs"])


def _rules(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    """Every subtask has heard of every rule, so the n-th it hears of is its n-th: also behind a restore and a rescale."""
    ids = {record[1] for record in records if record[1][0] == "b"}
    places = Counter(place for _, place in visible["rules"])
    if set(places) != set(range(1, len(ids) + 1)):
        yield f"{len(ids)} rules were known as numbers {sorted(places)}"
    elif sum(places.values()) != len(visible["rules"]):
        yield "a subtask has forgotten rules"


def _loops(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if hops := {hops for hops, _ in visible["loops"] if hops != HOPS}:
        yield f"records left the loop after {sorted(hops)} rounds instead of {HOPS}"


def _tenths(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    return _counts(truth, records, visible, "tenths")


def _singles(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if wrong := [(record, at) for record, at in visible["singles"] if record[2] != at]:
        yield f"singles: at another time {wrong[:3]}"


def _untimed(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if not truth.cut:
        yield from _same("untimed", [(name, _NO_TIME) for name in UNTIMED], visible["untimed"])


def _panes(records: list[Record]) -> Iterator[tuple[tuple[str, int, int, int, int], list[Record]]]:
    """The windows of each key: label, start, how many, the first and the last, and the records themselves."""
    panes: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        panes[record[0], record[2] // WINDOW_MS * WINDOW_MS].append(record)
    for (label, start), inside in panes.items():
        times = [at for _, _, at in inside]
        yield (label, start, len(inside), min(times), max(times)), inside


def _totals(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if truth.late or truth.cut:
        return
    due = [
        (*pane, float(WEIGHT), timedelta(milliseconds=sum(took_ms(record[1]) for record in inside)))
        for pane, inside in _panes(records)
    ]
    yield from _same("totals", due, visible["totals"])


def _sums(truth: Truth, records: list[Record], visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if truth.late or truth.cut:
        return
    due = []
    for pane, inside in _panes(records):
        xs = [x_of(record[1]) for record in inside]
        half = sum(x // 2 if isinstance(x, int) else x / 2 for x in xs)
        tenths = sum(int(price_of(record[1]).replace(".", "")) for record in inside)
        due.append((*pane, half, f"{tenths // 10}.{tenths % 10}"))
    found = [(*result[:6], str(result[6])) for result in visible["sums"]]
    yield from _same("sums", due, found)


_CHECKS: Final = {
    "windows": _windows,
    "sessions": _sessions,
    "counts": _counts,
    "prefixes": _prefixes,
    "pairs": _pairs,
    "rules": _rules,
    "loops": _loops,
    "tenths": _tenths,
    "untimed": _untimed,
    "singles": _singles,
    "totals": _totals,
    "sums": _sums,
}


def _nothing_late(branch: str, visible: Mapping[str, list[Any]]) -> Iterator[str]:
    if late := visible[f"late {branch}"]:
        yield f"{branch}: {len(late)} are late, although the watermark waits for the slowest split: {late[:3]}"


def _same(what: str, due: Iterable[Any], found: Iterable[Any]) -> Iterator[str]:
    expected, there = Counter(due), Counter(found)
    if expected != there:
        yield f"{what}: missing {sorted(expected - there)[:3]}, too many {sorted(there - expected)[:3]}"
