"""Targets of runs: which runs a change wakes, reports of a sweep, and the start and end of a target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import run
from tests.operator.rig.change_checks import ChangeChecks
from tests.operator.rig.hook_bench import KIND, MERGE, M, QueueBench
from tests.operator.rig.hook_targets import MACHINES, OURS
from tests.operator.rig.run_creation import BOXES, RUN
from tests.operator.rig.run_creation import Bench as Boxes

from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, RETRY_ANNOTATION, TARGET_FINALIZER, SandboxObject
from dayfly.operator.targets.adapter import UnknownKind
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import MAX_REASON_CHARS, PERMIT_RETRY_AFTER_S
from dayfly.spec.kinds import Pin, ServerTarget
from dayfly.spec.run import EndRequest

BOX = Key("shop", "box")
NOW = 9_000


class SandboxBench(Boxes):
    """A Sandbox with its run, and a record of queued runs with their urgency."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.looked: list[tuple[Any, Urgency | None]] = []
        self.broken: list[str] = []
        self.server.judge = ChangeChecks(self.server, self.broken.append)
        add = lambda key, urgency=None, after=0.0: self.looked.append((key, urgency))  # noqa: E731 - a stub
        self.caches.queue = SimpleNamespace(add=add)
        self.caches.runs.put(self.create_run())
        self.looked.clear()

    def change_sandbox(self, **meta: Any) -> list[tuple[Any, Urgency | None]]:
        """Change the Sandbox, and return what is queued because of it."""
        if meta:
            self.box = self.ask("PATCH", f"{BOXES}/box", {"metadata": meta}, MERGE)
        self.caches.sandboxes.put(msgspec.convert(self.box, SandboxObject))
        looked, self.looked = self.looked, []
        return looked

    def delete_sandbox(self) -> None:
        """Begin its deletion, as the cache sees it."""
        deleted = {"deletionTimestamp": "1970-01-01T00:01:00Z", "resourceVersion": "900"}
        self.box = {**self.box, "metadata": {**self.box["metadata"], **deleted}}
        self.change_sandbox()


def run_story(story: Any, of: Any = SandboxBench, **how: Any) -> Any:
    async def main() -> Any:
        return await story(of(**how))

    return run(main())


class TestHearing:
    def test_held_target_found_at_start_has_low_urgency(self):
        async def story(bench: SandboxBench):
            assert bench.change_sandbox() == [(RUN, Urgency.BACKGROUND)]

        run_story(story, finalizers=(TARGET_FINALIZER,))

    @pytest.mark.parametrize(
        ("finalizers", "urgency"), [((TARGET_FINALIZER,), Urgency.BACKGROUND), (("x/y",), Urgency.NORMAL)]
    )
    def test_change_queues_the_sandbox_for_its_controller(self, finalizers, urgency):
        async def story(bench: SandboxBench):
            wishes: list[Any] = []
            bench.caches.sandbox_queue = SimpleNamespace(add=lambda key, urgency: wishes.append((key, urgency)))
            bench.change_sandbox()
            assert wishes == [(BOX, urgency)]

        run_story(story, finalizers=finalizers)

    def test_target_without_our_finalizer_has_normal_urgency(self):
        async def story(bench: SandboxBench):
            assert bench.change_sandbox() == [(RUN, Urgency.NORMAL)]

        run_story(story)

    def test_status_change_wakes_no_run(self):
        async def story(bench: SandboxBench):
            bench.change_sandbox()
            bench.box = bench.ask("PATCH", f"{BOXES}/box/status", {"status": {"ready": False}}, MERGE)
            assert bench.change_sandbox() == []

        run_story(story)

    def test_deletion_is_queued_as_urgent(self):
        async def story(bench: SandboxBench):
            bench.change_sandbox()
            bench.box = bench.ask("DELETE", f"{BOXES}/box")
            assert (RUN, Urgency.URGENT) in bench.change_sandbox()
            bench.caches.sandboxes.drop(BOX)
            assert (RUN, Urgency.URGENT) in bench.looked

        run_story(story, finalizers=("x/y",))

    def test_kept_run_is_queued_only_when_its_target_is_gone(self):
        async def story(bench: QueueBench):
            bench.create_run(phase="cleaned")
            bench.cache_target()
            bench.looked.clear()
            bench.change_machine(labels={"a": "b"})
            assert bench.take_queued("queue") == []
            bench.watched.adapter.cache.drop(M)
            assert bench.take_queued("queue") == [(bench.name, 0.0)]

        run_story(story, QueueBench)


class TestSweeping:
    def test_sweep_reports_held_targets_without_a_run(self):
        async def story(bench: QueueBench):
            told: list[Any] = []
            bench.watched.adapter.on_run_missing = told.append
            item = bench.change_machine(finalizers=[OURS])
            bench.targets.sweep()
            assert told == [item]
            bench.create_run()
            bench.targets.sweep()
            assert told == [item], "it has its run"
            both = bench.change_machine(finalizers=[OURS, "lifecycle.dayfly.dev/other"])
            bench.targets.sweep()
            assert told == [item, both], "another hook's is missing"
            bench.change_machine(finalizers=["x/y"])
            bench.targets.sweep()
            assert len(told) == 2

        run_story(story, QueueBench)

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
        async def story(bench: QueueBench):
            made = bench.create_run(phase=phase, known=hook)
            if not hook:
                plain = msgspec.structs.replace(made.spec, hook=None)
                bench.caches.runs.put(msgspec.structs.replace(made, spec=plain))
            if there:
                bench.cache_target()
            bench.looked.clear()
            bench.targets.sweep()
            assert len(bench.take_queued("queue")) == looked

        run_story(story, QueueBench)


class TestKinds:
    def test_kind_is_known_until_its_adapter_is_dropped(self):
        async def story(bench: QueueBench):
            adapter, made = bench.watched.adapter, bench.create_run()
            assert bench.targets.find(*KIND) is adapter
            assert bench.targets.adapter_for(made) is adapter
            bench.targets.remove(adapter)
            assert bench.targets.find(*KIND) is None
            assert isinstance(bench.targets.adapter_for(made), UnknownKind)

        run_story(story, QueueBench)


class TestFencing:
    """Checks before the first claim."""

    @pytest.mark.parametrize(
        ("says", "permitted", "runs", "held"), [(True, True, 1, True), (None, False, 1, True), (False, False, 0, False)]
    )
    def test_server_decides_whether_a_run_may_begin(self, says, permitted, runs, held):
        async def story(bench: SandboxBench):
            asked: list[Any] = []
            later: list[float] = []

            async def permits(made):
                asked.append(made)
                return says

            made = bench.caches.ledger.get(RUN)
            bench.targets.adapter_for(made).permits = permits
            bench.caches.queue = SimpleNamespace(add=lambda _key, after=0.0, **_: later.append(after))
            assert await bench.targets.ensure_finalizer(made) is permitted
            assert asked == [made]
            assert later == ([PERMIT_RETRY_AFTER_S] if says is None else [])
            assert len(bench.server.objects("runs")) == runs
            assert (TARGET_FINALIZER in bench.finalizers()) is held

        run_story(story)

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
        async def story(bench: SandboxBench):
            async def permits(_run):
                return says

            made = bench.caches.ledger.get(RUN)
            wish = ServerTarget(uid="s", **offered) if offered is not None else None
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, offered=wish))
            bench.caches.now = lambda: NOW
            assert await bench.targets.adapter_for(made).permits(made) is (None if asked else True), (
                "no server is connected"
            )
            adapter = SandboxTarget(bench.caches, None, SimpleNamespace(permits=permits))
            assert await adapter.permits(made) is (says if asked else True)

        run_story(story)

    def test_server_is_not_queried_for_a_deleted_target(self):
        async def story(bench: SandboxBench):
            made = bench.caches.ledger.get(RUN)
            bench.targets.adapter_for(made).permits = lambda _run: pytest.fail("asked")
            bench.ask("DELETE", f"{BOXES}/box")
            assert await bench.targets.ensure_finalizer(made) is True, "it ends as any other"

        run_story(story, finalizers=(TARGET_FINALIZER,))

    def test_another_of_its_name_in_the_cache_is_not_it(self):
        async def story(bench: SandboxBench):
            made = bench.caches.ledger.get(RUN)
            other = {**bench.box, "metadata": {**bench.box["metadata"], "uid": "another", "resourceVersion": "900"}}
            bench.caches.sandboxes.put(msgspec.convert(other, SandboxObject))
            assert (await bench.targets.read_intent(made)).stop is None

        run_story(story)

    def test_run_with_an_existing_hook_may_start(self):
        async def story(bench: QueueBench):
            assert await bench.targets.ensure_finalizer(bench.create_run()) is True
            assert bench.ask("GET", f"{MACHINES}/m")["metadata"]["finalizers"] == [OURS]

        run_story(story, QueueBench)


class TestEnding:
    def test_retry_and_abandon_annotations_are_read(self):
        async def story(bench: SandboxBench):
            made = bench.caches.ledger.get(RUN)
            bench.change_sandbox(annotations={RETRY_ANNOTATION: "db/make=3", ABANDON_ANNOTATION: "force: by hand"})
            wish = await bench.targets.read_intent(made)
            assert wish.retry == {"db/make": 3}
            assert wish.abandon is not None
            assert wish.abandon.message == "by hand"

        run_story(story)

    @pytest.mark.parametrize("value", ["by hand", "enforce: x", "forced", " by: force ", "reason: force"])
    def test_abandon_annotation_is_ignored_until_deletion_begins(self, value):
        async def story(bench: SandboxBench):
            bench.change_sandbox(annotations={ABANDON_ANNOTATION: value})
            wish = await bench.targets.read_intent(bench.caches.ledger.get(RUN))
            assert wish.abandon is None
            [said] = wish.ignored
            assert "not being deleted" in said
            assert "dayfly.dev/abandon=force: REASON" in said
            bench.delete_sandbox()
            wish = await bench.targets.read_intent(bench.caches.ledger.get(RUN))
            assert (wish.abandon.message, wish.ignored) == (value.strip(), ())

        run_story(story)

    @pytest.mark.parametrize(
        ("value", "reason"), [("force", "forced"), ("force: it is gone", "it is gone"), ("Force:x", "x")]
    )
    def test_forced_abandonment_needs_no_deletion(self, value, reason):
        async def story(bench: SandboxBench):
            bench.change_sandbox(annotations={ABANDON_ANNOTATION: value})
            wish = await bench.targets.read_intent(bench.caches.ledger.get(RUN))
            assert (wish.stop, wish.abandon.message, wish.ignored) == (None, reason, ())

        run_story(story)

    @pytest.mark.parametrize("value", ["", " "])
    def test_empty_abandon_annotation_means_nothing(self, value):
        async def story(bench: SandboxBench):
            bench.change_sandbox(annotations={ABANDON_ANNOTATION: value})
            bench.delete_sandbox()
            wish = await bench.targets.read_intent(bench.caches.ledger.get(RUN))
            assert (wish.abandon, wish.ignored) == (None, ())

        run_story(story)

    def test_long_reason_of_an_abandonment_is_cut(self):
        """A ledger and a status take 65,536 characters, and a status contains more than the reason."""

        async def story(bench: SandboxBench):
            bench.change_sandbox(annotations={ABANDON_ANNOTATION: "force: because " + "x" * 200_000})
            wish = await bench.targets.read_intent(bench.caches.ledger.get(RUN))
            assert wish.abandon is not None
            assert wish.abandon.message == "because " + "x" * (MAX_REASON_CHARS - 8)
            assert MAX_REASON_CHARS < 65_536 / 2

        run_story(story)

    @pytest.mark.parametrize("how", ["there", "deleted", "gone"])
    def test_target_is_deleted_once_with_its_run(self, how):
        async def story(bench: SandboxBench):
            made, asked = bench.caches.ledger.get(RUN), []
            if how != "there":
                bench.ask("DELETE", f"{BOXES}/box")
            if how == "gone":
                bench.ask("PATCH", f"{BOXES}/box", {"metadata": {"finalizers": None}}, MERGE)
            bench.server.faults = lambda call: asked.append(call.request.method)
            assert await bench.targets.release(made) is True
            assert bench.server.objects("sandboxes") == []
            assert asked.count("DELETE") == (how == "there")

        run_story(story, finalizers=(TARGET_FINALIZER,))

    @pytest.mark.parametrize("ends", [True, False])
    def test_documents_are_deleted_with_their_run(self, ends):
        async def story(bench: SandboxBench):
            uid, made = bench.document(), bench.caches.ledger.get(RUN)
            pins = (Pin(name="d", uid=uid, digest=""),)
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, documents=pins))
            assert await bench.targets.wants_run(bench.caches.documents.get("d"))
            if ends:
                await bench.targets.release_documents(made)
            else:
                bench.ask("DELETE", f"{BOXES}/box")
                assert await bench.targets.ensure_finalizer(made) is False
                assert bench.server.objects("runs") == []
            assert bench.server.objects("objectlifecyclemethods") == []
            assert bench.broken == []

        run_story(story)

    def test_document_of_another_api_version_wants_a_run(self):
        async def story(bench: SandboxBench):
            bench.document()
            found = bench.caches.documents.get("d")
            target = msgspec.structs.replace(found.spec.target, api_version="dayfly.dev/v1")
            other = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, target=target))
            assert await bench.targets.wants_run(other)
            bench.ask("DELETE", f"{BOXES}/box")
            assert not await bench.targets.wants_run(other)

        run_story(story)

    def test_document_without_labels_belongs_to_no_hook(self):
        async def story(bench: SandboxBench):
            bench.document()
            found = bench.caches.documents.get("d")
            bare = msgspec.structs.replace(found.metadata, labels=None)
            assert await bench.targets.wants_run(msgspec.structs.replace(found, metadata=bare))

        run_story(story)

    def test_hold_of_a_hook_is_released_with_its_run(self):
        async def story(bench: QueueBench):
            made, loosened = bench.create_run(phase="cleaned"), []

            async def loosen(found):
                loosened.append(found.metadata.name)
                return False

            bench.watched.adapter.remove_hold = loosen
            assert await bench.targets.remove_hold(made) is False
            await bench.targets.release(made)
            assert loosened == [bench.name, bench.name]

        run_story(story, QueueBench, machine=(OURS,))

    def test_sandbox_has_no_hold(self):
        """Otherwise each turn would try to remove a hold."""

        async def story(bench: SandboxBench):
            assert await bench.targets.remove_hold(bench.caches.ledger.get(RUN)) is True
            assert bench.finalizers() == [TARGET_FINALIZER]

        run_story(story, finalizers=(TARGET_FINALIZER,))

    def test_finalizers_of_others_stay(self):
        async def story(bench: SandboxBench):
            bench.change_sandbox()
            bench.server.faults = lambda call: asked.append(call.request.method)
            asked: list[str] = []
            assert await bench.targets.ensure_finalizer(bench.caches.ledger.get(RUN)) is True
            assert bench.finalizers() == ["x/y", TARGET_FINALIZER]
            assert asked == ["PATCH"], "cached objects are not queried"

        run_story(story, finalizers=("x/y",))
