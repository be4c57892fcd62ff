"""Storage in the hands of the demon: it is asked before every operation, and may harm it."""

from __future__ import annotations

import builtins
import contextlib
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never

from penstock.checkpoint import layout
from penstock.checkpoint.storage import LocalStorage, Storage
from penstock.errors import StorageError
from penstock.runtime.embedded.crash import SimulatedCrash
from penstock.testing.simulate.story import Story

Harm: TypeAlias = Literal[
    "refused",  # nothing is done; on a real disk, which is full, as far as it goes
    "answer lost",  # it is done, and reported as failed
    "done twice",  # the transport repeats it: a file is created by the first of two tries, and the second says that it was there
    "torn",  # a part of the file is there; reported as failed
    "slow",  # time passes, and perhaps more: see `Harmed.meanwhile`; what is read is what was there when it was asked for
    "late, of the dead",  # the process dies, and it is done some operations later
    "late, of the living",  # reported as failed, and done some operations later
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmed:
    """What the demon does to one operation of the storage."""

    harm: Harm
    delay: int = 1  # until what is late, or slow, is carried out: before the operation of this number from now on
    of_kind: bool = False  # of those that are about the same
    meanwhile: Callable[[], None] = lambda: None  # happens while who asked waits


def kind_of(operation: str, path: str) -> str:
    """What an operation is about: where the demon waits for it."""
    if operation in ("put", "put_new"):
        if path.endswith("manifest.json"):
            return "write of a manifest"
        if path.startswith(layout.EPOCHS):
            return "write of a plan"
        if path.startswith(layout.GENERATIONS):
            return "write of a start" if "-from-" in path else "write of an owner"
        return "write of output" if path.startswith("staged") else "write of state"
    if operation == "list" and path == layout.GENERATIONS:
        return "look for owners"
    return {"get": "read", "exists": "look", "list": "look", "delete": "deletion"}[operation]


class _Late(NamedTuple):
    """Carried out before the `due`-th operation of this kind; "": of any."""

    kind: str
    due: int
    carry_out: Callable[[], None]


@contextlib.contextmanager
def _full_disk(room: int) -> Iterator[None]:
    """No file of this process can become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@dataclass(slots=True)
class SimulatedStorage(Storage):
    """Any Storage. `ask` is the demon, by the kind of the operation; None: nobody harms anything."""

    inner: Storage
    story: Story
    ask: Callable[[str], Harmed | None] | None = None
    written: set[str] = field(default_factory=set)  # manifests that have been there
    _late: list[_Late] = field(default_factory=list)
    _count: Counter[str] = field(default_factory=Counter)  # of operations, by kind; "": of any

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: bytes) -> None:
        def carry_out(part: bool) -> None:
            self.inner.put(path, data[: len(data) // 2] if part else data)

        self._do("put", path, carry_out, size=len(data))

    def put_new(self, path: str, data: bytes) -> bool:
        def carry_out(part: bool) -> bool:
            created = self.inner.put_new(path, data[: len(data) // 2] if part else data)
            if created and path.endswith("manifest.json"):
                self.written.add(path)
            return created

        return bool(self._do("put_new", path, carry_out, size=len(data)))

    def get(self, path: str) -> bytes:
        data: bytes = self._do("get", path, lambda part: self.inner.get(path))
        return data

    def exists(self, path: str) -> bool:
        return bool(self._do("exists", path, lambda part: self.inner.exists(path)))

    def list(self, prefix: str) -> builtins.list[str]:
        return builtins.list(self._do("list", prefix, lambda part: self.inner.list(prefix)))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda part: self.inner.delete(path))

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return self.inner.sweep(older_than_s=older_than_s)

    def settle(self) -> None:
        """All that is late is carried out now."""
        late, self._late = self._late, []
        for entry in late:
            entry.carry_out()

    def _do(self, operation: str, path: str, carry_out: Callable[[bool], Any], size: int = 0) -> Any:
        if path == layout.STATISTICS:  # numbers for people, by the wall clock: a run has to be the same every time
            return carry_out(False)
        kind = kind_of(operation, path)
        self._count.update(("", kind))
        for entry in [late for late in self._late if late.due <= self._count[late.kind]]:
            self._late.remove(entry)
            entry.carry_out()
        harmed = None if self.ask is None else self.ask(kind)
        if harmed is None:
            return carry_out(False)
        where = f"{operation} of {path}"
        self.story.happened(f"{kind}: {harmed.harm}", f"  storage: {where}: {harmed.harm}")
        if harmed.harm == "refused" and operation.startswith("put") and isinstance(self.inner, LocalStorage):
            with _full_disk(size // 2):
                return carry_out(False)
        return self._harm(harmed, kind, where, carry_out)

    def _later(self, harmed: Harmed, kind: str, carry_out: Callable[[], None]) -> _Late:
        counted = kind if harmed.of_kind else ""
        late = _Late(counted, self._count[counted] + harmed.delay, carry_out)
        self._late.append(late)
        return late

    def _slowly(self, harmed: Harmed, kind: str, where: str, carry_out: Callable[[bool], Any]) -> Any:
        """It comes about in the middle of what happens meanwhile, or at its end."""
        answers: list[Any] = []

        def now() -> None:
            if not answers:
                self.story.tell(f"  storage: {where} is carried out now")
                answers.append(carry_out(False))

        if kind.startswith(("read", "look")):
            now()
        late = self._later(harmed, kind, now)
        harmed.meanwhile()
        if late in self._late:
            self._late.remove(late)
        now()
        return answers[0]

    def _harm(self, harmed: Harmed, kind: str, where: str, carry_out: Callable[[bool], Any]) -> Any:
        match harmed.harm:
            case "refused":
                raise StorageError(f"the demon: {where} failed, nothing was done")
            case "answer lost":
                carry_out(False)
                raise StorageError(f"the demon: {where} was carried out, but its answer was lost")
            case "done twice":
                carry_out(False)
                return carry_out(False)
            case "torn":
                # Manifests and owners are whole or not there: their files are moved to their place.
                if kind in ("write of state", "write of output", "write of a plan"):
                    carry_out(True)
                raise StorageError(f"the demon: {where} was cut short")
            case "slow":
                return self._slowly(harmed, kind, where, carry_out)
            case "late, of the dead" | "late, of the living":

                def afterwards() -> None:
                    self.story.tell(f"  storage: {where} is carried out now, late")
                    with contextlib.suppress(StorageError):
                        carry_out(False)

                self._later(harmed, kind, afterwards)
                harmed.meanwhile()
                if harmed.harm == "late, of the dead":
                    raise SimulatedCrash(f"the process died while its {where} was on the way")
                raise StorageError(f"the demon: nothing is known of {where}")
        assert_never(harmed.harm)
