"""The end of runs, also of runs that never began: which versions are deleted, and which objects are not ours."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake import run
from tests.operator.rig.run_creation import API, BOXES, RUN, Bench

from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus, SchedulingGate
from dayfly.operator.cluster.objects import DOCUMENT_FINALIZER, RUN_FINALIZER, TARGET_FINALIZER, RunObject
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.spec.run import UnitRecord


def watched(bench: Bench) -> list[tuple[str, float]]:
    """Return which runs are queued, and their delays."""
    again: list[tuple[str, float]] = []
    bench.caches.queue.add = lambda key, after=0.0, **_: again.append((key, after))
    return again


def pinned(bench: Bench, *finalizers: str) -> RunObject:
    """Create the run with a document."""
    pin = {"name": "d", "uid": bench.document(), "digest": "sha256:0"}
    return bench.create_run(*finalizers, documents=[pin])


class TestUnborn:
    """The target is deleted before any claim."""

    def test_released_run_goes_with_its_documents(self):
        async def story():
            bench = Bench(deleted=True)
            again = watched(bench)
            permitted = await bench.targets.ensure_finalizer(pinned(bench))
            return permitted, bench.server.objects("runs"), bench.server.objects("objectlifecyclemethods"), again

        assert run(story()) == (False, [], [], [])

    def test_documents_of_a_deleted_run_are_removed(self):
        async def story():
            bench = Bench(deleted=True)
            found = pinned(bench)
            bench.change(f"{API}/runs/{RUN}", {"metadata": {"finalizers": None}})
            bench.ask("DELETE", f"{API}/runs/{RUN}")
            await bench.targets.ensure_finalizer(found)
            return bench.server.objects("objectlifecyclemethods")

        assert run(story()) == []

    def test_run_changed_since_is_kept_and_checked_again(self):
        """A peer may have claimed: only the version that provably has no claim is deleted."""

        async def story():
            bench = Bench(deleted=True)
            found, again = pinned(bench), watched(bench)
            bench.change(f"{API}/runs/{RUN}", {"metadata": {"annotations": {"new": "yes"}}})
            await bench.targets.ensure_finalizer(found)
            [left] = bench.server.objects("runs")
            return "deletionTimestamp" in left["metadata"], len(bench.server.objects("objectlifecyclemethods")), again

        assert run(story()) == (False, 1, [(RUN, 0.1)])

    def test_another_of_its_name_is_none_of_its_own(self):
        async def story():
            bench = Bench(deleted=True)
            found, again = pinned(bench), watched(bench)
            meta = msgspec.structs.replace(found.metadata, uid="before")
            await bench.targets.ensure_finalizer(msgspec.structs.replace(found, metadata=meta))
            [left] = bench.server.objects("runs")
            return left["metadata"]["finalizers"], len(bench.server.objects("objectlifecyclemethods")), again

        assert run(story()) == ([RUN_FINALIZER], 1, [])

    def test_finalizers_of_others_keep_the_run(self):
        async def story():
            bench = Bench(deleted=True)
            await bench.targets.ensure_finalizer(pinned(bench, "x/y"))
            [left] = bench.server.objects("runs")
            return left["metadata"]["finalizers"]

        assert run(story()) == ["x/y"]

    def test_claim_during_the_removal_keeps_the_run(self):
        """After our delete, before our finalizer is removed: a delete that waits for a finalizer ends like any other run."""

        async def story():
            bench = Bench(deleted=True)
            found = pinned(bench)
            delete = bench.caches.client.delete

            async def claimed(*arguments, **more):
                await delete(*arguments, **more)
                units = {"db/make": msgspec.to_builtins(UnitRecord(attempt=1, state="claimed"))}
                bench.change(f"{API}/runs/{RUN}", {"ledger": {"units": units}})

            bench.caches.client.delete = claimed
            await bench.targets.ensure_finalizer(found)
            [left] = bench.server.objects("runs")
            return left["metadata"]["finalizers"], len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == ([RUN_FINALIZER], 1)


class TestRelease:
    """A run is over: its target is released."""

    async def released(self, *, replaced: bool = False, removes: bool = True, **box):
        bench = Bench(**{"finalizers": (TARGET_FINALIZER, "x/y"), **box})
        found = bench.create_run()
        if replaced:
            bench.change(f"{BOXES}/box", {"metadata": {"finalizers": None}})
            bench.ask("DELETE", f"{BOXES}/box")
            meta = {"name": "box", "finalizers": [TARGET_FINALIZER]}
            bench.ask("POST", BOXES, {"metadata": meta, "spec": {"cluster": "c"}})
        [adapter] = bench.targets
        adapter.removes = removes
        await bench.targets.release(found)
        return [
            (box["metadata"].get("finalizers"), "deletionTimestamp" in box["metadata"])
            for box in bench.server.objects("sandboxes")
        ]

    def test_sandbox_is_deleted_with_its_run(self):
        assert run(self.released()) == [(["x/y"], True)]

    def test_deleted_sandbox_loses_our_finalizer(self):
        assert run(self.released(deleted=True, finalizers=(TARGET_FINALIZER,))) == []

    def test_target_that_is_not_deleted_lives_on(self):
        assert run(self.released(removes=False)) == [(["x/y"], False)]

    def test_new_target_of_the_same_name_is_left_alone(self):
        assert run(self.released(replaced=True)) == [([TARGET_FINALIZER], False)]

    def test_missing_target_needs_no_release(self):
        assert run(self.released(deleted=True, finalizers=())) == []


class TestDocuments:
    @pytest.mark.parametrize(("pinned", "stays"), [(True, False), (False, True)])
    def test_only_the_pinned_document_is_removed(self, pinned, stays):
        async def story():
            bench = Bench()
            uid = bench.document()
            meta = AnnotatedMeta(name="d", uid=uid if pinned else "another", finalizers=[DOCUMENT_FINALIZER])
            await bench.targets.release_document(meta)
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == int(stays)


class TestWish:
    def test_missing_target_ends_the_run_as_of_its_birth(self):
        async def story():
            bench = Bench(deleted=True)
            found = bench.create_run()
            ledger = msgspec.structs.replace(found.ledger, born_at=7)
            return await bench.targets.read_intent(msgspec.structs.replace(found, ledger=ledger))

        found = run(story())
        assert (found.stop.at, found.stop.reason, found.stop.message) == (7, "Deleted", "its target object is gone")
        assert found.abandon is None

    def test_new_target_of_the_same_name_does_not_keep_the_run(self):
        async def story():
            bench = Bench(deleted=True)
            found = bench.create_run()
            bench.ask("POST", BOXES, {"metadata": {"name": "box"}, "spec": {"cluster": "c"}})
            return (await bench.targets.read_intent(found)).stop.message

        assert run(story()) == "its target object is gone"

    def test_target_missing_in_the_cache_is_read_from_the_server(self):
        async def story():
            bench = Bench(finalizers=("x/y",), deleted=True)
            return (await bench.targets.read_intent(bench.create_run())).stop.message

        assert run(story()) == "deleted"


def pod(name: str = "p", *, deleted: bool = False, finalized: bool = False, gated: bool = False, **status) -> Pod:
    meta = ObjectMeta(
        name=name,
        namespace="n",
        uid=name,
        labels={names.RUN_LABEL: RUN},
        owner_references=[OwnerReference(api_version="v1", kind="Run", name=RUN, uid="r")],
        finalizers=[names.FINALIZER] if finalized else None,
        deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
    )
    gates = [SchedulingGate(name=names.GATE)] if gated else None
    return Pod(metadata=meta, spec=PodSpec(scheduling_gates=gates), status=PodStatus(phase="Running", **status))


class TestOrphans:
    """Pods of a run that is gone."""

    async def swept(self, *pods: Pod):
        """Return the released pods, the possibly running ones, and the number of full reads of a pod."""
        bench = Bench()
        done: list[str] = []
        asked: list[str] = []

        async def release(pod):
            done.append(pod.metadata.name)

        async def read_stored(pod):
            asked.append(pod.metadata.name)
            return {"metadata": {}}

        known = SimpleNamespace(release=release, read_stored=read_stored)
        sweeper = OrphanSweeper(bench.caches, known, bench.targets, *bench.beside)
        for each in pods:
            bench.caches.pods.put(each)
        await sweeper.sweep()
        await sweeper.sweep()
        return done, dict(sweeper.orphans), asked

    def test_gated_orphan_is_released(self):
        assert run(self.swept(pod(gated=True))) == (["p", "p"], {}, [])

    def test_orphan_that_may_run_is_left_alone(self):
        assert run(self.swept(pod())) == ([], {"p": 0}, ["p"])

    def test_recorded_orphan_that_is_being_deleted_is_ignored(self):
        assert run(self.swept(pod(deleted=True))) == ([], {}, [])

    def test_unrecorded_orphan_that_is_deleted_is_released(self):
        assert run(self.swept(pod(deleted=True, finalized=True, gated=True)))[0] == ["p", "p"]

    def test_deleted_orphan_is_no_longer_reported(self):
        async def story():
            bench = Bench()
            bench.sweeper.orphans["gone"] = 0
            await bench.sweeper.sweep()
            return bench.sweeper.orphans

        assert run(story()) == {}
