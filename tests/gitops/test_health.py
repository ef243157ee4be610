"""The health of Dayfly's objects in GitOps tools: by the kstatus library (Flux), and by our Lua check (Argo CD)."""

import json
import subprocess
import sys

import pytest
import yaml
from scripts import argocd
from tests.examples import external_services
from tests.operator.rig.hook_targets import delete, held, hook, hook_status, hooking, is_active, is_over, machine
from tests.operator.rig.route_group_bench import Bench, report, with_bench
from tests.operator.rig.scenes import CHAIN, CHAIN_LIFE, gone, plugin, ready, step, wish
from tests.operator.rig.world import World, live
from tests.policy.apiserver import ROOT

from dayfly.spec.schema import crd

pytestmark = pytest.mark.builds("health")
LUA = ROOT / "deploy" / "argocd" / "health.lua"


def health(found):
    """Return the health of an object in both tools, each with a message."""
    program = external_services.health()

    def run(*arguments):
        ended = subprocess.run(
            [program, *arguments], input=json.dumps([found]), capture_output=True, text=True, check=True
        )
        return json.loads(ended.stdout)

    return run(), run(LUA)


def states(found):
    flux, argo = health(found)
    return flux["status"], argo["status"]


READY, WAITING, STUCK = ("Current", "Healthy"), ("InProgress", "Progressing"), ("Failed", "Degraded")


def newest(world, plural, name):
    [found] = [each for each in world.cluster.objects(plural) if each["metadata"]["name"] == name]
    return {"apiVersion": "dayfly.dev/v1alpha1", **found}


@pytest.mark.parametrize("kind", crd.written_by_users())
def test_new_object_is_in_progress_until_it_is_seen(kind):
    [definition] = [each for each in crd.definitions() if each["spec"]["names"]["kind"] == kind]
    [version] = definition["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    meta = {"name": "new", "generation": 1}
    new = {"apiVersion": "dayfly.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": {}, "status": status}
    assert states(new) == WAITING


def test_sandbox_is_in_progress_then_ready_then_deleted():
    async def story(world: World) -> None:
        world.start()
        world.sandbox(wish())
        name = "box"
        await world.until(lambda: world.status().get("phase") == "Creating", "the first step")
        assert states(newest(world, "sandboxes", name)) == WAITING
        await world.until(lambda: ready(world), "ready")
        found = newest(world, "sandboxes", name)
        assert states(found) == READY
        found["metadata"]["generation"] += 1
        assert states(found) == WAITING, "the status is of an older spec"
        world.delete()
        dying = newest(world, "sandboxes", name)
        assert health(dying)[0]["status"] == "Terminating"
        await gone(world)

    live(CHAIN_LIFE.world, story)


def test_failed_sandbox_is_degraded_with_the_reason():
    async def story(world: World) -> None:
        world.start()
        world.plugin("bad", plugin([step("make"), step("make")], [step("drop")]))
        world.sandbox({"resources": [{"name": "db", "plugin": "bad"}]})
        await world.until(lambda: world.status().get("phase") == "Failed", "the failure")
        found = newest(world, "sandboxes", "box")
        assert states(found) == STUCK
        assert health(found)[1]["message"] == world.status()["message"]
        world.delete()
        await gone(world)

    live(CHAIN_LIFE.world, story)


@pytest.mark.parametrize(("create", "state"), [(CHAIN["create"], READY), ([step("a"), step("a")], STUCK)])
def test_plugin_is_ready_only_if_it_is_accepted(create, state):
    async def story(world: World) -> None:
        world.start()
        world.plugin("new", {**CHAIN, "create": create})
        await world.until(lambda: "status" in newest(world, "resourceplugins", "new"), "its status", 10)
        assert states(newest(world, "resourceplugins", "new")) == state

    live(CHAIN_LIFE.world, story)


def test_hook_is_degraded_until_its_kind_is_granted():
    async def story(world: World) -> None:
        world.cluster.denied = {("list", "machines.cluster.example.org")}
        machine(world)
        world.start()
        hook(world)
        await world.until(lambda: hook_status(world).get("reason") == "TargetsNotGranted", "the condition", 60)
        [found] = world.cluster.objects("lifecyclehooks")
        assert states({"apiVersion": "dayfly.dev/v1alpha1", **found}) == STUCK
        world.cluster.denied = set()
        await world.until(lambda: is_active(world) and held(world), "the hook to become active", 120)
        [found] = world.cluster.objects("lifecyclehooks")
        assert states({"apiVersion": "dayfly.dev/v1alpha1", **found}) == READY
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)

    hooking(story)


@with_bench
async def test_route_group_is_in_progress_then_ready(bench: Bench):
    def written():
        meta = {"name": "all", "namespace": "shop", "generation": bench.group.metadata.generation}
        return {
            "apiVersion": "dayfly.dev/v1alpha1",
            "kind": "RouteGroup",
            "metadata": meta,
            "status": bench.written_status,
        }

    bench.box("one", ready=False)
    await bench.report_run(report("running", ready=False, reason="Progressing"))
    assert states(written()) == WAITING
    bench.box("one", ready=True)
    await bench.report_run(report("succeeded"))
    assert states(written()) == READY


def test_patch_of_argo_cd_has_the_check_for_each_kind():
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "argocd.py"], capture_output=True, text=True, check=True
    ).stdout
    assert yaml.safe_load(made) == argocd.patch()
    keys = {f"resource.customizations.health.dayfly.dev_{kind}" for kind in crd.written_by_users()}
    assert argocd.patch()["data"] == dict.fromkeys(keys, LUA.read_text())
