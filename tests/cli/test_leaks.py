"""`dayfly leaks` with scripted answers of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from tests.cli.fake_server import Fake, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.command import Cli


@pytest.fixture
def fake(cli: Cli) -> Iterator[Fake]:
    """A scripted server whose address and key are in the home."""
    found = Fake()
    with serving(found) as url:
        cli.home.mkdir()
        (cli.home / "url").write_text(url + "\n")
        (cli.home / "key").write_text("s3cret\n")
        (cli.home / "key").chmod(0o600)
        yield found


def finding(verdict: str = "orphan", **changes: Any) -> dict[str, Any]:
    name = {"id": "0" * 26, "name": "item", "reason": "its run has ended", "plugin": "item@1.0.0"}
    return {"verdict": verdict, **name, "deletable": verdict == "orphan", **changes}


def check(*findings: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return a check as the server describes it."""
    known = {
        "number": 1, "sweeping": False, "listedAt": "2026-01-01T00:00:00.000Z", "error": "", "counts": {},
        "findings": list(findings), "plan": "", "left": 0, "deleted": [], "applied": "",
        "appliedPlan": "", "appliedNumber": 0,
    }  # fmt: skip
    spec = {"cluster": "local", "plugin": "item"}
    return {"name": "items", "plugin": "item@1.0.0", "spec": spec, "status": known | status}


def test_leak_that_is_not_shown_fails_the_check(cli: Cli, fake: Fake):
    fake.say("GET", "leakchecks", [check(finding("foreign"), counts={"foreign": 1, "missing": 2})])
    done = cli("leaks", "--check", "-o", "junit")
    (suite,) = ET.fromstring(done.out)
    assert (done.code, suite.get("failures"), len(suite.findall("testcase/failure"))) == (1, "1", 1)
    assert "2 more leaks are not shown" in cli("leaks").err


def test_leak_has_its_sandbox_and_creator(cli: Cli, fake: Fake):
    owner = {"sandbox": "shop", "cluster": "local", "createdBy": "alice"}
    fake.say("GET", "leakchecks", [check(finding(**owner), finding(name="other"), counts={"orphan": 2})])
    (first, second) = (line.split() for line in cli("leaks").out.splitlines()[-2:])
    assert first[:6] == ["items", "orphan", "item", "item@1.0.0", "shop", "alice"]
    assert "shop" not in second
    assert "created for the sandbox shop by alice" in cli("leaks", "-o", "junit").out


def test_plan_of_too_many_orphans_says_so(cli: Cli, fake: Fake):
    fake.say("GET", "leakchecks", [check(finding(), counts={"orphan": 1_001})])
    done = cli("leaks", "--plan", "plan.json")
    assert "too much for a plan" in done.err
    assert "deletes 0 resources" in done.err


def test_check_that_waits_for_a_person_names_the_commands(cli: Cli, fake: Fake):
    fake.say("GET", "leakchecks", [check(finding(), counts={"orphan": 1}, plan="w", left=1)])
    assert "dayfly leaks items --plan plan.json" in cli("leaks", "-o", "json").err


def test_plan_counts_the_resources_that_it_deletes(cli: Cli, fake: Fake):
    two = finding(), finding(name="other")
    fake.say("GET", "leakchecks", [check(*two, counts={"orphan": 2}, plan="w")])
    assert "deletes 1 resource to plan.json" in cli("leaks", "--plan", "plan.json").err


def test_apply_waits_for_the_sweep_that_has_its_plan(cli: Cli, fake: Fake):
    fake.say("GET", "leakchecks", [check(finding(), counts={"orphan": 1}, plan="w")])
    assert cli("leaks", "--plan", "plan.json").code == 0
    before = {"applied": "done", "appliedPlan": "w"}
    fake.say(
        "GET",
        "leakchecks/items",
        check(number=1, appliedNumber=1, **before),
        check(number=2, appliedNumber=1, **before),
        check(number=3, appliedNumber=3, appliedPlan="x", applied="refused"),
        check(number=4, appliedNumber=4, deleted=["0" * 26], **before),
    )
    fake.say("POST", "leakchecks/items/sweep", check())
    done = cli("leaks", "--apply", "plan.json")
    assert (done.code, "deleted 1 resource." in done.err + done.out) == (0, True)
    assert ("POST", "/api/v2/orgs/local/leakchecks/items/sweep", {"plan": "w"}) in fake.asked
