"""Classes keep their place in what was stored, wherever they move in the code.

`tests/data/stored-names.txt` lists those of the last release whose objects may be in state or in committables, or that classes of
users' own scripts, which travel by value, may refer to. A class that moves gets a line in `penstock.pickling.MOVED`.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.checkpoint.manifest_file import unpack_committables
from penstock.connectors.files.rolling import StagedFile
from penstock.connectors.program import CollectedValues, PrintedLines
from penstock.datastream.window import TimeWindow
from penstock.pickling import MOVED, load_stored

NAMES = (Path(__file__).parents[1] / "data/stored-names.txt").read_text().split()


def reference(module: str, name: str) -> bytes:
    """A pickle, as another process would write it, that refers to a class by name."""
    encoded = [b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)]
    return b"\x80\x04" + encoded[0] + encoded[1] + b"\x93."


@pytest.mark.parametrize("stored", NAMES)
def test_a_class_that_was_stored_is_found_today(stored: str) -> None:
    module, name = stored.split(":")
    assert load_stored(reference(module, name)).__qualname__ == name


def test_what_was_never_there_is_still_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="windmill"):
        load_stored(reference("penstock.datastream.windmill", "TimeWindow"))
    with pytest.raises(AttributeError, match="NoWindow"):
        load_stored(reference("penstock.datastream.window.windows", "NoWindow"))


def test_an_object_of_a_class_that_moved_is_whole() -> None:
    written = pickle.dumps([TimeWindow(1, 2)], 3).replace(
        TimeWindow.__module__.encode(), b"penstock.datastream.window.windows"
    )
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(written)
    assert load_stored(written) == [TimeWindow(1, 2)]


@pytest.mark.parametrize(
    ("committable", "then"),
    [
        (
            StagedFile(job_id="j", epoch=3, staged=".staging/a", final="part-3-0.csv", size=3, rows=1),
            "penstock.connectors.file_commit",
        ),
        (CollectedValues(epoch=3, count=1, pickled=b"values"), "penstock.connectors.collect_sink"),
        (PrintedLines(epoch=3, lines=("a line",)), "penstock.connectors.print_sink"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_committables_of_a_release_that_had_their_class_elsewhere_are_found(committable: object, then: str) -> None:
    now = type(committable).__module__
    stored = pickle.dumps([committable], protocol=0).replace(f"c{now}\n".encode(), f"c{then}\n".encode())
    assert then.encode() in stored
    assert now.encode() not in stored
    assert unpack_committables(stored, sink="out") == [committable]


def test_every_line_of_the_table_is_needed() -> None:
    stored = {name.partition(":")[0] for name in NAMES}
    assert all(any(f"{module}.".startswith(f"{former}.") for module in stored) for former in MOVED)
