"""The fake and a real API server get the same requests and must return the same.

`make test` plays a fifth of the stories, others with each commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.kube.differential import (
    DEPLOYMENTS,
    FAKE_KINDS,
    THINGS,
    Player,
    draw,
    draw_workloads,
    new_namespace,
    prepare,
)
from tests.kube.fake import FakeCluster
from tests.kube.fake.deployments import Deployments
from tests.selection import SELECTION

from dayfly.kube import auth, errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.forms import Propagation, Style
from dayfly.kube.objects import NAMESPACES, PODS, SECRETS, ApiResource, Pod
from dayfly.kube.reflector import Reflector
from dayfly.kube.transport import HttpTransport
from dayfly.kube.watch import WatchEvent, watch

PARTS = 10
Played = Callable[[str, int], None]


def chosen(seeds: range, about: str, played: Played) -> list[int]:
    """Return the seeds of the stories to play."""
    share = SELECTION.sample(seeds, PARTS, about)
    played("stories told alike by the fake API server and a real one", len(share))
    return share


pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


@contextlib.asynccontextmanager
async def real(kubeconfig: Path) -> AsyncIterator[tuple[KubeClient, str]]:
    """A client of the real server, and a namespace for the test."""
    client = KubeClient(HttpTransport(await auth.load(kubeconfig)), Limits(rate=5000, burst=5000))
    try:
        await prepare(client)
        namespace = await new_namespace(client)
        yield client, namespace
        await client.delete(NAMESPACES, namespace)
    finally:
        await client.close()


class TestSameAnswers:
    async def test_random_requests(self, kubeconfig: Path, played: Played):
        """100 times 30 requests of all verbs: the same responses, and the same objects afterwards."""
        async with real(kubeconfig) as (client, namespace):
            for seed in chosen(range(100), "requests", played):
                fake = KubeClient(FakeCluster(seed, FAKE_KINDS).transport())
                ours = Player(fake, "default", f"s{seed}-")
                theirs = Player(client, namespace, f"s{seed}-{namespace}-")
                story = []
                for step in draw(random.Random(seed), 30):
                    story.append(step)
                    assert await theirs.play(step) == await ours.play(step), (seed, story)

    async def test_random_requests_to_workloads(self, kubeconfig: Path, played: Played):
        """The same for Deployments without pods and for Services, whose addresses and ports the server assigns."""
        async with real(kubeconfig) as (client, namespace):
            for seed in chosen(range(60), "workloads", played):
                fake = KubeClient(FakeCluster(seed, FAKE_KINDS).transport())
                ours = Player(fake, "default", f"w{seed}-")
                theirs = Player(client, namespace, f"w{seed}-")
                story = []
                for step in draw_workloads(random.Random(seed), 30):
                    story.append(step)
                    assert await theirs.play(step) == await ours.play(step), (seed, story)

    async def test_watches_tell_the_same_story(self, kubeconfig: Path, played: Played):
        """After random requests: the same events in the same order, with and without selector, and the same lists."""
        async with real(kubeconfig) as (client, namespace):
            for seed in chosen(range(1000, 1010), "watches", played):
                fake = KubeClient(FakeCluster(seed, FAKE_KINDS).transport())
                stories = []
                for each, where in ((client, namespace), (fake, "default")):
                    versions = [(await each.list_all(kind, where)).resource_version for kind in (THINGS, PODS)]
                    player = Player(each, where, f"s{seed}-")
                    for step in draw(random.Random(seed), 40):
                        await player.play(step)
                    await self._end(each, where, f"s{seed}-")
                    told = [self._story(each, where, versions, labels, f"s{seed}-") for labels in ("", "x=1", "x!=1")]
                    stories.append(await asyncio.gather(*told))
                assert stories[0] == stories[1], seed

    async def _end(self, client: KubeClient, namespace: str, prefix: str) -> None:
        """Create two last objects of each kind, so that each selection has a last event."""
        for resource in (THINGS, PODS):
            for value in "12":
                metadata = {"name": f"{prefix}end{value}", "labels": {"x": value}}
                about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
                spec = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"}
                await client.create(resource, about | {"spec": spec}, namespace)

    async def _story(self, client: KubeClient, namespace: str, versions: list[str], labels: str, prefix: str):
        story = []
        last = f"{prefix}end1" if labels == "x=1" else f"{prefix}end2"
        for resource, version in zip((THINGS.metadata_only(), PODS), versions, strict=True):
            async with contextlib.aclosing(
                watch(client, resource, version, namespace=namespace, labels=labels)
            ) as events:
                async for event in events:
                    assert isinstance(event, WatchEvent)
                    about = event.object.metadata
                    if about.name.startswith(
                        prefix
                    ):  # pods of earlier stories, which have no node, are being collected
                        story.append((event.type, about.name, about.labels, about.finalizers))
                    if about.name == last:
                        break
            listed = (await client.list_all(resource, namespace, labels=labels, limit=1)).items
            story.append(sorted(item.metadata.name for item in listed if item.metadata.name.startswith(prefix)))
        return story

    async def test_random_applies(self, kubeconfig: Path, played: Played):
        """Server-side apply by two managers and a patching third one: the same fields, the same conflicts."""
        async with real(kubeconfig) as (client, namespace):
            for seed in chosen(range(60), "applies", played):
                fake = KubeClient(FakeCluster(seed, FAKE_KINDS).transport())
                for number in range(12):
                    story = [await self._apply(each, where, seed, number) for each, where in
                             ((client, namespace), (fake, "default"))]  # fmt: skip
                    assert story[0] == story[1], (seed, number)

    async def _apply(self, client: KubeClient, namespace: str, seed: int, number: int):
        dice = random.Random(seed * 1000 + number)
        leaves = {"a": dice.randint(0, 2), "b": dice.randint(0, 2), "list": [dice.randint(0, 2)]}
        spec: dict = {key: value for key, value in leaves.items() if dice.random() < 0.5} or {"a": 0}
        if dice.random() < 0.6:
            spec["deep"] = {key: dice.randint(0, 1) for key in "xy" if dice.random() < 0.6} or {"z": 1}
        metadata: dict = {"name": f"applied-{seed}"}
        if dice.random() < 0.3:
            metadata["labels"] = {"x": dice.choice("12")}
        if dice.random() < 0.3:
            metadata["finalizers"] = [dice.choice(["test.dayfly.dev/one", "test.dayfly.dev/two"])]
        wish = {"apiVersion": THINGS.api_version, "kind": THINGS.kind, "metadata": metadata, "spec": spec}
        manager, force, style = dice.choice(["one", "two"]), dice.random() < 0.3, Style.APPLY
        if number and dice.random() < 0.2:
            manager, force, style = "three", False, Style.MERGE
        try:
            item = await client.patch(
                THINGS, wish, metadata["name"], namespace, style=style, manager=manager, force=force
            )
        except errors.Refused as no:
            return type(no).__name__, no.status
        told = item["metadata"]
        return item["spec"], told.get("labels"), sorted(told.get("finalizers", [])), told["generation"]

    async def test_missing_object_and_unserved_kind_raise_different_errors(self, kubeconfig: Path):
        """A 404 for an object has its name; a 404 for an unknown kind does not."""
        async with real(kubeconfig) as (client, namespace):
            fake = KubeClient(FakeCluster(0, FAKE_KINDS).transport())
            for each, where in ((client, namespace), (fake, "default")):
                for plural, fault in (("things", errors.NotFound), ("nothings", errors.NotServed)):
                    kind = dataclasses.replace(THINGS, plural=plural)
                    for resource in (kind, kind.metadata_only()):
                        for asked in (
                            each.get(resource, "not-there", where),
                            each.delete(resource, "not-there", where),
                        ):
                            with pytest.raises(fault):
                                await asked


class TestSameEnds:
    """Results of a cluster's controllers; the real ones need some time."""

    async def test_owned_objects_go_with_their_owner(self, kubeconfig: Path):
        """Background, foreground and orphan deletion leave the same objects; an owner in another namespace does not
        count.
        """
        async with real(kubeconfig) as (client, namespace):
            expected = await self._owned(KubeClient(FakeCluster(0, FAKE_KINDS).transport()), "default", 0.0)
            assert expected == {"orphan-child": []}
            assert expected == await self._owned(client, namespace, 120.0)

    async def _owned(self, client: KubeClient, namespace: str, patience: float):
        for name in ("background", "foreground", "orphan"):
            about = {"apiVersion": THINGS.api_version, "kind": THINGS.kind}
            owner = await client.create(THINGS, about | {"metadata": {"name": name}}, namespace)
            reference = about | {"name": name, "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
            child = {"metadata": {"name": f"{name}-child", "ownerReferences": [reference]}}
            await client.create(SECRETS, child, namespace)
            await client.delete(THINGS, name, namespace, propagation=Propagation(name.capitalize()))
        lost = about | {"name": "nobody", "uid": "11111111-1111-1111-1111-111111111111"}
        await client.create(SECRETS, {"metadata": {"name": "lost", "ownerReferences": [lost]}}, namespace)
        end = asyncio.get_running_loop().time() + patience
        while True:
            left = (await client.list_all(SECRETS, namespace)).items
            things = (await client.list_all(THINGS, namespace)).items
            found = {item.metadata.name: item.metadata.owner_references or [] for item in left}
            settled = not things and found == {"orphan-child": []}
            if settled or asyncio.get_running_loop().time() >= end:
                return found
            await asyncio.sleep(0.2)

    async def test_a_namespace_ends_once_it_is_empty(self, kubeconfig: Path):
        """A finalizer in a namespace delays its end, and it accepts no new objects until then."""
        async with real(kubeconfig) as (client, _):
            for each, patience in ((KubeClient(FakeCluster(0, FAKE_KINDS).transport()), 1.0), (client, 120.0)):
                await self._ends(each, patience)

    async def _ends(self, client: KubeClient, patience: float) -> None:
        name = (await client.create(NAMESPACES, {"metadata": {"generateName": "ends-"}})).metadata.name
        held = {"metadata": {"name": "held", "finalizers": ["test.dayfly.dev/one"]}}
        await client.create(SECRETS, held, name)
        await client.delete(NAMESPACES, name)
        with pytest.raises(errors.Forbidden) as refused:
            await client.create(SECRETS, {"metadata": {"name": "late"}}, name)
        assert refused.value.is_namespace_ending
        end = asyncio.get_running_loop().time() + patience
        while not (await client.get(SECRETS, "held", name)).metadata.deletion_timestamp:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.1)
        await client.patch(SECRETS, {"metadata": {"finalizers": None}}, "held", name)
        while name in {each.metadata.name for each in (await client.list_all(NAMESPACES)).items}:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.1)

    async def test_deployment_controller_matches_a_real_one(self, kubeconfig: Path):
        """Pods exist only after a scale-up, the status is reported, and foreground deletion waits for the pods.

        A scale-up during the deletion creates no pod.
        """
        async with real(kubeconfig) as (client, namespace):
            cluster = FakeCluster(0, FAKE_KINDS)
            playing = asyncio.create_task(Deployments(cluster, nodes=False).run())
            try:
                for each, where in ((KubeClient(cluster.transport()), "default"), (client, namespace)):
                    await self._lives(each, where)
            finally:
                playing.cancel()

    async def _lives(self, client: KubeClient, namespace: str) -> None:
        labels = {"app": "life"}
        pod = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"}
        template = {"metadata": {"labels": labels, "finalizers": ["test.dayfly.dev/one"]}, "spec": pod}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        made = await client.create(DEPLOYMENTS, {"metadata": {"name": "life"}, "spec": spec}, namespace)
        uid = made["metadata"]["uid"]

        async def pods() -> list[Pod]:
            return (await client.list_all(PODS, namespace, labels="app=life")).items

        async def until(so) -> dict:
            for _ in range(600):
                found = await client.get(DEPLOYMENTS, "life", namespace)
                status = found.get("status", {})
                if status.get("observedGeneration") == found["metadata"]["generation"] and await so(status):
                    return found
                await asyncio.sleep(0.1)
            raise AssertionError(found)

        async def none(status: dict) -> bool:
            return not status.get("replicas") and not await pods()

        async def two(status: dict) -> bool:
            told = (status.get("replicas"), status.get("updatedReplicas"), status.get("availableReplicas", 0))
            return told == (2, 2, 0) and len(await pods()) == 2

        async def ending(status: dict) -> bool:
            return {bool(pod.metadata.deletion_timestamp) for pod in await pods()} == {True}

        await until(none)
        await client.scale(DEPLOYMENTS, "life", namespace, 2, uid=uid)
        found = await until(two)
        assert all((pod.metadata.labels or {}).items() >= labels.items() for pod in await pods())
        await client.delete(DEPLOYMENTS, "life", namespace, uid=uid, propagation=Propagation.FOREGROUND)
        found = await until(ending)
        assert found["metadata"]["deletionTimestamp"]
        await client.scale(DEPLOYMENTS, "life", namespace, 5, uid=uid)
        await asyncio.sleep(1)
        assert len(await pods()) == 2
        for each in await pods():
            await client.patch(PODS, {"metadata": {"finalizers": None}}, each.metadata.name, namespace)
        for _ in range(600):
            try:
                await client.get(DEPLOYMENTS, "life", namespace)
            except errors.NotFound:
                break
            await asyncio.sleep(0.1)
        assert await pods() == []
        with pytest.raises(errors.NotFound):
            await client.get(DEPLOYMENTS, "life", namespace)


class TestRealWatch:
    async def test_a_reflector_follows_a_real_server(self, kubeconfig: Path):
        """Paged list, add, change, delete; the first bookmark or change proves that the cache is current."""
        async with real(kubeconfig) as (client, namespace):
            for number in range(5):
                await client.create(SECRETS, {"metadata": {"name": f"s{number}"}}, namespace)
            reflector = Reflector(client, SECRETS, Cache(), namespace=namespace, page=2)
            task = asyncio.create_task(reflector.run())
            changes: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
            try:
                await reflector.wait_synced()
                assert len(reflector.cache) == 5
                reflector.cache.listen(lambda change: changes.put_nowait((change.key.name, change.new is not None)))
                for _ in range(5):
                    changes.get_nowait()
                await client.create(SECRETS, {"metadata": {"name": "new"}}, namespace)
                await client.delete(SECRETS, "s0", namespace)
                async with asyncio.timeout(60):
                    assert [await changes.get(), await changes.get()] == [("new", True), ("s0", False)]
                assert reflector.age < 60
            finally:
                task.cancel()


class TestPermanentRefusals:
    """Refusals of a pod by a real API server: some of them hold in every state of the cluster."""

    @staticmethod
    def pod(**container) -> dict:
        main = {"name": "main", "image": "x:1", **container}
        return {"metadata": {"generateName": "p-"}, "spec": {"containers": [main]}}

    @pytest.mark.parametrize(
        "container",
        [
            {"resources": {"limits": {"memory": "-64Mi"}}},
            {"resources": {"limits": {"memory": "lots"}}},
            {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
            {"securityContext": {"runAsUser": -1}},
            {"imagePullPolicy": "Sometimes"},
            {"ports": [{"containerPort": "http"}]},
        ],
    )
    async def test_invalid_field_of_a_pod_is_permanent(self, kubeconfig: Path, container: dict):
        async with real(kubeconfig) as (client, namespace):
            with pytest.raises(errors.Refused) as refused:
                await client.create(PODS.read_as(dict), self.pod(**container), namespace)
        assert refused.value.is_permanent

    async def test_quota_and_admission_policy_are_not_permanent(self, kubeconfig: Path):
        group = "admissionregistration.k8s.io"
        quotas = ApiResource("", "v1", "resourcequotas", "ResourceQuota", dict)
        kind = "ValidatingAdmissionPolicy"
        policies = ApiResource(group, "v1", "validatingadmissionpolicies", kind, dict, namespaced=False)
        bindings = ApiResource(
            group, "v1", "validatingadmissionpolicybindings", f"{kind}Binding", dict, namespaced=False
        )
        async with real(kubeconfig) as (client, namespace):
            await client.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}, namespace)
            by_quota = await self.refusal(client, namespace)
            await client.delete(quotas, "none", namespace)
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            of_namespace = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            spec = {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": of_namespace},
                "validations": [{"expression": "false", "message": "no pods today"}],
            }
            await client.create(policies, {"metadata": {"name": namespace}, "spec": spec})
            binding = {"policyName": namespace, "validationActions": ["Deny"]}
            await client.create(bindings, {"metadata": {"name": namespace}, "spec": binding})
            try:
                by_policy = await self.refusal(client, namespace)
            finally:
                await client.delete(bindings, namespace)
                await client.delete(policies, namespace)
        assert "exceeded quota" in by_quota.message
        assert not by_quota.is_permanent
        assert "no pods today" in by_policy.message
        assert not by_policy.is_permanent

    async def refusal(self, client: KubeClient, namespace: str) -> errors.Refused:
        """Create pods until one is refused, as the server enforces a new quota or policy after a while."""
        while True:
            try:
                await client.create(PODS.read_as(dict), self.pod(), namespace)
            except errors.Refused as refused:
                return refused
            await asyncio.sleep(0.1)
