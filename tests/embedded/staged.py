"""A sink that is as strict as a folder of staged files: what was discarded is gone, and nothing is recognised by its epoch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.errors import StorageError
from penstock.records import Block, Columns


class _Token(NamedTuple):
    epoch: int
    name: str


_staged: dict[str, dict[_Token, list[Any]]] = {}
_committed: dict[str, dict[_Token, list[Any]]] = {}


class StagedSink(Sink):
    """`results` are what was committed under `name`, in order; each committable counts once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(self.name)

    def create_committer(self, sink_id: str) -> Committer:
        return _Committer(self.name)

    @staticmethod
    def results(name: str) -> list[Any]:
        return [value for values in _committed.get(name, {}).values() for value in values]

    @staticmethod
    def clear(name: str) -> None:
        _staged.pop(name, None)
        _committed.pop(name, None)


def staged(name: str) -> int:
    """How many committables wait for their commit."""
    return len(_staged.get(name, {}))


class _Writer(SinkWriter):
    def __init__(self, name: str) -> None:
        self._name, self._epoch = name, 0
        self._values: list[Any] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._values = epoch, []

    def write(self, block: Block) -> None:
        assert not isinstance(block, Columns)
        self._values += block.values

    def prepare_commit(self) -> list[Any]:
        if not self._values:
            return []
        token = _Token(self._epoch, uuid.uuid4().hex)
        _staged.setdefault(self._name, {})[token] = self._values
        self._values = []
        return [token]


class _Committer(Committer):
    def __init__(self, name: str) -> None:
        self._name = name

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        staged, committed = _staged.setdefault(self._name, {}), _committed.setdefault(self._name, {})
        for token in committables:
            if token in committed:
                continue
            if token not in staged:
                raise StorageError(f"what was staged for epoch {token.epoch} is gone: records are lost")
            committed[token] = staged.pop(token)

    def discard_after(self, epoch: int) -> None:
        staged = _staged.setdefault(self._name, {})
        for token in [token for token in staged if token.epoch > epoch]:
            del staged[token]
