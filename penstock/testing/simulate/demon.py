"""What goes wrong, and when. The demon plans its deeds before a life begins, each for the n-th time that some place is
reached; so a run without one of them is the same run up to there, and `--without` finds out which of them it takes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from penstock.driver import faults
from penstock.runtime.embedded.crash import CrashPlan, CrashPoint, SimulatedCrash
from penstock.testing.simulate.storage import Harm, Harmed
from penstock.testing.simulate.story import Story

Act: TypeAlias = Literal[
    "crash",
    "clock forward",
    "clock back",
    "savepoint",
    "savepoint, and killed when it is reported",
    "stop",
    "drain",
    "rescale",
    "rescale, and no state can be stored",
    "checkpoint",
    "cancel",
    "replaced",
    "failing reads",
    "failing commits",
    "failing close",
    "late acknowledgement",
    "damaged checkpoint",
]
ACTS: Final[tuple[Act, ...]] = get_args(Act)
HARMS: Final[tuple[Harm, ...]] = get_args(Harm)

# Where a process can die, and about how often each place is reached in one life.
POINTS: Final[dict[CrashPoint, int]] = {
    "source-block": 12,
    "process": 60,
    "barrier": 40,
    "before-snapshot": 20,
    "after-snapshot": 20,
    "before-upload": 20,
    "after-upload": 20,
    "before-run": 6,
    "before-manifest": 5,
    "after-manifest": 5,
    "during-sink-commit": 6,
    "after-sink-commit": 5,
    "before-savepoint": 1,
    "after-savepoint": 1,
    "after-commit": 6,
    "during-restore": 12,
}
# Where a driver can be replaced: it does something, and does not notice.
_DRIVER: Final[tuple[CrashPoint, ...]] = (
    "before-run",
    "before-manifest",
    "after-manifest",
    "during-sink-commit",
    "after-sink-commit",
    "after-commit",
)
_WRITES: Final = {
    "write of a manifest": 5,
    "write of a plan": 6,
    "write of a start": 2,
    "write of an owner": 2,
    "write of state": 20,
    "write of output": 8,
}
# Which of them are harmed how often: those that decide.
_CHOSEN: Final = ("write of a manifest", "write of a manifest", "write of a plan", "write of state", *_WRITES)
_PATIENCE_MS: Final = 300
_DECISIVE: Final = ("write of a manifest", "write of a plan", "write of a start")
# Whoever went on past a write that comes about late dies soon: the next one has to choose.
_NEXT: Final[tuple[CrashPoint, ...]] = (
    "before-run",
    "before-run",
    "process",
    "barrier",
    "before-manifest",
    "before-manifest",
)
_OTHERS: Final = {"read": 20, "look": 30, "look for owners": 20, "deletion": 12}
# What a run is left with: a job that is asked to end, and one that is replaced, are for lives that others follow.
_ENDING: Final[frozenset[Act]] = frozenset(
    {"damaged checkpoint", "stop", "drain", "cancel", "replaced", "savepoint, and killed when it is reported"}
)
_ENDS: Final[tuple[Act, ...]] = (
    "stop",
    "stop",
    "cancel",
    "replaced",
    "replaced",
    "savepoint, and killed when it is reported",
)
_WEIGHTS: Final[dict[Act | Literal["storage"], int]] = {
    "storage": 44,
    "crash": 22,
    "clock forward": 3,
    "clock back": 2,
    "savepoint": 6,
    "savepoint, and killed when it is reported": 5,
    "stop": 5,
    "drain": 1,
    "rescale": 8,
    "rescale, and no state can be stored": 4,
    "checkpoint": 3,
    "cancel": 2,
    "replaced": 6,
    "failing reads": 3,
    "failing commits": 3,
    "failing close": 3,
    "late acknowledgement": 3,
    "damaged checkpoint": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """At `place`, when it is reached for the `occurrence`-th time in a life."""

    number: int  # in the run
    place: str
    occurrence: int
    act: Act | Harm
    detail: int = 0  # how much, how long, how often
    delay: int = 0  # of what is late or slow: so many storage operations
    of_kind: bool = False  # of those that are about the same
    replaces: bool = False  # another driver takes over while storage is slow
    then: CrashPoint | None = None  # and the process dies when it comes there for the `again`-th time from then on
    again: int = 1

    def describe(self) -> str:
        """The deed as a line of the story."""
        more = f", and the process dies at the {self.again}. {self.then} behind it" if self.then is not None else ""
        return f"deed {self.number}: {self.act}, at the {self.occurrence}. {self.place}{more}"


def any_deeds(rng: random.Random, first: int, *, last: bool, fixed: bool, may_drain: bool) -> list[Deed]:
    """What the demon means to do in one life."""
    deeds = []
    if not last:  # a life that others follow comes to an end of its own before its input does
        ends: Act = rng.choice(_ENDS)
        place = rng.choice(_DRIVER)
        deeds.append(
            Deed(number=first, place=place, occurrence=rng.randint(1, 3), act=ends, detail=rng.randrange(1_000_000))
        )
    for number in range(first + len(deeds), first + len(deeds) + rng.choice([0, 1, 2, 3, 4, 5, 7])):
        act: Any = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if (act in _ENDING and last) or (act.startswith("rescale") and fixed) or (act == "drain" and not may_drain):
            act = "crash"
        deeds.append(_storage_deed(rng, number, last=last) if act == "storage" else _deed(rng, number, act))
    return deeds


def _deed(rng: random.Random, number: int, act: Act) -> Deed:
    places = _DRIVER if act == "replaced" else tuple(POINTS)
    if act not in ("crash", "replaced"):
        places = tuple(point for point in POINTS if not point.endswith("savepoint"))
    place = rng.choice(places)
    detail = {
        "clock forward": rng.choice([300, 900, 5_000, 100_000]),
        "clock back": rng.choice([100, 900]),
        "rescale": rng.choice([1, 1, 2, 2, 3, 3, 4, 7]),
        "rescale, and no state can be stored": rng.choice([1, 2, 3, 4]),
        "failing reads": rng.choice([1, 1, 6]),
        "failing commits": rng.choice([1, 1, 3]),
        "checkpoint": rng.choice([0, 1]),
        "replaced": rng.randrange(1_000_000),
    }.get(act, 1)
    return Deed(number=number, place=place, occurrence=_soon(rng, POINTS[place]), act=act, detail=detail)


def _soon(rng: random.Random, most: int) -> int:
    """Rather early: many lives are short."""
    return 1 + int(most * rng.random() ** 2)


def _storage_deed(rng: random.Random, number: int, *, last: bool) -> Deed:
    places = _WRITES if rng.random() < 0.8 else _OTHERS
    place = rng.choice(_CHOSEN if places is _WRITES else (*_OTHERS, *["look for owners"] * 2))
    harms: Iterable[Harm] = ("refused", "refused", "answer lost", "done twice", "slow")
    if places is _WRITES:
        harms = (*HARMS, "slow", "late, of the dead", "late, of the living") if place in _DECISIVE else HARMS
    harm = rng.choice(list(harms))
    if place == "look for owners" and not last:  # between a driver's look and its leap
        harm = "slow"
    replaces = harm == "slow" and rng.random() < 0.7 and not last
    detail = {"refused": rng.choice([1, 1, 5, 20]), "slow": rng.choice([50, 700, 700_000])}.get(harm, 1)
    then: CrashPoint = rng.choice(_NEXT)
    likely = 0.5 if harm == "late, of the living" else 0.8
    dies_again = rng.random() < likely and place in _DECISIVE and (harm.startswith("late") or replaces)
    of_kind = place in _DECISIVE and rng.random() < 0.4
    soon = _soon(rng, places[place])
    return Deed(
        number=number,
        place=place,
        occurrence=rng.choice([5, 6, 6, 6, 3, soon]) if place == "look for owners" else soon,
        act=harm,
        detail=rng.randrange(1_000_000) if replaces else detail,
        delay=rng.choice([1, 1, 2, 3] if of_kind else [1, 5, 8, 10, 12, 14, 16, 18, 20, 25, 30, 40, 100]),
        of_kind=of_kind,
        replaces=replaces,
        then=then if dies_again else None,
        again=rng.choice([1, 1, 2]) if place == "write of a manifest" else rng.choice([1, 2, 2, 3]),
    )


class Demon(CrashPlan):
    """Watches the places of one life and does what was planned. `carry_out` does what is not the death of the process."""

    def __init__(
        self,
        deeds: Iterable[Deed],
        story: Story,
        *,
        carry_out: Callable[[Deed], None],
        advance: Callable[[int], None],
    ) -> None:
        super().__init__(())
        self._deeds = {(deed.place, deed.occurrence): deed for deed in deeds}
        self._story, self._carry_out, self._advance = story, carry_out, advance
        self._been: Counter[str] = Counter()
        self._away: Counter[str] = Counter()  # operations that are still to be refused
        self._busy = False

    def _here(self, place: str) -> Deed | None:
        """What nests in a deed, another driver's work for one, is not looked at."""
        if self._busy:
            return None
        self._been[place] += 1
        return self._deeds.pop((place, self._been[place]), None)

    def _arrange(self, deed: Deed) -> None:
        """`deed` is done so many times from now on."""
        self._deeds.setdefault((deed.place, self._been[deed.place] + deed.occurrence), deed)

    def refuse(self, kind: str, operations: int) -> None:
        """So many storage operations of this kind fail."""
        self._away[kind] = operations

    def reach(self, point: CrashPoint) -> None:
        deed = self._here(point)
        if deed is None:
            return
        if deed.act == "crash":
            self._story.happened(f"crash at {point}", f"  {deed.describe()}")
            raise SimulatedCrash(f"the process died at {point!r}")
        self._do(deed)

    def reach_driver(self, point: faults.KillPoint, epoch: int) -> None:
        self.reach("after-commit" if point == "before-spark-log" else point)

    def harm(self, kind: str) -> Harmed | None:
        """What happens to a storage operation."""
        deed = self._here(kind)
        if deed is None:
            if self._busy or not self._away[kind]:
                return None
            self._away[kind] -= 1
            return Harmed(harm="refused")
        harm: Any = deed.act
        if harm == "refused":
            self.refuse(kind, deed.detail - 1)
        if deed.then is not None:
            self._arrange(Deed(number=deed.number, place=deed.then, occurrence=deed.again, act="crash"))

        def meanwhile() -> None:
            if deed.replaces:
                self._do(deed)
            else:  # also who waits for an answer in vain waits
                self._advance(deed.detail if harm == "slow" else _PATIENCE_MS)

        return Harmed(harm=harm, delay=deed.delay, of_kind=deed.of_kind, meanwhile=meanwhile)

    def _do(self, deed: Deed) -> None:
        act = "replaced while storage is slow" if deed.replaces else deed.act
        self._story.happened(act, f"  {deed.describe()}")
        self._busy = True
        try:
            self._carry_out(deed)
        finally:
            self._busy = False
