"""Limits of forks: the rights of the baseline, no access to namespaces that did not grant it, no excessive load."""

from __future__ import annotations

import json

import pytest
from tests.operator.rig.fork_stories import ended, made, play
from tests.operator.rig.scenes import fork, message, ready, wish
from tests.operator.rig.world import World

from dayfly.execute.fork import render

MERGE = "application/merge-patch+json"
SOURCES = "dayfly.dev/sandboxes-from"
NOT_GRANTED = "workloads of namespace bank may not be forked by sandboxes of shop: an administrator can annotate it"


def patch(kind: str, value) -> dict:
    return {"type": kind, "value": value if isinstance(value, str) else json.dumps(value)}


def pod(**fields) -> dict:
    return patch("strategic", {"spec": {"template": {"spec": fields}}})


def foreign(name: str = "vault", **changes) -> dict:
    return fork(name, **changes) | {"forkOf": {"kind": "Deployment", "namespace": "bank", "name": name}}


def touched(world: World, namespace: str) -> set[str]:
    """Return the kinds of the operator's objects in a namespace."""
    kinds = ("deployments", "services", "secrets")
    return {
        kind
        for kind in kinds
        for item in world.cluster.objects(kind)
        if item["metadata"].get("namespace") == namespace and item["metadata"].get("ownerReferences")
    }


class TestRights:
    @pytest.mark.slow
    def test_more_than_its_baseline_has(self):
        """A user who may only write Sandboxes must get no privileged pod, no hostPath volume and no other
        ServiceAccount.
        """
        evil = pod(
            serviceAccountName="admin",
            containers=[
                {
                    "name": "main",
                    "securityContext": {"privileged": True},
                    "volumeMounts": [{"name": "root", "mountPath": "/host"}],
                }
            ],
            volumes=[{"name": "root", "hostPath": {"path": "/"}}],
        )

        async def story(world: World) -> None:
            world.sandbox(wish(forks=[fork(patch=evil)]))
            await world.until(lambda: "the fork is refused" in message(world), "the refusal", 30)
            said = message(world)
            assert "spec.template.spec.serviceAccountName would use the rights of a ServiceAccount" in said
            assert "spec.template.spec.volumes[root].hostPath would access the node" in said
            assert "spec.template.spec.containers[main].securityContext would have other rights on the node" in said
            assert "label namespace shop dayfly.dev/forks=free" in said
            assert world.forks.all() == []
            await world.rest(60)
            before = len(world.writes)
            await world.rest(3600)
            assert len(world.writes) == before, "it is retried without a write"
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story, operators=2)

    def test_more_rights_are_allowed_if_an_administrator_permits_it(self):
        async def story(world: World) -> None:
            world.sandbox(wish(forks=[fork(patch=pod(hostNetwork=True))]))
            await world.until(lambda: "spec.template.spec.hostNetwork would access" in message(world), "it", 30)
            world.ask("PATCH", "/api/v1/namespaces/shop", {"metadata": {"labels": {"dayfly.dev/forks": "free"}}}, MERGE)
            await world.until(lambda: ready(world), "ready", 60)
            assert world.forks.all()[0]["spec"]["template"]["spec"]["hostNetwork"] is True
            await ended(world)

        play(story)

    def test_running_fork_keeps_its_rights(self):
        """The edit is refused, and the fork stays as it was."""

        async def story(world: World) -> None:
            found = await made(world)
            world.change({"spec": {"forks": [fork(patch=pod(hostPID=True))]}})
            await world.until(lambda: "spec.template.spec.hostPID would" in message(world), "the refusal", 60)
            [now] = world.forks.all()
            assert now["metadata"]["uid"] == found["metadata"]["uid"]
            assert now["spec"]["template"] == found["spec"]["template"]
            await ended(world)

        play(story)


class TestNamespaces:
    def test_another_namespace_must_allow_it(self):
        """A Sandbox gives its author no rights in another namespace, unless that namespace names the Sandbox's one."""

        async def story(world: World) -> None:
            world.namespace("bank", {SOURCES: "other, shopping"}, **{SOURCES: "shop"})
            world.forks.baseline("vault", "bank")
            world.sandbox(wish(forks=[foreign()]))
            await world.until(lambda: NOT_GRANTED in message(world), "the objection", 30)
            assert touched(world, "bank") == set()
            note = {"metadata": {"annotations": {SOURCES: "other, shop"}}}
            world.ask("PATCH", "/api/v1/namespaces/bank", note, MERGE)
            await world.until(lambda: ready(world), "ready", 30)
            assert world.forks.env()["URL"] == "db://1"
            assert world.forks.all()[0]["metadata"]["namespace"] == "bank"
            await ended(world)

        play(story)

    def test_namespace_of_a_fork_that_is_read_must_allow_it(self):
        """For an address, the operator created a Service there on behalf of every author of a Sandbox."""

        async def story(world: World) -> None:
            world.namespace("bank")
            world.forks.baseline("vault", "bank")
            source = {"fork": {"forkOf": foreign()["forkOf"], "expression": "{{.Service.Host}}"}}
            told = fork(env=[{"name": "VAULT", "valueFrom": source}])
            world.sandbox(wish(forks=[told, foreign()]))
            await world.until(lambda: NOT_GRANTED in message(world), "the objection", 30)
            await world.rest(120)
            assert touched(world, "bank") == set()
            assert world.forks.all() == [], "the local fork is not created without the address that it reads"
            note = {"metadata": {"annotations": {SOURCES: "shop"}}}
            world.ask("PATCH", "/api/v1/namespaces/bank", note, MERGE)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    @pytest.mark.parametrize("there", [True, False])
    def test_namespace_reveals_nothing_before_it_allows_it(self, there):
        """Without the grant, the existence of namespaces and Deployments is not revealed."""

        async def story(world: World) -> None:
            if there:
                world.namespace("bank")
                world.forks.baseline("vault", "bank")
            world.sandbox(wish(forks=[foreign()]))
            await world.until(lambda: NOT_GRANTED in message(world), "the objection", 30)
            if not there:
                world.namespace("bank", {SOURCES: "shop"})
                await world.until(lambda: "Deployment bank/vault, does not exist" in message(world), "the lack", 60)
                world.forks.baseline("vault", "bank")
                await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    def test_elsewhere_it_reads_no_secret_of_its_own_choice(self):
        """In a namespace with the grant, it reads only what the baseline reads, and outputs that are stored there."""

        async def story(world: World) -> None:
            world.namespace("bank", {SOURCES: "shop"})
            world.forks.baseline("vault", "bank")
            root = {"name": "ROOT", "valueFrom": {"secret": {"name": "root", "key": "password"}}}
            reads = fork()["customizations"]["env"]
            world.sandbox(wish(forks=[foreign(env=[*reads, root])]))
            field = "spec.template.spec.containers[main].env[ROOT].valueFrom.secretKeyRef"
            said = f"{field} would read a Secret or ConfigMap of another namespace than the sandbox's"
            await world.until(lambda: said in message(world), "the refusal", 30)
            world.change({"spec": {"forks": [foreign(env=reads)]}})
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)


class TestCosts:
    def test_patch_with_explosive_growth_is_refused(self, monkeypatch):
        """1.3 KB of `copy` operations took 532 MiB in both replicas repeatedly, as long as the Sandbox existed.

        A fork that cannot be created is retried every few seconds, because its baseline may change. It is rendered only
        once.
        """
        copies = [{"op": "copy", "from": "/spec", "path": f"/spec/x{n}"} for n in range(24)]
        applied: list[int] = []
        apply = render.patch.apply
        monkeypatch.setattr(render.patch, "apply", lambda *of: applied.append(1) or apply(*of))

        async def story(world: World) -> None:
            world.sandbox(wish(forks=[fork(patch=patch("json", copies))]))
            await world.until(lambda: "the patch handles more than 131072 bytes" in message(world), "it", 30)
            await world.rest(600)
            assert len(applied) == 1
            world.forks.edit({"metadata": {"annotations": {"a": "b"}}})
            await world.rest(60)
            assert len(applied) == 2, "its baseline has changed, of which a patch can ask anything"
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            (patch("json", [{"op": "remove", "path": "spec/replicas"}]), 'path is "spec/replicas"'),
            (patch("json", ["add"]), "operation 1 is a string"),
            (patch("json", [{"op": "copy", "path": "/a", "from": 7}]), "from is a number"),
            (patch("json", [{"op": "test", "path": "/metadata/labels/~"}]), "has a single ~"),
            (patch("json", [{"op": "add", "path": "/spec/template/spec/containers/x", "value": 1}]), "is not an index"),
            (patch("merge", {"spec": {"template": {"metadata": ["x"]}}}), "spec.template.metadata must be a mapping"),
            (patch("merge", {"metadata": {"labels": 7}}), "metadata.labels must be a mapping"),
            (patch("merge", {"metadata": {"annotations": ["x"]}}), "metadata.annotations must be a mapping"),
            (patch("merge", {"spec": {"template": {"spec": {"containers": {"name": "main"}}}}}), "must be a list"),
            (pod(containers=[{"name": {"a": "b"}}]), "must be a plain value"),
            (patch("json", [{"op": "add", "path": "/x", "value": 1}] * 257), "has 257 operations"),
            (patch("merge", json.dumps({"spec": "x" * 65_536})), "at most 65536"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_malformed_patches_are_the_authors_fault(self, bad, said):
        """The error names its position, is not logged as a bug of the operator, and the next edit is accepted."""

        async def story(world: World) -> None:
            world.sandbox(wish(forks=[fork(patch=bad)]))
            await world.until(lambda: said in message(world), f"it to be said, not {message(world)}", 30)
            assert "defect" not in message(world)
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)
