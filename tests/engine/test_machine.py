"""What a process tells of its machine."""

from __future__ import annotations

import pytest

from penstock.engine import machine


def test_a_process_has_less_memory_than_its_machine_and_is_asked_at_most_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = machine.figures()
    assert 0 < told["memory_bytes"] < told["host_memory_bytes"]
    assert 0 < told["host_free_bytes"] <= told["host_memory_bytes"]
    assert told["cpus"] > 0
    assert machine.figures() is told
    monkeypatch.setattr(machine, "_told_at", float("-inf"))
    assert machine.figures() is not told
