"""The command: the story of one seed, or a summary of many."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from penstock.testing.simulate.run import Outcome, simulate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell the story of this run")
    parser.add_argument("--without", default="", help="with --seed: deeds to leave undone, 3,5")
    parser.add_argument("--shrink", action="store_true", help="with --seed: which deeds does the failure need?")
    parser.add_argument("--seeds", help="A..B, the last one included")
    parser.add_argument("--count", type=int, default=200, help="so many seeds, from 0 or from A on")
    parser.add_argument("--stop-at-first", action="store_true", help="end with the first run that is not exact")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        _one(arguments.seed, {int(number) for number in arguments.without.split(",") if number}, arguments.shrink)
        return
    first, _, last = (arguments.seeds or "0").partition("..")
    end = int(last) + 1 if last else int(first) + arguments.count
    _many(range(int(first), end), stop_at_first=arguments.stop_at_first)


def _one(seed: int, without: set[int], shrink: bool) -> None:
    outcome = simulate(seed, without=without)
    if shrink and not outcome.exact:
        for deed in _planned(outcome):
            shorter = simulate(seed, without={*without, deed})
            if not shorter.exact and _alike(shorter, outcome):
                without, outcome = {*without, deed}, shorter
    print("\n".join(outcome.story))
    if without:
        print(f"without deeds {','.join(map(str, sorted(without)))}")
    raise SystemExit(not outcome.exact)


def _alike(one: Outcome, other: Outcome) -> bool:
    """Both lose, or both repeat, or neither."""
    return [bool(n) for n in (one.verdict.lost, one.verdict.duplicated)] == [
        bool(n) for n in (other.verdict.lost, other.verdict.duplicated)
    ]


def _planned(outcome: Outcome) -> list[int]:
    planned = [line for line in outcome.story if line.startswith("  planned: deed ")]
    return [int(line.removeprefix("  planned: deed ").partition(":")[0]) for line in planned]


def _many(seeds: range, *, stop_at_first: bool) -> None:
    started, fired, bad, done = time.monotonic(), Counter[str](), list[Outcome](), 0
    for seed in seeds:
        outcome = simulate(seed)
        done += 1
        fired += outcome.fired
        if not outcome.exact:
            bad.append(outcome)
            print(outcome, flush=True)
            if stop_at_first:
                break
    for fault, count in sorted(fired.items()):
        print(f"{count:8d}  {fault}")
    print(
        f"{done} seeds in {time.monotonic() - started:.0f} s: lost {sum(o.verdict.lost for o in bad)}, "
        f"duplicated {sum(o.verdict.duplicated for o in bad)}, not exact: {len(bad)}"
    )
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
