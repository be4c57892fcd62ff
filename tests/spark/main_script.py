"""A user's script as it comes: record, state and function classes all defined in __main__. Started by a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor


@dataclass
class Order:
    user: str
    amount: int


@dataclass
class Total:
    orders: int = 0
    amount: int = 0


class Totals(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: Order, ctx: Any) -> Iterator[tuple[str, Total]]:
        total = self.total.value() or Total()
        total.orders += 1
        total.amount += value.amount
        self.total.update(total)
        yield value.user, total


if __name__ == "__main__":
    config = Configuration()
    config.set_string("penstock.job.dir", sys.argv[1])
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.max-records", "4")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    orders = env.from_collection([Order(f"u{n % 3}", n) for n in range(12)])
    with orders.key_by(lambda order: order.user).process(Totals()).execute_and_collect() as results:
        last = {user: (total.orders, total.amount) for user, total in results}
    print(sorted(last.items()))
