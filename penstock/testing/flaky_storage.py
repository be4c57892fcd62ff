"""Checkpoint storage that fails on command."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from penstock.checkpoint.storage import Storage
from penstock.errors import StorageError

StorageOperation: TypeAlias = Literal["put", "put_new", "get", "exists", "list", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFault:
    """The `call`-th call of `operation` (from 1; with `path_contains`, of those on such paths) fails before it did anything,
    fails although it was carried out (the answer was lost), or is slow."""

    operation: StorageOperation
    call: int
    kind: Literal["fail", "answer-lost", "slow"] = "fail"
    path_contains: str = ""


class FlakyStorage(Storage):
    """Wraps any Storage. `fired` is the proof; `on_slow` stands for the time that passes."""

    def __init__(
        self, inner: Storage, faults: Sequence[StorageFault], *, on_slow: Callable[[], None] = lambda: None
    ) -> None:
        self._inner = inner
        self._faults = tuple(faults)
        self._on_slow = on_slow
        self._seen: Counter[StorageFault] = Counter()
        self.fired: list[StorageFault] = []

    @property
    def url(self) -> str:
        return self._inner.url

    def put(self, path: str, data: bytes) -> None:
        fault = self._before("put", path)
        self._inner.put(path, data)
        self._after(fault, path)

    def put_new(self, path: str, data: bytes) -> bool:
        fault = self._before("put_new", path)
        created = self._inner.put_new(path, data)
        self._after(fault, path)
        return created

    def get(self, path: str) -> bytes:
        fault = self._before("get", path)
        data = self._inner.get(path)
        self._after(fault, path)
        return data

    def exists(self, path: str) -> bool:
        fault = self._before("exists", path)
        found = self._inner.exists(path)
        self._after(fault, path)
        return found

    def list(self, prefix: str) -> builtins.list[str]:
        fault = self._before("list", prefix)
        paths = self._inner.list(prefix)
        self._after(fault, prefix)
        return paths

    def delete(self, path: str) -> None:
        fault = self._before("delete", path)
        self._inner.delete(path)
        self._after(fault, path)

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return self._inner.sweep(older_than_s=older_than_s)

    def _before(self, operation: StorageOperation, path: str) -> StorageFault | None:
        for fault in self._faults:
            if fault.operation == operation and fault.path_contains in path:
                self._seen[fault] += 1
                if self._seen[fault] == fault.call:
                    self.fired.append(fault)
                    if fault.kind == "fail":
                        raise StorageError(f"simulated: {operation} of {path} failed, nothing was done")
                    if fault.kind == "slow":
                        self._on_slow()
                    return fault
        return None

    def _after(self, fault: StorageFault | None, path: str) -> None:
        if fault is not None and fault.kind == "answer-lost":
            raise StorageError(f"simulated: {fault.operation} of {path} was carried out, but its answer was lost")
