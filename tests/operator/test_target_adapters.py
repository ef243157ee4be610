"""Targets of runs: the runs that a change wakes, reports of a sweep, and the begin and end of a target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rig.birth import BOXES, RUN
from rig.birth import Bench as Boxes
from rig.hooking import MACHINES, OURS
from rig.pairing import KIND, MERGE, Alone, M
from rig.rules import Rules

from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, RETRY_ANNOTATION, TARGET_FINALIZER, SandboxObject
from dayfly.operator.targets.adapter import Unknown
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import ASK_AGAIN_S, MOST_REASON
from dayfly.spec.kinds import Pin, ServerTarget
from dayfly.spec.run import EndRequest
from kube.fake import run

BOX = Key("shop", "box")
NOW = 9_000


class Heard(Boxes):
    """A Sandbox with its run, and who is to be looked at, how urgently."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.looked: list[tuple[Any, Urgency | None]] = []
        self.broken: list[str] = []
        self.server.judge = Rules(self.server, self.broken.append)
        add = lambda key, urgency=None, after=0.0: self.looked.append((key, urgency))  # noqa: E731 - a stub
        self.caches.queue = SimpleNamespace(add=add)
        self.caches.runs.put(self.born())
        self.looked.clear()

    def hears(self, **meta: Any) -> list[tuple[Any, Urgency | None]]:
        """For what becomes of the Sandbox."""
        if meta:
            self.box = self.ask("PATCH", f"{BOXES}/box", {"metadata": meta}, MERGE)
        self.caches.sandboxes.put(msgspec.convert(self.box, SandboxObject))
        looked, self.looked = self.looked, []
        return looked

    def is_deleted(self) -> None:
        """Begin its deletion, as the cache sees it."""
        deleted = {"deletionTimestamp": "1970-01-01T00:01:00Z", "resourceVersion": "900"}
        self.box = {**self.box, "metadata": {**self.box["metadata"], **deleted}}
        self.hears()


def played(story: Any, of: Any = Heard, **how: Any) -> Any:
    async def main() -> Any:
        return await story(of(**how))

    return run(main())


class TestHearing:
    def test_held_target_found_at_start_has_low_urgency(self):
        async def story(bench: Heard):
            assert bench.hears() == [(RUN, Urgency.BACKGROUND)]

        played(story, finalizers=(TARGET_FINALIZER,))

    @pytest.mark.parametrize(
        ("finalizers", "urgency"), [((TARGET_FINALIZER,), Urgency.BACKGROUND), (("x/y",), Urgency.NORMAL)]
    )
    def test_so_has_its_wish(self, finalizers, urgency):
        async def story(bench: Heard):
            wishes: list[Any] = []
            bench.caches.wishes = SimpleNamespace(add=lambda key, urgency: wishes.append((key, urgency)))
            bench.hears()
            assert wishes == [(BOX, urgency)]

        played(story, finalizers=finalizers)

    def test_target_without_our_finalizer_has_normal_urgency(self):
        async def story(bench: Heard):
            assert bench.hears() == [(RUN, Urgency.NORMAL)]

        played(story)

    def test_status_change_wakes_no_run(self):
        async def story(bench: Heard):
            bench.hears()
            bench.box = bench.ask("PATCH", f"{BOXES}/box/status", {"status": {"ready": False}}, MERGE)
            assert bench.hears() == []

        played(story)

    def test_an_end_is_looked_at_first(self):
        async def story(bench: Heard):
            bench.hears()
            bench.box = bench.ask("DELETE", f"{BOXES}/box")
            assert (RUN, Urgency.URGENT) in bench.hears()
            bench.caches.sandboxes.drop(BOX)
            assert (RUN, Urgency.URGENT) in bench.looked

        played(story, finalizers=("x/y",))

    def test_a_run_that_stays_is_looked_at_once_its_target_is_gone(self):
        async def story(bench: Alone):
            bench.born(phase="cleaned")
            bench.seen()
            bench.looked.clear()
            bench.machine_is(labels={"a": "b"})
            assert bench.taken("queue") == []
            bench.watched.adapter.cache.drop(M)
            assert bench.taken("queue") == [(bench.name, 0.0)]

        played(story, Alone)


class TestSweeping:
    def test_sweep_reports_held_targets_without_a_run(self):
        async def story(bench: Alone):
            told: list[Any] = []
            bench.watched.adapter.lost = told.append
            item = bench.machine_is(finalizers=[OURS])
            bench.targets.sweep()
            assert told == [item]
            bench.born()
            bench.targets.sweep()
            assert told == [item], "it has its run"
            both = bench.machine_is(finalizers=[OURS, "lifecycle.dayfly.dev/other"])
            bench.targets.sweep()
            assert told == [item, both], "another hook's is missing"
            bench.machine_is(finalizers=["x/y"])
            bench.targets.sweep()
            assert len(told) == 2

        played(story, Alone)

    @pytest.mark.parametrize(
        ("phase", "hook", "there", "looked"),
        [
            ("cleaned", True, False, 1),
            ("open", True, False, 0),
            ("cleaned", False, False, 0),
            ("cleaned", True, True, 0),
        ],
    )
    def test_sweep_wakes_cleaned_runs_without_a_target(self, phase, hook, there, looked):
        async def story(bench: Alone):
            made = bench.born(phase=phase, known=hook)
            if not hook:
                plain = msgspec.structs.replace(made.spec, hook=None)
                bench.caches.runs.put(msgspec.structs.replace(made, spec=plain))
            if there:
                bench.seen()
            bench.looked.clear()
            bench.targets.sweep()
            assert len(bench.taken("queue")) == looked

        played(story, Alone)


class TestKinds:
    def test_kind_is_known_until_its_adapter_is_dropped(self):
        async def story(bench: Alone):
            adapter, made = bench.watched.adapter, bench.born()
            assert bench.targets.find(*KIND) is adapter
            assert bench.targets.of(made) is adapter
            bench.targets.drop(adapter)
            assert bench.targets.find(*KIND) is None
            assert isinstance(bench.targets.of(made), Unknown)

        played(story, Alone)


class TestFencing:
    """Before its first claim."""

    @pytest.mark.parametrize(
        ("says", "fenced", "runs", "held"), [(True, True, 1, True), (None, False, 1, True), (False, False, 0, False)]
    )
    def test_server_decides_whether_a_run_may_begin(self, says, fenced, runs, held):
        async def story(bench: Heard):
            asked: list[Any] = []
            later: list[float] = []

            async def permits(made):
                asked.append(made)
                return says

            made = bench.caches.ledger.get(RUN)
            bench.targets.of(made).permits = permits
            bench.caches.queue = SimpleNamespace(add=lambda _key, after=0.0, **_: later.append(after))
            assert await bench.targets.fence(made) is fenced
            assert asked == [made]
            assert later == ([ASK_AGAIN_S] if says is None else [])
            assert len(bench.server.objects("runs")) == runs
            assert (TARGET_FINALIZER in bench.finalizers()) is held

        played(story)

    @pytest.mark.parametrize(
        ("offered", "asked"),
        [
            (None, False),
            ({}, True),
            ({"stop": EndRequest(at=1, reason="Deleted")}, False),
            ({"expires_at": 1}, False),
            ({"expires_at": NOW}, False),
            ({"expires_at": NOW + 1}, True),
        ],
        ids=["its own", "served", "stopped", "expired long ago", "expired", "expires"],
    )
    @pytest.mark.parametrize("says", [True, False, None])
    def test_server_is_queried_only_for_its_own_living_runs(self, offered, asked, says):
        async def story(bench: Heard):
            async def permits(_run):
                return says

            made = bench.caches.ledger.get(RUN)
            wish = ServerTarget(uid="s", **offered) if offered is not None else None
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, offered=wish))
            bench.caches.now = lambda: NOW
            assert await bench.targets.of(made).permits(made) is (None if asked else True), "no server is connected"
            adapter = SandboxTarget(bench.caches, None, SimpleNamespace(permits=permits))
            assert await adapter.permits(made) is (says if asked else True)

        played(story)

    def test_server_is_not_queried_for_a_deleted_target(self):
        async def story(bench: Heard):
            made = bench.caches.ledger.get(RUN)
            bench.targets.of(made).permits = lambda _run: pytest.fail("asked")
            bench.ask("DELETE", f"{BOXES}/box")
            assert await bench.targets.fence(made) is True, "it ends as any other"

        played(story, finalizers=(TARGET_FINALIZER,))

    def test_another_of_its_name_in_the_cache_is_not_it(self):
        async def story(bench: Heard):
            made = bench.caches.ledger.get(RUN)
            other = {**bench.box, "metadata": {**bench.box["metadata"], "uid": "another", "resourceVersion": "900"}}
            bench.caches.sandboxes.put(msgspec.convert(other, SandboxObject))
            assert (await bench.targets.wish(made)).stop is None

        played(story)

    def test_a_hook_that_is_there_lets_its_run_begin(self):
        async def story(bench: Alone):
            assert await bench.targets.fence(bench.born()) is True
            assert bench.ask("GET", f"{MACHINES}/m")["metadata"]["finalizers"] == [OURS]

        played(story, Alone)


class TestEnding:
    def test_retry_and_abandon_annotations_are_read(self):
        async def story(bench: Heard):
            made = bench.caches.ledger.get(RUN)
            bench.hears(annotations={RETRY_ANNOTATION: "db/make=3", ABANDON_ANNOTATION: "force: by hand"})
            wish = await bench.targets.wish(made)
            assert wish.retry == {"db/make": 3}
            assert wish.abandon is not None
            assert wish.abandon.message == "by hand"

        played(story)

    @pytest.mark.parametrize("value", ["by hand", "enforce: x", "forced", " by: force ", "reason: force"])
    def test_abandon_annotation_is_ignored_until_deletion_begins(self, value):
        async def story(bench: Heard):
            bench.hears(annotations={ABANDON_ANNOTATION: value})
            wish = await bench.targets.wish(bench.caches.ledger.get(RUN))
            assert wish.abandon is None
            [said] = wish.ignored
            assert "not being deleted" in said
            assert "dayfly.dev/abandon=force: REASON" in said
            bench.is_deleted()
            wish = await bench.targets.wish(bench.caches.ledger.get(RUN))
            assert (wish.abandon.message, wish.ignored) == (value.strip(), ())

        played(story)

    @pytest.mark.parametrize(
        ("value", "reason"), [("force", "forced"), ("force: it is gone", "it is gone"), ("Force:x", "x")]
    )
    def test_forced_abandonment_needs_no_deletion(self, value, reason):
        async def story(bench: Heard):
            bench.hears(annotations={ABANDON_ANNOTATION: value})
            wish = await bench.targets.wish(bench.caches.ledger.get(RUN))
            assert (wish.stop, wish.abandon.message, wish.ignored) == (None, reason, ())

        played(story)

    @pytest.mark.parametrize("value", ["", " "])
    def test_empty_abandon_annotation_means_nothing(self, value):
        async def story(bench: Heard):
            bench.hears(annotations={ABANDON_ANNOTATION: value})
            bench.is_deleted()
            wish = await bench.targets.wish(bench.caches.ledger.get(RUN))
            assert (wish.abandon, wish.ignored) == (None, ())

        played(story)

    def test_a_reason_of_any_length_gives_it_up(self):
        """The ledger takes 65,536 characters, and so does a status, which says more than the reason."""

        async def story(bench: Heard):
            bench.hears(annotations={ABANDON_ANNOTATION: "force: because " + "x" * 200_000})
            wish = await bench.targets.wish(bench.caches.ledger.get(RUN))
            assert wish.abandon is not None
            assert wish.abandon.message == "because " + "x" * (MOST_REASON - 8)
            assert MOST_REASON < 65_536 / 2

        played(story)

    @pytest.mark.parametrize("how", ["there", "deleted", "gone"])
    def test_with_its_run_it_goes_and_is_deleted_once(self, how):
        async def story(bench: Heard):
            made, asked = bench.caches.ledger.get(RUN), []
            if how != "there":
                bench.ask("DELETE", f"{BOXES}/box")
            if how == "gone":
                bench.ask("PATCH", f"{BOXES}/box", {"metadata": {"finalizers": None}}, MERGE)
            bench.server.faults = lambda call: asked.append(call.request.method)
            assert await bench.targets.release(made) is True
            assert bench.server.objects("sandboxes") == []
            assert asked.count("DELETE") == (how == "there")

        played(story, finalizers=(TARGET_FINALIZER,))

    @pytest.mark.parametrize("ends", [True, False])
    def test_documents_are_deleted_with_their_run(self, ends):
        async def story(bench: Heard):
            uid, made = bench.document(), bench.caches.ledger.get(RUN)
            pins = (Pin(name="d", uid=uid, digest=""),)
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, documents=pins))
            assert await bench.targets.wants_run(bench.caches.documents.get("d"))
            if ends:
                await bench.targets.release_documents(made)
            else:
                bench.ask("DELETE", f"{BOXES}/box")
                assert await bench.targets.fence(made) is False
                assert bench.server.objects("runs") == []
            assert bench.server.objects("objectlifecyclemethods") == []
            assert bench.broken == []

        played(story)

    def test_document_of_another_api_version_wants_a_run(self):
        async def story(bench: Heard):
            bench.document()
            found = bench.caches.documents.get("d")
            target = msgspec.structs.replace(found.spec.target, api_version="dayfly.dev/v1")
            other = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, target=target))
            assert await bench.targets.wants_run(other)
            bench.ask("DELETE", f"{BOXES}/box")
            assert not await bench.targets.wants_run(other)

        played(story)

    def test_a_document_without_labels_is_no_hooks(self):
        async def story(bench: Heard):
            bench.document()
            found = bench.caches.documents.get("d")
            bare = msgspec.structs.replace(found.metadata, labels=None)
            assert await bench.targets.wants_run(msgspec.structs.replace(found, metadata=bare))

        played(story)

    def test_hold_of_a_hook_is_released_with_its_run(self):
        async def story(bench: Alone):
            made, loosened = bench.born(phase="cleaned"), []

            async def loosen(found):
                loosened.append(found.metadata.name)
                return False

            bench.watched.adapter.loosen = loosen
            assert await bench.targets.loosen(made) is False
            await bench.targets.release(made)
            assert loosened == [bench.name, bench.name]

        played(story, Alone, machine=(OURS,))

    def test_a_sandbox_is_held_by_nothing_else(self):
        """Else whoever carries its run out would try to let it go in each turn."""

        async def story(bench: Heard):
            assert await bench.targets.loosen(bench.caches.ledger.get(RUN)) is True
            assert bench.finalizers() == [TARGET_FINALIZER]

        played(story, finalizers=(TARGET_FINALIZER,))

    def test_finalizers_of_others_stay(self):
        async def story(bench: Heard):
            bench.hears()
            bench.server.faults = lambda call: asked.append(call.request.method)
            asked: list[str] = []
            assert await bench.targets.fence(bench.caches.ledger.get(RUN)) is True
            assert bench.finalizers() == ["x/y", TARGET_FINALIZER]
            assert asked == ["PATCH"], "what the cache knows is not asked for"

        played(story, finalizers=("x/y",))
