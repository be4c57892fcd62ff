"""The world outside of a job: it survives every crash. What is visible in it is what the oracle judges.

Functions, sources and sinks travel pickled and know their world by its name. It also is where things fail that are no part of
Penstock: a read, a commit that the other system refuses, a function's `close`.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.staging import StagedCommitter, StagedOutput, StagingWriter, staged_data
from penstock.errors import PenstockError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns
from penstock.testing.simulate.story import Story

_worlds: dict[str, World] = {}


class OutsideError(Exception):
    """Something that is no part of Penstock has failed."""


@dataclass(slots=True)
class Committers:
    """Those of one driver: all have to take over before any of them commits."""

    sinks: set[str] = field(default_factory=set)
    taken_over: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class World:
    """All that is outside of Penstock in one run: what sinks made visible, and what is about to fail."""

    began_ms: int
    story: Story
    # What is visible, by sink: commits in the order they came, each known by the name of what it commits.
    visible: dict[str, dict[str, list[tuple[int, list[Any]]]]] = field(default_factory=dict)
    failing: Counter[str] = field(default_factory=Counter)  # how often a read, a commit, a close is still to fail
    drivers: list[Committers] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # what only this world can see

    def results(self, sink: str, up_to: int | None = None) -> list[Any]:
        """What was committed, of epochs up to one."""
        parts = [part for commit in self.visible.get(sink, {}).values() for part in commit]
        return [value for epoch, values in parts if up_to is None or epoch <= up_to for value in values]

    def _fails(self, what: str) -> None:
        if self.failing[what]:
            self.failing[what] -= 1
            self.story.happened(f"a {what} fails", f"  a {what} fails, {self.failing[what]} more will")
            raise (PenstockError if what == "commit" else OutsideError)(f"the demon: this {what} fails")

    def is_read(self) -> None:
        """Called when something outside is read; fails if the demon wants it to."""
        self._fails("read")

    def is_closed(self) -> None:
        """Called when something outside is closed; fails if the demon wants it to."""
        self._fails("close")

    def joins(self, sink: str) -> Committers:
        """The driver that a new committer belongs to: each has one for every sink."""
        if not self.drivers or sink in self.drivers[-1].sinks:
            self.drivers.append(Committers())
        self.drivers[-1].sinks.add(sink)
        return self.drivers[-1]

    def knows(self, sink: str, name: str, driver: Committers) -> bool:
        """Whether a commit of this name is there: it is not made again."""
        self._fails("commit")
        if missing := driver.sinks - driver.taken_over:
            self.wrong.append(f"sink {sink} commits before {sorted(missing)} have taken over")
        return name in self.visible.get(sink, {})

    def commit(self, sink: str, name: str, parts: list[tuple[int, list[Any]]]) -> None:
        """Makes the values of a commit visible, by epoch."""
        self.visible.setdefault(sink, {})[name] = parts


def world(name: str) -> World:
    """The world of this name, for sources and sinks that were pickled."""
    return _worlds[name]


@contextlib.contextmanager
def new_world(name: str, made: World) -> Iterator[World]:
    """Makes a world known under `name` for the length of a `with`."""
    _worlds[name] = made
    try:
        yield made
    finally:
        del _worlds[name]


class OutsideSink(Sink):
    """It stages as Kafka's and PostgreSQL's sinks do, in files of the job folder, and its world knows a commit by its name: an
    epoch that was run again and committed again shows."""

    def __init__(self, world: str, name: str, bulky: int) -> None:
        """Output of every epoch but each `bulky`-th is too much for a manifest; 1: of none, 0: of all."""
        self._world, self._name, self._bulky = world, name, bulky

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(context, self._bulky)

    def create_committer(self, sink_id: str) -> Committer:
        return _Committer(sink_id, self._world, self._name)


class _Writer(StagingWriter[list[Any]]):
    def __init__(self, context: WriterContext, bulky: int) -> None:
        super().__init__(context)
        self._bulky = bulky

    def encode(self, block: Block) -> list[Any] | None:
        assert not isinstance(block, Columns)
        return list(block.values)

    def pack(self, parts: list[list[Any]]) -> bytes:
        values = [value for part in parts for value in part]
        # What is not kept inside the manifest is a file that can be thrown away too early.
        in_manifest = self._bulky > 0 and self._epoch % self._bulky == 0
        return pickle.dumps((values, bytes(0 if in_manifest else 20_000)))


class _Committer(StagedCommitter):
    def __init__(self, sink_id: str, world: str, name: str) -> None:
        super().__init__(sink_id)
        self._world, self._name = world, name
        self._driver = _worlds[world].joins(name)

    def take_over(self) -> None:
        self._driver.taken_over.add(self._name)

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        world = _worlds[self._world]
        if not world.knows(self._name, name, self._driver):
            data = [(part.epoch, staged_data(part, self.storage, sink_id=self.sink_id)) for part in staged]
            world.commit(self._name, name, [(epoch, pickle.loads(packed)[0]) for epoch, packed in data])
