"""`plugin test` changes the objects of its run in a cluster, and no similar objects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.kube.fake import FakeCluster, Refusal, run

from dayfly.cli.plugin_test import cluster_faults
from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.object.render import ObjectIdentity, object_name
from dayfly.execute.pod.names import UNIT_ANNOTATION
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS, untyped_resource
from dayfly.testing import Tampering

CONFIG_MAPS = untyped_resource("v1", "ConfigMap", "configmaps")
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
NAMELESS = {"apiVersion": "v1", "kind": "ConfigMap"}
OF = cluster_faults.PluginAttempt("uid-of-the-sandbox", "db/make", 2)
STRANGE = {"apiVersion": "machines.example/v1", "kind": "Machine", "metadata": {"name": "m"}}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}


def made(name: str = "c", *, kind: str = "Run", owner: str = "u", unit: str = "db/make") -> dict:
    reference = {"apiVersion": "dayfly.dev/v1alpha1", "kind": kind, "name": owner, "uid": "o"}
    annotations = {UNIT_ANNOTATION: unit, "kept": "as it was"}
    meta = {"name": name, "labels": {"app": "db"}, "annotations": annotations, "ownerReferences": [reference]}
    return {"metadata": meta}


def tamper(*objects: dict, tampering: Tampering = Tampering.EDITS, manifest: dict = MANIFEST, change=lambda _: None):
    """Return whether the object existed, and all objects afterwards. `change` is called before with the cluster."""

    async def story() -> tuple[bool, dict[str, dict]]:
        cluster = FakeCluster(settles=False)  # no garbage collection: the owner does not exist
        client = KubeClient(cluster.transport(), seed=1)
        for each in objects:
            await client.create(CONFIG_MAPS, each, "default")
        change(cluster)
        found = await cluster_faults.tamper(client, tampering, manifest, "default", "u", OF)
        return found, {each["metadata"]["name"]: each["metadata"] for each in cluster.objects("configmaps")}

    return run(story())


class TestTampering:
    def test_object_of_the_run_loses_labels_and_gets_a_marker(self):
        found, left = tamper(made())
        assert found
        assert left["c"]["labels"] == {"dayfly-plugin-test-was-here": "edited"}
        annotations = {UNIT_ANNOTATION: "db/make", "kept": "as it was", "dayfly-plugin-test-was-here": "edited"}
        assert left["c"]["annotations"] == annotations

    def test_object_of_the_run_is_deleted(self):
        assert tamper(made(), tampering=Tampering.DELETES) == (True, {})

    @pytest.mark.parametrize("tampering", Tampering)
    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(made(owner="another"), id="of another run"),
            pytest.param(made(kind="Deployment"), id="of an owner that is not a run"),
            pytest.param(made(unit="db/seed"), id="of another unit"),
            pytest.param({"metadata": {"name": "c"}}, id="without owner"),
        ],
    )
    def test_object_of_another_run_or_unit_is_not_edited(self, tampering, other):
        found, left = tamper(other, tampering=tampering)
        assert not found
        assert "dayfly-plugin-test-was-here" not in left["c"].get("labels", {})

    @pytest.mark.parametrize("tampering", Tampering)
    @pytest.mark.parametrize("manifest", [MANIFEST, NAMELESS], ids=["of a fixed name", "of a derived name"])
    def test_object_of_the_run_is_found_among_others(self, tampering, manifest):
        real = object_name(ObjectIdentity(*OF, "default", {}), manifest)
        others = [made("a", owner="another"), made("b", unit="db/seed"), made("z", owner="another")]
        found, left = tamper(*others, made(real), tampering=tampering, manifest=manifest)
        touched = {each for each in ("a", "b", "z", real) if left.get(each, {"labels": {}})["labels"] != {"app": "db"}}
        assert (found, touched) == (True, {real})

    @pytest.mark.parametrize("tampering", Tampering)
    @pytest.mark.parametrize("manifest", [MANIFEST, NAMELESS], ids=["of a fixed name", "of a derived name"])
    def test_planted_object_with_another_name_is_not_edited(self, tampering, manifest):
        earlier = object_name(ObjectIdentity(*OF._replace(number=1), "default", {}), NAMELESS)
        found, left = tamper(made("a"), made(earlier), tampering=tampering, manifest=manifest)
        assert (found, left["a"]["labels"], left[earlier]["labels"]) == (False, {"app": "db"}, {"app": "db"})

    @pytest.mark.parametrize(("tampering", "verb"), [(Tampering.EDITS, "PATCH"), (Tampering.DELETES, "DELETE")])
    @pytest.mark.parametrize("status", [404, 409])
    def test_object_gone_or_replaced_in_between_counts_as_absent(self, tampering, verb, status):
        refusal = Refusal(status, "m", about={"name": "c", "kind": "configmaps"})

        def change(cluster: FakeCluster) -> None:
            cluster.refuses = lambda request: refusal if request.method == verb else None

        found, left = tamper(made(), tampering=tampering, change=change)
        assert (found, left["c"]["labels"]) == (False, {"app": "db"})

    def test_unknown_kind_is_named(self):
        with pytest.raises(DayflyError) as refused:
            tamper(manifest=STRANGE)
        assert (
            str(refused.value)
            == "this cluster has no kind Machine of machines.example/v1; install its CustomResourceDefinition"
        )
        assert refused.value.code == Exit.FAILED


def test_pod_is_deleted_at_once_and_missing_pod_is_reported():
    async def story() -> None:
        cluster = FakeCluster()
        client = KubeClient(cluster.transport(), seed=1)
        await client.create(PODS, POD, "default")
        asked = []
        cluster.judge = asked.append
        assert await cluster_faults.delete_pod(client, "p", "default")
        [call] = asked
        assert b'"gracePeriodSeconds":1' in call.request.body
        assert not await cluster_faults.delete_pod(client, "q", "default")

    run(story())


class Reviewing:
    """A cluster that allows the tuples (verb, group, resource, namespace) in `allowed` and records reviews in `asked`."""

    namespace = "shop"

    def __init__(self, *allowed: tuple[str, str, str, str]) -> None:
        self.allowed, self.asked = allowed, []

    def call(self, what):
        return asyncio.run(self._run(what))

    async def _run(self, what):
        client = KubeClient(FakeCluster().transport(), seed=1)
        client.create = self._review
        return await what(client)

    async def _review(self, kind, body):
        assert kind.plural == "selfsubjectaccessreviews"
        of = body["spec"]["resourceAttributes"]
        self.asked.append((of["verb"], of["group"], of["resource"], of["namespace"]))
        return {"status": {"allowed": True} if self.asked[-1] in self.allowed else {}}


class TestRights:
    def test_missing_right_is_an_error(self):
        right = ("create", "dayfly.dev", "sandboxes", "shop")
        cluster_faults.require(Reviewing(right), *right)
        with pytest.raises(DayflyError) as refused:
            cluster_faults.require(Reviewing(), *right)
        place = "in the namespace shop, which the test needs; ask the cluster's administrator for that right"
        assert str(refused.value) == f"you may not create sandboxes {place}"
        assert refused.value.code == Exit.DENIED
        with pytest.raises(DayflyError, match="you may not create plugins, which the test needs"):
            cluster_faults.require(Reviewing(), "create", "dayfly.dev", "plugins", "")

    def plugin(self, *steps):
        return SimpleNamespace(spec=SimpleNamespace(create=steps))

    def step(self, name: str, object_: object):
        return SimpleNamespace(name=name, object=object_)

    def test_missing_rights_are_listed_for_pods_and_each_object_step(self):
        makes = self.step("make", SimpleNamespace(manifest=MANIFEST))
        plugin = self.plugin(makes, self.step("script", None), self.step("waits", SimpleNamespace(manifest=None)))
        every = [(verb, "", "configmaps", "shop") for verb in ("list", "patch", "delete")]
        pods = ("delete", "", "pods", "runners")
        assert cluster_faults.find_missing_rights(Reviewing(pods, *every), plugin, "runners") == ("", {"make": ""})
        assert cluster_faults.find_missing_rights(Reviewing(*every), plugin, "runners") == (
            "you may not delete pods in runners",
            {"make": ""},
        )
        assert cluster_faults.find_missing_rights(Reviewing(pods, every[0]), plugin, "runners") == (
            "",
            {"make": "you may not patch configmaps in shop"},
        )
