"""`make mutants`: try every sabotage, print which test noticed, fail if one went unnoticed. `--simulate`: print which seed did."""

from __future__ import annotations

import argparse

from tests.mutants.mutants import MUTANTS
from tests.mutants.sabotage import simulate_all, try_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="names, or parts of names; all without")
    parser.add_argument("--simulate", action="store_true", help="simulated runs in place of tests")
    parser.add_argument("--seeds", type=int, default=2000, help="with --simulate: how many at most")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.only or any(part in m.name for part in arguments.only)]
    if arguments.simulate:
        for mutant in [mutant for mutant in chosen if mutant.out_of_reach]:
            print(f"------  {mutant.name:<70} {mutant.out_of_reach}")
        chosen = [mutant for mutant in chosen if not mutant.out_of_reach]
    missed = 0
    for trial in simulate_all(chosen, arguments.seeds) if arguments.simulate else try_all(chosen):
        missed += not trial.caught
        word = "caught" if trial.caught else "MISSED"
        print(f"{word}  {trial.mutant.name:<70} {trial.seconds:5.0f} s  {trial.by}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    raise SystemExit(bool(missed) or not chosen)


if __name__ == "__main__":
    main()
