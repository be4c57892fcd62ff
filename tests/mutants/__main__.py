"""`make mutants`: try every sabotage, print which test noticed, fail if one went unnoticed."""

from __future__ import annotations

import argparse

from tests.mutants.mutants import MUTANTS
from tests.mutants.sabotage import try_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="names, or parts of names; all without")
    only = parser.parse_args().only
    chosen = [mutant for mutant in MUTANTS if not only or any(part in mutant.name for part in only)]
    missed = 0
    for trial in try_all(chosen):
        missed += not trial.caught
        word = "caught" if trial.caught else "MISSED"
        print(f"{word}  {trial.mutant.name:<58} {trial.seconds:5.0f} s  {trial.by}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    raise SystemExit(bool(missed) or not chosen)


if __name__ == "__main__":
    main()
