"""Value state of a key, and of a key and a window: its steps are written out for keys, and have to come to the same."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.operators.runtime_context import keyed_state
from penstock.state.backend import NO_KEY, NoKeyError, OperatorState


@pytest.fixture(params=[False, True], ids=["of a key", "of a key and a window"])
def namespaced(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def _state(namespaced: bool) -> tuple[OperatorState, Any]:
    backend = OperatorState("op", 128)
    descriptor = ValueStateDescriptor("held", Types.PICKLED_BYTE_ARRAY())
    handle: Any = keyed_state(backend, descriptor, lambda: 0, namespaced=namespaced)
    handle.namespace = "window" if namespaced else None
    return backend, handle


def test_a_value_is_of_its_key_before_and_after_it_is_confirmed(namespaced: bool) -> None:
    backend, held = _state(namespaced)
    for key in ("a", "b"):
        backend.current_key = key
        assert held.value() is None
        held.update(key * 2)
    for _ in range(2):
        backend.current_key = "a"
        assert held.value() == "aa"
        backend.current_key = "b"
        assert held.value() == "bb"
        backend.fold(checkpointed=True)


def test_none_is_no_value_and_what_was_removed_stays_away(namespaced: bool) -> None:
    backend, held = _state(namespaced)
    backend.current_key = "a"
    held.update(1)
    backend.fold(checkpointed=True)
    held.update(None)
    assert held.value() is None
    backend.rollback()
    backend.current_key = "a"
    assert held.value() == 1
    held.clear()
    backend.fold(checkpointed=True)
    assert held.value() is None


def test_what_goes_in_and_what_comes_out_are_values(namespaced: bool) -> None:
    backend, held = _state(namespaced)
    backend.current_key = "a"
    given = [1]
    held.update(given)
    given.append(2)
    for _ in range(2):
        held.value().append(3)
        assert held.value() == [1]
        backend.fold(checkpointed=True)


@pytest.mark.parametrize("value", [1, [1], None])
def test_there_is_no_value_without_a_key(namespaced: bool, value: Any) -> None:
    backend, held = _state(namespaced)
    backend.current_key = "a"
    held.update(1)
    for _ in range(2):
        backend.current_key = NO_KEY
        with pytest.raises(NoKeyError, match="key_by"):
            held.value()
        with pytest.raises(NoKeyError, match="key_by"):
            held.update(value)
        backend.current_key = "a"
        assert held.value() == 1
        backend.fold(checkpointed=True)
