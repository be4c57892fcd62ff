"""Checkpoints in the memory of the driver: for small jobs that need to survive slots, not their driver."""

from __future__ import annotations

import builtins
import uuid
from typing import Final

from penstock.checkpoint.storage import ObjectStorage, Storage
from penstock.errors import StorageError

SCHEME: Final = "driver"


class DriverStorage:
    """A memory store that refuses what is too large for the driver. Slots reach it through the registry."""

    def __init__(self, max_state_size: int) -> None:
        self._max = max_state_size
        self._name = uuid.uuid4().hex
        self._inner: Storage = ObjectStorage(f"memory:///{self._name}")

    @property
    def url(self) -> str:
        return f"{SCHEME}:///{self._name}"

    def put(self, path: str, data: bytes) -> None:
        self._check(path, data)
        self._inner.put(path, data)

    def put_new(self, path: str, data: bytes) -> bool:
        self._check(path, data)
        return self._inner.put_new(path, data)

    def _check(self, path: str, data: bytes) -> None:
        if len(data) > self._max:
            raise StorageError(
                f"{path}: {len(data)} bytes are too many for checkpoints in the memory of the driver, whose limit is "
                f"{self._max} for each file: keep checkpoints in a folder (execution.checkpointing.storage = filesystem and "
                "execution.checkpointing.dir), or raise penstock.checkpoint.driver.max-state-size"
            )

    def get(self, path: str) -> bytes:
        return self._inner.get(path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def list(self, prefix: str) -> builtins.list[str]:
        return self._inner.list(prefix)

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return self._inner.sweep(older_than_s=older_than_s)
