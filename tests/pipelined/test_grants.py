"""How much a source is granted, and when: plain numbers in, decisions out."""

from __future__ import annotations

from penstock.engine.messages import SourceRanges
from penstock.functions.connectors import SplitRange
from penstock.runtime.pipelined.grants import FIRST_RECORDS, Grants, target_s


def part(records: int) -> SourceRanges:
    return SourceRanges(ranges=(SplitRange(split="0", ordinal=0, start=0, end=records),), finished=False)


def grants(subtasks: int = 2, most: int | None = None) -> Grants:
    return Grants({"source": subtasks}, 0.005, most)


def test_a_source_has_at_most_two_grants_that_not_all_its_subtasks_have_read() -> None:
    given = grants()
    for _ in range(2):
        assert given.askable(0.0) == ["source"]
        given.gave(["source"], {"source": part(FIRST_RECORDS)}, 0.0)
    assert given.askable(1.0) == []
    given.read("source", 0, 0.01)
    given.read("source", 0, 0.01)
    assert given.askable(1.0) == [], "the slower subtask has read none"
    given.read("source", 1, 0.01)
    assert given.askable(1.0) == ["source"]


def test_what_is_read_fast_is_followed_by_more_and_what_takes_long_by_less() -> None:
    given = grants(subtasks=1)
    given.gave(["source"], {"source": part(FIRST_RECORDS)}, 0.0)
    given.read("source", 0, 0.001)
    assert given.most(["source"]) == {"source": 2 * FIRST_RECORDS}
    given.gave(["source"], {"source": part(2 * FIRST_RECORDS)}, 0.0)
    given.read("source", 0, 1.0)
    assert given.most(["source"]) == {"source": 2 * FIRST_RECORDS // 20}, "what can be read in 50 ms"


def test_the_slowest_subtask_decides_how_long_a_grant_took() -> None:
    given = grants(subtasks=2)
    given.gave(["source"], {"source": part(FIRST_RECORDS)}, 0.0)
    given.read("source", 1, 1.0)
    given.read("source", 0, 0.001)
    assert given.most(["source"]) == {"source": FIRST_RECORDS // 20}


def test_a_grant_that_was_not_full_says_nothing_about_speed() -> None:
    given = grants(subtasks=1)
    given.gave(["source"], {"source": part(10)}, 0.0)
    given.read("source", 0, 0.0001)
    assert given.most(["source"]) == {"source": FIRST_RECORDS}


def test_a_source_says_how_many_records_it_gave_whatever_its_positions_are() -> None:
    """Positions in a Parquet file are row groups: 25 of them are half a million records."""
    groups = SplitRange(split="0", ordinal=0, start=0, end=25)
    given = grants(subtasks=1)
    given.gave(["source"], {"source": SourceRanges(ranges=(groups,), finished=False, records=FIRST_RECORDS)}, 0.0)
    assert given.askable(0.0) == ["source"], "there is more"
    given.read("source", 0, 0.001)
    assert given.most(["source"]) == {"source": 2 * FIRST_RECORDS}


def test_a_grant_that_ends_at_a_border_of_the_sources_is_as_good_as_full() -> None:
    given = grants(subtasks=1)
    given.gave(["source"], {"source": part(FIRST_RECORDS // 2 + 1)}, 0.0)
    assert given.askable(0.0) == ["source"]
    given.read("source", 0, 0.001)
    assert given.most(["source"]) == {"source": 2 * FIRST_RECORDS}


def test_a_source_with_more_is_asked_at_once_and_one_without_ever_more_rarely() -> None:
    given = grants(subtasks=1)
    given.gave(["source"], {"source": part(FIRST_RECORDS)}, 0.0)
    assert given.askable(0.0) == ["source"], "there is more"
    given.gave(["source"], {"source": part(10)}, 0.0)
    given.read("source", 0, 0.01)
    assert given.askable(0.004) == []
    assert given.askable(0.005) == ["source"]
    waits = []
    for _ in range(20):
        given.gave(["source"], {}, 1.0)
        waits.append(given.next_s(1.0))
    assert waits == sorted(waits)
    assert waits[-1] <= 0.05 + 1e-9


def test_hundreds_of_subtasks_are_granted_so_much_at_once_that_the_driver_has_time_to_tell_them() -> None:
    assert target_s(2) == 0.05
    many = 400
    given = grants(subtasks=many)
    for _ in range(30):
        given.gave(["source"], {"source": part(given.most(["source"])["source"])}, 0.0)
        for subtask in range(many):
            given.read("source", subtask, 1e-9 * given.most(["source"])["source"])
    assert given.most(["source"])["source"] > 50_000_000, "as much as they can read in that time"
    given.gave(["source"], {"source": part(10)}, 1.0)
    assert given.askable(1.0 + 0.9 * target_s(many)) == [], "a slow stream is not asked more often either"
    assert given.askable(1.0 + 1.1 * target_s(many)) == ["source"]


def test_the_job_may_bound_what_is_granted_at_once() -> None:
    assert grants(most=7).most(["source"]) == {"source": 7}
