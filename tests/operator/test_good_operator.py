"""Rules of good operators (seed 004) as properties of Dayfly.

1. A status is never input.                    TestStatusIsNoInput
2. State is in the ledger before it is used,
   above all nonces.                           TestWorkspace
3. Events only on changed conditions.          TestEvents
4. External errors are in the condition's
   message, with the original text.            TestErrorsAreElevated
5. Printer columns.                            tests/cluster/test_good_operator.py
6. Outdated caches do no harm.                 TestStaleCaches
7. One action for each turn.                   TestOneThingATurn

tests/examples/test_good_controllers.py checks the same for the example controllers.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.cloud import Object
from tests.operator.rig.hook_targets import (
    FOUR,
    OWN,
    delete,
    hook,
    hooking,
    is_active,
    is_over,
    machine,
    release_machine,
)
from tests.operator.rig.hook_targets import step as hooking_step
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import SCENES, message, play, ready, wish
from tests.operator.rig.world import World, live
from tests.selection import SELECTION

from dayfly.operator.reconciler import Reconciler
from dayfly.plan.actions import Finish
from dayfly.spec.identity import nonce

# Stories with failing steps, retries and cleanup, with objects and with forks.
LIVES = ("chain", "retry", "failing", "cleanup-retries", "object", "fork-followed")
GARBAGE: Object = {
    "ready": True,
    "phase": "Failed",
    "reason": "Garbage",
    "message": "somebody wrote this",
    "observedGeneration": 99,
    "conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Garbage", "message": "so", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    ],
    "resources": [{"name": "db", "phase": "Deleted", "steps": []}],
    "steps": [{"name": "make", "phase": "Succeeded", "attempt": 7}],
    "forks": [],
    "endpoints": [],
}  # fmt: skip
OURS = ("sandboxes", "resources", "resourceplugins", "lifecyclehooks")


def lived(name: str, begin: Callable[[World], None] = lambda _: None) -> World:
    """Play a story with one operator; `begin` runs before it."""

    async def story(world: World) -> None:
        world.start()
        begin(world)
        await SCENES[name].story(world)

    return live(SCENES[name].world, story)


def moves(world: World) -> list[tuple[str, ...]]:
    """Return every move that the ledger ever applied, in order. Moves are those of the run and of each unit."""
    found: list[tuple[str, ...]] = []
    for write in world.cluster.store.after(world.cluster.kind("runs"), 0):
        old, new = (each["ledger"] if each else {} for each in (write.old, write.new))
        if old.get("phase") != new.get("phase"):
            found.append(("run", new.get("phase", "gone")))
        for unit, record in sorted(new.get("units", {}).items()):
            was = old.get("units", {}).get(unit, {})
            told = [str(record.get(key, "")) for key in ("attempt", "state", "outcome")]
            if told != [str(was.get(key, "")) for key in ("attempt", "state", "outcome")]:
                found.append((unit, *told))
    return found


def each_unit(world: World) -> dict[str, list[tuple[str, ...]]]:
    """Return the moves of each unit."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for unit, *told in moves(world):
        found.setdefault(unit, []).append(tuple(told))
    return found


class TestStatusIsNoInput:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", LIVES)
    def test_garbage_in_every_status_changes_nothing(self, name):
        """The moves are the same in the same order, and the status is correct again."""
        spoilt = lived(name, vandal)
        assert len(spoilt.writes) > 10
        assert moves(spoilt) == moves(lived(name))

    def test_garbage_in_the_status_of_hooks_changes_nothing(self):
        """Play the life of a Machine with steps at all four events."""

        def hooked(begin: Callable[[World], None]) -> World:
            async def story(world: World) -> None:
                world.start()
                begin(world)
                hook(world, **{event: [hooking_step(name)] for event, name in FOUR.items()})
                machine(world, finalizers=[OWN])
                await world.until(lambda: world.cloud.starts("warm"), "what comes after its start")
                await world.rest(30)
                delete(world)
                await world.until(lambda: world.cloud.starts("drain"), "what comes before its end")
                await world.rest(30)
                release_machine(world)
                await world.until(lambda: is_over(world), "the end")

            return hooking(story)

        assert moves(hooked(vandal)) == moves(hooked(lambda _: None))

    def test_overwritten_status_is_restored(self):
        """The sandbox is idle otherwise. Overwriting its status repeatedly costs one write a second."""

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            await world.rest(30)
            spoil(world)
            await world.rest(3)
            assert ready(world)
            before = len(world.writes)
            for _ in range(100):
                spoil(world)
                await world.rest(0.1)
            await world.rest(3)
            assert ready(world)
            assert len(world.writes) - before < 40

        play(story)

    def test_overwritten_status_of_a_hook_is_restored(self):
        async def story(world: World) -> None:
            world.start()
            hook(world)
            await world.until(lambda: is_active(world), "the operator to accept the hook")
            await world.rest(30)
            spoil(world)
            await world.rest(3)
            assert is_active(world)

        hooking(story)


def vandal(world: World) -> None:
    """Overwrite all statuses with garbage after each change from now on."""

    def hook(_number, call):
        if call.write is not None and not call.request.path.endswith("/status"):
            spoil(world)
        return

    world.hook = hook


def spoil(world: World) -> None:
    """Overwrite all statuses of Dayfly as another user."""
    for plural in OURS:
        kind = world.cluster.kind(plural)
        for item in world.cluster.objects(plural):
            meta = item["metadata"]
            place = f"/namespaces/{meta['namespace']}" if kind.namespaced else ""
            path = f"{kind.prefix}{place}/{plural}/{meta['name']}/status"
            world.ask("PATCH", path, {"status": GARBAGE}, "application/merge-patch+json")


class TestWorkspace:
    @pytest.mark.parametrize("name", ["chain", "retry", "cleanup-retries"])
    def test_nothing_begins_that_the_ledger_does_not_hold(self, name):
        """Before a gate is removed, the ledger contains the attempt, which determines the nonce, and the pod's UID."""
        begun: list[str] = []

        def watch(world: World) -> None:
            def hook(_number, call):
                if call.request.method == "PATCH" and b"schedulingGates" in call.request.body:
                    check(world, json.loads(call.request.body))
                return

            world.hook = hook

        def check(world: World, patch: list[Object]) -> None:
            uid = next(each["value"] for each in patch if each["path"] == "/metadata/uid")
            [pod] = [each for each in world.pods() if each["metadata"]["uid"] == uid]
            notes, ledger = pod["metadata"]["annotations"], world.ledger()
            record = ledger["units"][notes["dayfly.dev/unit"]]
            assert (record["state"], record["ref"]) == ("claimed", uid)
            assert notes["dayfly.dev/nonce"] == nonce(ledger["uid"], notes["dayfly.dev/unit"], record["attempt"])
            begun.append(notes["dayfly.dev/nonce"])

        world = lived(name, watch)
        assert len(begun) == len(world.cloud.log) / 2 == len(set(begun)), "a nonce for each script that ran"
        said = [
            write.new.get("status", {})
            for plural in OURS
            for write in world.cluster.store.after(world.cluster.kind(plural), 0)
            if write.new
        ]
        assert not [each for each in begun if each in json.dumps(said)], "and in no status, ever"


class TestEvents:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", LIVES)
    def test_a_life_has_one_for_each_change_of_the_condition(self, name):
        """The Events have the reasons of the condition in the same order."""
        world = lived(name)
        reasons: list[str] = []
        for write in world.cluster.store.after(world.cluster.kind("sandboxes"), 0):
            reason = (write.new or {}).get("status", {}).get("reason", "")
            if reason and reason not in reasons[-1:]:
                reasons.append(reason)
        assert [reason for _, reason in world.events()] == reasons

    def test_turns_without_a_change_say_nothing_and_write_nothing(self):
        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            await world.rest(30)
            [process] = world.processes
            [run] = world.cluster.objects("runs")
            before = len(world.events()), len(world.writes)
            for _ in range(50):
                process.operator.cluster.queue.add(run["metadata"]["name"])
                await world.rest(1)
            assert (len(world.events()), len(world.writes)) == before

        play(story)


class TestErrorsAreElevated:
    """The original error is in the conditions of the Sandbox and of its Resource."""

    @staticmethod
    async def told(world: World, words: str, *, within: float = 600.0) -> None:
        await world.until(lambda: words in message(world), f"{words!r} in {message(world)!r}", within)
        [condition] = [each for each in world.status()["conditions"] if each["type"] == "Ready"]
        assert words in condition["message"]

    def test_the_kubelets(self):
        async def story(world: World) -> None:
            await self.told(world, 'pull access denied for "busybox:1"')

        play(story, make=Script(image_missing='pull access denied for "busybox:1"'))

    def test_an_admission_webhooks(self):
        words = 'admission webhook "images.example.org" denied the request: no image without a digest'

        async def story(world: World) -> None:
            def deny(operation, kind, _old, _new):
                if operation == "CREATE" and kind.plural == "pods":
                    raise Refusal(403, words, reason="Forbidden")

            world.cluster.admission.append(deny)
            world.start()
            world.sandbox(wish())
            await self.told(world, words)

        live(SCENES["chain"].world, story)

    def test_a_quotas(self):
        words = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0'

        async def story(world: World) -> None:
            def deny(operation, kind, _old, _new):
                if operation == "CREATE" and kind.plural == "pods":
                    raise Refusal(403, words, reason="Forbidden")

            world.cluster.admission.append(deny)
            world.start()
            world.sandbox(wish())
            await self.told(world, "exceeded quota: small")

        live(SCENES["chain"].world, story)

    def test_a_controllers_of_an_object(self):
        async def story(world: World) -> None:
            world.may("claims.db.example.org")
            world.may("secrets", verbs="get")
            world.start()
            world.sandbox(wish())
            await world.until(lambda: world.cluster.objects("claims"), "the object")
            [meta] = [each["metadata"] for each in world.cluster.objects("claims")]
            said = [{"type": "Ready", "status": "False", "reason": "NoRoom", "message": "no node with 5 GB is left"}]
            path = f"/apis/db.example.org/v1/namespaces/{meta['namespace']}/claims/{meta['name']}/status"
            world.ask("PATCH", path, {"status": {"conditions": said}}, "application/merge-patch+json")
            await self.told(world, "no node with 5 GB is left")

        live(SCENES["object"].world, story)

    def test_the_authorizers(self):
        """The message contains the command that grants the permission."""

        async def story(world: World) -> None:
            world.start()
            world.sandbox(wish())
            await self.told(world, "kubectl create role")

        live(SCENES["object"].world, story)

    def test_a_scripts(self):
        async def story(world: World) -> None:
            await self.told(world, "exit code 1")

        play(story, make=Script(fails=9))


class TestStaleCaches:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", LIVES)
    @pytest.mark.parametrize("seconds", SELECTION.sample((0.5, 5.0, 30.0, 90.0), 4, "how late caches are"))
    def test_each_unit_takes_the_same_steps_in_the_end(self, name, seconds):
        """Each cache is delayed, also for the operator's own writes."""

        def late(world: World) -> None:
            [process] = world.processes
            process.transport.view.delay = seconds

        assert each_unit(lived(name, late)) == each_unit(lived(name))


class TestOneThingATurn:
    """A turn observes once, decides once and commits once, with at most one move for each unit. Its effects follow
    that commit. Only a run that is over is dissolved in the turn that records its end.
    """

    @pytest.mark.parametrize("name", LIVES)
    def test_a_turn_commits_once_and_each_unit_takes_one_step(self, name, monkeypatch):
        turns: list[list[Any]] = []
        now: contextvars.ContextVar[list[Any]] = contextvars.ContextVar("turn")
        take, commit = Reconciler.turn, Reconciler.commit

        async def taking(self: Reconciler, run: str) -> Any:
            turns.append([])
            now.set(turns[-1])
            return await take(self, run)

        async def committing(self: Reconciler, scene: Any, moved: Any) -> bool:
            done = await commit(self, scene, moved)
            if done:
                now.get().append(moved)
            return done

        monkeypatch.setattr(Reconciler, "turn", taking)
        monkeypatch.setattr(Reconciler, "commit", committing)
        lived(name)
        assert sum(map(len, turns)) > 3
        for commits in turns:
            assert len(commits) <= 1 or any(isinstance(move, Finish) for moved in commits for move in moved)
            for moved in commits:
                units = [move.unit for move in moved if hasattr(move, "unit")]
                kinds = [(type(move).__name__, getattr(move, "unit", "")) for move in moved]
                assert len(set(kinds)) == len(kinds), kinds
                assert all(units.count(unit) == 1 for unit in units), kinds
