"""Alarms wake a run at one time of the wall clock, and clock gaps are detected."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dayfly.embedded import alarms
from dayfly.embedded.alarms import JUMP_MS, PAUSE_MS, Alarms, ClockGap, ClockGaps

NOW = 1_000_000


class Loop:
    """Records timers."""

    def __init__(self) -> None:
        self.timers: list[SimpleNamespace] = []

    def call_later(self, delay, call, *given):
        timer = SimpleNamespace(delay=delay, call=lambda: call(*given), cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer


@pytest.fixture
def bench(monkeypatch):
    """Alarms over a scripted loop and clock."""
    found = SimpleNamespace(loop=Loop(), now=NOW, rung=[])
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found.loop)
    monkeypatch.setattr(alarms, "now_ms", lambda: found.now)
    found.alarms = Alarms(found.rung.append)
    return found


@pytest.mark.parametrize(("at", "delay"), [(NOW + 250, 0.251), (NOW, 0.001), (NOW - 5, 0.001)])
def test_alarm_fires_just_after_its_time(bench, at, delay):
    """The alarm fires a little late, so that the time has certainly come."""
    bench.alarms.set("u", at)
    [timer] = bench.loop.timers
    assert timer.delay == pytest.approx(delay)
    timer.call()
    assert bench.rung == ["u"]
    bench.alarms.reset()
    assert len(bench.loop.timers) == 1, "it has rung"


@pytest.mark.parametrize("then", [NOW + 3, 0])
def test_last_alarm_of_a_run_replaces_earlier_ones(bench, then):
    bench.alarms.set("v", NOW + 5)
    bench.alarms.set("u", NOW + 5)
    bench.alarms.set("u", then)
    assert [timer.cancelled for timer in bench.loop.timers[:2]] == [False, True]
    assert len(bench.loop.timers) == (3 if then else 2)


def test_postponed_alarm_fires_only_at_its_last_time(bench):
    for at in (NOW + 5, NOW + 2_005, NOW + 1_005):
        bench.alarms.set("u", at)
    [early] = bench.loop.timers
    assert not early.cancelled
    bench.now += 6
    early.call()
    assert bench.rung == []
    _, last = bench.loop.timers
    assert last.delay == pytest.approx(1.0)
    bench.now += 1_000
    last.call()
    assert bench.rung == ["u"]


def test_postponed_alarm_can_be_cancelled_and_moved_forward(bench):
    for at in (NOW + 5, NOW + 2_005, NOW + 3):
        bench.alarms.set("u", at)
    late, forward = bench.loop.timers
    assert (late.cancelled, forward.cancelled) == (True, False)
    assert forward.delay == pytest.approx(0.004)
    bench.alarms.set("u", NOW + 9)
    bench.alarms.set("u", 0)
    assert forward.cancelled
    bench.alarms.reset()
    assert len(bench.loop.timers) == 2


def test_alarms_are_rescheduled_after_a_clock_jump(bench):
    bench.alarms.set("u", NOW + 3_000)
    bench.now += 2_000
    bench.alarms.reset()
    before, anew = bench.loop.timers
    assert (before.cancelled, anew.cancelled) == (True, False)
    assert anew.delay == pytest.approx(1.001)


def test_stop_cancels_all_alarms(bench):
    for uid in ("u", "v"):
        bench.alarms.set(uid, NOW + 5)
    bench.alarms.stop()
    assert all(timer.cancelled for timer in bench.loop.timers)


class TestGaps:
    @pytest.fixture
    def time(self, monkeypatch):
        """Two scripted clocks: the offset of the wall clock, and the monotonic clock."""
        found = SimpleNamespace(offset=5_000, now=100)
        clocks = SimpleNamespace(monotonic_ns=lambda: found.now * 1_000_000)
        monkeypatch.setattr(alarms, "time", clocks)
        monkeypatch.setattr(alarms, "now_ms", lambda: found.now + found.offset)
        return found

    @pytest.mark.parametrize(
        ("offset", "now", "ms"),
        [
            (JUMP_MS, 0, JUMP_MS),
            (-JUMP_MS, 0, -JUMP_MS),
            (JUMP_MS - 1, 0, None),
            (1 - JUMP_MS, PAUSE_MS - 1, None),
            (0, PAUSE_MS, PAUSE_MS),
            (JUMP_MS, PAUSE_MS, JUMP_MS),
        ],
    )
    def test_clock_jump_or_silence_is_reported_until_acknowledged(self, time, offset, now, ms):
        gaps = ClockGaps()
        time.offset += offset
        time.now += now
        gap = gaps.find()
        assert gap == (None if ms is None else ClockGap(ms, time.offset, time.now))
        if gap is not None:
            assert gaps.find() == gap
            gaps.resolve(gap)
            assert gaps.find() is None

    def test_regular_checks_report_no_silence(self, time):
        gaps = ClockGaps()
        for _ in range(3):
            time.now += PAUSE_MS - 1
            assert gaps.find() is None

    def test_slewed_clock_counts_as_jump_at_the_threshold(self, time):
        gaps = ClockGaps()
        time.offset += JUMP_MS - 1
        assert gaps.find() is None
        time.offset += 1
        assert gaps.find() == ClockGap(JUMP_MS, time.offset, time.now)
