"""Where the results of an operator in a chain go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.common.values import own_all
from penstock.operators.base import Operator
from penstock.operators.routing import Router
from penstock.protocol.events import IdleStatus, Watermark
from penstock.records import Block, Columns, Rows


class ChainOutput:
    """Output of one operator: chained operators first, then the exchanges that start here. Where there are several, each
    gets records of its own: what one does to them is not seen by the others. With object reuse, as in Flink, they share."""

    __slots__ = ("_check", "_rounded", "_shared", "chained", "chained_sides", "routers", "side_routers")

    def __init__(
        self,
        check: Callable[[Block], None] | None = None,
        *,
        rounded: Callable[[Block], Block] | None = None,
        object_reuse: bool = False,
    ) -> None:
        """`check` refuses a block for the operators chained here; exchanges check what they send themselves. `rounded` comes
        before both, so that an exchange finds the keys that its receiver will find."""
        self._check, self._rounded = check, rounded
        self._shared = object_reuse
        self.chained: list[Operator] = []
        self.chained_sides: dict[str, list[Operator]] = {}
        self.routers: list[Router] = []
        self.side_routers: dict[str, list[Router]] = {}

    def block(self, block: Block) -> None:
        if self._rounded is not None:
            block = self._rounded(block)
        if self.chained and self._check is not None:
            self._check(block)
        self._deliver(block, self.chained, self.routers)

    def side(self, tag: str, block: Block) -> None:
        self._deliver(block, self.chained_sides.get(tag, ()), self.side_routers.get(tag, ()))

    def _deliver(self, block: Block, operators: Sequence[Operator], routers: Sequence[Router]) -> None:
        others = len(operators) + len(routers)
        for operator in operators:
            others -= 1
            operator.process(0, self._copy(block) if others else block)
        for router in routers:
            others -= 1
            router.route(self._copy(block) if others else block)

    def _copy(self, block: Block) -> Block:
        if self._shared or isinstance(block, Columns):
            return block
        values = own_all(block.values)
        return block if values is block.values else Rows(values, block.timestamps)

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
