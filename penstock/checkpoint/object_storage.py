"""Checkpoint storage in an object store, whose requests are atomic and whose `create` is exclusive; and in the driver's memory."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import MemoryStore, from_url

from penstock.common.storage import FileMissingError, Storage, checked_path
from penstock.errors import StorageError

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_T = TypeVar("_T")

DRIVER_SCHEME: Final = "driver"

# A store that answers 5xx or not at all for a moment is no reason to fail a checkpoint. One that stays away longer is for
# the job's restart strategy, which says so aloud, where a request that is still being repeated looks like a job that hangs.
RETRY: RetryConfig = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}

# Memory stores of this process by url, so that opening the same url twice gives the same files.
_memory_stores: dict[str, MemoryStore] = {}


class ObjectStorage(Storage):
    """Any store that obstore reaches by url. Credentials and endpoints come from the usual environment variables
    (AWS_*, GOOGLE_*, AZURE_*), on every host. memory:/// lives in one process: for tests."""

    kind = "checkpoint storage"  # for messages

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            if url.startswith("memory://"):
                self._store: Any = _memory_stores.setdefault(url, MemoryStore())
            elif url.startswith("file://"):
                self._store = from_url(url, mkdir=True)
            else:
                self._store = from_url(url, retry_config=RETRY)
        except (BaseError, OSError, ValueError) as error:
            raise StorageError(
                f"cannot open {self.kind} {url}: {_first_line(error)}. Check the url (s3://bucket/folder, "
                "gs://bucket/folder, az://container/folder) and the environment variables with its account and region"
            ) from error

    @property
    def url(self) -> str:
        return self._url

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self._url,)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def put(self, path: str, data: bytes) -> None:
        self._call("write", path, lambda: obstore.put(self._store, checked_path(path), data))

    def put_new(self, path: str, data: bytes) -> bool:
        checked = checked_path(path)
        try:
            self._call("create", path, lambda: obstore.put(self._store, checked, data, mode="create"))
        except FileExistsError:
            return False
        return True

    def get(self, path: str) -> bytes:
        return self._call("read", path, lambda: bytes(obstore.get(self._store, checked_path(path)).bytes()))

    def exists(self, path: str) -> bool:
        try:
            self._call("look for", path, lambda: obstore.head(self._store, checked_path(path)))
        except FileMissingError:
            return False
        return True

    def list(self, prefix: str) -> list[str]:
        folder = checked_path(prefix, folder=True)

        def collect() -> list[str]:
            chunks = obstore.list(self._store, prefix=folder or None)
            return sorted(meta["path"] for chunk in chunks for meta in chunk if _below(folder, meta["path"]))

        try:
            return self._call("list", prefix, collect)
        except FileMissingError:
            return []

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileMissingError):
            self._call("delete", path, lambda: obstore.delete(self._store, checked_path(path)))

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return 0  # the store shows whole objects only; parts of broken uploads are for its own lifecycle rules

    def _call(self, verb: str, path: str, request: Callable[[], _T]) -> _T:
        try:
            return request()
        except AlreadyExistsError as error:
            raise FileExistsError(path) from error
        except (BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError) and verb in _OF_A_FILE and "NoSuchBucket" not in str(error):
                raise FileMissingError(f"{path} does not exist in {self.kind} {self._url}") from error
            raise StorageError(
                f"cannot {verb} {path} in {self.kind} {self._url}: {_first_line(error)}; {_advice(error)}"
            ) from error


class DriverStorage(ObjectStorage):
    """The memory of the driver: for small jobs that need to survive slots, not their driver. It refuses what is too large for that.
    Slots reach it through the registry."""

    def __init__(self, max_state_size: int) -> None:
        self._max = max_state_size
        self._name = uuid.uuid4().hex
        super().__init__(f"memory:///{self._name}")

    @property
    def url(self) -> str:
        return f"{DRIVER_SCHEME}:///{self._name}"

    def put(self, path: str, data: bytes) -> None:
        self._check(path, data)
        super().put(path, data)

    def put_new(self, path: str, data: bytes) -> bool:
        self._check(path, data)
        return super().put_new(path, data)

    def _check(self, path: str, data: bytes) -> None:
        if len(data) > self._max:
            raise StorageError(
                f"{path}: {len(data)} bytes are too many for checkpoints in the memory of the driver, whose limit is "
                f"{self._max} for each file: keep checkpoints in a folder (execution.checkpointing.storage = filesystem and "
                "execution.checkpointing.dir), or raise penstock.checkpoint.driver.max-state-size"
            )


def _below(folder: str, path: str) -> bool:
    return not folder or path.startswith(folder + "/")


# A missing file is an answer to these; to others, "not found" is the bucket.
_OF_A_FILE = ("read", "look for", "delete")


def _advice(error: BaseException) -> str:
    """What to do, as far as the store's words tell."""
    text = str(error)
    if "NoSuchBucket" in text or isinstance(error, FileNotFoundError):
        return (
            "the bucket or container does not exist, or not in this account and region: create it, or correct the url"
        )
    if "169.254.169.254" in text or "metadata.google" in text:
        return (
            "no credentials are set, and the machine has none of its own to give: set them on every host (S3: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; with spark.executorEnv.… for executors)"
        )
    if "builder error" in text:
        return "a plain http endpoint must be allowed: AWS_ALLOW_HTTP=true"
    if "error sending request" in text:
        return (
            "the store could not be reached, or a request took longer than it may (30 s): check the endpoint (S3: "
            "AWS_ENDPOINT_URL) from this host, and give large snapshots on a slow network more time (AWS_TIMEOUT=300s)"
        )
    return (
        "check that the store can be reached from this host and that the credentials allow reading, writing, listing and "
        "deleting"
    )


def _first_line(error: BaseException) -> str:
    """obstore appends a debug dump that may hold request headers; the first line is the message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
