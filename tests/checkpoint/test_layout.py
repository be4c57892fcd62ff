from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint import layout
from penstock.checkpoint.storage import LocalStorage


def test_checkpoints_are_ordered_by_number_not_by_text() -> None:
    paths = [layout.checkpoint_manifest(n) for n in (9, 10, 100, 1)]
    assert layout.completed_checkpoints(paths) == [1, 9, 10, 100]


def test_only_a_manifest_makes_a_checkpoint() -> None:
    paths = [
        "checkpoints/chk-3/map-0-a.state",
        "checkpoints/chk-04/manifest.json",
        "checkpoints/chk-5/manifest.json.bak",
        "checkpoints/chk-x/manifest.json",
        "other/checkpoints/chk-6/manifest.json",
        "checkpoints/chk-7/manifest.json",
    ]
    assert layout.completed_checkpoints(paths) == [7]


def test_state_files_know_their_checkpoint_and_manifests_are_none() -> None:
    name = layout.state_name("window", 3, "a1")
    assert name == "window-3-a1.state"
    assert layout.checkpoint_of_state(layout.checkpoint_state(12, name)) == 12
    assert layout.checkpoint_of_state(layout.checkpoint_manifest(12)) is None
    assert layout.checkpoint_of_state(f"{layout.SAVEPOINTS}/s/{name}") is None


def test_epochs_and_generations_are_found_by_number() -> None:
    paths = [layout.epoch_plan(10), layout.epoch_plan(9), layout.generation(2), layout.generation(11), layout.JOB]
    assert layout.planned_epochs(paths) == [9, 10]
    assert layout.generations(paths) == [2, 11]


@given(first=st.text(max_size=300), second=st.text(max_size=300))
def test_different_uids_have_different_names(first: str, second: str) -> None:
    assert (layout.file_name_part(first) == layout.file_name_part(second)) == (first == second)


@given(vertex=st.text(), subtask=st.integers(0, 100), attempt=st.text())
def test_any_uid_gives_a_name_with_three_parts_that_storage_takes(vertex: str, subtask: int, attempt: str) -> None:
    name = layout.state_name(vertex, subtask, attempt)
    assert name.isascii()
    assert len(name) < 200
    assert name.split("-")[1] == str(subtask)
    assert name.count("-") == 2
    assert layout.checkpoint_of_state(layout.checkpoint_state(1, name)) == 1


def test_a_hostile_uid_stays_inside_the_folder(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    path = layout.checkpoint_state(1, layout.state_name("../../x", 0, "/etc"))
    storage.put(path, b"1")
    assert storage.list("checkpoints/chk-1") == [path]
