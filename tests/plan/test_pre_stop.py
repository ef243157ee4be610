"""Whether all preStop work is done."""

import msgspec
import pytest
from tests.plan.builders import ABANDON, after, born, claim, close, done, failed, record
from tests.plan.test_closing import HOOK, REMOVED

from dayfly.plan.closed_run import is_past_pre_stop
from dayfly.spec.run import Phase

STARTED = msgspec.structs.replace(born(HOOK), started_at=1)
CLOSED = after(HOOK, STARTED, close())


@pytest.mark.parametrize(
    ("run", "past"),
    [
        (STARTED, False),
        (CLOSED, False),
        (after(HOOK, CLOSED, claim("drain")), False),
        (done(HOOK, CLOSED, "drain"), True),
        (after(HOOK, CLOSED, claim("drain"), record("drain", failed())), False),
        (after(HOOK, born(HOOK), close()), True),
        (msgspec.structs.replace(CLOSED, abandon=ABANDON), True),
        (msgspec.structs.replace(CLOSED, closed=REMOVED), True),
        (msgspec.structs.replace(CLOSED, phase=Phase.CLEANED), True),
        (msgspec.structs.replace(done(HOOK, STARTED, "drain"), abandon=ABANDON), False),
    ],
    ids=[
        "it is open",
        "closed",
        "at it",
        "done",
        "failed, and to be tried again",
        "it never started",
        "given up",
        "it lives on",
        "over",
        "open, with any intent",
    ],
)
def test_pre_stop_is_past_once_done_or_not_needed(run, past):
    assert is_past_pre_stop(HOOK, run) is past
