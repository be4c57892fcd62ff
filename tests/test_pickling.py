"""Checkpoints of earlier releases name classes by the modules they were in."""

from __future__ import annotations

import pickle

import pytest

from penstock.checkpoint import unpack_committables
from penstock.connectors.files.commit import StagedFile
from penstock.connectors.program import CollectedValues, PrintedLines


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
