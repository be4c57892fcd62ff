from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Duration, Instant, Time


@given(st.integers(-(2**60), 2**60))
def test_an_instant_of_epoch_millis_gives_them_back_on_both_sides_of_the_epoch(millis: int) -> None:
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 1_000_000_000


def test_units_of_time_convert_to_milliseconds() -> None:
    assert Time.days(1) == Time.hours(24) == Time.minutes(1440) == Time.seconds(86400)
    assert Time.days(1).to_milliseconds() == 86_400_000
    assert str(Time.seconds(2)) == "2000 ms"


def test_units_of_durations_convert_to_milliseconds_rounding_towards_zero() -> None:
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440) == Duration.of_seconds(86400)
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert Duration.of_nanos(-1_999_999).to_millis() == -1
    assert Duration.of_millis(5).to_milliseconds() == 5


def test_equal_amounts_hash_alike_but_a_time_is_no_duration() -> None:
    assert len({Duration.of_seconds(1), Duration.of_millis(1000), Time.seconds(1), Time(1000)}) == 2
