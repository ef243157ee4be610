"""Objects in a cluster: created by an account of their namespace, polled, deleted, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.kube.fake import FakeCluster, Fault, Harm
from tests.operator.rig.claim_controller import MERGE
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CLAIMED, CLAIMED_UNITS, gone, message, plugin, ready, wish
from tests.operator.rig.world import KINDS, World, live

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.executors.object_executor import ObjectExecutor
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Object, Unit

GONE = (("namespaces", Key("", "shop")),)
CLAIMS = "/apis/db.example.org/v1/namespaces/shop/claims"
MANIFEST: dict[str, Any] = {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {"url": "", "size": 1}}
SCRIPTS = {"db/make": Script(outputs={"url": b"db://1"}), "db/seed": Script(), "db/drop": Script()}


def play(story, made=None, units=None, *, grants=True, count=1) -> World:
    def born() -> World:
        world = World(CLAIMED_UNITS if units is None else units, SCRIPTS)
        world.plugin("pg", made or CLAIMED)
        if grants:
            world.may("claims.db.example.org", "jobs.batch", "configmaps")
            world.may("secrets", verbs="get")
        return world

    async def begin(world: World) -> None:
        world.start(count)
        await story(world)

    world = live(born, begin)
    assert not world.cluster.objects("claims")
    return world


def alone(**object_: Any) -> dict[str, Any]:
    """Return a plugin with one step, which creates a claim."""
    return plugin([{"name": "claim", "object": {"manifest": MANIFEST, **object_}}], [])


def unit(world: World, name: str) -> dict[str, Any]:
    return next(each for each in world.status()["units"] if each["id"] == name)


def said(world: World, name: str, words: str) -> bool:
    units = [each for each in world.status().get("units", ()) if each["id"] == name]
    return any(words in each.get("message", "") for each in units)


def stir(world: World) -> None:
    """Let its controller process the claim again."""
    [claim] = world.cluster.objects("claims")
    world.ask("PATCH", f"{CLAIMS}/{claim['metadata']['name']}", {"metadata": {"labels": {"a": "b"}}}, MERGE)


async def ended(world: World) -> None:
    await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 3600)
    await gone(world)


def writes(world: World) -> list[str]:
    """Return the operators' changes of claims by method, without dry runs."""
    calls = [call.request for call in world.cluster.calls if call.write is not None and "/claims" in call.request.path]
    return [call.method for call in calls if not is_dry(call)]


def is_dry(request) -> bool:
    return "dryRun" in request.query or b'"dryRun"' in request.body


def test_a_claim_lives_its_whole_life_between_steps():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        [claim] = world.cluster.objects("claims")
        assert claim["spec"] == {"url": "db://1", "size": 1}
        assert claim["metadata"]["finalizers"][0] == "dayfly.dev/object"
        [owner] = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["blockOwnerDeletion"]) == ("Run", False)
        assert world.ledger()["units"]["db/claim"]["ref"] == claim["metadata"]["uid"]
        assert world.ledger()["units"]["db/claim"]["outputs"]["password"]["sensitive"] is True
        world.delete()
        await ended(world)

    world = play(story)
    given = {unit: values for (_, unit, _), values in world.cloud.given.items()}
    assert given["db/seed"]["CLAIM_PASSWORD"] == b"s3cret"
    assert given["db/drop"]["CLAIM_HOST"] == given["db/seed"]["CLAIM_HOST"]
    assert writes(world) == ["POST", "DELETE", "PATCH"]  # and the last one removes our finalizer
    names = [line.unit for line in world.cloud.log if line.what == "start"]
    assert names == ["db/make", "db/seed", "db/drop"]


def test_its_removal_waits_for_the_delete_step_that_needs_it():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.kubelet.scripts["db/drop"] = Script(runs=60)
        world.delete()
        await world.until(lambda: world.cloud.starts("db/drop"), "its delete step", 60)
        await world.until(lambda: said(world, "db/remove-claim", "needs an output of db/drop"), "its reason", 30)
        assert not world.cluster.objects("claims")[0]["metadata"].get("deletionTimestamp")
        await ended(world)

    play(story)


def test_a_namespace_that_is_gone_is_proof():
    """The permissions in the namespace are gone as well, so its objects cannot be read."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        world.cluster.rights.clear()
        world.delete()
        await world.until(lambda: said(world, "db/remove-claim", "may not get"), "the lack", 60)
        for plural, key in (("claims", Key("shop", world.cluster.objects("claims")[0]["metadata"]["name"])), *GONE):
            world.cluster.store.put(world.cluster.kind(plural), key, None, world.cluster.time())
        await ended(world)

    play(story, alone(), {})


def test_object_created_too_late_by_a_paused_operator_is_removed():
    def late(request):
        made = request.method == "POST" and request.path.endswith("/claims") and "dryRun" not in request.query
        return 700.0 if made else 0.0

    async def story(world: World) -> None:
        world.late += 700
        world.processes[0].transport.pause = late
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.delete()
        await ended(world)
        born = [each for each in world.cluster.store.after(world.cluster.kind("claims"), 0) if each.old is None]
        assert len(born) == 2, "the late one was made, and is gone"

    play(story, alone(), {}, count=2)


def test_object_that_a_peer_recorded_first_stays():
    """By then the peer has observed and recorded it, and has continued."""
    made = False

    def late(request):
        nonlocal made
        asks_again = made and request.method == "GET" and "/runs/" in request.path
        made |= request.method == "POST" and request.path.endswith("/claims") and "dryRun" not in request.query
        return 60.0 if asks_again else 0.0

    async def story(world: World) -> None:
        world.late += 60
        world.processes[0].transport.pause = late
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        await asyncio.sleep(90)
        assert made
        assert ready(world)
        [claim] = world.cluster.objects("claims")
        assert "deletionTimestamp" not in claim["metadata"]
        world.delete()
        await ended(world)

    play(story, alone(), {}, count=2)


def test_a_foreign_object_of_its_name_is_left_alone():
    manifest = {**MANIFEST, "metadata": {"name": "orders"}}

    async def story(world: World) -> None:
        world.ask("POST", CLAIMS, {"metadata": {"name": "orders"}, "spec": {"mine": True}})
        world.sandbox(wish())
        await world.until(
            lambda: said(world, "db/claim", "Claim shop/orders exists and does not belong to this step"), "it", 60
        )
        assert unit(world, "db/claim")["reason"] == "NameConflict"
        world.ask("DELETE", f"{CLAIMS}/orders")
        await world.until(lambda: ready(world), "ready", 120)
        assert world.cluster.objects("claims")[0]["metadata"]["name"] == "orders"
        world.delete()
        await ended(world)

    play(story, alone(manifest=manifest), {})


def test_waiting_object_is_reported_in_its_controllers_words():
    async def story(world: World) -> None:
        world.claims.latency = 300.0
        world.sandbox(wish())
        await world.until(lambda: said(world, "db/claim", "it has no condition Ready yet"), "the wait", 60)
        assert unit(world, "db/claim")["reason"] == "ObjectNotReady"
        assert message(world).startswith("db/claim: waits for Claim shop/db-claim-")
        await world.until(lambda: ready(world), "ready", 600)
        world.claims.latency, world.claims.releases = 1.0, False
        world.delete()
        hold = "still has the finalizer db.example.org/hold"
        await world.until(lambda: said(world, "db/remove-claim", hold), "what holds it", 60)
        await world.rest(600)
        assert said(world, "db/remove-claim", hold)
        world.claims.releases = True
        stir(world)
        await ended(world)

    play(story, alone(ready={"condition": "Ready"}), {})


def test_failed_object_stays_until_its_sandbox_goes():
    async def story(world: World) -> None:
        world.claims.fails = True
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its failure", 60)
        assert unit(world, "db/claim")["message"].endswith("has failed: NoRoom")
        await world.rest(600)
        assert world.cluster.objects("claims")
        world.delete()
        await ended(world)

    play(story, alone(ready={"contract": True}), {})


def test_object_not_ready_in_time_is_removed():
    made = alone(ready={"condition": "Nothing"})
    made["create"][0]["timeouts"] = {"run": "5m"}

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its failure", 600)
        found = unit(world, "db/claim")
        assert found["reason"] == "RunDeadlineExceeded"
        assert "was not ready within 5 min and was deleted" in found["message"]
        world.delete()
        await ended(world)

    play(story, made, {})


def test_object_that_becomes_ready_at_the_deadline_stays():
    """The object is only deleted in the observed version: a peer may have recorded since then that it is ready."""
    made = alone(ready={"condition": "Late"})
    made["create"][0]["timeouts"] = {"run": "5m"}
    asked = 0

    def late(request):
        nonlocal asked
        asks = request.method == "DELETE" and "/claims/" in request.path and not is_dry(request)
        asked += asks
        return 90.0 if asks and asked == 1 else 0.0

    async def story(world: World) -> None:
        world.late += 90
        world.processes[0].transport.pause = late
        world.sandbox(wish())
        await world.until(lambda: asked, "its time is over", 600)
        [claim] = world.cluster.objects("claims")
        status = claim["status"] | {"conditions": [*claim["status"]["conditions"], {"type": "Late", "status": "True"}]}
        world.ask("PATCH", f"{CLAIMS}/{claim['metadata']['name']}/status", {"status": status}, MERGE)
        await world.until(lambda: ready(world), "ready", 120)
        await asyncio.sleep(60)
        [claim] = world.cluster.objects("claims")
        assert "deletionTimestamp" not in claim["metadata"]
        world.delete()
        await ended(world)

    play(story, made, {})


def test_object_deleted_before_it_is_ready_fails_the_step():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: said(world, "db/claim", "condition Nothing"), "it is there", 60)
        [claim] = world.cluster.objects("claims")
        world.ask("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its failure", 120)
        assert unit(world, "db/claim")["reason"] == "ObjectDeleted"
        world.delete()
        await ended(world)

    play(story, alone(ready={"condition": "Nothing"}), {})


def test_copy_with_the_marks_of_an_object_is_foreign():
    """Once the ledger contains its UID, a restored or copied object is a different one."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        [claim] = world.cluster.objects("claims")
        path = f"{CLAIMS}/{claim['metadata']['name']}"
        world.take_away(path)
        meta = {key: claim["metadata"][key] for key in ("name", "annotations")}
        world.ask("POST", CLAIMS, {"metadata": meta, "spec": {}})
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 3600)
        assert [item["spec"] for item in world.cluster.objects("claims")] == [{}]
        world.take_away(path)
        await gone(world)

    play(story, alone(), {})


def test_abandoned_object_is_left_to_the_garbage_collector():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        world.claims.releases = False
        world.delete()
        await world.until(lambda: said(world, "db/remove-claim", "db.example.org/hold"), "it hangs", 60)
        note = {"metadata": {"annotations": {"dayfly.dev/abandon": "its controller is gone"}}}
        world.change(note)
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 600)
        [claim] = world.cluster.objects("claims")
        assert claim["metadata"]["finalizers"] == ["db.example.org/hold"]
        world.ask("PATCH", f"{CLAIMS}/{claim['metadata']['name']}", {"metadata": {"finalizers": None}}, MERGE)
        world.ask("DELETE", f"/api/v1/namespaces/shop/secrets/creds-{claim['metadata']['name']}")
        await gone(world)

    play(story, alone(ready={"condition": "Ready"}), {})


def test_job_is_created_suspended_and_resumed_by_its_uid():
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"restartPolicy": "Never"}}}}
    made = plugin([{"name": "claim", "object": {"manifest": job, "ready": {"condition": "Complete"}}}], [])

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: said(world, "db/claim", "it has no condition Complete yet"), "it is released", 60)
        [item] = world.cluster.objects("jobs")
        assert item["spec"]["suspend"] is False
        assert "dayfly.dev/release" not in item["metadata"]["annotations"]
        path = f"/apis/batch/v1/namespaces/shop/jobs/{item['metadata']['name']}"
        status = {"status": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}}
        world.ask("PATCH", f"{path}/status", status, MERGE)
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await ended(world)
        assert not world.cluster.objects("jobs")

    world = play(story, made, {})
    born = world.cluster.store.after(world.cluster.kind("jobs"), 0)[0].new
    assert born["spec"]["suspend"] is True
    assert "finalizers" not in born["metadata"]
    sent = [call.request.method for call in world.cluster.calls if call.write and "/jobs" in call.request.path]
    assert sent == ["PATCH", "DELETE", "POST", "POST", "PATCH", "DELETE"]  # the first three are dry runs


def test_a_kind_that_is_not_served_is_said():
    manifest = {"apiVersion": "no.example.org/v1", "kind": "Nothing"}

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: said(world, "db/claim", "serves no Nothing of no.example.org/v1"), "it", 60)
        assert unit(world, "db/claim")["reason"] == "KindNotServed"
        world.delete()
        await ended(world)

    play(story, plugin([{"name": "claim", "object": {"manifest": manifest}}], []), {})


def test_object_of_an_unserved_kind_is_not_gone():
    """The kind was served a moment ago. When it is served again, the object is deleted, and then the sandbox."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.claims.releases = False
        world.delete()
        await world.until(lambda: said(world, "db/remove-claim", "db.example.org/hold"), "it hangs", 60)
        taken = world.cluster.forget("claims")
        await world.until(lambda: unit(world, "db/remove-claim")["reason"] == "KindNotServed", "the report", 30)
        await world.rest(600)
        assert world.cluster.objects("sandboxes"), "it is not known to be gone"
        world.cluster.serve(taken)
        await world.until(lambda: said(world, "db/remove-claim", "db.example.org/hold"), "it to be seen again", 300)
        world.claims.releases = True
        stir(world)
        await ended(world)

    play(story)


def test_a_cluster_scoped_kind_that_no_table_knows_is_refused():
    manifest = {"apiVersion": "wide.example.org/v1", "kind": "Widget"}

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: said(world, "db/claim", "is cluster-scoped, and steps may not create one"), "it", 60)
        world.delete()
        await ended(world)

    play(story, plugin([{"name": "claim", "object": {"manifest": manifest}}], []), {})


def test_two_operators_make_one_object():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.delete()
        await ended(world)

    world = play(story, count=2)
    uids = {
        write.new["metadata"]["uid"]
        for write in world.cluster.store.after(world.cluster.kind("claims"), 0)
        if write.new
    }
    assert len(uids) == 1


def test_creation_without_an_answer_is_retried_with_pauses():
    """A webhook that does not answer gives every creation an unknown outcome."""
    broken, sent = True, 0

    def trouble(_number, call):
        nonlocal sent
        created = call.request.method == "POST" and call.request.path == CLAIMS and not is_dry(call.request)
        sent += created
        return Fault(Harm.TROUBLE_BEFORE) if created and broken else None

    async def story(world: World) -> None:
        nonlocal broken
        world.hook = trouble
        world.sandbox(wish())
        await world.until(lambda: sent, "the first try", 60)
        await world.rest(120)
        assert 3 <= sent <= 30
        broken = False
        await world.until(lambda: ready(world), "ready", 600)
        world.delete()
        await ended(world)

    play(story, alone(), {})


@pytest.mark.parametrize("refused", [False, True])
def test_sealed_document_with_a_refused_kind_is_refused(refused):
    """Another version of Dayfly may have compiled it."""
    cluster = ClusterWatches(KubeClient(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1))
    manifest = {"apiVersion": "v1", "kind": "Node"} if refused else MANIFEST
    unit = Unit(name="make", kind="object", object=Object(written={"manifest": manifest}))
    with pytest.raises(DocumentsRefusedError, match="db/make: ") if refused else contextlib.nullcontext():
        ObjectExecutor(cluster, None).admit("db/make", unit)
