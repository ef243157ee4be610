"""Each ledger move becomes an entry of the history."""

import pytest
from tests.plan.builders import ABANDON, STOP, TARGET, claim, doubt, failed, record, succeeded, void

from dayfly.plan.actions import Bind, Close, Finish, GiveUp, Started, Stopped
from dayfly.plan.history import history_entries
from dayfly.spec.run import EndRequest, Phase, Run
from dayfly.spec.run_data import HistoryEntry

RUN = Run(uid="u", target=TARGET, plan="", seq=7, phase=Phase.CLEANED)


@pytest.mark.parametrize(
    ("move", "unit", "attempt", "reason", "message"),
    [
        (claim("db/make", 2), "db/make", 2, "", ""),
        (Bind(unit="db/make", attempt=2, ref="pod-uid"), "db/make", 2, "pod-uid", ""),
        (record("db/make", succeeded(), 2), "db/make", 2, "succeeded", ""),
        (record("db/make", failed(message="exit code 3"), 2), "db/make", 2, "ExitCode", "exit code 3"),
        (doubt("db/make", 2), "db/make", 2, "NodeLost", "its node is gone"),
        (void("db/make", 2), "db/make", 2, "NeverRan", "it never ran"),
        (Close(request=STOP), "", 0, "Deleted", "deleted by ada (by ada)"),
        (Close(request=EndRequest(at=0, reason="Expired", message="m")), "", 0, "Expired", "m"),
        (GiveUp(request=ABANDON), "", 0, "Forced", "the cloud account is gone (by ada)"),
        (Started(at=5), "", 0, "", ""),
        (Stopped(at=5), "", 0, "", ""),
        (Finish(at=5), "", 0, "cleaned", ""),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, (str, int)) else "",
)
def test_history_line_describes_its_move(move, unit, attempt, reason, message):
    assert list(history_entries(RUN, [move], 99)) == [
        HistoryEntry(seq=7, at=99, unit=unit, attempt=attempt, move=type(move).__name__, reason=reason, message=message)
    ]


def test_several_moves_have_lines_in_order():
    moves = [Close(request=STOP), Finish(at=5)]
    assert [line.move for line in history_entries(RUN, moves, 99)] == ["Close", "Finish"]
