"""The overlay: retry, incremental snapshot and folding are one mechanism."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

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


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers()),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
        st.tuples(st.sampled_from(["fold", "checkpoint", "rollback"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(operations)
def test_any_history_equals_a_plain_dict_and_its_deltas_rebuild_it(history: list[tuple[str, int, int]]) -> None:
    table = OverlayTable()
    confirmed: dict[Any, Any] = {}
    current: dict[Any, Any] = {}
    stored: dict[Any, Any] = {}  # what a restore from the checkpoints' deltas gives
    at_checkpoint: dict[Any, Any] = {}
    for what, key, value in history:
        if what == "put":
            table.put(key, value)
            current[key] = value
        elif what == "delete":
            table.delete(key)
            current.pop(key, None)
        elif what == "rollback":
            table.rollback()
            current = dict(confirmed)
        else:
            if what == "checkpoint":
                for k, v in table.delta().items():
                    if v is TOMBSTONE:
                        stored.pop(k, None)
                    else:
                        stored[k] = v
                at_checkpoint = dict(current)
            table.fold(checkpointed=what == "checkpoint")
            confirmed = dict(current)
        assert dict(table.items()) == current
        assert len(table) == len(current)
        assert stored == at_checkpoint
