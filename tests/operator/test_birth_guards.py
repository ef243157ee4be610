"""Guards around a run: its birth, what was written for one that never was, what is heard of it, and when it is looked at."""

from __future__ import annotations

import json
from types import SimpleNamespace

import msgspec
import pytest
from rig.birth import API, BOXES, RUN, Bench

from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta, Pod, PodSpec, PodStatus
from dayfly.kube.transport import Request
from dayfly.operator.cluster.objects import RUN_FINALIZER, SANDBOXES, TARGET_FINALIZER, RunObject, SandboxObject
from dayfly.operator.reconciler import Reconciler
from dayfly.operator.session import Sessions
from dayfly.operator.targets.adapter import Plain, Seen, Times
from dayfly.plan.world import Objection
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Request as Wanted
from dayfly.spec.run import Run
from dayfly.work.pace import Urgency
from kube.fake import run


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
    def test_they_go_once_no_run_may_come_any_more(self, box, target, stays):
        """They are written before the run is: of a target that lives it may come at any moment."""

        async def story():
            bench = Bench(**box)
            bench.document(**target)
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == int(stays)

    @pytest.mark.parametrize("known", [True, False])
    def test_those_of_a_run_stay(self, known):
        """Whether the cache has it or not."""

        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            if known:
                bench.caches.runs.put(found)
            bench.document()
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == 1


class TestBirth:
    @pytest.mark.parametrize("seen", [True, False])
    def test_a_target_that_lives_is_held(self, seen):
        async def story():
            bench = Bench()
            if seen:
                bench.seen()
            return await bench.targets.fence(bench.born()), bench.finalizers()

        assert run(story()) == (True, [TARGET_FINALIZER])

    @pytest.mark.parametrize("seen", [True, False])
    def test_a_target_that_is_on_its_way_out_is_not_held(self, seen):
        """Somebody else's finalizer keeps it still; the run was never begun, and goes."""

        async def story():
            bench = Bench(finalizers=("x/y",), deleted=True)
            if seen:
                bench.seen()
            fenced = await bench.targets.fence(bench.born())
            return fenced, bench.finalizers(), bench.server.objects("runs")

        assert run(story()) == (False, ["x/y"], [])

    def test_a_target_that_was_held_before_it_was_deleted_ends_as_any_other(self):
        async def story():
            bench = Bench(finalizers=(TARGET_FINALIZER,), deleted=True)
            return await bench.targets.fence(bench.born()), len(bench.server.objects("runs"))

        assert run(story()) == (True, 1)

    def test_a_target_that_took_the_place_of_ours_is_not_held(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.ask("DELETE", f"{BOXES}/box")
            bench.ask("POST", BOXES, {"metadata": {"name": "box"}, "spec": {"cluster": "c"}})
            return await bench.targets.fence(found), bench.finalizers(), bench.server.objects("runs")

        assert run(story()) == (False, [], [])

    def test_a_run_that_a_peer_has_begun_is_not_taken_away(self):
        """We saw it without a claim, and its target without our finalizer; by now there is one."""

        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            path = f"{API}/runs/{RUN}"
            units = {"db/make": {"attempt": 1, "state": "claimed"}}
            patch = json.dumps({"ledger": {"units": units}}).encode()
            bench.server.answer(Request("PATCH", path, {}, patch, "application/merge-patch+json"))
            fenced = await bench.targets.fence(found)
            [left] = bench.server.objects("runs")
            return fenced, left["metadata"].get("deletionTimestamp"), left["metadata"]["finalizers"]

        assert run(story()) == (False, None, [RUN_FINALIZER])

    def test_a_run_that_is_closed_needs_no_fence(self):
        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            closed = Wanted(at=1, reason="Deleted")
            ledger = msgspec.structs.replace(found.ledger, closed=closed)
            return await bench.targets.fence(msgspec.structs.replace(found, ledger=ledger))

        assert run(story()) is True

    @pytest.mark.parametrize("written", [True, False])
    def test_a_hold_whose_answer_was_lost_is_looked_for(self, written):
        """The target has our finalizer if it was written; if not, it is tried again, and the run stays."""

        async def story():
            bench = Bench()
            again = []
            bench.caches.queue.add = lambda key, **more: again.append((key, more))
            patch = bench.caches.client.patch

            async def lost(*arguments, **more):
                if written:
                    await patch(*arguments, **more)
                raise errors.OutcomeUnknown("PATCH box", "no answer came")

            bench.caches.client.patch = lost
            fenced = await bench.targets.fence(bench.born())
            return fenced, len(bench.server.objects("runs")), again

        assert run(story()) == ((True, 1, []) if written else (False, 1, [(RUN, {"after": 0.1})]))


class TestWish:
    """What its owner does to a target is what the run goes by."""

    @staticmethod
    async def wish(bench, **meta):
        [box] = bench.server.objects("sandboxes")
        seen = {**box, "metadata": {**box["metadata"], **meta}}
        bench.caches.sandboxes.put(msgspec.convert(seen, SandboxObject))
        found = bench.born()
        ledger = msgspec.structs.replace(found.ledger, born_at=7)
        return await bench.targets.wish(msgspec.structs.replace(found, ledger=ledger))

    def test_while_nobody_says_anything_it_goes_on(self):
        async def story():
            found = await self.wish(Bench())
            return found.stop, found.abandon, found.expires_at, found.lease_until, found.retry

        assert run(story()) == (None, None, 0, 0, {})

    @pytest.mark.parametrize(("deleted", "at"), [("1970-01-01T00:01:00Z", 60_000), (None, 7)])
    def test_its_end_counts_from_its_deletion_and_else_from_its_birth(self, deleted, at):
        async def story():
            notes = {"dayfly.dev/abandon": "it is gone"}
            return await self.wish(Bench(), deletionTimestamp=deleted, annotations=notes)

        found = run(story())
        assert (found.abandon.at, found.abandon.message) == (at, "it is gone")
        assert (found.stop.at if found.stop else None) == (60_000 if deleted else None)

    @pytest.mark.parametrize("ttl", [{"offsetFrom": "createdAt"}, {"duration": "soon"}, {"duration": None}])
    def test_a_time_to_live_that_cannot_be_read_never_ends(self, ttl):
        async def story():
            bench = Bench()
            [adapter] = bench.targets
            return adapter.times(bench.born(), Seen(bench_meta(bench), {"ttl": ttl}))

        assert run(story()) == Times()

    def test_one_that_can_ends_so_long_after_its_birth(self):
        async def story():
            bench = Bench()
            [adapter] = bench.targets
            return adapter.times(bench.born(), Seen(bench_meta(bench), {"ttl": {"duration": "2m"}}))

        assert run(story()).expires_at == 120_000


def bench_meta(bench):
    meta = msgspec.convert(bench.box, SandboxObject).metadata
    return msgspec.structs.replace(meta, creation_timestamp="1970-01-01T00:00:00Z")


class TestHearing:
    """Whose run is looked at, and how soon, for what has become of a target."""

    @staticmethod
    def asked(act, *, run_known: bool = True):
        async def story():
            bench = Bench()
            if run_known:
                bench.caches.runs.put(bench.born())
            bench.seen()
            bench.caches._whole = True
            asked, wished = [], []
            bench.caches.queue.add = lambda key, urgency=None, **_: asked.append((key == RUN, urgency))
            bench.caches.wishes.add = lambda key, **_: wished.append(key)
            act(bench)
            return asked, len(wished)

        return run(story())

    @staticmethod
    def change(bench, **meta):
        changed = {**bench.box["metadata"], "resourceVersion": "99", **meta}
        bench.caches.sandboxes.put(msgspec.convert({**bench.box, "metadata": changed}, SandboxObject))

    def test_a_change_is_looked_at_in_its_turn(self):
        asked, wished = self.asked(lambda bench: self.change(bench, labels={"a": "b"}))
        assert (asked, wished) == ([(True, Urgency.NORMAL)], 1)

    def test_what_we_write_ourselves_is_no_news(self):
        """Its status, with our finalizer on it or not, and that finalizer when it comes."""

        def status(bench):
            seen = bench.caches.sandboxes.get("box", "shop")
            newer = {"resource_version": str(int(seen.metadata.resource_version) + 100)}
            meta = msgspec.structs.replace(seen.metadata, **newer)
            bench.caches.sandboxes.put(msgspec.structs.replace(seen, metadata=meta))

        assert self.asked(status) == ([], 0)
        assert self.asked(lambda bench: self.change(bench, finalizers=[TARGET_FINALIZER])) == ([], 0)

        def held(bench):
            self.change(bench, finalizers=["x/y", TARGET_FINALIZER])
            bench.caches.queue.add = bench.caches.wishes.add = lambda *_, **__: told.append(1)
            status(bench)

        told = []
        self.asked(held)
        assert told == []

    def test_a_deletion_is_urgent(self):
        asked, wished = self.asked(lambda bench: self.change(bench, deletionTimestamp="1970-01-01T00:01:00Z"))
        assert {urgency for _, urgency in asked} == {Urgency.URGENT}
        assert wished == 1

    def test_so_is_its_end(self):
        asked, _ = self.asked(lambda bench: bench.caches.sandboxes.drop(Key("shop", "box")))
        assert {urgency for _, urgency in asked} == {Urgency.URGENT}

    @pytest.mark.parametrize("deleted", [True, False])
    def test_without_a_run_that_is_known_something_of_one_may_be_left(self, deleted):
        def act(bench):
            self.change(bench, **({"deletionTimestamp": "1970-01-01T00:01:00Z"} if deleted else {"labels": {"a": "b"}}))

        assert len(self.asked(act, run_known=False)[0]) == int(deleted)

    @pytest.mark.parametrize("known", [True, False])
    def test_one_that_is_held_without_a_run_is_told_of_at_each_sweep(self, known):
        def act(bench):
            self.change(bench, finalizers=[TARGET_FINALIZER])
            bench.caches.wishes.add = told.append
            bench.targets.sweep()

        told = []
        self.asked(act, run_known=known)
        assert told == ([] if known else [Key("shop", "box")])

    def test_of_a_kind_of_which_nothing_is_known_the_metadata_is_all(self):
        item = msgspec.convert({"metadata": {"name": "x"}, "spec": {"a": 1}}, SandboxObject)
        assert Plain(SANDBOXES).seen(item) == Seen(item.metadata, {})


class TestAgain:
    """After how long a run is looked at without news."""

    def reconciler(self):
        made = Reconciler.__new__(Reconciler)
        made._cluster = SimpleNamespace(now=lambda: 5_000, ledger=SimpleNamespace(get=lambda _: self.found))
        made.sessions = Sessions(lambda _: None)
        return made

    found = None

    def test_at_the_moment_that_was_decided_and_not_before(self):
        found = self.reconciler()
        assert [found.again("x", at) for at in (0, 4_000, 5_000, 6_000)] == [0.0, 0.001, 0.001, 1.001]
        assert found.last("x") is None

    def test_or_when_what_was_refused_may_be_tried_again(self):
        self.found = RunObject(
            metadata=AnnotatedMeta(name="x", uid="r"),
            ledger=Run(uid="u", target=Target(kind="Sandbox", name="x", uid="u"), plan=""),
        )
        found = self.reconciler()
        session = found.sessions.of(self.found)
        assert (found.again("x", 0), found.last("x")) == (0.0, None)
        session.refusals.put(("db/make", 1), Objection(reason="r", message="m", since=2_000))
        assert [round(found.again("x", at), 3) for at in (0, 6_000, 9_000)] == [2.001, 1.001, 2.001]


@pytest.mark.parametrize(("dead_by", "released"), [(0, 0), (4_999, 1), (5_000, 1), (5_001, 0)])
def test_a_pod_of_no_run_that_may_be_at_work_is_let_go_when_it_must_have_ended(dead_by, released):
    """0 is: nobody knows when."""

    async def story():
        bench, gone = Bench(), []

        async def release(pod):
            gone.append(pod.metadata.name)

        bench.caches.now = lambda: 5_000
        bench.sweeper._pods = SimpleNamespace(release=release)
        bench.sweeper.orphans["p"] = dead_by
        meta = ObjectMeta(name="p", namespace="n", uid="p")
        await bench.sweeper._orphan(RUN, Pod(metadata=meta, spec=PodSpec(), status=PodStatus(phase="Running")))
        return len(gone)

    assert run(story()) == released
