"""Holds of pool members in a cluster: hit, miss, release, and what happens if operators are late or crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.kube.fake import Call, Fault, Harm, Refusal
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import (
    MEMBERS,
    is_ready,
    ledger_of,
    member,
    members,
    pool_world,
    pooled_document,
    pooled_sandbox,
)
from tests.operator.rig.scenes import CHAIN, READY, gone, message, ready, runs, wish
from tests.operator.rig.world import API, World, live

from dayfly import compile as compiler
from dayfly.compile import Compiled
from dayfly.execute.pod import names
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.objects import MemberRef
from dayfly.operator.sandboxes.extension import SandboxesExtension
from dayfly.spec.identity import resource_id

RELEASING = b'"db/release":{"attempt":1,"state":"claimed"'


def at_work(story, operators: int = 1, **scripts) -> World:
    return live(lambda: pool_world(**scripts), started(story, operators))


def started(story, operators: int = 1):
    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return begin


def with_front(world: World) -> World:
    """Let the operators create the runs of Sandboxes."""
    world.front = SandboxesExtension
    world.plugin("pg", CHAIN)
    return world


def with_one_slot(world: World) -> World:
    world.steps = 1
    return world


def pooling(compile_cold: Callable[..., Compiled]) -> Callable[..., Compiled]:
    """Return a compiler that provides the resource with a pool member."""

    def compile_pooled(*args: Any, **options: Any) -> Compiled:
        cold = compile_cold(*args, **options)
        documents = tuple(pooled_document(each) if each.resource else each for each in cold.documents)
        return msgspec.structs.replace(cold, documents=documents)

    return compile_pooled


async def ready_member(world: World, number: int = 1) -> MemberRef:
    ref = member(world, number)
    await world.until(is_ready(world, ref), "a ready member")
    return ref


def environment(world: World, unit: str) -> dict[str, bytes]:
    """Return the environment of the only start of a script."""
    [found] = [given for (_, name, _), given in world.cloud.given.items() if name == unit]
    return found


def ledger(world: World, uid: str) -> Object:
    """Return the last stored ledger of a run, which may be gone."""
    written = world.cluster.store.after(world.cluster.kind("runs"), 0)
    every = [write.new["ledger"] for write in written if write.new and write.new["ledger"]["uid"] == uid]
    return every[-1] if every else {}


def joins(request: KubeRequest, name: str) -> bool:
    """Return whether a request joins the member."""
    return request.method == "PUT" and f"/runs/{name}" in request.path and b'"joins"' in request.body


def crash_after_join(world: World, name: str) -> None:
    """Let the operator that joins the member crash before it writes the holder's ledger."""
    crashed: list[str] = []

    def hook(number: int, call: Call) -> Fault | None:
        if number and not crashed and joins(call.request, name):
            crashed.append(name)
            return Fault(Harm.CRASH_AFTER)
        return None

    world.hook = hook


def refuse(world: World, method: str, path: str) -> None:
    """Refuse requests with this method and this part of a path."""
    refused = Refusal(403, "no")
    world.cluster.refuses = lambda each: refused if each.method == method and path in each.path else None


def permit_writes(world: World) -> None:
    world.cluster.refuses = lambda _request: None


def annotate_member(world: World, name: str, reason: str) -> None:
    patch = {"metadata": {"annotations": {"dayfly.dev/abandon": reason}}}
    world.ask("PATCH", f"{MEMBERS}/{name}", patch, "application/merge-patch+json")


class TestHold:
    def test_hit_uses_a_ready_member_until_release(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            box = pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            assert [each["run"] for each in ledger_of(world, ref)["holders"]] == [box]
            given = environment(world, "db/grant")
            assert given["URL"] == b"db://1"
            assert given["DAYFLY_RESOURCE_ID"].decode() == resource_id(ref.uid, "pg")
            assert len(members(world)) == world.cloud.starts("pg/make") == 1
            world.delete()
            await gone(world)
            assert environment(world, "db/revoke")["URL"] == b"db://1"
            assert world.cloud.starts("pg/drop") == 1

        at_work(story)

    def test_hit_takes_two_writes_for_the_hold(self, monkeypatch):
        """It takes nine writes from POST to Ready, one of them for the binding Secret."""
        monkeypatch.setattr(compiler, "compile", pooling(compiler.compile))

        async def story(world: World) -> None:
            await ready_member(world)
            world.sandbox(wish(), "first")  # it labels the plugin and the namespace as used
            await world.until(lambda: ready(world, "first"), "ready")
            await ready_member(world, 2)
            await world.rest(30)
            before = len(world.writes)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            sent = [each for each in world.writes[before:] if "/events" not in each]
            assert len([each for each in sent if each.startswith("PUT")]) == 2
            # Also the Run, the finalizer, a Resource and its status, the Secret, and the Sandbox's status.
            assert len(sent) == 8, sent

        live(lambda: with_front(pool_world(claim_steps=False)), started(story))

    def test_hit_needs_no_slot_of_the_namespace(self):
        async def story(world: World) -> None:
            await ready_member(world)
            world.kubelet.scripts["pg/make"].runs = 600
            member(world, 2)
            await world.until(lambda: world.cloud.starts("pg/make") == 2, "the only slot to be used")
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready", 30)

        live(lambda: with_one_slot(pool_world(claim_steps=False)), started(story))

    def test_outputs_of_a_member_are_in_the_binding_secret(self):
        async def story(world: World) -> None:
            await ready_member(world)
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            found = [item for item in world.cluster.objects("secrets") if item["metadata"]["namespace"] == "shop"]
            assert [set(item["data"]) for item in found] == [{"make.url", "seed.user"}]

        at_work(story)

    def test_miss_creates_a_member_and_release_removes_it(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            [made] = members(world)
            assert made["metadata"]["name"].startswith("box-db-")
            assert environment(world, "db/grant")["URL"] == b"db://1"
            world.delete()
            await gone(world)
            assert world.cloud.starts("pg/drop") == 1

        at_work(story)

    def test_member_of_another_namespace_is_not_joined(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            world.namespace("bank")
            pooled_sandbox(world, namespace="bank")
            await world.until(lambda: world.status(namespace="bank").get("reason") == READY, "ready")
            assert not ledger_of(world, ref).get("joins")
            assert len(members(world)) == 2

        at_work(story, claim_steps=False)

    def test_failed_member_step_fails_the_sandbox(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
            assert "db/make" in message(world)
            world.delete()
            await gone(world)

        at_work(story, make=Script(fails=9))

    def test_member_that_was_deleted_is_not_joined(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            world.ask("DELETE", f"{MEMBERS}/{ref.name}")
            await world.until(lambda: runs(world, "pg/drop"), "its cleanup")
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            assert not ledger(world, ref.uid).get("joins")

        at_work(story, drop=Script(runs=9))

    def test_deleted_member_stays_until_its_holder_leaves(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.ask("DELETE", f"{MEMBERS}/{ref.name}")
            await world.rest(300)
            assert not world.cloud.starts("pg/drop")
            world.delete()
            await gone(world)

        at_work(story)


class TestOperators:
    def test_two_operators_use_no_attempt_for_a_lost_race(self):
        boxes: list[str] = []

        async def story(world: World) -> None:
            ref = await ready_member(world)
            boxes.extend(pooled_sandbox(world, name) for name in ("box", "bag"))
            await world.until(lambda: ready(world) and ready(world, "bag"), "both to be ready")
            assert len(ledger_of(world, ref)["holders"]) == 1
            assert len(members(world)) == 2

        world = at_work(story, operators=2, claim_steps=False)
        for box in boxes:
            records = ledger(world, box)["units"].values()
            assert {(each["attempt"], each.get("voids", 0)) for each in records} == {(1, 0)}

    def test_entry_is_used_again_after_a_crash(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            await ready_member(world, 2)
            crash_after_join(world, ref.name)
            box = pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            [held] = ledger_of(world, ref)["holders"]
            assert (held["run"], len(members(world))) == (box, 2)

        at_work(story)

    def test_paused_operator_joins_late_and_its_entry_is_dropped(self):
        """The holder has another member by then, so the member that was joined late is never used: it closes."""
        late: list[MemberRef] = []

        async def story(world: World) -> None:
            late.append(await ready_member(world))
            other = await ready_member(world, 2)
            world.processes[0].transport.pause = lambda request: 60.0 if joins(request, "pg-1") else 0.0
            until = world.cluster.time() + 30  # until then, the other operator does not get the member

            def hook(number: int, call: Call) -> Fault | None:
                loses = number and call.client == "operator-2" and joins(call.request, "pg-1")
                return Fault(Harm.CONFLICT) if loses and world.cluster.time() < until else None

            world.hook = hook
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready", 30)
            assert ledger_of(world, other)["holders"]
            await world.until(lambda: not ledger_of(world, late[0]), "the first member to go", 300)
            assert ready(world)

        world = at_work(story, operators=2, claim_steps=False)
        assert ledger(world, late[0].uid)["joins"] == 1
        assert ledger(world, late[0].uid)["closed"]["reason"] == "Released"

    def test_entry_of_a_holder_that_ended_is_dropped(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            world.respawn = False
            crash_after_join(world, ref.name)
            pooled_sandbox(world)
            await world.until(lambda: not world.processes, "the crash")
            world.delete()
            world.respawn = True
            world.start()
            await gone(world)
            assert world.cloud.starts("pg/drop") == 1

        at_work(story)

    def test_member_that_never_got_a_run_is_removed(self):
        async def story(world: World) -> None:
            world.respawn = False
            world.hook = _once(lambda request: request.path == MEMBERS, Harm.CRASH_AFTER)
            pooled_sandbox(world)
            await world.until(lambda: not world.processes, "the crash")
            assert len(members(world)) == 1
            world.delete()
            world.respawn = True
            world.start()
            await gone(world)
            assert not world.cloud.starts("pg/make")

        at_work(story)

    def test_unclaimed_member_starts_nothing(self):
        """The claim of the holder is refused for some time."""

        async def story(world: World) -> None:
            run = names.run_name("box", pooled_sandbox(world))
            refuse(world, "PUT", run)
            await world.rest(300)
            assert len(members(world)) == 1
            assert not world.cloud.starts("pg/make")
            permit_writes(world)
            await world.until(lambda: ready(world), "ready", 2000)

        at_work(story)

    def test_joined_member_starts_with_our_finalizer(self):
        """A holder joins before the member's first turn has set the finalizer."""

        async def story(world: World) -> None:
            refuse(world, "PATCH", MEMBERS)
            ref = member(world)
            pooled_sandbox(world)
            await world.until(lambda: ledger_of(world, ref).get("joins"), "the entry")
            await world.rest(60)
            assert not world.cloud.starts("pg/make")
            permit_writes(world)
            await world.until(lambda: ready(world), "ready", 600)
            world.delete()
            await gone(world)

        at_work(story)

    def test_member_that_vanishes_before_its_start_fails_the_hold(self):
        async def story(world: World) -> None:
            refuse(world, "PATCH", MEMBERS)
            ref = member(world)
            pooled_sandbox(world)
            await world.until(lambda: ledger_of(world, ref).get("joins"), "the entry")
            await world.rest(60)
            world.ask("DELETE", f"{MEMBERS}/{ref.name}")
            permit_writes(world)
            await world.until(lambda: ready(world) or world.status().get("reason") == "ResourceFailed", "an end", 600)
            world.delete()
            await gone(world)

        at_work(story)

    def test_changed_documents_in_a_run_freeze_it(self):
        async def story(world: World) -> None:
            run = names.run_name("box", pooled_sandbox(world))
            changed = {"spec": {"inline": [{"target": {"kind": "Sandbox", "name": "box", "uid": "other"}}]}}
            world.ask("PATCH", f"/apis/{API}/runs/{run}", changed, "application/merge-patch+json")
            world.start()
            await world.until(lambda: world.status().get("reason") == "PlanLost", "the report", 300)
            assert not members(world)

        live(pool_world, story)


class TestEnd:
    def test_release_waits_until_the_member_is_gone(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: runs(world, "pg/drop"), "the cleanup of the member")
            await world.rest(20)
            assert world.box() is not None
            await gone(world)

        at_work(story, claim_steps=False, drop=Script(runs=60))

    def test_lost_ledger_of_a_member_blocks_the_release(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.cloud.forgiven = True
            world.take_away(f"/apis/{API}/runs/{ref.run}")
            world.delete()
            await world.until(lambda: ref.run in message(world), "the message", 300)
            await world.rest(600)
            assert world.box() is not None
            annotate_member(world, ref.name, "force: cleaned up by hand")
            await world.until(lambda: not (world.box() or members(world)), "both to go", 600)

        at_work(story, claim_steps=False)

    def test_release_continues_after_a_crash(self):
        """The operator crashes after the claim of the release, before the holder leaves the member."""

        async def story(world: World) -> None:
            await ready_member(world)
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.hook = _once(lambda request: request.method == "PUT" and RELEASING in request.body, Harm.CRASH_AFTER)
            world.delete()
            await gone(world)

        at_work(story, claim_steps=False)

    def test_abandoned_member_completes_the_release_with_a_remark(self):
        """The holder cannot record the end of its release at once."""
        boxes: list[str] = []

        async def story(world: World) -> None:
            ref = await ready_member(world)
            boxes.append(pooled_sandbox(world))
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: world.cloud.starts("pg/drop") >= 2, "a second try of the cleanup")
            refuse(world, "PUT", names.run_name("box", boxes[0]))
            annotate_member(world, ref.name, "gone anyway")
            await world.until(lambda: ledger_of(world, ref).get("phase", "abandoned") == "abandoned", "its end")
            await world.rest(300)
            permit_writes(world)
            await gone(world)

        world = at_work(story, drop=Script(fails=99))
        released = ledger(world, boxes[0])["units"]["db/release"]
        assert released["outcome"] == "succeeded"
        assert "gone anyway" in released["message"]

    def test_abandoned_holder_stays_until_it_can_leave(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            box = pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: world.cloud.starts("db/revoke"), "the cleanup")
            refuse(world, "PUT", ref.run)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "nobody needs it"}}})
            await world.rest(300)
            [phase] = [run["ledger"]["phase"] for run in world.cluster.objects("runs") if run["ledger"]["uid"] == box]
            assert phase == "abandoned"
            assert ledger_of(world, ref)["holders"]
            permit_writes(world)
            await gone(world)
            assert world.cloud.succeeded("pg/drop", ref.uid)

        at_work(story, revoke=Script(fails=99))


def _once(matches: Callable[[KubeRequest], bool], harm: Harm) -> Callable[[int, Call], Fault | None]:
    """Return a hook that harms the first matching write."""
    done: list[int] = []

    def hook(number: int, call: Call) -> Fault | None:
        if not number or done or not matches(call.request):
            return None
        done.append(number)
        return Fault(harm)

    return hook


class TestReset:
    def test_reset_replaces_the_member_in_two_writes_of_the_hold(self):
        async def story(world: World) -> None:
            first = await ready_member(world)
            box = pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            second = await ready_member(world, 2)
            await world.rest(30)
            before = ledger(world, box)["seq"]
            reset(world, first.name)
            await world.until(lambda: not ledger_of(world, first), "the end of the first member")
            assert ledger(world, box)["seq"] == before + 1
            assert [each["run"] for each in ledger_of(world, second)["holders"]] == [box]
            assert ready(world)
            assert world.cloud.starts("pg/drop") == 1
            await world.rest(30)
            [binding] = {each["status"]["binding"]["name"] for each in world.cluster.objects("resources")}
            assert binding in {each["metadata"]["name"] for each in world.cluster.objects("secrets")}
            assert binding.endswith("-2")
            world.delete()
            await gone(world)

        at_work(story, claim_steps=False)

    def test_reset_without_a_ready_member_creates_one(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            [first] = members(world)
            reset(world, first["metadata"]["name"])
            await world.until(lambda: world.cloud.starts("pg/drop") == 1, "the end of the first member")
            await world.until(lambda: ready(world), "ready")
            [second] = members(world)
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            await world.rest(300)
            assert world.cloud.starts("pg/make") == 2
            world.delete()
            await gone(world)

        at_work(story, claim_steps=False)

    def test_reset_with_a_step_that_uses_the_member_changes_nothing(self):
        async def story(world: World) -> None:
            ref = await ready_member(world)
            box = pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            other = await ready_member(world, 2)
            reset(world, ref.name)
            await world.rest(300)
            assert [each["run"] for each in ledger_of(world, ref)["holders"]] == [box]
            assert not world.cloud.starts("pg/drop")
            world.ask("DELETE", f"{MEMBERS}/{other.name}")
            world.delete()
            await gone(world)

        at_work(story)

    def test_entry_of_a_reset_survives_a_crash(self):
        async def story(world: World) -> None:
            first = await ready_member(world)
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            second = await ready_member(world, 2)
            crash_after_join(world, second.name)
            reset(world, first.name)
            await world.until(lambda: not ledger_of(world, first), "the end of the first member")
            await world.until(lambda: ready(world), "ready")
            assert len(ledger_of(world, second)["holders"]) == 1
            world.delete()
            await gone(world)

        at_work(story, claim_steps=False, operators=2)


def reset(world: World, member: str) -> None:
    world.change({"metadata": {"annotations": {"dayfly.dev/reset": f"db={member}"}}})
