"""The request of a killed sender may be carried out until the sender's time limit."""

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.webhook.webhook_sender import unit

from dayfly.execute.webhook.read import mark_doubtful
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Running, Sealed, Unclear
from dayfly.spec.lifecycle import Lifecycle, Target, UnitRetry
from dayfly.spec.run import Result, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
URL = "https://server.example/"
KILLED = Result(outcome="failed", reason=Reason.SIGNAL, message="killed by signal 9", started_at=1_000, ended_at=2_000)
CLAIMED = UnitRecord(attempt=1, state=State.CLAIMED, kind="webhook", claimed_at=500)
RUN_MS = 60_000
OVER = KILLED.started_at + RUN_MS


def judged(fact, *, made=None, record=CLAIMED, now=OVER - 1, name="db/make"):
    made = made or unit(URL, run_ms=RUN_MS)
    drop = unit(URL, "DELETE", name="drop", idempotent=True)
    plan = seal((Lifecycle(target=TARGET, resource="db", pre_start=(made,), post_stop=(drop,)),))
    run = Run(uid="u", target=TARGET, plan="", units={name: record})
    [found] = mark_doubtful(plan, run, {(name, 1): fact}, now).values()
    return found


@pytest.mark.parametrize("kind", [Ended, Sealed])
@pytest.mark.parametrize(
    "reason", [Reason.SIGNAL, Reason.EXIT_CODE, Reason.OOM_KILLED, Reason.RESULT_LOST, Reason.NO_RECORD], ids=str
)
def test_request_of_a_killed_sender_is_open_until_its_deadline(kind, reason):
    found = judged(kind(result=msgspec.structs.replace(KILLED, reason=reason)))
    assert isinstance(found, Unclear)
    assert (found.since, found.reason, found.dead_by) == (2_000, Reason.RESPONSE_LOST, OVER)
    assert found.message == (
        "its sender was killed before the response (killed by signal 9); the request may still be carried out"
    )


def test_deadline_counts_from_the_claim_without_a_start():
    found = judged(Ended(result=msgspec.structs.replace(KILLED, started_at=0)), now=2_000)
    assert found.dead_by == 500 + RUN_MS


@pytest.mark.parametrize(
    "how",
    [
        {"now": OVER},
        {"fact": Running(since=1)},
        {"fact": Ended(result=msgspec.structs.replace(KILLED, reason=Reason.UNEXPECTED_STATUS))},
        {"fact": Ended(result=msgspec.structs.replace(KILLED, reason=Reason.RUN_DEADLINE))},
        {"fact": Ended(result=Result(outcome="succeeded"))},
        {"made": msgspec.structs.replace(unit(URL), retry=UnitRetry(idempotent=True, limit=3))},
        {"made": doc.step("make", "true")},
        {"name": "db/drop"},
        {"name": "db/another"},
        {"record": msgspec.structs.replace(CLAIMED, attempt=2)},
        {"record": msgspec.structs.replace(CLAIMED, state=State.DONE)},
    ],
    ids=[
        "over",
        "alive",
        "said",
        "had its time",
        "good",
        "sent again",
        "script",
        "delete",
        "unknown",
        "former",
        "recorded",
    ],
)
def test_other_ends_are_unchanged(how):
    fact = how.pop("fact", Ended(result=KILLED))
    assert judged(fact, **how) is fact
