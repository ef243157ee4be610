"""Outcomes of steps with a Terraform state."""

import msgspec
import pytest

from dayfly.execute.state.head import Head, LockHolder, Refusal, Version
from dayfly.execute.state.outcome import resource_of, with_state
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Running, Sealed
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Result, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="team", name="box", uid="u")
OK, EXIT = Result(outcome="succeeded"), Result(outcome="failed", reason=Reason.EXIT_CODE, message="exit code 1")
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED)
READ = ("r/destroy",)


def unit(name, *, state=True):
    return Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh", state=state))


CREATE = (unit("apply"), unit("plain", state=False))
PLAN = seal((Lifecycle(target=TARGET, resource="r", pre_start=CREATE, post_stop=(unit("destroy"),)),))
TWO = seal(
    (
        Lifecycle(
            target=TARGET,
            resource="r",
            pre_start=(unit("apply"), unit("more")),
            post_stop=(unit("destroy"), unit("rest")),
        ),
    )
)


def ledger(**units):
    return Run(uid="u", target=TARGET, plan="", units={f"r/{name}": record for name, record in units.items()})


def done(outcome="succeeded", reason="", attempt=1):
    return UnitRecord(attempt=attempt, state=State.DONE, outcome=outcome, reason=reason)


def version(by="apply", **more):
    holder = LockHolder(unit=f"r/{by}", attempt=1)
    return Version(**{"number": 1, "at": 0, "holder": holder, "size": 1, "digest": "d", "blob": "b"} | more)


def refused(by="apply", attempt=1):
    return Refusal(holder=LockHolder(unit=f"r/{by}", attempt=attempt), at=0, message="the reason")


def judged(name, head, run, result=OK, *, plan=PLAN, kind=Ended, **peers):
    """Return reason and message of an ended step, as both hosts record them."""
    facts = {(f"r/{each}", 1): kind(result=told) for each, told in {**peers, name: result}.items()}
    found = with_state(plan, run, (f"r/{name}", 1), facts, head)
    assert type(found) is kind
    assert (found.result.outcome == "failed") == bool(found.result.reason)
    return found.result.reason, found.result.message


@pytest.mark.parametrize("kind", [Ended, Sealed])
def test_create_with_a_stored_state_succeeds(kind):
    assert judged("apply", Head(versions=(version(),)), ledger(apply=ALIVE), kind=kind) == ("", "")


@pytest.mark.parametrize("result", [OK, EXIT])
def test_create_with_refused_state_fails_and_says_why(result):
    head = Head(versions=(version(),), refused=(refused(),))
    reason, message = judged("apply", head, ledger(apply=ALIVE), result)
    assert reason == Reason.STATE_REFUSED
    assert message.startswith("its state was refused: the reason")
    assert message.endswith(result.message)


def test_refused_state_keeps_the_reason_of_a_killed_step():
    result = Result(outcome="failed", reason=Reason.CANCELLED, message="was asked to end")
    reason, message = judged("apply", Head(refused=(refused(),)), ledger(apply=ALIVE), result)
    assert (reason, message) == (Reason.CANCELLED, "its state was refused: the reason; was asked to end")


@pytest.mark.parametrize("versions", [(), (version(), version(number=2, blob=""))], ids=["none", "deleted"])
def test_create_that_leaves_no_state_fails(versions):
    reason, message = judged("apply", Head(versions=versions), ledger(apply=ALIVE))
    assert reason == Reason.STATE_MISSING
    assert 'an empty `backend "http" {}` block' in message


def test_failed_create_without_state_keeps_its_reason():
    assert judged("apply", Head(), ledger(apply=ALIVE), EXIT) == (Reason.EXIT_CODE, "exit code 1")


@pytest.mark.parametrize(
    ("other", "peers", "reason"),
    [(ALIVE, {}, ""), (done(), {}, Reason.STATE_MISSING), (ALIVE, {"more": OK}, Reason.STATE_MISSING)],
    ids=["other runs", "other ended", "both end at once"],
)
def test_missing_state_fails_only_the_last_create_step(other, peers, reason):
    found, _ = judged("apply", Head(), ledger(apply=ALIVE, more=other), plan=TWO, **peers)
    assert found == reason


def test_delete_after_a_stored_state_succeeds():
    head = Head(versions=(version(resources=2), version("destroy", number=2)), readers=READ)
    assert judged("destroy", head, ledger(apply=done(), destroy=ALIVE)) == ("", "")


@pytest.mark.parametrize("versions", [(), (version(),)], ids=["no state", "a part"])
def test_delete_after_a_refused_create_is_not_done(versions):
    run = ledger(apply=done("failed", Reason.STATE_REFUSED), destroy=ALIVE)
    reason, message = judged("destroy", Head(versions=versions, refused=(refused(),)), run)
    assert reason == Reason.STATE_REFUSED
    assert message == (
        "state was refused: the reason (of r/apply, attempt 1); delete any remaining objects by hand, then abandon the sandbox"
    )


def test_delete_after_a_retried_create_ignores_old_refusals():
    run = ledger(apply=done(attempt=2), destroy=ALIVE)
    assert judged("destroy", Head(versions=(version(),), refused=(refused(),), readers=READ), run) == ("", "")


def test_delete_after_create_without_state_is_not_done():
    run = ledger(apply=done("failed", Reason.STATE_MISSING), destroy=ALIVE)
    reason, message = judged("destroy", Head(versions=(version("destroy"),)), run)
    assert (reason, message.split(",")[0]) == (Reason.STATE_MISSING, "r/apply left no state")


def test_delete_after_a_create_that_failed_early_is_done():
    run = ledger(apply=done("failed", Reason.EXIT_CODE), destroy=ALIVE)
    assert judged("destroy", Head(readers=READ), run) == ("", "")


@pytest.mark.parametrize("versions", [(), (version(),)], ids=["no state", "an empty state"])
@pytest.mark.parametrize("readers", [(), ("r/apply",)])
def test_delete_that_never_read_the_state_is_not_done(versions, readers):
    """With another backend, `terraform destroy` deletes nothing and succeeds."""
    run = ledger(apply=done("failed", Reason.EXIT_CODE), destroy=ALIVE)
    reason, message = judged("destroy", Head(versions=versions, readers=readers), run)
    assert reason == Reason.STATE_NOT_READ
    assert 'an empty `backend "http" {}` block' in message


@pytest.mark.parametrize("reader", ["r/destroy", "r/rest"])
def test_one_delete_step_of_several_must_read_the_state(reader):
    run = ledger(apply=done(), more=done(), destroy=ALIVE, rest=done())
    assert judged("destroy", Head(readers=(reader,)), run, plan=TWO) == ("", "")
    assert judged("destroy", Head(), run, plan=TWO)[0] == Reason.STATE_NOT_READ


@pytest.mark.parametrize(("count", "text"), [(1, "1 resource that"), (3, "3 resources that")])
def test_delete_that_leaves_resources_in_the_state_fails(count, text):
    run = ledger(apply=done(), destroy=ALIVE)
    reason, message = judged("destroy", Head(versions=(version(resources=count),)), run)
    assert reason == Reason.STATE_NOT_EMPTY
    assert text in message
    assert "`dayfly state show box r`" in message


@pytest.mark.parametrize(("rest", "reason"), [(ALIVE, ""), (done(), Reason.STATE_NOT_EMPTY)])
def test_left_resources_fail_only_the_last_delete_step(rest, reason):
    run = ledger(apply=done(), more=done(), destroy=ALIVE, rest=rest)
    assert judged("destroy", Head(versions=(version(resources=1),)), run, plan=TWO)[0] == reason


@pytest.mark.parametrize(
    ("name", "record", "fact", "resource"),
    [
        ("apply", ALIVE, Ended(result=OK), "r"),
        ("apply", ALIVE, Running(since=0), ""),
        ("plain", ALIVE, Ended(result=OK), ""),
        ("gone", ALIVE, Ended(result=OK), ""),
        ("apply", done(), Ended(result=OK), ""),
        ("apply", msgspec.structs.replace(ALIVE, attempt=2), Ended(result=OK), ""),
    ],
)
def test_head_is_read_only_for_ends_of_steps_with_state(name, record, fact, resource):
    assert resource_of(PLAN, ledger(**{name: record}), (f"r/{name}", 1), fact) == resource
