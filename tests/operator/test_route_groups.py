"""RouteGroups applied with kubectl, over the fake API server and in virtual time."""

from __future__ import annotations

import pytest
from tests.kube.fake import Fault, Harm
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, Unit, World, live
from tests.selection import SELECTION

from dayfly.kube.objects import Key
from dayfly.operator.route_groups.extension import RouteGroupsExtension

GROUPS = f"/apis/{API}/namespaces/shop/routegroups"
STEPS = ("before", "warm", "drain", "report")
MATCH = {"label": {"key": "team", "value": "pay*"}}
MERGE = "application/merge-patch+json"


def step(name):
    return {"name": name, "script": "#!/bin/sh\n"}


HOOKS = {
    "runner": {"image": "busybox:1"},
    "hooks": dict(zip(("preStart", "postStart", "preStop", "postStop"), ([step(name)] for name in STEPS), strict=True)),
}


def apply(world, name="pay", namespace="shop", **spec):
    body = {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": name}, "spec": {"match": MATCH, **spec}}
    path = f"/apis/{API}/namespaces/{namespace}/routegroups"
    return world.ask("POST", path, body)["metadata"]["uid"]


def patch(world, body, name="pay"):
    world.ask("PATCH", f"{GROUPS}/{name}", body, MERGE)


def group(world, name="pay"):
    return world.cluster.store.get(world.cluster.kind("routegroups"), Key("shop", name))


def status(world, name="pay"):
    return (group(world, name) or {}).get("status", {})


def condition(world, type_, name="pay"):
    return next((each for each in status(world, name).get("conditions", ()) if each["type"] == type_), {})


def matched(world, name="pay"):
    return status(world, name).get("matchedSandboxes")


def born(*, scripts=None):
    world = World(
        {name: Unit(creates=name in STEPS[:2]) for name in STEPS}, scripts or {name: Script() for name in STEPS}
    )
    world.groups = RouteGroupsExtension
    return world


def tell(story, **how):
    return live(lambda: born(**how), story)


def leftovers(world):
    return [*world.leftovers(), *(each["metadata"]["name"] for each in world.cluster.objects("routegroups"))]


def test_group_runs_all_four_hooks_in_its_life():
    async def story(world):
        world.start()
        uid = apply(world, **HOOKS, endpoints=[{"name": "web", "target": "http://w.shop.svc:80"}])
        await world.until(lambda: status(world).get("ready"), "it to be ready", 300)
        assert [e.unit for e in world.cloud.log if e.what == "start"] == ["before", "warm"]
        said = status(world)
        assert (said["reason"], said["phase"], len(said["routingKey"])) == ("NoMatchedSandboxes", "Ready", 13)
        assert "Not supported here: spec.match and spec.endpoints[0] (no data plane routes" in said["message"]
        assert condition(world, "Supported")["status"] == "False"
        assert group(world)["metadata"]["finalizers"] == ["dayfly.dev/lifecycle"]
        assert group(world)["metadata"]["uid"] == uid
        world.ask("DELETE", f"{GROUPS}/pay")
        await world.until(lambda: not leftovers(world), "it to be gone", 300)
        assert [e.unit for e in world.cloud.log if e.what == "start"] == list(STEPS)

    tell(story)


def test_without_hooks_it_is_ready_and_goes():
    async def story(world):
        world.start()
        apply(world)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 60)
        world.ask("DELETE", f"{GROUPS}/pay")
        await world.until(lambda: not leftovers(world), "it to be gone", 60)

    tell(story)


def test_status_follows_each_label_change_within_a_second():
    """Also after many changes in a row: the status is written about once a second."""

    async def story(world):
        world.start()
        apply(world)
        world.sandbox({"labels": {"team": "pay"}}, "base")
        for name in ("one", "two"):
            world.sandbox({"labels": {"team": "none"}}, name)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 60)
        await world.rest(60)
        both = ["base", "one"]
        for team, wanted in (("pay", both), ("none", ["base"]), ("pay", both), ("none", ["base"])):
            world.change({"spec": {"labels": {"team": team}}}, "one")
            await world.until(lambda wanted=wanted: matched(world) == wanted, f"{wanted} to be matched", 1.5)
        before = len(world.writes)
        for number in range(40):
            world.change({"spec": {"labels": {"team": "pay" if number % 2 else "none"}}}, "two")
            await world.rest(0.1)
        await world.until(lambda: matched(world) == ["base", "two"], "two to be matched", 1.5)
        assert len([each for each in world.writes[before:] if each.endswith("routegroups/pay/status")]) <= 4

    tell(story)


def test_sandboxes_join_and_leave_live():
    async def story(world):
        world.start()
        apply(world)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 60)
        world.sandbox({"labels": {"team": "payments"}}, "one")
        await world.until(lambda: matched(world) == ["one"], "one to join", 60)
        assert status(world)["ready"]
        world.sandbox({"labels": {"team": "shipping"}}, "two")
        world.change({"spec": {"labels": {"team": "pay"}}}, "two")
        await world.until(lambda: matched(world) == ["one", "two"], "two to join", 60)
        await world.until(
            lambda: status(world)["message"].startswith("2 sandboxes match: one and two. "), "their start", 60
        )
        world.delete("one")
        await world.until(lambda: matched(world) == ["two"], "one to leave", 60)
        patch(world, {"spec": {"match": {"label": {"key": "team", "value": "x"}}}})
        await world.until(lambda: matched(world) == [], "nobody to match", 60)
        assert status(world)["reason"] == "NoMatchedSandboxes"

    tell(story)


def test_sandbox_in_cleanup_is_not_a_member():
    async def story(world):
        world.plugin("db", {"runner": {"image": "busybox:1"}, "create": [step("before")], "delete": [step("report")]})
        world.start()
        apply(world)
        world.sandbox({"labels": {"team": "pay"}, "resources": [{"name": "db", "plugin": "db"}]}, "one")
        await world.until(lambda: world.status("one").get("ready") and matched(world) == ["one"], "it to join", 300)
        world.delete("one")
        await world.until(lambda: matched(world) == [], "it to leave", 60)
        assert world.box("one") is not None, "its cleanup goes on"

    def born():
        world = World(
            {"db/before": Unit(creates=True, undone_by="db/report"), "db/report": Unit(creates=False)},
            {"db/report": Script(runs=600)},
        )
        world.groups = RouteGroupsExtension
        return world

    live(born, story)


def test_sandbox_of_another_namespace_does_not_match():
    """A namespace belongs to one tenant: a label in another one must not attract its requests."""

    async def story(world):
        world.namespace("other")
        world.start()
        apply(world)
        world.sandbox({"labels": {"team": "pay"}}, "theirs", "other")
        world.sandbox({"labels": {"team": "pay"}}, "ours")
        await world.until(lambda: matched(world) == ["ours"], "ours alone", 60)
        await world.rest(60)
        assert matched(world) == ["ours"]

    tell(story)


def test_oldest_of_two_forks_gets_the_requests():
    async def story(world):
        world.forks.baseline("web")
        world.start()
        fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
        world.sandbox({"labels": {"team": "pay"}, "forks": [fork]}, "zz")
        await world.rest(5)
        world.sandbox({"labels": {"team": "pay"}, "forks": [fork]}, "aa")
        apply(world)
        await world.until(lambda: status(world).get("conflicts"), "a conflict", 120)
        assert status(world)["conflicts"] == [{"baseline": "shop/web", "sandbox": "zz", "others": ["aa"]}]
        found = condition(world, "ForkConflict")
        assert (found["status"], found["message"]) == (
            "True",
            "shop/web is forked by several sandboxes: zz takes precedence over aa.",
        )
        world.delete("zz")
        await world.until(lambda: condition(world, "ForkConflict")["status"] == "False", "the conflict to end", 120)

    tell(story)


def test_group_expires_after_its_ttl_without_sandboxes():
    async def story(world):
        world.start()
        world.sandbox({"labels": {"team": "pay"}}, "one")
        apply(world, ttl={"duration": "10m"}, **HOOKS)
        await world.until(lambda: matched(world) == ["one"], "it to have one", 300)
        await world.rest(3_600)
        assert status(world)["ready"]
        assert "expiresAt" not in status(world)
        world.delete("one")
        await world.until(lambda: "expiresAt" in status(world), "its end to be known", 60)
        await world.rest(300)
        world.sandbox({"labels": {"team": "pay"}}, "two")
        await world.until(lambda: "expiresAt" not in status(world), "a sandbox to come in time", 60)
        await world.rest(3_600)
        assert status(world)["ready"]
        world.delete("two")
        began = world.cluster.time()
        await world.until(lambda: not leftovers(world), "it to be gone", 3_600)
        assert 600 <= world.cluster.time() - began < 660
        assert [e.unit for e in world.cloud.log if e.what == "start"] == list(STEPS)

    tell(story)


@pytest.mark.parametrize("kind", ["group", "sandbox"])
def test_upcoming_expiry_is_reported_once(kind):
    async def story(world):
        world.start()
        ttl = {"duration": "1h", "offsetFrom": "createdAt"}
        if kind == "group":
            apply(world, ttl=ttl)
        else:
            world.sandbox({"ttl": ttl})

        def conditions():
            return (status(world) if kind == "group" else world.status()).get("conditions", ())

        def soon():
            return [each["message"] for each in conditions() if each["type"] == "ExpiresSoon"]

        await world.until(conditions, "conditions", 60)
        began = world.cluster.time()
        await world.until(soon, "the warning", 3_600)
        assert 53 * 60 <= world.cluster.time() - began <= 55 * 60
        assert soon()[0].startswith("Its time to live ends at 2026-")
        await world.rest(60)
        assert [reason for _, reason in world.events()].count("ExpiresSoon") == 1
        for process in world.processes:  # an operator that restarts does not report it again
            await process.end()
        world.processes.clear()
        world.start()
        await world.rest(60)
        assert [reason for _, reason in world.events()].count("ExpiresSoon") == 1
        longer = {"spec": {"ttl": {"duration": "3h"}}}
        if kind == "group":
            patch(world, longer)
        else:
            world.change(longer)
        await world.until(lambda: not soon(), "the warning to go", 60)

    tell(story)


def test_invalid_match_is_refused_and_the_old_one_stays():
    async def story(world):
        world.start()
        world.sandbox({"labels": {"team": "pay"}}, "one")
        apply(world)
        await world.until(lambda: matched(world) == ["one"], "it to have one", 60)
        patch(world, {"spec": {"match": {"label": {"key": "team", "value": "[pay"}}}})
        await world.until(lambda: status(world)["reason"] == "Refused", "its refusal", 60)
        assert "is not a pattern: at character 1" in status(world)["message"]
        assert status(world)["message"].endswith("; its sandboxes stay as they are")
        assert matched(world) == ["one"]
        apply(world, "wrong", match={"label": {"key": "a", "value": "["}})
        await world.until(lambda: status(world, "wrong").get("reason") == "Refused", "the other's refusal", 60)
        assert not [each for each in world.cluster.objects("runs") if each["ledger"]["target"]["name"] == "wrong"]
        patch(world, {"spec": {"match": MATCH}}, "wrong")
        await world.until(lambda: matched(world, "wrong") == ["one"], "the restored state", 60)

    tell(story)


def test_lost_ledger_freezes_the_group():
    async def story(world):
        world.start()
        apply(world, **HOOKS)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 300)
        world.lose_ledger()
        await world.until(lambda: status(world)["reason"] == "LedgerLost", "the status message", 300)
        world.ask("DELETE", f"{GROUPS}/pay")
        await world.rest(300)
        assert group(world) is not None
        patch(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "by hand"}}})
        await world.until(lambda: group(world) is None, "the release", 300)

    tell(story)


def test_abandon_annotation_on_living_group_is_refused():
    async def story(world):
        world.start()
        apply(world, **HOOKS)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 300)
        patch(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "no longer needed"}}})
        text = "on a RouteGroup that is not being deleted"
        await world.until(lambda: text in condition(world, "Supported")["message"], "the refusal", 60)
        assert text in status(world)["message"]
        assert status(world)["ready"]

    tell(story)


def test_without_the_wing_nothing_is_done():
    async def story(world):
        world.groups = None
        world.start()
        apply(world)
        await world.rest(60)
        assert status(world) == {}

    tell(story)


@pytest.mark.parametrize("harm", [Harm.CRASH_BEFORE, Harm.CRASH_AFTER])
def test_operator_crash_at_any_write_loses_nothing(harm):
    """The four hooks run once and in order, and nothing is left. Each commit plays a sample of the writes."""

    async def whole(world):
        world.start()
        apply(world, **HOOKS)
        await world.until(lambda: status(world).get("ready"), "it to be ready", 3_600)
        world.ask("DELETE", f"{GROUPS}/pay")
        await world.until(lambda: not leftovers(world), "it to be gone", 3_600)
        await world.quiet(300)

    count = len(tell(whole).writes)
    assert count > 20
    for number in SELECTION.sample(range(1, count + 1), 12, f"route group: {harm.name} at a write"):

        def dying(number=number):
            world = born()
            world.hook = lambda nth, _call: Fault(harm) if nth == number else None
            return world

        world = live(dying, whole)
        assert [e.unit for e in world.cloud.log if e.what == "start"] == list(STEPS), number
