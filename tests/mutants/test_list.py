"""The list of mutants is kept: each still fits the product. Whether each is caught takes `make mutants`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.sabotage import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_tests_that_are_there(mutant: Mutant) -> None:
    assert mutant.source().count(mutant.old) == 1
    assert mutant.old != mutant.new
    for test in mutant.tests:
        file, *names = test.split("::")
        assert (ROOT / file).exists(), test
        assert all(f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8") for name in names), (
            test
        )


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
