"""The overlay: retry, incremental snapshot and folding are one mechanism."""

from __future__ import annotations

import random

from penstock.state.keyspace import NestedMaps
from penstock.state.overlay import MISSING, TOMBSTONE, OverlayTable


def test_a_rollback_forgets_exactly_the_epoch() -> None:
    table = OverlayTable()
    table.put("a", 1)
    table.fold(checkpointed=True)
    table.put("a", 2)
    table.put("b", 3)
    table.rollback()
    assert dict(table.items()) == {"a": 1}


def test_a_value_changed_in_place_does_not_leak_into_confirmed_state() -> None:
    table = OverlayTable()
    table.put("a", [1])
    table.fold(checkpointed=True)
    table.get("a").append(2)  # never updated
    assert table.get("a") == [1]
    changed = table.get("a")
    changed.append(3)
    table.put("a", changed)
    table.rollback()
    assert table.get("a") == [1]


def test_the_delta_is_what_changed_since_the_last_checkpoint_not_since_the_last_epoch() -> None:
    table = OverlayTable()
    table.put("a", 1)
    table.fold(checkpointed=True)
    table.put("b", 2)
    table.fold(checkpointed=False)
    table.delete("a")
    assert table.delta() == {"b": 2, "a": TOMBSTONE}


def test_a_fold_of_a_maps_changes_leaves_what_setting_each_would() -> None:
    rng = random.Random(3)
    bases = [NestedMaps(), NestedMaps()]
    for _ in range(20):
        changes = {(rng.randint(0, 4), rng.randint(0, 30)): rng.randint(0, 9) for _ in range(rng.randint(0, 30))}
        bases[0].update(changes if rng.randint(0, 1) else list(changes.items()))
        for flat, value in changes.items():
            bases[1][flat] = value
        assert list(bases[0].items()) == list(bases[1].items())
        assert len(bases[0]) == len(bases[1]) == len(list(bases[0]))


def test_deleting_what_this_epoch_added_leaves_nothing() -> None:
    table = OverlayTable()
    table.put("a", 1)
    table.delete("a")
    assert table.get("a") is MISSING
    assert table.delta() == {}
