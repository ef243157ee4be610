"""Shared parents in a cluster: one for many holders, their limits and their end, also if operators are late or crash."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from tests.embedded.parent_documents import with_parent
from tests.embedded.pool_documents import pooled
from tests.kube.fake import Call, Fault, Harm, Refusal
from tests.operator.rig.kubelet import Script
from tests.operator.rig.parents import (
    child,
    child_document,
    holders,
    parent_ledgers,
    parent_world,
    parents,
    ref_of,
    server,
)
from tests.operator.rig.pools import MEMBERS, seal_run, target_in
from tests.operator.rig.scenes import READY, gone, message, ready, runs
from tests.operator.rig.world import API, Unit, World, live

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.members import is_held_by
from dayfly.execute.pod import names
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.member_reads import MemberReader
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import MEMBER_KIND, MEMBER_TARGET, Lifecycle, digest

MERGE = "application/merge-patch+json"


def at_work(story, operators: int = 1, *, make: Callable[..., World] = parent_world, **scripts: Script) -> World:
    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(lambda: make(**scripts), begin)


async def all_ready(world: World, *boxes: str) -> None:
    await world.until(lambda: all(ready(world, box) for box in boxes), f"{boxes} to be ready", 300)


async def delete_all(world: World, *boxes: str) -> None:
    for box in boxes:
        world.delete(box)
    await gone(world)


def joins(request: KubeRequest) -> bool:
    return request.method == "PUT" and "/runs/server-" in request.path and b'"joins"' in request.body


def crash_once(world: World, wanted: Callable[[KubeRequest], bool], harm: Harm = Harm.CRASH_AFTER) -> None:
    """Let the operator that sends the first such change crash."""
    crashed: list[str] = []

    def hook(number: int, call: Call) -> Fault | None:
        if number and not crashed and wanted(call.request):
            crashed.append(call.request.path)
            return Fault(harm)
        return None

    world.hook = hook


def refuse(world: World, method: str, path: str) -> None:
    """Refuse requests with this method and this part of a path."""
    refused = Refusal(403, "no")
    world.cluster.refuses = lambda each: refused if each.method == method and path in each.path else None


def permit_writes(world: World) -> None:
    world.cluster.refuses = lambda _request: None


def ledgers_written(world: World, since: int) -> list[str]:
    """Return the first words of the names of the runs whose ledgers were written, in order."""
    paths = [each for each in world.writes[since:] if each.startswith("PUT") and "/runs/" in each]
    return [path.rpartition("/")[2].partition("-")[0] for path in paths]


class TestSharing:
    def test_parent_is_created_once_and_deleted_after_all_children(self):
        async def story(world: World) -> None:
            child(world, "box")
            await all_ready(world, "box")
            child(world, "bag")
            await all_ready(world, "bag")
            assert holders(world) == {"box", "bag"}
            world.delete("box")
            await world.until(lambda: holders(world) == {"bag"}, "the first release", 60)
            assert not world.cloud.starts("server/stop")
            await delete_all(world, "bag")
            assert world.cloud.starts("server/start") == world.cloud.starts("server/stop") == 1

        at_work(story)

    def test_hold_and_release_of_a_parent_take_two_writes_each(self):
        async def story(world: World) -> None:
            child(world, "box")
            await all_ready(world, "box")
            before = len(world.writes)
            child(world, "bag")
            await all_ready(world, "bag")
            # The entry, the claim with the result of the parent, and the claim and result of the step.
            assert ledgers_written(world, before) == ["server", "bag", "bag", "bag"]
            await world.rest(30)
            before = len(world.writes)
            world.delete("bag")
            await world.until(lambda: world.box("bag") is None, "its end")
            # The claim and result of the step, the end of the entry, the release, and the end of the run.
            assert ledgers_written(world, before) == ["bag", "bag", "bag", "server", "bag", "bag"]

        at_work(story)

    def test_concurrent_children_create_one_parent(self):
        boxes = [f"box{number}" for number in range(6)]

        async def story(world: World) -> None:
            for box in boxes:
                child(world, box)
            await all_ready(world, *boxes)
            assert holders(world) == set(boxes)
            await delete_all(world, *boxes)
            assert world.cloud.starts("server/start") == 1
            assert world.cloud.starts("db/drop") == len(boxes)

        at_work(story, operators=2)

    def test_burst_of_children_creates_one_parent_while_it_has_room(self):
        boxes = [f"box{number}" for number in range(8)]

        async def story(world: World) -> None:
            for box in boxes:
                child(world, box, max_parents=5, capacity=100)
            await all_ready(world, *boxes)
            assert holders(world) == set(boxes)
            await delete_all(world, *boxes)

        at_work(story, operators=2)

    def test_request_to_reset_a_parent_is_ignored(self):
        """A plugin may have only delete steps, so that all create steps of its resource are those of the parent."""
        document = child_document(server(max_parents=2))
        created = tuple(unit for unit in document.pre_start if unit.acquire is not None)
        document = msgspec.structs.replace(document, pre_start=created)

        async def story(world: World) -> None:
            uid = world.sandbox({}, "box")
            target = target_in("Sandbox", "box", uid, "shop")
            documents = (msgspec.structs.replace(document, target=target), Lifecycle(target=target))
            seal_run(world, target, documents, "sandboxes")
            await all_ready(world, "box")
            [name] = [each["metadata"]["name"] for each in parents(world)]
            await world.rest(30)
            before = len(world.writes)
            world.change({"metadata": {"annotations": {"dayfly.dev/reset": f"db={name}"}}}, "box")
            await world.rest(30)
            assert [each for each in world.writes[before:] if "/runs" in each or "/poolmembers" in each] == []
            await delete_all(world, "box")

        at_work(story)

    def test_next_parent_is_created_if_the_birth_of_the_first_one_stalls(self):
        async def story(world: World) -> None:
            refused = Refusal(500, "no")
            world.cluster.refuses = lambda each: (
                refused
                if each.method == "POST" and each.path.endswith("/runs") and b'"server-1-' in each.body
                else None
            )
            child(world, "box", max_parents=2)
            await world.until(lambda: parents(world), "the first parent")
            child(world, "bag", max_parents=2)
            await world.rest(30)
            assert len(parents(world)) == 1
            await world.until(lambda: ready(world, "bag"), "the second parent", 300)
            assert len(parents(world)) == 2
            permit_writes(world)
            await all_ready(world, "box")
            await delete_all(world, "box", "bag")

        at_work(story)

    def test_parents_of_two_namespaces_are_separate(self):
        async def story(world: World) -> None:
            world.namespace("bank")
            child(world)
            child(world, namespace="bank")
            await world.until(lambda: world.status(namespace="bank").get("reason") == READY, "the second", 300)
            await all_ready(world, "box")
            assert {each["metadata"]["namespace"] for each in parents(world)} == {"shop", "bank"}

        at_work(story)

    def test_report_of_a_child_names_its_parent(self):
        async def story(world: World) -> None:
            child(world)
            await all_ready(world, "box")
            [made] = parents(world)
            units = {unit["id"]: unit for unit in world.status()["units"]}
            assert units["db/parent.start"]["parent"] == made["metadata"]["name"]

        at_work(story)

    def test_steps_of_a_child_have_the_id_of_the_child(self):
        async def story(world: World) -> None:
            box = child(world)
            await all_ready(world, "box")
            [given] = [given for (_, unit, _), given in world.cloud.given.items() if unit == "db/clone"]
            assert given["DAYFLY_RESOURCE_ID"].decode() == resource_id(box, "db")

        at_work(story)

    def test_outputs_of_a_parent_are_not_in_the_binding_secret(self):
        async def story(world: World) -> None:
            child(world)
            await all_ready(world, "box")
            found = [item for item in world.cluster.objects("secrets") if item["metadata"]["namespace"] == "shop"]
            assert [set(item["data"]) for item in found] == [{"clone.name"}]

        at_work(story)

    def test_status_of_a_parent_counts_its_holders(self):
        async def story(world: World) -> None:
            for box in ("box", "bag"):
                child(world, box)
            await all_ready(world, "box", "bag")
            await world.until(lambda: "2 resources" in parents(world)[0].get("status", {}).get("message", ""), "it", 60)
            assert parents(world)[0]["status"]["state"] == "held"

        at_work(story)


class TestLimits:
    def test_child_waits_while_the_parent_is_full(self):
        async def story(world: World) -> None:
            child(world, "box", capacity=1)
            await all_ready(world, "box")
            child(world, "bag", capacity=1)
            await world.until(lambda: "1 of 1 holders" in message_of(world, "bag"), "the reason", 60)
            await world.rest(60)
            before = len(world.writes)
            await world.rest(600)
            assert len(world.writes) == before
            world.delete("box")
            await all_ready(world, "bag")
            await delete_all(world, "bag")
            # The parent lived on, or it ended and another one took its place.
            assert world.cloud.starts("server/start") == world.cloud.starts("server/stop") <= 2

        at_work(story)

    def test_full_parent_that_lingers_serves_the_child_that_waits(self):
        async def story(world: World) -> None:
            child(world, "box", capacity=1, linger_ms=60_000)
            await all_ready(world, "box")
            child(world, "bag", capacity=1, linger_ms=60_000)
            await world.rest(30)
            world.delete("box")
            await world.until(lambda: ready(world, "bag"), "the second", 30)
            await delete_all(world, "bag")
            assert world.cloud.starts("server/start") == 1

        at_work(story)

    def test_next_parent_is_created_when_the_first_one_is_full(self):
        async def story(world: World) -> None:
            for box in ("box", "bag", "bin"):
                child(world, box, capacity=1, max_parents=2)
            await world.until(lambda: sum(ready(world, box) for box in ("box", "bag", "bin")) == 2, "two", 120)
            assert len(parents(world)) == 2
            await delete_all(world, "box", "bag", "bin")

        at_work(story)

    def test_capacity_is_kept_by_two_operators(self):
        boxes = [f"box{number}" for number in range(5)]

        async def story(world: World) -> None:
            for box in boxes:
                child(world, box, capacity=3)
            await world.until(lambda: sum(ready(world, box) for box in boxes) == 3, "three", 120)
            await world.rest(120)
            assert len(holders(world)) == 3
            await delete_all(world, *boxes)

        world = at_work(story, operators=2)
        written = world.cluster.store.after(world.cluster.kind("runs"), 0)
        assert max(len(each.new["ledger"].get("holders", ())) for each in written if each.new) == 3


class TestEnd:
    def test_lingering_parent_serves_the_next_child_then_closes(self):
        async def story(world: World) -> None:
            child(world, "box", linger_ms=600_000)
            await all_ready(world, "box")
            world.delete("box")
            await world.until(lambda: world.box("box") is None, "its end")
            await world.rest(300)
            child(world, "bag", linger_ms=600_000)
            await all_ready(world, "bag")
            world.delete("bag")
            await world.until(lambda: world.box("bag") is None, "its end")
            await world.rest(590)
            assert parent_ledgers(world)
            await world.until(lambda: not parents(world), "the end of the parent", 60)
            assert world.cloud.starts("server/start") == world.cloud.starts("server/stop") == 1

        at_work(story)

    def test_parent_that_lingers_over_a_restart_closes_at_its_time(self):
        async def story(world: World) -> None:
            child(world, "box", linger_ms=60_000)
            await all_ready(world, "box")
            world.delete("box")
            await world.until(lambda: world.box("box") is None, "its end")
            [process] = world.processes
            world.processes.clear()
            await process.end()
            world.start()
            await world.until(lambda: not parents(world), "the end of the parent", 90)

        at_work(story)

    def test_parent_deleted_with_kubectl_waits_for_its_holders(self):
        async def story(world: World) -> None:
            child(world, "box")
            await all_ready(world, "box")
            [made] = parents(world)
            world.ask("DELETE", f"{MEMBERS}/{made['metadata']['name']}")
            child(world, "bag")
            await world.until(lambda: "is being deleted" in message_of(world, "bag"), "the reason", 60)
            await world.rest(300)
            assert not world.cloud.starts("server/stop")
            world.delete("box")
            await all_ready(world, "bag")
            assert world.cloud.starts("server/start") == 2
            await delete_all(world, "bag")

        at_work(story)

    def test_lost_ledger_of_a_parent_blocks_until_abandoned(self):
        async def story(world: World) -> None:
            child(world)
            await all_ready(world, "box")
            ref = ref_of(parents(world)[0])
            world.cloud.forgiven = True
            world.take_away(f"/apis/{API}/runs/{ref.run}")
            child(world, "bag")
            await world.until(
                lambda: f"the ledger of {ref.name} is lost" in message_of(world, "bag"), "the reason", 300
            )
            world.delete()
            await world.until(lambda: f"are gone with PoolMember shop/{ref.name}" in message(world), "its reason", 300)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "its server is gone"}}})
            await world.until(lambda: world.box() is None, "its end", 600)
            note = {"metadata": {"annotations": {"dayfly.dev/abandon": "force: cleaned up by hand"}}}
            world.ask("PATCH", f"{MEMBERS}/{ref.name}", note, MERGE)
            await all_ready(world, "bag")

        at_work(story)

    def test_abandoned_child_leaves_its_parent(self):
        async def story(world: World) -> None:
            child(world)
            await all_ready(world, "box")
            world.delete()
            await world.until(lambda: world.cloud.starts("db/drop") >= 2, "a second try", 300)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "nobody needs it"}}})
            world.cloud.forgiven = True
            await gone(world)
            assert world.cloud.starts("server/stop") == 1

        at_work(story, drop=Script(fails=99))


class TestFailure:
    def test_failed_parent_fails_all_its_holders_and_makes_room(self):
        async def story(world: World) -> None:
            for box in ("box", "bag"):
                child(world, box)
            for box in ("box", "bag"):
                await world.until(lambda box=box: "ResourceFailed" in world.status(box).get("reason", ""), box, 300)
                assert "db/parent.start: exit code 1" in message_of(world, box)
            await world.until(lambda: not parents(world), "its end", 300)
            world.kubelet.scripts["server/start"].fails = 0
            child(world, "bin")
            await all_ready(world, "bin")
            await delete_all(world, "box", "bag", "bin")

        at_work(story, start=Script(runs=5, fails=1))

    def test_failed_parent_stays_until_its_holders_know_why(self):
        """The write of one holder is refused at first. The other one is deleted, so its entry is obsolete."""

        async def story(world: World) -> None:
            bag = names.run_name("bag", child(world, "bag"))
            await world.until(lambda: runs(world, "server/start"), "the first step")
            child(world, "box")
            await world.until(lambda: holders(world) == {"box", "bag"}, "both entries")
            await world.rest(2)
            refuse(world, "PUT", bag)
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the first failure", 60)
            await world.until(lambda: parent_ledgers(world)[0].get("phase") == "cleaned", "its cleanup", 60)
            world.delete()
            await world.until(lambda: world.box() is None, "its end", 60)
            await world.rest(120)
            assert holders(world) == {"box", "bag"}
            permit_writes(world)
            await world.until(lambda: world.status("bag").get("reason") == "ResourceFailed", "the second failure", 900)
            assert "exit code 1" in message_of(world, "bag")
            await delete_all(world, "bag")

        at_work(story, start=Script(runs=20, fails=9))

    def test_parent_gone_before_its_start_fails_only_its_maker(self):
        """Other children join a parent after its first claim, so they wait and get another one."""

        async def story(world: World) -> None:
            refuse(world, "PATCH", MEMBERS)
            child(world, "box")
            await world.until(lambda: parent_ledgers(world), "the entry")
            await world.rest(10)
            child(world, "bag")
            await world.until(lambda: "is being created" in message_of(world, "bag"), "the reason", 60)
            assert holders(world) == {"box"}
            world.ask("DELETE", f"{MEMBERS}/{parents(world)[0]['metadata']['name']}")
            permit_writes(world)
            await all_ready(world, "bag")
            assert world.status().get("reason") == "ResourceFailed"
            await delete_all(world, "box", "bag")

        at_work(story)

    def test_child_deleted_while_its_parent_starts_leaves_nothing(self):
        async def story(world: World) -> None:
            child(world)
            await world.until(lambda: runs(world, "server/start"), "the first step")
            await delete_all(world, "box")
            assert world.cloud.starts("server/stop") == 1
            assert not world.cloud.starts("db/clone")

        at_work(story, start=Script(runs=30))


class TestOperators:
    def test_entry_is_used_again_after_a_crash(self):
        async def story(world: World) -> None:
            child(world, "box")
            await all_ready(world, "box")
            crash_once(world, joins)
            child(world, "bag")
            await all_ready(world, "bag")
            assert holders(world) == {"box", "bag"}
            await delete_all(world, "box", "bag")

        at_work(story)

    def test_entry_of_an_ended_child_is_dropped_and_parent_stays(self):
        async def story(world: World) -> None:
            child(world, "box")
            await all_ready(world, "box")
            world.respawn = False
            crash_once(world, joins)
            child(world, "bag")
            await world.until(lambda: not world.processes, "the crash")
            assert holders(world) == {"box", "bag"}
            world.delete("bag")
            world.respawn = True
            world.start()
            await world.until(lambda: holders(world) == {"box"}, "the entry to go", 300)
            assert ready(world, "box")
            await delete_all(world, "box")

        at_work(story)

    def test_parent_starts_nothing_before_its_holder_claims_it(self):
        async def story(world: World) -> None:
            box = names.run_name("box", child(world, "box"))
            refuse(world, "PUT", box)
            await world.rest(300)
            assert holders(world) == {"box"}
            assert not world.cloud.starts("server/start")
            permit_writes(world)
            await world.until(lambda: ready(world), "ready", 2_000)
            await delete_all(world, "box")

        at_work(story)

    def test_birth_that_a_crash_interrupted_is_completed(self):
        async def story(world: World) -> None:
            crash_once(world, lambda request: request.method == "POST" and request.path == MEMBERS)
            child(world)
            await all_ready(world, "box")
            assert len(parents(world)) == 1
            await delete_all(world, "box")

        at_work(story)

    def test_unborn_parent_of_a_child_that_ended_makes_room(self):
        async def story(world: World) -> None:
            world.respawn = False
            crash_once(world, lambda request: request.method == "POST" and request.path == MEMBERS)
            child(world, "box")
            await world.until(lambda: not world.processes, "the crash")
            world.delete("box")
            child(world, "bag")
            world.respawn = True
            world.start()
            await all_ready(world, "bag")
            assert holders(world) == {"bag"}
            await delete_all(world, "bag")
            assert world.cloud.starts("server/start") == 1

        at_work(story)

    def test_paused_operator_joins_late_and_its_entry_is_dropped(self):
        """The child has ended by then. Its parent, which another child uses, stays."""

        async def story(world: World) -> None:
            child(world, "bin")
            await all_ready(world, "bin")
            world.processes[0].transport.pause = lambda request: 60.0 if joins(request) else 0.0
            child(world, "box")
            await world.rest(20)
            world.delete("box")
            await world.until(lambda: world.box("box") is None, "its end", 300)
            await world.until(lambda: holders(world) == {"bin"}, "the late entry to go", 600)
            await world.rest(300)
            assert holders(world) == {"bin"}
            await delete_all(world, "bin")

        at_work(story, operators=2)

    def test_claimed_parent_without_a_cached_entry_is_read_again(self):
        """An operator may learn the claim of a child by a conflict, before its watch reports the entry."""

        async def story(world: World) -> None:
            child(world, "box")
            await world.until(lambda: runs(world, "server/start"), "the first step")
            await world.rest(5)
            first, second = (process.operator.cluster for process in world.processes)
            world.processes[1].transport.view.delay = 60.0
            run = names.run_name("bag", child(world, "bag"))
            await world.until(lambda: "bag" in holders(world), "the entry")
            await world.rest(2)
            holder, ref = first.ledger.get(run), ref_of(parents(world)[0])
            [acquisition] = find_acquisitions((child_document(server()),)).values()
            assert acquisition.member(holder.ledger) == str(ref)
            assert not is_held_by(second.ledger.get(ref.run).ledger, holder.ledger.uid)
            found = await MemberReader(second, lambda _run: None).read(ref, holder, acquisition)
            assert is_held_by(found.run, holder.ledger.uid)
            await all_ready(world, "box", "bag")

        at_work(story, operators=2, start=Script(runs=90))


class TestLevels:
    def test_parent_of_a_parent_goes_after_it(self):
        units = {"zone/start": Unit(creates=True, once=True, undone_by="zone/stop"), "zone/stop": Unit(creates=False)}

        def make(**scripts: Script) -> World:
            world = parent_world(**scripts)
            for name, unit in units.items():
                world.units[name] = unit
                world.kubelet.scripts[name] = Script(outputs={"url": b"zone://1"} if unit.creates else {})
                world.cloud.knows(name, creates=unit.creates, once=unit.once, reads={})
            return world

        async def story(world: World) -> None:
            above = with_parent(server(), server("zone"))
            for box in ("box", "bag"):
                child(world, box, above)
            await all_ready(world, "box", "bag")
            assert len(parent_ledgers(world)) == 2
            await delete_all(world, "box", "bag")
            ends = [line.unit for line in world.cloud.log if line.what == "end"]
            assert ends[-2:] == ["server/stop", "zone/stop"]

        at_work(story, make=make)

    def test_sandbox_reads_the_parent_of_its_pool_member(self):
        async def story(world: World) -> None:
            bare = msgspec.structs.replace(child_document(server()), target=MEMBER_TARGET, resource="db")
            template = (bare,)
            body = {
                "apiVersion": API,
                "kind": MEMBER_KIND,
                "metadata": {"name": "db-1"},
                "spec": {"number": 1, "template": digest(template)},
            }
            uid = world.ask("POST", MEMBERS, body)["metadata"]["uid"]
            seal_run(world, target_in(MEMBER_KIND, "db-1", uid), template, "poolmembers")
            await world.until(lambda: any(line.unit == "db/clone" for line in world.cloud.log), "the member", 60)
            await world.rest(10)
            box = world.sandbox({})
            target = target_in("Sandbox", "box", box)
            document = msgspec.structs.replace(pooled("db", template), target=target)
            seal_run(world, target, (document, Lifecycle(target=target)), "sandboxes")
            await all_ready(world, "box")
            assert {each["target"]["name"] for each in parent_ledgers(world)[0]["holders"]} == {"db-1"}
            await delete_all(world, "box")
            assert world.cloud.starts("server/stop") == 1

        at_work(story)


def message_of(world: World, box: str) -> str:
    return world.status(box).get("message", "")
