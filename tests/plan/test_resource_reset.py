"""A reset is possible or refused according to the report of the sandbox."""

import msgspec
import pytest

from dayfly.plan.resource_reset import ResetRefusedError, UnknownResourceError, member_to_replace
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase


def unit(name, resource="db", **more):
    fields = {"event": "preStart", "kind": "acquire", "state": "succeeded", "member": "p-1", **more}
    return UnitReport(id=f"{resource}/{name}" if resource else name, resource=resource, name=name, **fields)


MAKE, SEED = unit("make"), unit("seed", reads=("db/make",))
UNDO = unit("revoke", event="postStop", kind="exec", state="waiting", reads=("db/make",))


def report(*units, **more):
    return RunReport(
        uid="u", phase=Phase.OPEN, ready=True, reason="Ready", message="", done=1, total=1, units=units, **more
    )


def test_resource_whose_create_steps_all_ran_in_a_member_is_reset():
    assert member_to_replace(report(MAKE, SEED, UNDO), "db") == "p-1"


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (report(unit("make", kind="exec", member="")), "pool"),
        (report(MAKE, unit("grant", kind="exec")), "db/grant"),
        (report(MAKE, unit("copy", resource="other", kind="exec", reads=("db/make",))), "other/copy"),
        (report(MAKE, unit("notify", resource="", kind="exec", reads=("db/make",))), "notify"),
        (report(MAKE, unit("seed", state="running")), "db/seed"),
        (report(MAKE, closed=EndRequest(at=1, reason="Deleted")), "deleted"),
        (report(unit("parent.start", member="", parent="server-1")), "parent"),
        (report(unit("make", member="")), "damaged"),
    ],
    ids=["cold", "own step", "other resource", "hook", "not ready", "ending", "shared parent", "damaged member"],
)
def test_other_resource_is_refused_with_the_cause(found, named):
    with pytest.raises(ResetRefusedError, match=named):
        member_to_replace(found, "db")


def test_unknown_resource_is_refused_with_the_known_ones():
    with pytest.raises(UnknownResourceError, match='"db"'):
        member_to_replace(report(MAKE), "cache")
    with pytest.raises(UnknownResourceError, match="none"):
        member_to_replace(msgspec.structs.replace(report(), units=()), "cache")
