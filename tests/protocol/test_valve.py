"""The combined watermark of many channels."""

from __future__ import annotations

from penstock.protocol.events import MIN_WATERMARK
from penstock.protocol.valve import WatermarkValve


def test_a_channel_that_joins_later_holds_the_watermark_where_it_is() -> None:
    valve: WatermarkValve[str] = WatermarkValve(["a"])
    assert valve.advance("a", 900) == 900
    valve.add("b")
    assert valve.advance("a", 1000) is None
    assert valve.advance("b", 950) == 950
    assert valve.watermark == 950


def test_a_channel_back_from_idleness_is_left_out_until_it_has_caught_up() -> None:
    valve: WatermarkValve[str] = WatermarkValve(["a", "b"])
    valve.advance("a", 10)
    assert valve.set_idle("b", True) == 10
    valve.set_idle("b", False)
    assert valve.advance("a", 20) == 20, "b is behind and does not count yet"
    assert valve.advance("b", 25) is None
    assert valve.advance("a", 30) == 25, "now it does"


def test_restoring_does_not_let_a_fast_channel_pass_a_slow_one() -> None:
    valve: WatermarkValve[str] = WatermarkValve(["fast", "slow"])
    valve.advance("fast", 1000)
    valve.advance("slow", 900)
    restored: WatermarkValve[str] = WatermarkValve()
    restored.restore(valve.snapshot())
    assert restored.watermark == 900
    assert restored.watermark_of("fast") == 1000


def test_with_every_channel_idle_the_furthest_watermark_is_released() -> None:
    valve: WatermarkValve[str] = WatermarkValve(["a", "b"])
    valve.advance("a", 10)
    assert valve.watermark == MIN_WATERMARK
    valve.set_idle("b", True)
    assert valve.set_idle("a", True) is None
    assert (valve.watermark, valve.idle) == (10, True)
