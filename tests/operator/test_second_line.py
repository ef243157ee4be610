"""Wrong or outdated data of caches, logs and peers: a second check precedes every consequence."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, run
from tests.kube.fake.store import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.reconciler_bench import blind, reconciler
from tests.operator.rig.runner import Receipt
from tests.operator.rig.scenes import Scene, at_work, chain, gone, message, play, plugin, ready, step, wish
from tests.operator.rig.world import KINDS, Unit, World

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key, Pod
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RUN_FINALIZER, RUNS, DocumentObject, PluginObject, RunObject, SandboxObject
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.sandboxes.in_use_labels import InUseLabels
from dayfly.operator.sandboxes.sandbox_controller import SandboxController
from dayfly.plan.actions import Prepare
from dayfly.spec.frames import decode, encode

RUNNERS = "/api/v1/namespaces/dayfly-runners"
ORDER, READS = "dayfly.dev/order", "dayfly.dev/reads"
RETRIED = Scene(
    plugin([step("make", outputs=("url",), idempotent=True, backoff="60s"), step("seed", reads=("make.url",))], []),
    {
        "db/make": Unit(creates=True),
        "db/seed": Unit(creates=True, once=True, reads={"MAKE_URL": ("db/make", "url")}),
    },
    chain,
    clean=False,
)


def versions(world: World, kind: str) -> list[Object]:
    return [write.new for write in world.cluster.store.after(world.cluster.kind(kind), 0) if write.new]


def test_replacement_of_a_claimed_pod_leaves_it_unknown():
    """The pod is ours except for its UID. The outcome of the claimed pod is unknown."""

    async def story(world: World) -> None:
        world.cloud.lossy = world.cloud.forgiven = True
        await world.until(lambda: world.cloud.starts("db/make"), "the step")
        [pod] = world.pods("db/make")
        path, meta = f"{RUNNERS}/pods/{pod['metadata']['name']}", pod["metadata"]
        world.kubelet.held.add(meta["name"])
        world.take_away(path, gracePeriodSeconds=0)
        kept = {key: meta[key] for key in ("name", "labels", "annotations", "ownerReferences", "finalizers")}
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "schedulingGates")}
        world.ask("POST", f"{RUNNERS}/pods", {"metadata": kept, "spec": spec})
        ended = {"exitCode": 0, "startedAt": pod["metadata"]["creationTimestamp"]}
        status = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
        world.ask("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
        await world.until(lambda: world.status().get("reason") == "OutcomeUnknown", "the doubt", 10)
        await world.rest(30)
        assert world.ledger()["units"]["db/make"]["state"] == "unknown"
        world.delete()
        await gone(world)

    play(story, make=Script(runs=3000, deaf=True))


def test_sandbox_that_was_fenced_before_is_not_born_again():
    """The cached Sandbox has no finalizer and no run. By now there was a run, and it is lost."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        plugins = world.cluster.objects("resourceplugins")
        world.respawn = False
        await world.processes.pop().end()
        world.lose_ledger()
        seen, born = blind(world), versions(world, "sandboxes")[0]
        seen.sandboxes.put(msgspec.convert(born, SandboxObject))
        for each in plugins:
            seen.plugins.put(msgspec.convert(each, PluginObject))
        front = SandboxController(seen, InUseLabels(seen), lambda *_: None)
        assert await front.reconcile(Key("shop", "box")) is None
        assert not world.cluster.objects("runs")
        world.start()
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "nobody knows"}}})
        world.delete()
        await world.until(lambda: world.box() is None, "the sandbox to go")

    world = at_work(story)
    assert world.cloud.starts("db/make") == 1


def test_expired_sandbox_is_deleted():
    """The sandbox is deleted by UID; the rig checks that."""

    async def story(world: World) -> None:
        world.sandbox(wish(ttl={"duration": "1m"}))
        await world.until(lambda: ready(world), "ready")
        await gone(world)

    assert at_work(story).cloud.starts("db/drop") == 1


def test_pod_with_an_open_ended_start_window_is_not_claimed():
    """A start deadline proves the end of a lost step, so a pod without one is refused."""

    def widened(operation, kind, _old, new):
        if (operation, kind.plural) != ("CREATE", "pods"):
            return None
        notes = new["metadata"]["annotations"]
        records = decode("dayfly-order", notes[ORDER].encode())
        order = [(key, b"9000000000000" if key == "start-before-ms" else value) for key, value in records]
        meta = new["metadata"] | {"annotations": notes | {ORDER: encode("dayfly-order", order).decode()}}
        return new | {"metadata": meta}

    async def story(world: World) -> None:
        world.cluster.admission.append(widened)
        world.sandbox(wish())
        await world.until(lambda: "changed by an admission webhook" in message(world), "the answer to its creator", 30)
        await world.processes.pop().end()
        world.start()
        await world.until(lambda: "later start deadline than Dayfly sets" in message(world), "the answer to a peer", 30)
        await world.rest(60)
        assert not world.cloud.log
        [pod] = world.pods()
        assert pod["spec"]["schedulingGates"] == [{"name": "dayfly.dev/claim"}]
        world.cluster.admission.clear()
        world.ask("DELETE", f"{RUNNERS}/pods/{pod['metadata']['name']}")
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)

    at_work(story)


def test_pod_that_a_peer_made_for_a_later_attempt_is_left_to_it():
    """An operator without that attempt in its ledger would release the valid pod. Its own pod could never start."""

    async def story(world: World) -> None:
        await world.until(lambda: world.cloud.starts("db/make") == 2, "the second try")
        await world.until(
            lambda: "2" in [of["metadata"]["labels"][READS] for of in world.pods("db/seed")], "its reader"
        )
        [pod] = world.pods("db/seed")
        before = next(run for run in versions(world, "runs") if run["ledger"].get("units", {}).get("db/make"))
        seen = blind(world)
        late = reconciler(seen)
        seen.runs.put(msgspec.convert(before, RunObject))
        seen.pods.put(msgspec.convert(pod, Pod))
        for each in world.cluster.objects("objectlifecyclemethods"):
            seen.documents.put(msgspec.convert(each, DocumentObject))
        seen.sandboxes.put(msgspec.convert(world.box(), SandboxObject))
        scene = await late.observe(before["metadata"]["name"])
        assert scene.world.run.unit("db/make").attempt == 1, "it is behind"
        await late.perform(scene, Prepare(unit="db/seed", attempt=1, ahead=True))
        assert world.pods("db/seed") == [pod]
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await world.until(lambda: not world.leftovers(), "everything to go")

    play(story, RETRIED, make=Script(fails=1, runs=20))


def sealed(*, own: bool = True, cut: int = 0) -> bool:
    """Return whether a receipt in the log is accepted: the pod's own, or another's. The log is readable after some cuts."""

    async def main() -> bool:
        cluster, heard, cuts = FakeCluster(seed=1), asyncio.Event(), [Fault(Harm.TROUBLE_BEFORE)] * cut
        cluster.faults = lambda call: cuts.pop() if cuts and call.request.path.endswith("/log") else None
        body = {"metadata": {"name": "r-a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
        made = cluster.answer(KubeRequest("POST", "/api/v1/namespaces/default/pods", {}, json.dumps(body).encode()))
        pod = msgspec.json.decode(made.body, type=Pod)
        receipt = Receipt(pod.metadata.uid if own else "another", {"nonce": "n", "attempt": "1"}, {}, "exited", 0, 1, 2)
        cluster.log_of("r-a", "default").write(receipt.log())
        followers = LogFollowers(KubeClient(cluster.transport("operator"), seed=1), lambda _run: heard.set())
        followers.follow(pod, "run")
        async with asyncio.timeout(60):
            await heard.wait()
        found = followers.sealed_log(pod.metadata.uid) is not None
        await followers.close()
        return found

    return run(main())


@pytest.mark.parametrize("own", [True, False])
def test_receipt_in_a_log_that_is_another_pods_is_not_this_ones(own):
    """Logs are requested by name, and another pod may have the name by now."""
    assert sealed(own=own) is own


def test_receipt_in_a_cut_log_is_read_when_followed_again():
    assert sealed(cut=2)


def test_finalizer_of_a_replacement_object_stays():
    """The observed pod is gone, and another one of its name still needs its finalizer."""

    async def main() -> list[str]:
        cluster = FakeCluster(seed=1, extra=KINDS)
        client = KubeClient(cluster.transport("operator"), seed=1)
        seen = AnnotatedMeta(name="box", uid="gone", finalizers=[RUN_FINALIZER])
        spec = {"ledger": {"uid": "u", "target": {}, "plan": ""}}
        path = "/apis/dayfly.dev/v1alpha1/runs"
        body = json.dumps({"metadata": {"name": "box", "finalizers": [RUN_FINALIZER]}, **spec})
        assert cluster.answer(KubeRequest("POST", path, {}, body.encode())).status == 201
        await ClusterWatches(client).drop_finalizer(RUNS, seen, RUN_FINALIZER)
        return cluster.objects("runs")[0]["metadata"]["finalizers"]

    assert run(main()) == [RUN_FINALIZER]
