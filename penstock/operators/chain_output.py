"""Where the results of an operator in a chain go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.operators.base import Operator
from penstock.operators.routing import Router
from penstock.protocol.events import IdleStatus, Watermark
from penstock.records import Block


class ChainOutput:
    """Output of one operator: chained operators first, then the exchanges that start here."""

    __slots__ = ("_check", "chained", "chained_sides", "routers", "side_routers")

    def __init__(self, check: Callable[[Block], None] | None = None) -> None:
        """`check` refuses a block for the operators chained here; exchanges check what they send themselves."""
        self._check = check
        self.chained: list[Operator] = []
        self.chained_sides: dict[str, list[Operator]] = {}
        self.routers: list[Router] = []
        self.side_routers: dict[str, list[Router]] = {}

    def block(self, block: Block) -> None:
        if self.chained and self._check is not None:
            self._check(block)
        for operator in self.chained:
            operator.process(0, block)
        for router in self.routers:
            router.route(block)

    def side(self, tag: str, block: Block) -> None:
        for operator in self.chained_sides.get(tag, ()):
            operator.process(0, block)
        for router in self.side_routers.get(tag, ()):
            router.route(block)

    def watermark(self, timestamp: int) -> None:
        for operator in self._operators():
            operator.on_watermark(timestamp)
        event = Watermark(timestamp)
        for router in self.all_routers():
            router.broadcast(event)

    def idle(self, idle: bool) -> None:
        for operator in self._operators():
            operator.on_idle(idle)
        event = IdleStatus(idle)
        for router in self.all_routers():
            router.broadcast(event)

    def _operators(self) -> Iterable[Operator]:
        yield from self.chained
        for operators in self.chained_sides.values():
            yield from operators

    def all_routers(self) -> Iterable[Router]:
        yield from self.routers
        for routers in self.side_routers.values():
            yield from routers
