"""When a status is written: what people wait for at once, mere progress seldom enough that it costs little."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.pod.read import stamp
from dayfly.operator.cluster.objects import WrittenStatus
from dayfly.operator.status.status_throttle import (
    SETTLED_MS,
    SILENT_MS,
    TROUBLE_SETTLED_MS,
    TROUBLE_SILENT_MS,
    StatusThrottle,
)

NEWS, NONE = ("Creating",), ()


def said(at: int) -> StatusThrottle:
    told = StatusThrottle()
    told.note(NEWS, ("0/9",), at)
    return told


def test_news_are_said_at_once():
    assert said(0).wait(("Ready",), ("0/9",), 1) is None


def test_the_same_is_not_said_twice():
    assert said(0).wait(NEWS, ("0/9",), 10**9) == 0.0


def test_progress_after_silence_is_said_at_once():
    assert said(0).wait(NEWS, ("1/9",), SILENT_MS) is None


def test_progress_that_has_settled_is_said():
    told = said(0)
    assert told.wait(NEWS, ("1/9",), 1_000) == SETTLED_MS / 1000 + 0.001
    assert told.wait(NEWS, ("1/9",), 1_000 + SETTLED_MS - 1) == 0.002
    assert told.wait(NEWS, ("1/9",), 1_000 + SETTLED_MS) is None


def test_progress_that_goes_on_is_said_twice_a_minute():
    """A chain of short steps: a thing each second, and one write for all of it."""
    told, writes = said(0), []
    for second in range(1, 91):
        if told.wait(NEWS, (f"{second}/99",), second * 1000) is None:
            told.note(NEWS, (f"{second}/99",), second * 1000)
            writes.append(second)
    assert writes == [30, 60, 90]


def test_short_steps_write_no_progress_before_the_end():
    """So its further steps cost what the protocol needs, and no more, also where each takes twice a second."""
    told = said(0)
    assert all(told.wait(NEWS, (f"{step}/8",), step * 2_000) for step in range(1, 9))


def test_progress_that_ends_a_silence_is_said_at_once_each_time():
    """Steps that take their time are told of when they end."""
    told = said(0)
    for number in range(1, 4):
        at = number * (SILENT_MS + 1)
        assert told.wait(NEWS, (f"{number}/9",), at) is None
        told.note(NEWS, (f"{number}/9",), at)


def test_trouble_is_said_soon_also_where_it_goes_on():
    told, writes = said(0), []
    assert told.wait(NEWS, ("no node",), 500, troubled=True) == TROUBLE_SETTLED_MS / 1000 + 0.001
    for tenth in range(5, 101, 5):
        if told.wait(NEWS, (f"try {tenth}",), tenth * 100, troubled=True) is None:
            told.note(NEWS, (f"try {tenth}",), tenth * 100)
            writes.append(tenth * 100)
    assert writes == [TROUBLE_SILENT_MS, 2 * TROUBLE_SILENT_MS, 3 * TROUBLE_SILENT_MS]


def test_progress_settles_again_after_each_write():
    told = said(0)
    told.wait(NEWS, ("1/9",), 4_000)
    told.note(NEWS, ("1/9",), 5_000)
    told.wait(NEWS, ("2/9",), 6_000)
    assert told.wait(NEWS, ("2/9",), 6_000 + SETTLED_MS - 1) is not None
    assert told.wait(NEWS, ("2/9",), 6_000 + SETTLED_MS) is None


def test_a_condition_holds_since_it_changed():
    told = StatusThrottle()
    first = told.hold(False, "ResourcesPending", 1_000)
    assert told.hold(False, "ResourcesPending", 9_000) == first
    assert told.hold(True, "Ready", 9_000) != first


@pytest.mark.parametrize(("since", "kept"), [("then", "then"), ("", stamp(7_000))])
def test_condition_time_of_an_earlier_process_is_kept(since, kept):
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}] if since else []
    spoken = msgspec.convert({"ready": True, "reason": "r", "message": "m", "conditions": conditions}, WrittenStatus)
    found = StatusThrottle.found(spoken, NEWS, ("0/9",))
    assert found.hold(True, "r", 7_000) == kept
    assert found.wait(NEWS, ("0/9",), 7_000) == 0.0
    assert found.hold(False, "r", 8_000) == stamp(8_000)


@pytest.mark.parametrize(
    ("version", "shown", "is_so"),
    [("9", ("b",), True), ("9", ("a",), False), ("5", ("b",), False), ("4", ("b",), False), ("10", ("b",), True)],
)
def test_newer_different_status_counts_as_overwritten(version, shown, is_so):
    told = StatusThrottle()
    assert not told.overwritten(version, shown), "nothing was written"
    told.version, told.shown = "5", ("a",)
    assert told.overwritten(version, shown) is is_so
