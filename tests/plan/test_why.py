"""`why`: the chain of obstacles of a report, with the next step at its end."""

import pytest

from dayfly.plan import reason_catalog
from dayfly.plan.reason_catalog import Subject
from dayfly.plan.reasons import Reason
from dayfly.plan.why import (
    Obstacle,
    ended_attempts_with_logs,
    explain_dropped_records,
    explain_no_retry,
    find_obstacles,
    units_without_output,
)
from dayfly.spec.identity import resource_id
from dayfly.spec.report import RunReport, UnitReport, with_reason
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import LogInfo

DELETED = EndRequest(at=5, reason="Deleted", message="deleted by ada", by="ada")


def unit(name: str, state: str, **fields: object) -> UnitReport:
    return UnitReport(**{"id": name, "name": name, "event": "preStart", "kind": "exec", "state": state, **fields})


def report(*units: UnitReport, reason: str = "ResourcesPending", **fields: object) -> RunReport:
    told = {"uid": "r", "phase": Phase.OPEN, "ready": False, "reason": reason, "message": "m", "done": 0, "total": 1}
    return RunReport(units=units, born_at=3, **{**told, **fields})


def asked(*units: UnitReport, **fields: object) -> Obstacle:
    found = find_obstacles(report(*units, **fields), "box")
    assert found is not None
    return found


def leaf(*units: UnitReport, **fields: object) -> Obstacle:
    (only,) = asked(*units, **fields).because
    while only.because:
        (only,) = only.because
    return only


def test_ready_run_has_no_blocker():
    assert find_obstacles(report(reason=Reason.READY, ready=True), "box") is None


def test_cleaned_run_states_why_it_ended_and_by_whom():
    over = {"phase": Phase.CLEANED, "message": "nothing is left"}
    told = asked(reason=Reason.CLEANED, closed=DELETED, **over)
    assert (told.subject, told.reason, told.since, told.next) == ("sandbox box", Reason.CLEANED, 5, "")
    assert told.message == "it has ended: deleted by ada by ada; nothing is left"
    expired = EndRequest(at=7, reason=Reason.EXPIRED, message="its time to live has ended")
    told = asked(reason=Reason.CLEANED, closed=expired, **over)
    assert told.message == "it has ended: its time to live has ended; nothing is left"
    assert asked(reason=Reason.CLEANED, **over).message == "it has ended; nothing is left"


GIVEN_UP = EndRequest(at=9, reason=Reason.ABANDONED, message="its machine burnt", by="ann")
OVER = {"phase": Phase.ABANDONED, "reason": Reason.ABANDONED, "abandon": GIVEN_UP, "closed": DELETED}


def test_abandoned_run_names_author_reason_and_leftovers():
    told = find_obstacles(report(**OVER), "box", left=("db/make", "db/seed", "warm"))
    assert (told.subject, told.reason, told.since) == ("sandbox box", Reason.ABANDONED, 9)
    assert told.message == "its cleanup was abandoned by ann: its machine burnt"
    assert told.next == "check whether these still exist, and remove them by hand"
    found = [(each.subject, each.reason, each.message) for each in told.because]
    assert found == [
        ("db", "LeftoversPossible", f"created by db/make, db/seed (DAYFLY_RESOURCE_ID={resource_id('r', 'db')})"),
        ("warm", "LeftoversPossible", f"created by warm (DAYFLY_RESOURCE_ID={resource_id('r', '')})"),
    ]


def test_leftovers_in_a_pool_member_name_the_member():
    made = unit("db/make", "succeeded", event="preStart", started_at=5, member="small-3")
    told = find_obstacles(report(made, **OVER), "box")
    assert [each.message for each in told.because] == ["created by db/make (in the pool member small-3)"]


def test_abandoned_run_of_an_agent_names_no_resource_ids():
    told = find_obstacles(report(**OVER), "box", left=("db/make",), ids=False)
    assert [each.message for each in told.because] == ["created by db/make"]


def test_abandoned_run_states_whether_anything_may_be_left():
    none = find_obstacles(report(**OVER), "box", left=())
    assert (none.message.endswith("; no create step ran"), none.next, none.because) == (True, "", ())
    unknown = find_obstacles(report(**OVER), "box")
    assert unknown.message.endswith("; it is not known whether anything is left")
    assert unknown.next


def test_abandoned_run_names_units_that_still_run():
    make = unit("db/make", "unknown", resource="db", started_at=4, reason="NodeLost", message="may have run")
    drop = unit("db/drop", "waiting", resource="db", event="postStop")
    told = asked(make, drop, **{**OVER, "phase": Phase.CLOSED})
    assert [(each.subject, each.reason) for each in told.because] == [
        ("db/make", "NodeLost"),
        ("db", "LeftoversPossible"),
    ]


def test_abandoned_run_without_its_request_states_the_message():
    told = asked(reason=Reason.ABANDONED, message="cleanup was given up: by hand")
    assert "cleanup was given up: by hand" in told.message


@pytest.mark.parametrize(("abandoned", "reason"), [(True, Reason.ABANDONED), (False, Reason.CLEANED)])
def test_forgotten_run_states_how_it_ended(abandoned, reason):
    told = explain_dropped_records("box", abandoned=abandoned, ended_at=9)
    assert (told.subject, told.reason, told.since) == ("sandbox box", reason, 9)
    assert "has dropped" in told.message


def test_the_top_is_the_sandbox_since_its_birth_or_its_deletion():
    top = asked(unit("db/make", "running"))
    assert (top.subject, top.reason, top.since) == ("sandbox box", "ResourcesPending", 3)
    assert asked(closed=DELETED, phase=Phase.CLOSED).since == 5


def test_waiting_unit_is_listed_above_its_cause():
    (waiting,) = asked(
        unit("db/make", "running", reason=Reason.RUNNING, message="attempt 1 has been running for 2 s"),
        unit("db/seed", "waiting", reason=Reason.WAITING_FOR_INPUT, waits_on=("db/make",)),
    ).because
    assert (waiting.subject, waiting.next) == ("db/seed", "")
    (running,) = waiting.because
    assert running.next == "watch it with `dayfly logs box db make -f`"


WAITS = [
    *(reason for of in (Subject.WAIT, Subject.HOLD, Subject.IMAGE) for reason in reason_catalog.SECTIONS[of]),
    "Forbidden",
    "",
]


@pytest.mark.parametrize("reason", WAITS)
@pytest.mark.parametrize(("event", "state"), [("postStop", "waiting"), ("postStop", "running"), ("start", "running")])
def test_each_wait_of_a_closing_run_has_advice(reason, event, state):
    found = leaf(unit("db/drop", state, event=event, reason=reason), closed=DELETED, phase=Phase.CLOSED)
    assert found.next
    assert "fix the plugin" not in found.next
    assert "apply" not in found.next


@pytest.mark.parametrize("reason", sorted({*reason_catalog.SECTIONS[Subject.RUN]} - {Reason.CLEANED}))
def test_each_reason_of_a_closing_run_has_advice(reason):
    found = find_obstacles(report(reason=reason, closed=DELETED, phase=Phase.CLOSED), "box")
    assert found is None or found.next


def test_unit_without_a_message_shows_its_state():
    found = leaf(unit("db/make", "waiting"))
    assert (found.reason, found.message) == ("waiting", "waiting")


def test_units_that_wait_for_each_other_are_met_once():
    found = asked(unit("a", "waiting", waits_on=("b",)), unit("b", "waiting", waits_on=("a",)))
    assert [each.subject for each in found.because[0].because] == ["b"]
    assert found.because[0].because[0].because == ()


def test_a_failure_says_its_reason_once():
    failed = leaf(unit("db/make", "failed", reason="ExitCode", message="exit code 3", started_at=4))
    assert (failed.reason, failed.message) == ("ExitCode", "exit code 3")
    assert failed.next.startswith("read its log with `dayfly logs box db make`, fix the plugin")


def test_unit_that_never_ran_is_not_referred_to_a_log():
    refused = leaf(unit("db/make", "failed", reason="InputTooLarge", message="input a has 70000 bytes"))
    assert refused.next.startswith("see its message (it never ran, so it has no log), fix the plugin")
    again = leaf(unit("db/make", "retrying", reason=Reason.WAITING_TO_RETRY, message="attempt 1 never ran (Stalled)"))
    assert (
        again.next
        == "see its message (it never ran, so it has no log); it is retried by itself, or at once with `dayfly retry box`"
    )


def test_silent_unit_is_not_referred_to_its_log():
    failed = unit("db/make", "failed", started_at=5, message="exit code 1")
    assert "read its log with `dayfly logs box db make`" in leaf(failed).next
    found = find_obstacles(report(failed), "box", units_without_output={"db/make"})
    assert found is not None
    assert found.because[0].next.startswith("see its message (it printed nothing), fix the plugin")


def test_log_size_is_needed_only_for_failed_attempts():
    """Only units whose attempt has ended and may have a log, with the attempt's number."""
    units = (
        unit("failed", "failed", started_at=5, attempt=1),
        unit("again", "retrying", started_at=5, attempt=3),
        unit("refused", "failed", attempt=1),
        unit("made", "succeeded", started_at=5, attempt=1),
        unit("runs", "running", started_at=5, attempt=1),
    )
    assert ended_attempts_with_logs(report(*units)) == {"failed": 1, "again": 3}


def test_sealed_empty_log_has_no_output():
    """An earlier attempt's log does not help."""
    logs = [
        LogInfo(unit="silent", attempt=1, size=9, sealed=True),
        LogInfo(unit="silent", attempt=2, size=0, sealed=True),
        LogInfo(unit="runs", attempt=1, size=0, sealed=False),
        LogInfo(unit="printed", attempt=1, size=1, sealed=True),
    ]
    assert units_without_output(logs) == {"silent"}


def test_the_advice_for_a_fork_names_it_whole():
    silent = leaf(unit("fork:shop/app", "waiting", event="start", kind="fork", reason=Reason.NOT_ANSWERING))
    assert silent.next.endswith("`dayfly logs box fork:shop/app`")


def test_only_a_cleanup_that_is_stuck_may_be_given_up():
    told = {"reason": Reason.WAITING_TO_RETRY, "message": "failed", "started_at": 6}
    drop = unit("db/drop", "retrying", event="postStop", **told)
    closing = {"closed": DELETED, "phase": Phase.CLOSED}
    assert "abandon" not in leaf(drop, reason=Reason.DELETING, **closing).next
    stuck = leaf(drop, reason=Reason.CLEANUP_STUCK, **closing).next
    assert "`dayfly logs box db drop`" in stuck
    assert "`dayfly abandon box --reason ...`" in stuck


def test_an_image_that_is_missing_at_the_cleanup_has_a_way_out():
    """The step continues when the image exists. If certainly nothing was created, the cleanup may be abandoned."""
    create = unit("db/make", "running", reason="ImagePullBackOff", message="attempt 1 is starting: Back-off")
    assert "fix the plugin" in leaf(create).next
    assert "abandon" not in leaf(create).next
    drop = unit("db/drop", "running", event="postStop", reason="ErrImagePull", message="attempt 1 is starting: no")
    advice = leaf(drop, reason=Reason.DELETING, closed=DELETED, phase=Phase.CLOSED).next
    assert "continues by itself" in advice
    assert "`dayfly abandon box --reason ...`" in advice


def test_unknown_reason_has_no_advice():
    assert leaf(unit("db/make", "waiting", reason="SomethingOfTheHost")).next == ""


def test_unsupported_field_is_the_reason_once_all_is_ready():
    told = find_obstacles(report(reason=Reason.READY, ready=True, unsupported=("virtual",)), "box")
    assert (told.subject, told.reason, told.because) == ("sandbox box", Reason.UNSUPPORTED, ())
    assert "virtual" in told.message
    pending = find_obstacles(report(unit("db/make", "running"), unsupported=("virtual",)), "box")
    assert pending.reason == "ResourcesPending"


def test_closing_run_lists_living_and_pending_units():
    """A closing run blocks on its stop units, and on create units that have not ended."""
    units = [
        unit("a", "running"),
        unit("b", "failed"),
        unit("c", "unknown"),
        unit("d", "waiting", event="preStop"),
        unit("e", "waiting", event="postStop"),
        unit("f", "running", event="start"),
        unit("g", "waiting", event="start"),
        unit("h", "succeeded", event="postStop"),
    ]
    found = asked(*units, closed=DELETED, phase=Phase.CLOSED)
    assert [each.subject for each in found.because] == ["a", "c", "d", "e", "f"]
    begun = asked(*units)
    assert [each.subject for each in begun.because] == ["a", "b", "c", "g"]


def test_unit_waiting_for_an_absent_one_is_a_cause():
    (only,) = asked(unit("a", "waiting", waits_on=("gone",))).because
    assert (only.subject, only.because) == ("a", ())


def test_unit_started_at_time_one_has_a_log():
    assert "dayfly logs" in leaf(unit("db/make", "failed", reason="ExitCode", started_at=1)).next


def test_unit_that_cannot_be_retried_gives_its_state():
    told = report(unit("db/make", "failed"), unit("db/drop", "failed", event="postStop"), unit("db/seed", "running"))
    assert explain_no_retry(told) == "nothing in it is waiting for a retry: m; delete the sandbox and apply it again"
    assert "never runs again in its sandbox; delete the sandbox" in explain_no_retry(told, "db/make")
    assert explain_no_retry(told, "db/drop") == "db/drop is not waiting for a retry: its state is failed"
    assert explain_no_retry(told, "db/seed") == "db/seed is not waiting for a retry: its state is running"


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("ExitCode", "exit code 3", "exit code 3"),
        ("Signal", "signal 9 (SIGKILL)", "signal 9 (SIGKILL)"),
        ("waiting", "waiting", "waiting"),
        ("OOMKilled", "needed more memory", "OOMKilled: needed more memory"),
        ("", "m", "m"),
        ("Deleting", "", "Deleting"),
    ],
)
def test_reason_that_the_message_repeats_is_left_out(reason, message, said):
    assert with_reason(reason, message) == said
