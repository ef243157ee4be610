"""The steps of a pool member in the report of its holder."""

from __future__ import annotations

import pytest
from tests.embedded import documents as doc
from tests.embedded.pool_documents import pooled, template

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.holder_report import HeldMember, retried_attempts, with_members
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import Phase, Run, State, UnitRecord

DOCUMENTS = template([doc.step("make", backoff_ms=1000), doc.step("seed")], [doc.step("drop"), doc.step("wipe")])
DOCUMENT = pooled("db", DOCUMENTS)
(ACQUISITION,) = find_acquisitions((DOCUMENT,)).values()
HOLDER = Run(
    uid="a",
    target=doc.TARGET,
    plan="",
    units={
        "db/make": UnitRecord(attempt=1, state=State.CLAIMED, kind="acquire", ref="m"),
        "db/release": UnitRecord(attempt=1, state=State.CLAIMED, kind="acquire", ref="m"),
    },
)


def failed(attempt: int) -> UnitRecord:
    return UnitRecord(attempt=attempt, state=State.DONE, kind="exec", outcome="failed")


def member(phase: Phase = Phase.OPEN, **records: UnitRecord) -> Run:
    units = {f"postgres/{name}": record for name, record in records.items()}
    return Run(uid="m", target=doc.TARGET, plan="", phase=phase, units=units)


def reported(name: str, event: str, found: HeldMember | None) -> UnitReport:
    unit = UnitReport(id=name, resource="db", name="x", event=event, kind="acquire", state="running", attempt=1)
    report = RunReport(uid="a", phase=Phase.OPEN, ready=False, reason="", message="", done=0, total=1, units=(unit,))
    (made,) = with_members(report, HOLDER, (DOCUMENT,), lambda _ref: found).units
    return made


def test_stand_in_has_the_attempt_of_the_members_step():
    made = reported("db/make", "preStart", HeldMember("p-1", "p", member(make=failed(3), seed=failed(9))))
    assert (made.member, made.pool, made.attempt, made.state) == ("p-1", "p", 3, "retrying")


def test_release_counts_the_attempts_of_all_delete_steps():
    run = member(Phase.CLOSED, make=failed(1), drop=failed(2), wipe=failed(3))
    made = reported("db/release", "postStop", HeldMember("p-1", "", run))
    assert (made.attempt, made.state) == (5, "retrying")


def test_create_step_of_a_closed_member_does_not_wait_for_a_retry():
    assert (
        reported("db/make", "preStart", HeldMember("p-1", "", member(Phase.CLOSED, make=failed(1)))).state == "running"
    )


@pytest.mark.parametrize("found", [None, HeldMember("p-1")])
def test_unit_of_an_unknown_member_keeps_its_own_attempt(found):
    made = reported("db/make", "preStart", found)
    assert (made.attempt, made.state) == (1, "running")


def test_retry_of_a_stand_in_names_the_attempt_of_its_step():
    run = member(make=failed(2), seed=failed(1))
    assert retried_attempts(ACQUISITION, {"db/make": 2, "cache/make": 2}, run) == {"postgres/make": 2}


def test_retry_of_an_older_attempt_is_ignored():
    assert retried_attempts(ACQUISITION, {"db/make": 1}, member(make=failed(2))) == {}
    assert retried_attempts(ACQUISITION, {"db/release": 4}, member(Phase.CLOSED, drop=failed(5))) == {}


def test_retry_of_a_release_names_all_delete_steps():
    run = member(Phase.CLOSED, make=failed(1), drop=failed(2), wipe=failed(1))
    assert retried_attempts(ACQUISITION, {"db/release": 3}, run) == {"postgres/drop": 2, "postgres/wipe": 1}
