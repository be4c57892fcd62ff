"""The overlay: retry, incremental snapshot and folding are one mechanism."""

from __future__ import annotations

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


def test_deleting_what_this_epoch_added_leaves_nothing() -> None:
    table = OverlayTable()
    table.put("a", 1)
    table.delete("a")
    assert table.get("a") is MISSING
    assert table.delta() == {}
