"""Facts of units of kind acquire, from the ledgers of a holder and of its member."""

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.pool_documents import pooled, template

from dayfly.execute.acquire.acquisition import find_acquisitions, find_template, template_of
from dayfly.execute.acquire.facts import Member, acquire_facts, acquire_objections, lost_member, needs_member
from dayfly.execute.acquire.members import AcquireProgress, is_free, join, leave, progress
from dayfly.plan.actions import Claim, Close, Record, Void
from dayfly.plan.sealed import seal
from dayfly.plan.transitions import apply
from dayfly.plan.world import Ended, Prepared, Running
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import MEMBER_TARGET, digest
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, OutputRecord, Phase, Result, Run

DOCUMENTS = template([doc.step("make", outputs=[("url", "/u")]), doc.step("seed", inputs=["url=make.url"])])
DOCUMENT = pooled("db", DOCUMENTS)
(ACQUISITION,) = find_acquisitions((DOCUMENT,)).values()
PLAN = seal((DOCUMENT,))
HOLDER = Run(uid="a", target=doc.TARGET, plan="")
STOP = EndRequest(at=7, reason="Deleted", message="asked")
OUTPUTS = {"url": OutputRecord(digest="d", size=1, attempt=1)}


def done(outcome="succeeded", **more):
    return Result(outcome=outcome, started_at=3, ended_at=4, **more)


def moved(run, *moves):
    return apply(run, moves, PLAN.creates)


def claim(unit, ref="m", at=5):
    return Claim(unit=unit, attempt=1, kind="acquire", ref=ref, at=at)


def recorded(unit, result):
    return (
        Claim(unit=unit, attempt=1, kind="exec", ref="boot", at=2),
        Record(unit=unit, attempt=1, result=result),
    )


def member(*moves, held=True, **more):
    run = Run(uid="m", target=msgspec.structs.replace(MEMBER_TARGET, name="p-1", uid="m"), plan="")
    joined = (join(HOLDER, "db", 1),) if held else ()
    return Member(uid="m", run=moved(run, *joined, *moves), **more)


MAKING = member()
READY = member(*recorded("postgres/make", done(outputs=OUTPUTS)), *recorded("postgres/seed", done()))
FAILED = member(*recorded("postgres/make", done("failed", reason="ExitCode", message="exit code 3")))
CLAIMED = moved(HOLDER, claim("db/make"))


def facts(run, known):
    return acquire_facts(run, ACQUISITION, known, 9)


def test_ready_member_is_claimed_with_its_results():
    made = Result(outcome="succeeded", started_at=9, ended_at=9, outputs=OUTPUTS)
    assert facts(HOLDER, READY)["db/make", 1] == Prepared(ref="m", result=made)
    assert facts(HOLDER, READY)["db/seed", 1].result.outcome == "succeeded"


def test_new_member_is_claimed_without_a_result():
    assert facts(HOLDER, Member(uid="m"))["db/make", 1] == Prepared(ref="m")


def test_release_of_a_run_without_a_member_names_none():
    assert facts(HOLDER, READY)["db/release", 1] == Prepared(ref="")
    assert facts(CLAIMED, MAKING)["db/release", 1] == Prepared(ref="m")


def test_stand_in_ends_as_the_step_of_the_member():
    assert facts(CLAIMED, MAKING)["db/make", 1] == Running(since=5)
    ended = facts(CLAIMED, READY)["db/make", 1]
    assert ended == Ended(result=Result(outcome="succeeded", started_at=5, ended_at=5, outputs=OUTPUTS))
    failed = facts(CLAIMED, FAILED)["db/make", 1].result
    assert (failed.outcome, failed.reason, failed.message) == ("failed", "ExitCode", "exit code 3")


def test_step_that_never_ran_for_good_fails_its_stand_in():
    voids = []
    for attempt in (1, 2, 3):
        voids.append(Claim(unit="postgres/make", attempt=attempt, ref="boot", at=2))
        voids.append(Void(unit="postgres/make", attempt=attempt, reason="CannotStart", message="no runner", at=3))
    failed = facts(CLAIMED, member(*voids))["db/make", 1].result
    assert (failed.outcome, failed.reason) == ("failed", "CannotStart")


def test_stand_in_has_the_wait_of_the_members_step():
    unit = UnitReport(
        id="postgres/make",
        name="make",
        event="preStart",
        kind="exec",
        state="waiting",
        reason="WaitingForSlot",
        message="waits",
    )
    waiting = member(report=lambda: report(unit))
    assert facts(CLAIMED, waiting)["db/make", 1] == Running(since=5, reason="WaitingForSlot", message="waits")


def report(*units):
    return RunReport(
        uid="m", phase=Phase.OPEN, ready=False, reason="Deleting", message="drops", done=0, total=1, units=units
    )


@pytest.mark.parametrize("left", [member(held=False), member(has_ended=True)], ids=["left", "ended"])
def test_cancelled_hold_ends_the_stand_in(left):
    closed = moved(CLAIMED, Close(request=STOP))
    assert facts(closed, left)["db/make", 1].result.reason == "Cancelled"


def releasing(*moves):
    return moved(CLAIMED, Close(request=STOP), claim("db/release"), *moves)


def test_release_ends_with_the_end_of_the_member():
    left = moved(MAKING.run, *leave(MAKING.run, HOLDER, 8))
    ending = Member(uid="m", run=left, report=report)
    said = Running(since=5, reason="Deleting", message="pool member p-1: drops")
    assert facts(releasing(), ending)["db/release", 1] == said
    gone = facts(releasing(), Member(uid="m", run=left, has_ended=True))["db/release", 1].result
    assert (gone.outcome, gone.message) == ("succeeded", "")


def test_release_of_an_abandoned_member_has_a_remark():
    run = msgspec.structs.replace(MAKING.run, abandon=STOP, phase=Phase.ABANDONED)
    gone = facts(releasing(), Member(uid="m", run=run, has_ended=True))["db/release", 1].result
    assert gone.outcome == "succeeded"
    assert "p-1 was abandoned (asked)" in gone.message


def test_unknown_member_blocks_until_its_holder_is_abandoned():
    lost = Member(uid="m", problem=lost_member("m", HOLDER))
    assert acquire_objections(ACQUISITION, lost)["db/release"].reason == "LedgerLost"
    assert ("db/seed", 1) not in facts(CLAIMED, lost)
    for run in (CLAIMED, releasing()):
        assert {fact.reason for fact in facts(run, lost).values()} == {"LedgerLost"}
        abandoned = msgspec.structs.replace(run, abandon=STOP)
        assert {fact.result.reason for fact in facts(abandoned, lost).values()} == {"LedgerLost"}


def test_abandoned_release_does_not_wait_for_its_member():
    abandoned = msgspec.structs.replace(releasing(), abandon=STOP)
    assert facts(abandoned, member(held=False))["db/release", 1].result.reason == "Cancelled"


def test_released_holder_needs_no_member():
    assert needs_member(HOLDER, ACQUISITION)
    units = ("db/make", "db/seed", "db/release")
    ended = [move for unit in units for move in (claim(unit), Record(unit=unit, attempt=1, result=done()))]
    assert not needs_member(moved(HOLDER, *ended), ACQUISITION)


@pytest.mark.parametrize(
    ("known", "state"),
    [(MAKING, AcquireProgress.CREATING), (READY, AcquireProgress.READY), (FAILED, AcquireProgress.FAILED)],
)
def test_progress_follows_the_create_steps(known, state):
    plan = template_of(DOCUMENTS).plan
    assert progress(plan, known.run) is state
    assert progress(plan, moved(known.run, *leave(known.run, HOLDER, 8))) is AcquireProgress.ENDING


def test_member_accepts_one_holder_and_leave_is_for_that_one():
    assert is_free(member(held=False).run)
    assert not is_free(MAKING.run)
    assert leave(MAKING.run, msgspec.structs.replace(HOLDER, uid="b"), 8) == ()
    assert leave(MAKING.run, HOLDER, 8, "cache") == ()
    left = moved(MAKING.run, *leave(MAKING.run, HOLDER, 8, "db"))
    assert (left.phase, left.closed.reason, is_free(left)) == (Phase.CLOSED, "Released", False)


def test_template_has_the_digest_of_the_members_run():
    assert ACQUISITION.template.digest == digest(DOCUMENTS)
    assert ACQUISITION.template.resource == "postgres"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (msgspec.structs.replace(DOCUMENT, template=()), "db/make: .* needs the template"),
        (msgspec.structs.replace(DOCUMENT, template=({"kind": "no"},)), "db: the template .* is invalid"),
        (
            msgspec.structs.replace(DOCUMENT, template=pooled("x", template([doc.step("other")])).template),
            "db/make: .* no step make",
        ),
    ],
    ids=["no template", "invalid", "unknown step"],
)
def test_document_that_does_not_match_its_template_is_refused(document, says):
    with pytest.raises(DocumentsRefusedError, match=says):
        find_template(document)
