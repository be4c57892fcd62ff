"""Checkpoint storage that lives in the driver, as a slot sees it: every call is a message to the registry."""

from __future__ import annotations

import builtins
from typing import Any

from penstock.checkpoint.object_storage import DRIVER_SCHEME
from penstock.checkpoint.storage import Storage, open_storage
from penstock.errors import SlotError, StorageError, as_text, from_text
from penstock.runtime.connection.messages import StorageAnswer, StorageCall
from penstock.runtime.connection.wire import Wire

CALLS = frozenset({"put", "put_new", "get", "exists", "list", "delete"})
_TIMEOUT_S = 60.0  # or as long as an epoch may take, if that is less


def open_in_slot(url: str, host: str, port: int, token: str, epoch_timeout_s: float = _TIMEOUT_S) -> Storage:
    """The storage of checkpoints for a slot process; through the driver if it is the driver's memory."""
    if not url.startswith(f"{DRIVER_SCHEME}:"):
        return open_storage(url)
    return RemoteStorage(url, host, port, token, timeout_s=min(_TIMEOUT_S, epoch_timeout_s))


def serve_storage(storage: Storage | None, asked: StorageCall) -> StorageAnswer:
    """The driver's side of one call. Errors travel to the slot that asked, with their class."""
    try:
        if storage is None or asked.call not in CALLS:
            raise StorageError("this job's checkpoints are not kept in the driver")
        return StorageAnswer(result=getattr(storage, asked.call)(*asked.args))
    except Exception as error:  # raised again in the slot
        return StorageAnswer(error=as_text(error))


class RemoteStorage(Storage):
    """Safe to use from several threads: each call has a connection of its own; they are few and small."""

    def __init__(self, url: str, host: str, port: int, token: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._url, self._host, self._port, self._token = url, host, port, token
        self._timeout_s = timeout_s

    @property
    def url(self) -> str:
        return self._url

    def _call(self, call: str, *args: Any) -> Any:
        try:
            wire = Wire.connect(self._host, self._port, self._token)
            try:
                wire.set_timeout(self._timeout_s)
                wire.send_message(StorageCall(call=call, args=args))
                answer: StorageAnswer = wire.receive_message()
            finally:
                wire.close()
        except (OSError, EOFError, SlotError) as error:
            raise StorageError(
                f"checkpoint storage in the driver cannot be reached for {call} {args[0]!r}: {error}"
            ) from error
        if answer.error is not None:
            raise from_text(answer.error)
        return answer.result

    def put(self, path: str, data: bytes) -> None:
        self._call("put", path, data)

    def put_new(self, path: str, data: bytes) -> bool:
        return bool(self._call("put_new", path, data))

    def get(self, path: str) -> bytes:
        return bytes(self._call("get", path))

    def exists(self, path: str) -> bool:
        return bool(self._call("exists", path))

    def list(self, prefix: str) -> builtins.list[str]:
        return [str(path) for path in self._call("list", prefix)]

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return 0  # memory keeps no halves of files
