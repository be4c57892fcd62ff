"""What a declared type costs: values that are converted and checked where they are made, against values that are left as they are.

    python -m benchmarks.declared_types [--records 300000]

Alone: one conversion of a block, for records that are of the type already and for those that must be made so. In a job (embedded
runtime, one process): source, map, key_by, map; without types, and with one on every operator. Both alternate, best of five.
Processor time is counted, so that other programs matter less, and garbage is collected as rarely as in a worker of Spark's.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Row, Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.program import DiscardingSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.records import Rows
from penstock.records.typed import Typed

ROUNDS = 5
RESULTS = Path(__file__).parent / "results" / "declared_types.md"
INTRODUCTION = """\
# What a declared type costs

`python -m benchmarks.declared_types`: processor time for each record that an operator with a declared type gives, and of a whole
job in one process, with and without types. Best of five rounds, in turn; the garbage collector is set as in workers.

"""
NAMED = Types.ROW_NAMED(["user", "amount", "page"], [Types.STRING(), Types.LONG(), Types.STRING()])


def named(number: int) -> Row:
    row = Row(f"user-{number % 997}", number, "index.html")
    row.set_field_names(["user", "amount", "page"])
    return row


CASES: list[tuple[str, TypeInformation, Callable[[int], Any]]] = [
    ("LONG", Types.LONG(), lambda n: n),
    ("STRING", Types.STRING(), lambda n: f"user-{n % 997}"),
    ("FLOAT, rounded to 32 bits", Types.FLOAT(), lambda n: n / 7),
    ("TUPLE(STRING, LONG)", Types.TUPLE([Types.STRING(), Types.LONG()]), lambda n: (f"user-{n % 997}", n)),
    ("ROW of three fields, from a Row", NAMED, named),
    ("ROW of three fields, from a tuple", NAMED, lambda n: (f"user-{n % 997}", n, "index.html")),
    ("LIST(LONG) of four", Types.LIST(Types.LONG()), lambda n: [n, n + 1, n + 2, n + 3]),
    ("MAP(STRING, LONG) of two", Types.MAP(Types.STRING(), Types.LONG()), lambda n: {"a": n, "b": n + 1}),
]


def best(work: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took)


def convert(typed: Typed, blocks: list[Rows]) -> None:
    for block in blocks:
        typed.block(block)


def alone(records: int) -> list[tuple[str, float, float]]:
    """For each type: nanoseconds a record, in blocks of 10,000 and of 10."""
    found = []
    for name, kind, make in CASES:
        typed, values = Typed(kind, "benchmark"), [make(n) for n in range(records)]
        costs = []
        for size in (10_000, 10):
            some = values if size > 10 else values[: records // 10]
            blocks = [Rows(some[at : at + size]) for at in range(0, len(some), size)]
            costs.append(best(partial(convert, typed, blocks)) / len(some) * 1e9)
        found.append((name, costs[0], costs[1]))
    return found


def job(records: int, *, declared: bool) -> float:
    """Records a second of processor time."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded", "penstock.epoch.max-records": "50000"})
    )
    env.set_parallelism(1)
    pair = Types.TUPLE([Types.STRING(), Types.LONG()]) if declared else None
    numbers = env.from_sequence(1, records)
    clicks = numbers.map(lambda n: (f"user-{n % 997}", n), output_type=pair)
    counted = clicks.key_by(lambda click: click[0], key_type=Types.STRING() if declared else None)
    counted.map(lambda click: (click[0], click[1] + 1), output_type=pair).sink_to(DiscardingSink())
    started = time.process_time()
    env.execute("declared" if declared else "not declared")
    return records / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.declared_types", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    records = parser.parse_args().records
    gc.set_threshold(100_000, 20, 50)  # as penstock/runtime/pipelined/worker.py
    lines = ["| type | blocks of 10,000 | blocks of 10 |", "| --- | --- | --- |"]
    lines += [f"| {name} | {large:,.0f} ns | {small:,.0f} ns |" for name, large, small in alone(records)]
    job(records // 10, declared=True)
    rates = [(job(records, declared=False), job(records, declared=True)) for _ in range(ROUNDS)]
    plain, typed = max(rate for rate, _ in rates), max(rate for _, rate in rates)
    ratios = sorted(after / before for before, after in rates)
    lines += [
        "",
        f"The job, in records a second of a processor: {plain:,.0f} without types, {typed:,.0f} with one on every operator: "
        f"{typed / plain:.2f} of it "
        f"(rounds in turn: {', '.join(f'{ratio:.2f}' for ratio in ratios)}).",
    ]
    print("\n".join(lines))
    RESULTS.write_text(INTRODUCTION + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
