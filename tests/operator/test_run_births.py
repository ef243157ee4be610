"""The creation of a run: its documents, its target's finalizer and spec, and when it is queued."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.kube.fake import run
from tests.operator.rig.run_creation import API, BOXES, RUN, Bench

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import Key, Pod
from dayfly.kube.transport import KubeRequest
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.objects import RUN_FINALIZER, TARGET_FINALIZER, SandboxObject
from dayfly.operator.targets.adapter import CachedTarget, Times
from dayfly.spec.run import EndRequest as Wanted


class TestDocuments:
    @pytest.mark.parametrize(
        ("box", "target", "stays"),
        [
            ({}, {}, True),
            ({"finalizers": (TARGET_FINALIZER,), "deleted": True}, {}, True),
            ({"finalizers": ("x/y",), "deleted": True}, {}, False),
            ({"deleted": True}, {}, False),
            ({}, {"uid": "another"}, False),
            ({"deleted": True}, {"kind": "Cluster"}, True),
        ],
        ids=["lives", "held by us", "held by others", "is gone", "is another", "is anything else"],
    )
    async def test_documents_are_swept_once_no_run_can_be_born(self, box, target, stays):
        """Documents are written before the run, so the run of an existing target may follow at any moment."""
        bench = Bench(**box)
        bench.document(**target)
        await bench.sweeper.sweep()
        assert len(bench.server.objects("objectlifecyclemethods")) == int(stays)

    @pytest.mark.parametrize("known", [True, False])
    async def test_documents_of_a_run_stay(self, known):
        """The result does not depend on the cache."""
        bench = Bench(deleted=True)
        found = bench.create_run()
        if known:
            bench.caches.runs.put(found)
        bench.document()
        await bench.sweeper.sweep()
        assert len(bench.server.objects("objectlifecyclemethods")) == 1


class TestBirth:
    @pytest.mark.parametrize("seen", [True, False])
    async def test_living_target_gets_the_finalizer(self, seen):
        bench = Bench()
        if seen:
            bench.cache_target()
        assert (await bench.targets.ensure_finalizer(bench.create_run()), bench.finalizers()) == (
            True,
            [TARGET_FINALIZER],
        )

    @pytest.mark.parametrize("seen", [True, False])
    async def test_deleted_target_gets_no_finalizer_and_its_run_goes(self, seen):
        """The finalizer of another program still keeps the target; its run never began, and is deleted."""
        bench = Bench(finalizers=("x/y",), deleted=True)
        if seen:
            bench.cache_target()
        permitted = await bench.targets.ensure_finalizer(bench.create_run())
        assert (permitted, bench.finalizers(), bench.server.objects("runs")) == (False, ["x/y"], [])

    async def test_target_deleted_with_finalizer_keeps_its_run(self):
        bench = Bench(finalizers=(TARGET_FINALIZER,), deleted=True)
        assert (await bench.targets.ensure_finalizer(bench.create_run()), len(bench.server.objects("runs"))) == (
            True,
            1,
        )

    async def test_recreated_target_gets_no_finalizer(self):
        bench = Bench()
        found = bench.create_run()
        bench.ask("DELETE", f"{BOXES}/box")
        bench.ask("POST", BOXES, {"metadata": {"name": "box"}, "spec": {"cluster": "c"}})
        assert (await bench.targets.ensure_finalizer(found), bench.finalizers(), bench.server.objects("runs")) == (
            False,
            [],
            [],
        )

    async def test_run_that_another_replica_began_is_not_deleted(self):
        """We saw the run without a claim and its target without our finalizer; by now there is a claim."""
        bench = Bench(deleted=True)
        found = bench.create_run()
        path = f"{API}/runs/{RUN}"
        units = {"db/make": {"attempt": 1, "state": "claimed"}}
        patch = json.dumps({"ledger": {"units": units}}).encode()
        bench.server.answer(KubeRequest("PATCH", path, {}, patch, "application/merge-patch+json"))
        permitted = await bench.targets.ensure_finalizer(found)
        [left] = bench.server.objects("runs")
        assert (permitted, left["metadata"].get("deletionTimestamp"), left["metadata"]["finalizers"]) == (
            False,
            None,
            [RUN_FINALIZER],
        )

    async def test_closed_run_needs_no_finalizer(self):
        bench = Bench(deleted=True)
        found = bench.create_run()
        closed = Wanted(at=1, reason="Deleted")
        ledger = msgspec.structs.replace(found.ledger, closed=closed)
        assert await bench.targets.ensure_finalizer(msgspec.structs.replace(found, ledger=ledger)) is True

    @pytest.mark.parametrize("written", [True, False])
    async def test_finalizer_is_read_back_after_a_lost_response(self, written):
        """If the write did not arrive, it is retried, and the run stays."""
        bench = Bench()
        again = []
        bench.caches.queue.add = lambda key, **more: again.append((key, more))
        patch = bench.caches.client.patch

        async def lost(*arguments, **more):
            if written:
                await patch(*arguments, **more)
            raise errors.OutcomeUnknown("PATCH box", "no answer came")

        bench.caches.client.patch = lost
        permitted = await bench.targets.ensure_finalizer(bench.create_run())
        assert (permitted, len(bench.server.objects("runs")), again) == (
            (True, 1, []) if written else (False, 1, [(RUN, {"after": 0.1})])
        )


class TestWish:
    """The run follows what the owner of the target requests."""

    @staticmethod
    async def wish(bench, **meta):
        [box] = bench.server.objects("sandboxes")
        seen = {**box, "metadata": {**box["metadata"], **meta}}
        bench.caches.sandboxes.put(msgspec.convert(seen, SandboxObject))
        found = bench.create_run()
        ledger = msgspec.structs.replace(found.ledger, born_at=7)
        return await bench.targets.read_intent(msgspec.structs.replace(found, ledger=ledger))

    async def test_target_without_requests_continues(self):
        found = await self.wish(Bench())
        assert (found.stop, found.abandon, found.expires_at, found.lease_until, found.retry) == (None, None, 0, 0, {})

    def test_abandonment_is_recorded_with_the_time_it_was_seen(self):
        async def story():
            bench, notes = Bench(), {"dayfly.dev/abandon": "it is gone"}
            before = bench.caches.now()
            found = await self.wish(bench, deletionTimestamp="1970-01-01T00:01:00Z", annotations=notes)
            return before, found, bench.caches.now()

        before, found, after = run(story())
        assert before <= found.abandon.at <= after
        assert found.abandon.message == "it is gone"
        assert found.stop.at == 60_000

    @pytest.mark.parametrize("ttl", [{"offsetFrom": "createdAt"}, {"duration": "soon"}, {"duration": None}])
    async def test_invalid_ttl_never_expires(self, ttl):
        bench = Bench()
        [adapter] = bench.targets
        assert adapter.get_times(bench.create_run(), CachedTarget(bench_meta(bench), {"ttl": ttl})) == Times()

    async def test_ttl_counts_from_the_birth(self):
        bench = Bench()
        [adapter] = bench.targets
        assert (
            adapter.get_times(
                bench.create_run(), CachedTarget(bench_meta(bench), {"ttl": {"duration": "2m"}})
            ).expires_at
            == 120_000
        )


def bench_meta(bench):
    meta = msgspec.convert(bench.box, SandboxObject).metadata
    return msgspec.structs.replace(meta, creation_timestamp="1970-01-01T00:00:00Z")


class TestHearing:
    """Changes of a target queue its run."""

    @staticmethod
    def asked(act, *, run_known: bool = True):
        async def story():
            bench = Bench()
            if run_known:
                bench.caches.runs.put(bench.create_run())
            bench.cache_target()
            bench.caches.reflectors = []
            await bench.caches.wait_synced()
            asked, wished = [], []
            bench.caches.queue.add = lambda key, urgency=None, **_: asked.append((key == RUN, urgency))
            bench.caches.sandbox_queue.add = lambda key, **_: wished.append(key)
            act(bench)
            return asked, len(wished)

        return run(story())

    @staticmethod
    def change(bench, **meta):
        changed = {**bench.box["metadata"], "resourceVersion": "99", **meta}
        bench.caches.sandboxes.put(msgspec.convert({**bench.box, "metadata": changed}, SandboxObject))

    def test_deletion_is_urgent(self):
        asked, wished = self.asked(lambda bench: self.change(bench, deletionTimestamp="1970-01-01T00:01:00Z"))
        assert {urgency for _, urgency in asked} == {Urgency.URGENT}
        assert wished == 1

    def test_disappearance_is_urgent(self):
        asked, _ = self.asked(lambda bench: bench.caches.sandboxes.drop(Key("shop", "box")))
        assert {urgency for _, urgency in asked} == {Urgency.URGENT}

    @pytest.mark.parametrize("deleted", [True, False])
    def test_deletion_without_known_run_is_queued(self, deleted):
        def act(bench):
            self.change(bench, **({"deletionTimestamp": "1970-01-01T00:01:00Z"} if deleted else {"labels": {"a": "b"}}))

        assert len(self.asked(act, run_known=False)[0]) == int(deleted)

    @pytest.mark.parametrize("known", [True, False])
    def test_target_with_finalizer_but_no_run_is_queued_by_sweeps(self, known):
        def act(bench):
            self.change(bench, finalizers=[TARGET_FINALIZER])
            bench.caches.sandbox_queue.add = told.append
            bench.targets.sweep()

        told = []
        self.asked(act, run_known=known)
        assert told == ([] if known else [Key("shop", "box")])


@pytest.mark.parametrize(("dead_by", "released"), [(0, False), (4_999, True), (5_000, True), (5_001, False)])
async def test_orphaned_pod_is_released_after_its_deadline(dead_by, released):
    """0: the deadline is not known."""
    bench = Bench()
    bench.caches.now = lambda: 5_000
    owner = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": RUN, "uid": "r"}
    meta = {"name": "p", "labels": {names.RUN_LABEL: RUN}, "ownerReferences": [owner]}
    meta["finalizers"] = [names.FINALIZER]
    spec = {"containers": [{"name": "main", "image": "busybox:1"}]}
    made = bench.ask("POST", "/api/v1/namespaces/shop/pods", {"metadata": meta, "spec": spec})
    bench.caches.pods.put(msgspec.convert({**made, "status": {"phase": "Running"}}, Pod))
    bench.sweeper.orphans[made["metadata"]["uid"]] = dead_by
    await bench.sweeper.sweep()
    assert all("deletionTimestamp" in pod["metadata"] for pod in bench.server.objects("pods")) is released
