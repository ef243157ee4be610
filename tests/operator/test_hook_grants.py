"""A hook that cannot become active yet: its condition has the reason, and no object is changed."""

from __future__ import annotations

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.hook_targets import (
    HOOKS,
    MACHINES,
    delete,
    held,
    hook,
    hook_of,
    hook_status,
    hooking,
    is_active,
    is_over,
    machine,
    remove_hook,
    step,
)
from tests.operator.rig.world import World

LINE = (
    "kubectl create clusterrole dayfly-targets-machines.cluster.example.org --verb=get,list,watch,patch "
    "--resource=machines.cluster.example.org && "
    "kubectl label clusterrole dayfly-targets-machines.cluster.example.org dayfly.dev/targets=true"
)


@pytest.mark.parametrize("verb", ["get", "list", "patch"])
def test_without_the_grant_its_condition_says_the_line_to_type(verb):
    """Until the right is granted there is no ledger, document or finalizer. Afterwards the hook continues by itself."""

    async def story(world: World) -> None:
        world.cluster.denied = {(verb, "machines.cluster.example.org")}
        machine(world)
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "TargetsNotGranted", "the status message", 60)
        assert hook_status(world)["message"].endswith(LINE)
        assert hook_status(world)["ready"] is False
        assert {each["type"]: (each["status"], each["reason"]) for each in hook_status(world)["conditions"]} == {
            "Ready": ("False", "TargetsNotGranted"),
            "Stalled": ("True", "TargetsNotGranted"),
        }
        await world.rest(120)
        assert not world.cluster.objects("runs")
        assert not world.cluster.objects("objectlifecyclemethods")
        assert not held(world)
        world.cluster.denied = set()
        await world.until(lambda: is_active(world) and held(world), "the hook to become active", 120)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert world.cloud.starts("drain") == 1

    hooking(story)


ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.mark.parametrize("verb", ["list", "patch"])
def test_grant_is_noticed_as_soon_as_the_role_changes(verb):
    """Until then, a hook without the grant sends requests at the usual rate."""

    async def story(world: World) -> None:
        world.ask("POST", ROLES, {"metadata": {"name": "dayfly-operator-targets"}, "rules": []})
        world.cluster.denied = {(verb, "machines.cluster.example.org")}
        machine(world)
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "TargetsNotGranted", "the status message", 60)
        await world.rest(300)
        before = len(world.cluster.calls)
        await world.rest(60)
        asked = [each.request.path for each in world.cluster.calls[before:]]
        assert len([path for path in asked if "machines" in path]) <= (6 if verb == "list" else 30)
        assert len([path for path in asked if "clusterroles" in path]) <= 1, "a watch is renewed now and then"
        world.cluster.denied = set()
        rules = [{"apiGroups": ["cluster.example.org"], "resources": ["machines"], "verbs": ["patch"]}]
        world.ask("PATCH", f"{ROLES}/dayfly-operator-targets", {"rules": rules}, "application/merge-patch+json")
        await world.until(lambda: is_active(world) and held(world), "the hook to become active", 3)

    hooking(story)


def test_revoked_right_is_reported_and_waited_for():
    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        await world.rest(5)
        world.cluster.denied = {("patch", "machines.cluster.example.org")}
        delete(world)
        await world.until(lambda: LINE in hook_status(world)["message"], "the status message", 600)
        assert world.cloud.starts("drain") == 1
        world.cluster.denied = set()
        await world.until(lambda: is_over(world), "everything to go", 600)
        assert world.cloud.starts("drain") == 1

    hooking(story)


def test_refused_finalizer_is_reported_until_it_is_allowed():
    def no(operation, kind, _old, new):
        if operation == "UPDATE" and kind.plural == "machines" and new["metadata"].get("finalizers"):
            raise Refusal(403, "a policy lets nobody hold it")

    async def story(world: World) -> None:
        world.cluster.admission.append(no)
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: hook_status(world).get("troubled") == 1, "the status message", 60)
        told = "Machine shop/m: cannot continue and is retried: a policy lets nobody hold it"
        assert (is_active(world), hook_status(world)["message"]) == (True, told)
        world.cluster.admission.clear()
        await world.until(lambda: held(world), "our finalizer", 600)
        await world.until(lambda: hook_status(world)["troubled"] == 0, "the report to disappear", 60)
        assert hook_status(world)["message"] == "active for 1 object"

    hooking(story)


@pytest.mark.parametrize("status", [403, 422])
def test_refused_change_blocks_a_hook_only_in_its_namespace(status):
    """While a policy rejects changes in every namespace that has objects, the hook itself is blocked."""

    def no(operation, kind, old, _new):
        if operation == "UPDATE" and kind.plural == "machines" and old["metadata"]["namespace"] == "shop":
            raise Refusal(status, "a policy says no")

    async def story(world: World) -> None:
        world.cluster.admission.append(no)
        machine(world)
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "Blocked", "the refusal to be reported", 60)
        assert hook_status(world)["message"] == "its objects cannot be changed: a policy says no"
        assert not world.cluster.objects("runs")
        world.namespace("team")
        body = {"apiVersion": "cluster.example.org/v1", "kind": "Machine", "metadata": {"name": "n"}, "spec": {}}
        world.ask("POST", MACHINES.replace("shop", "team"), body)

        def held_in_team() -> bool:
            return any("finalizers" in each["metadata"] for each in world.cluster.objects("machines"))

        await world.until(lambda: is_active(world) and held_in_team(), "the hook to become ready", 60)

    hooking(story)


def test_kind_that_is_not_served_yet_is_waited_for():
    async def story(world: World) -> None:
        kind = world.cluster.forget("machines")
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "KindNotServed", "the status message", 60)
        world.cluster.serve(kind)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 120)

    hooking(story)


def test_cluster_scoped_kind_is_refused():
    async def story(world: World) -> None:
        world.start()
        hook(world, selector={"apiVersion": "wide.example.org/v1", "kind": "Widget"})
        await world.until(lambda: hook_status(world).get("reason") == "Refused", "the status message", 60)
        assert "is cluster-scoped" in hook_status(world)["message"]

    hooking(story)


NOBODY = {"name": "x", "valueFromStep": {"name": "nobody", "output": "x"}, "as": {"env": "X"}}
PRIVILEGED = {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}


@pytest.mark.parametrize(
    ("wrong", "corrected", "message"),
    [
        ({"preStop": [step("drain", inputs=[NOBODY])]}, {"preStop": [step("drain")]}, "nobody"),
        (
            {"runner": PRIVILEGED},
            {"runner": {"podTemplateOverlay": None}},
            "spec.hostPID must be false; change spec.runner.podTemplateOverlay",
        ),
    ],
    ids=["input", "runner"],
)
def test_wrong_hook_is_refused_and_can_be_corrected(wrong, corrected, message):
    async def story(world: World) -> None:
        world.start()
        hook(world, **wrong)
        machine(world)
        await world.until(lambda: hook_status(world).get("reason") == "Refused", "the status message", 60)
        assert message in hook_status(world)["message"]
        await world.rest(60)
        assert not world.cluster.objects("runs")
        world.ask("PATCH", f"{HOOKS}/volume-backup", {"spec": corrected}, "application/merge-patch+json")
        await world.until(lambda: is_active(world) and held(world), "the hook to become active", 60)

    hooking(story)


def test_refused_watch_is_reported_in_the_servers_words():
    def refuses(request):
        no = request.method == "GET" and request.path.endswith("/machines")
        return Refusal(403, "a proxy says no") if no else None

    async def story(world: World) -> None:
        world.cluster.refuses = refuses
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "Blocked", "the refusal to be reported", 60)
        assert hook_status(world)["message"] == "its objects cannot be watched: a proxy says no"
        world.cluster.refuses = lambda _request: None
        await world.until(lambda: is_active(world), "the hook to become ready", 120)

    hooking(story)


def test_operator_stays_ready_without_the_kind_of_a_hook():
    """The operator's readiness does not depend on other users' kinds, and its start does not wait for them."""

    async def story(world: World) -> None:
        world.cluster.denied = {("list", "machines.cluster.example.org")}
        hook(world)
        world.start()
        await world.until(lambda: hook_status(world).get("reason") == "TargetsNotGranted", "the status message", 60)
        await world.rest(600)
        [process] = world.processes
        assert process.operator.cluster.age < 300

    hooking(story)


def test_kind_is_watched_while_a_hook_selects_it():
    async def story(world: World) -> None:
        world.start()
        hook(world, "one")
        hook(world, "two", preStop=[step("report")])
        machine(world)
        await world.until(
            lambda: is_active(world, "one") and is_active(world, "two"), "both hooks to become active", 60
        )
        [process] = world.processes
        find = process.operator.targets.find
        remove_hook(world, "one")
        await world.until(lambda: hook_of(world, "one") is None, "the first to go", 120)
        await world.rest(5)
        assert find("cluster.example.org", "machines") is not None
        remove_hook(world, "two")
        await world.until(lambda: hook_of(world, "two") is None, "the second to go", 120)
        await world.rest(5)
        assert find("cluster.example.org", "machines") is None
        calls = len(world.cluster.calls)
        world.ask("PATCH", f"{MACHINES}/m", {"spec": {"a": 1}}, "application/merge-patch+json")
        await world.rest(30)
        assert not [each for each in world.cluster.calls[calls:] if "machines" in each.request.path]

    hooking(story)
