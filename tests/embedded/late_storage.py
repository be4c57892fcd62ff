"""A store that takes its time with one write: it is carried out when the test says so, whoever owns the job by then."""

from __future__ import annotations

from collections.abc import Callable

from penstock.checkpoint.storage import Storage
from penstock.testing import FlakyStorage


class LateStorage(FlakyStorage):
    """The first write of a path with `held` in it: `meanwhile` is called with what carries it out, which is done at the latest when
    that returns."""

    def __init__(self, inner: Storage, held: str, meanwhile: Callable[[Callable[[], bool]], object]) -> None:
        super().__init__(inner, ())
        self._held, self._meanwhile = held, meanwhile
        self.was_held = False

    def put(self, path: str, data: bytes) -> None:
        def write() -> bool:
            self._inner.put(path, data)
            return True

        self._hold(path, write)

    def put_new(self, path: str, data: bytes) -> bool:
        return self._hold(path, lambda: self._inner.put_new(path, data))

    def _hold(self, path: str, write: Callable[[], bool]) -> bool:
        if self._held not in path or self.was_held:
            return write()
        self.was_held = True
        done: list[bool] = []

        def carry_out() -> bool:
            if not done:
                done.append(write())
            return done[0]

        self._meanwhile(carry_out)
        return carry_out()
