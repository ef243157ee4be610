"""Objects that a step may read in the namespace in which it runs: only objects that name its plugin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.operator.rig.memory import remembered
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, Scene, chain, gone, message, ready, wish
from tests.operator.rig.world import World, live

from dayfly.execute.pod.policy import Reference
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.pods.namespaces import GRANT_CACHE_MS
from dayfly.operator.pods.plugin_reads import PLUGINS_ANNOTATION, PluginReads

RUNNERS = "/api/v1/namespaces/dayfly-runners"
READS = {
    "secrets": "spec: {containers: [{name: main, env: [{name: P, valueFrom: {secretKeyRef: {name: own, key: p}}}]}]}",
    "configmaps": "spec: {containers: [{name: main, envFrom: [{configMapRef: {name: own}}]}]}",
    "persistentvolumeclaims": "spec: {volumes: [{name: s, persistentVolumeClaim: {claimName: own}}]}",
}
SECRET = CHAIN | {"runner": {"image": "busybox:1", "podTemplateOverlay": READS["secrets"]}}
KINDS = {"secrets": "Secret", "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim"}


def play(plugin: dict, story) -> World:
    async def begin(world: World) -> None:
        world.start()
        await story(world)

    return live(Scene(plugin, CHAIN_UNITS, chain).world, begin)


def keep(world: World, plural="secrets", annotations: dict | None = None, metadata: dict | None = None, **more):
    """Create an object in the namespace of steps."""
    body = {"metadata": {"name": "own", "annotations": annotations or {}, **(metadata or {})}, **more}
    if plural == "secrets":
        body.setdefault("data", {"p": "eA=="})
    world.ask("POST", f"{RUNNERS}/{plural}", body)


@pytest.mark.parametrize("plural", READS)
def test_secret_or_config_map_must_name_the_plugin(plural):
    """An object without the annotation, or with another plugin's name, is refused; with the right name the step continues."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        kind = KINDS[plural]
        await world.until(lambda: f"{kind} dayfly-runners/own does not exist" in message(world), "the objection", 10)
        keep(world, plural, {"dayfly.dev/plugins": "cluster:other, acme:pg, pg"})
        said = f"{kind} dayfly-runners/own does not name the plugin cluster:pg: its owner can annotate it"
        await world.until(lambda: said in message(world), "the other objection", 30)
        await world.rest(60)
        assert not [write for write in world.writes if write.startswith("POST") and write.endswith("/pods")]
        grant = {"metadata": {"annotations": {"dayfly.dev/plugins": "cluster:other, cluster:pg"}}}
        world.ask("PATCH", f"{RUNNERS}/{plural}/own", grant, "application/merge-patch+json")
        await world.until(lambda: ready(world), "ready", 60)
        world.ask("DELETE", f"{RUNNERS}/{plural}/own")
        await world.rest(60)
        keep(world, plural, {"dayfly.dev/plugins": "cluster:pg"})
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)

    play(CHAIN | {"runner": {"image": "busybox:1", "podTemplateOverlay": READS[plural]}}, story)


@pytest.mark.parametrize(
    "overlay",
    [
        READS["secrets"],
        "spec: {volumes: [{name: s, secret: {secretName: own, items: [{key: p, path: p}]}}]}",
        "spec: {volumes: [{name: s, projected: {sources: [{secret: {name: own, items: [{key: p, path: p}]}}]}}]}",
    ],
    ids=["variable", "volume", "projected volume"],
)
def test_missing_key_is_named_before_a_pod_is_created(overlay):
    """A kubelet starts no container of such a pod, so neither the step nor its cleanup could ever run."""

    async def story(world: World) -> None:
        keep(world, annotations={"dayfly.dev/plugins": "cluster:pg"}, data={"other": "eA=="})
        world.sandbox(wish())
        await world.until(lambda: "dayfly-runners/own has no key 'p'" in message(world), "the objection", 10)
        assert not [write for write in world.writes if write.startswith("POST") and write.endswith("/pods")]
        world.ask("PATCH", f"{RUNNERS}/secrets/own", {"data": {"p": "eA=="}}, "application/merge-patch+json")
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)

    play(CHAIN | {"runner": {"image": "busybox:1", "podTemplateOverlay": overlay}}, story)


def test_optional_key_may_be_missing():
    async def story(world: World) -> None:
        keep(world, annotations={"dayfly.dev/plugins": "cluster:pg"}, data={})
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)

    overlay = READS["secrets"].replace("key: p", "key: p, optional: true")
    play(CHAIN | {"runner": {"image": "busybox:1", "podTemplateOverlay": overlay}}, story)


def test_inline_plugin_is_refused_whatever_the_object_says():
    """A Sandbox gives its author no access to other objects."""

    async def story(world: World) -> None:
        keep(world, annotations={"dayfly.dev/plugins": "cluster:pg, :, *, db"})
        world.sandbox({"resources": [{"name": "db", "spec": SECRET}]})
        await world.until(lambda: world.status().get("reason") == "Refused", "the refusal", 10)
        assert "reads Secret own: only a published plugin can be granted that" in world.status()["message"]
        assert world.status()["message"].startswith("spec.resources[0]")
        world.delete()
        await gone_but_for_the_secret(world)

    play(CHAIN, story)


def test_hook_is_refused_as_an_inline_plugin_is():
    async def story(world: World) -> None:
        keep(world, annotations={"dayfly.dev/plugins": "cluster:pg, :"})
        hooks = {"preStart": [{"name": "look", "script": "#!/bin/sh\n"}]}
        world.sandbox({"runner": SECRET["runner"], "hooks": hooks})
        await world.until(lambda: world.status().get("reason") == "Refused", "the refusal", 10)
        assert "reads Secret own" in world.status()["message"]
        world.delete()
        await gone_but_for_the_secret(world)

    play(CHAIN, story)


@pytest.mark.parametrize("told_by", ["outputs", "state", "owner"])
def test_outputs_secret_of_another_step_is_refused(told_by):
    """The name and the annotations of such a Secret do not matter."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: "does not exist" in message(world), "the objection", 10)
        [run] = world.cluster.objects("runs")
        owner = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": run["metadata"]["uid"]}
        by_owner = {"metadata": {"ownerReferences": [owner]}}
        marks = by_owner if told_by == "owner" else {"type": f"dayfly.dev/{told_by}"}
        keep(world, annotations={"dayfly.dev/plugins": "cluster:pg"}, **marks)
        await world.until(lambda: "holds the outputs of a step: only inputs of steps may" in message(world), "it", 10)
        await world.rest(60)
        assert not world.pods()
        world.delete()
        await gone_but_for_the_secret(world)

    play(SECRET, story)


async def gone_but_for_the_secret(world: World) -> None:
    await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
    for each in world.cluster.objects("secrets"):
        world.ask("DELETE", f"{RUNNERS}/secrets/{each['metadata']['name']}")
    await gone(world)


async def test_reads_not_requested_again_are_forgotten():
    """Authors of plugins choose the names, so there may always be new ones."""
    now, asked = 0, []

    class Server:
        async def get(self, kind, name, namespace):
            asked.append(name)
            notes = {PLUGINS_ANNOTATION: "acme:pg"}
            meta = AnnotatedMeta(name=name, annotations=notes)
            return SimpleNamespace(type="", metadata=meta, data=None, binary_data=None)

    reads = PluginReads(Server(), lambda: now)
    origin = SimpleNamespace(name="acme:pg")
    for number in range(20):
        for _ in range(2):
            await reads.check(origin, "shop", [Reference("Secret", each, "") for each in (f"s-{number:02}", "shared")])
        now += GRANT_CACHE_MS // 2
    assert asked.count("shared") == 10
    assert [asked.count(f"s-{number:02}") for number in range(20)] == [1] * 20
    assert sum(bool(remembered(reads, f"s-{number:02}")) for number in range(20)) <= 3
