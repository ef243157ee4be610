"""What the owner of a Sandbox sees of its pool members: units, pods, logs and retries."""

from __future__ import annotations

import msgspec
from tests.embedded.pool_documents import pooled
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import (
    TEMPLATE,
    is_ready,
    ledger_of,
    member,
    members,
    pool_world,
    pooled_sandbox,
    seal_run,
    target_in,
)
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import World, live

from dayfly.execute.pod import names
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.operator.agent import run_reads
from dayfly.operator.cluster.objects import MemberRef, RunObject
from dayfly.spec.lifecycle import Lifecycle


def at_work(story, operators: int = 1, **scripts: Script) -> World:
    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(lambda: pool_world(claim_steps=False, **scripts), begin)


def slow_world() -> World:
    """Return a world whose members need a minute for their first step, and ten for the second one."""
    world = pool_world(claim_steps=False)
    for name, seconds in (("pg/make", 60), ("pg/seed", 600)):
        world.kubelet.scripts[name].runs = seconds
    return world


def unit(world: World, name: str) -> Object:
    """Return a unit in the status of the Sandbox; empty if there is none."""
    return next((each for each in world.status().get("units", []) if each["id"] == name), {})


def record(world: World, name: str) -> Object:
    """Return the record of a unit in the ledger of the only member; empty if there is none."""
    units = [run["ledger"].get("units", {}) for run in world.cluster.objects("runs")]
    return next((each[name] for each in units if name in each), {})


def retry(world: World, name: str) -> None:
    """Retry a unit of the Sandbox now, as `dayfly retry` does."""
    world.change({"metadata": {"annotations": {"dayfly.dev/retry": f"{name}={unit(world, name)['attempt']}"}}})


class TestUnits:
    def test_held_unit_names_its_member(self):
        async def story(world: World) -> None:
            ref = member(world)
            await world.until(is_ready(world, ref), "a ready member")
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            assert (unit(world, "db/make")["member"], unit(world, "db/make")["hit"]) == ("pg-1", True)
            assert [each.get("member") for each in world.resource()["status"]["units"]][:2] == ["pg-1", "pg-1"]
            world.delete()
            await gone(world)

        at_work(story)

    def test_running_unit_names_the_pod_of_its_member(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: unit(world, "db/make").get("pod"), "a pod")
            namespace, _, name = unit(world, "db/make")["pod"].partition("/")
            assert world.cluster.store.get(world.cluster.kind("pods"), Key(namespace, name))
            await world.until(lambda: ready(world), "ready")
            assert not unit(world, "db/make").get("pod")
            assert not unit(world, "db/make").get("hit")

        at_work(story, make=Script(runs=60))

    def test_ready_status_stays_after_a_takeover(self):
        """A new operator has no report of the resting member, and must not write another status."""

        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            await world.rest(60)
            before = unit(world, "db/make")
            [first] = world.processes
            world.start()
            world.processes.remove(first)
            await first.end()
            await world.rest(120)
            assert unit(world, "db/make") == before

        at_work(story)

    def test_release_names_the_time_of_the_next_retry(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: "tries again at" in unit(world, "db/release").get("message", ""), "the retry")
            found = unit(world, "db/release")
            assert f"tries again at {found['until']}" in found["message"]
            assert found["state"] == "retrying"
            assert "pg/drop" in found["message"]
            await gone(world)

        at_work(story, drop=Script(fails=12))


class TestRetry:
    def test_retry_of_a_release_ends_the_back_off_of_its_member(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: unit(world, "db/release").get("attempt", 0) >= 6, "several attempts")
            await world.until(lambda: unit(world, "db/release").get("until"), "the next back-off")
            before = record(world, "pg/drop")["attempt"]
            began = world.cluster.time()
            retry(world, "db/release")
            await world.until(lambda: record(world, "pg/drop").get("attempt", 0) > before, "a retry")
            assert world.cluster.time() - began < 0.5
            # It ends this one back-off only.
            await world.until(lambda: record(world, "pg/drop")["attempt"] > before + 1, "the attempt after that")
            assert world.cluster.time() - began > 2

        at_work(story, drop=Script(fails=99))


class TestLogs:
    def test_server_reads_the_logs_of_members_under_the_names_of_the_holder(self):
        async def story(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            await world.rest(30)
            [run] = [each for each in world.cluster.objects("runs") if each["ledger"]["target"]["kind"] == "Sandbox"]
            client = KubeClient(world.cluster.transport("agent"), seed=1)
            kept = await run_reads.read_logs(client, msgspec.convert(run, RunObject))
            assert [(info.unit, info.attempt) for info in run_reads.list_logs(kept)] == [("db/make", 1), ("db/seed", 1)]
            assert all(log.data for log in kept.values())

        at_work(story)

    def test_logs_of_a_member_are_deleted_with_it(self):
        async def story(world: World) -> None:
            ref = member(world)
            await world.until(is_ready(world, ref), "a ready member")
            await world.until(lambda: world.cluster.objects("steplogs"), "its logs")
            world.ask("DELETE", f"/apis/dayfly.dev/v1alpha1/namespaces/shop/poolmembers/{ref.name}")
            await gone(world)

        at_work(story)


def shown(world: World, name: str = "pg-1") -> Object:
    """Return the status of a member; empty if there is none."""
    return next((each.get("status", {}) for each in members(world) if each["metadata"]["name"] == name), {})


class TestMemberStatus:
    def test_status_follows_a_member_from_ready_to_held(self):
        async def story(world: World) -> None:
            ref = member(world)
            await world.until(lambda: shown(world).get("ready"), "a ready member")
            assert (shown(world)["state"], shown(world)["holder"]) == ("ready", "")
            pooled_sandbox(world)
            await world.until(lambda: shown(world)["state"] == "held", "its holder in the status")
            assert shown(world)["holder"] == "box/db"
            assert shown(world)["conditions"][0]["status"] == "True"
            assert ledger_of(world, ref)["holders"]
            world.delete()
            await gone(world)

        at_work(story)

    def test_long_creation_is_reported_with_its_step(self):
        async def story(world: World) -> None:
            member(world)
            await world.until(lambda: shown(world).get("state") == "creating", "the report")
            assert shown(world)["units"][0]["id"] == "pg/make"
            assert shown(world)["progress"] == "0/2"

        at_work(story, make=Script(runs=60))

    def test_failed_member_names_its_step(self):
        async def story(world: World) -> None:
            member(world)
            await world.until(lambda: shown(world).get("state") == "failed", "the report")
            assert not shown(world)["ready"]
            assert "pg/make" in shown(world)["message"]

        at_work(story, make=Script(fails=9))

    def test_stuck_cleanup_of_a_member_is_reported(self):
        async def story(world: World) -> None:
            ref = member(world)
            await world.until(is_ready(world, ref), "a ready member")
            world.ask("DELETE", f"/apis/dayfly.dev/v1alpha1/namespaces/shop/poolmembers/{ref.name}")
            await world.until(lambda: shown(world).get("reason") == "CleanupStuck", "the report")
            assert shown(world)["state"] == "ending"

        at_work(story, drop=Script(fails=99))

    def test_lost_ledger_is_reported(self):
        async def story(world: World) -> None:
            ref = member(world)
            await world.until(lambda: shown(world).get("ready"), "a ready member")
            world.cloud.forgiven = True
            world.take_away(f"/apis/dayfly.dev/v1alpha1/runs/{ref.run}")
            await world.until(lambda: shown(world)["reason"] == "LedgerLost", "the report", 300)
            assert ref.run in shown(world)["message"]
            assert not shown(world)["ready"]

        at_work(story)

    def test_ready_member_causes_no_writes(self):
        async def story(world: World) -> None:
            member(world)
            await world.until(lambda: shown(world).get("ready"), "a ready member")
            await world.rest(60)
            before = len(world.writes)
            await world.rest(600)
            assert world.writes[before:] == []

        at_work(story)

    def test_takeover_does_not_write_the_status_of_a_ready_member_again(self):
        async def story(world: World) -> None:
            member(world)
            await world.until(lambda: shown(world).get("ready"), "a ready member")
            await world.rest(60)
            before = len(world.writes)
            [first] = world.processes
            world.start()
            world.processes.remove(first)
            await first.end()
            await world.rest(300)
            assert [each for each in world.writes[before:] if "poolmembers" in each] == []

        at_work(story)


def ledgers(world: World) -> dict[str, Object]:
    """Return the ledgers of all runs by the UID of their target."""
    return {run["ledger"]["uid"]: run["ledger"] for run in world.cluster.objects("runs")}


def member_of(world: World, name: str, resource: str = "db") -> MemberRef:
    """Return the member that the ledger of a Sandbox claims for a resource."""
    box = world.box(name)
    assert box is not None, "the Sandbox exists"
    return MemberRef.parse(ledgers(world)[box["metadata"]["uid"]]["units"][f"{resource}/make"]["ref"])


def named_units(world: World, name: str) -> dict[str, Object]:
    return {each["id"]: each for each in world.status(name).get("units", [])}


def shown_holders(world: World) -> dict[str, str]:
    """Return the holder in the status of each member, by the name of the member."""
    return {each["metadata"]["name"]: each.get("status", {}).get("holder", "") for each in members(world)}


class TestManyHolders:
    """The statuses of several holders and members, each of which names the right one of the others."""

    def test_sandbox_and_its_member_name_each_other(self):
        async def story(world: World) -> None:
            every = [member(world, number) for number in (1, 2, 3)]
            for ref in every:
                await world.until(is_ready(world, ref), "a ready member")
            for name in ("first", "second"):
                pooled_sandbox(world, name)
            await world.until(lambda: ready(world, "first") and ready(world, "second"), "both to be ready")
            expected = {member_of(world, name).name: f"{name}/db" for name in ("first", "second")}
            [spare] = {ref.name for ref in every} - expected.keys()
            await world.until(lambda: shown_holders(world) == {**expected, spare: ""}, "the holders in the statuses")
            for name in ("first", "second"):
                own = member_of(world, name).name
                assert {each["member"] for each in named_units(world, name).values() if "member" in each} == {own}
            world.delete("first")
            await world.until(lambda: world.box("first") is None, "the first to go")
            assert shown_holders(world) == {member_of(world, "second").name: "second/db", spare: ""}

        at_work(story)

    def test_two_resources_of_a_sandbox_name_their_own_members(self):
        async def story(world: World) -> None:
            for number in (1, 2):
                await world.until(is_ready(world, member(world, number)), "a ready member")
            uid = world.sandbox({})
            target = target_in("Sandbox", "box", uid)
            both = (msgspec.structs.replace(pooled(name, TEMPLATE), target=target) for name in ("db", "more"))
            seal_run(world, target, (*both, Lifecycle(target=target)), "sandboxes")
            await world.until(lambda: ready(world), "ready")
            own = {resource: member_of(world, "box", resource).name for resource in ("db", "more")}
            assert len(set(own.values())) == 2
            for name, each in named_units(world, "box").items():
                assert each.get("member", "") in (own[name.partition("/")[0]], "")
            assert {name: named_units(world, "box")[f"{name}/make"]["member"] for name in own} == own
            expected = {own[resource]: f"box/{resource}" for resource in own}
            await world.until(lambda: shown_holders(world) == expected, "the holders in the statuses")

        at_work(story)

    def test_second_reset_replaces_the_member_that_the_status_names(self):
        """The new member has run as many attempts as the former one, so only its name differs in the status."""

        async def story(world: World) -> None:
            for number in (1, 2, 3):
                await world.until(is_ready(world, member(world, number)), "a ready member")
            pooled_sandbox(world)
            await world.until(lambda: ready(world), "ready")
            used = []
            for _ in range(2):
                shown_member = unit(world, "db/make")["member"]
                used.append(shown_member)
                world.change({"metadata": {"annotations": {"dayfly.dev/reset": f"db={shown_member}"}}})
                await world.until(lambda: unit(world, "db/make")["member"] not in used, "the next member", 60)
                assert unit(world, "db/make")["member"] == member_of(world, "box").name
            assert len(set(used)) == 2
            world.delete()
            await world.until(lambda: world.box() is None, "the sandbox to go")

        at_work(story)

    def test_progress_of_a_member_is_shown_by_its_holder_only(self):
        async def story(world: World) -> None:
            world.start()
            pooled_sandbox(world, "early")
            await world.until(
                lambda: named_units(world, "early").get("db/seed", {}).get("state") == "running", "a step"
            )
            pooled_sandbox(world, "late")
            await world.until(lambda: named_units(world, "late").get("db/make", {}).get("state") == "running", "a step")
            early, late = (named_units(world, name) for name in ("early", "late"))
            assert (early["db/make"]["state"], late["db/seed"]["state"]) == ("succeeded", "waiting")
            for name, step in (("early", "seed"), ("late", "make")):
                own = names.pod_name(member_of(world, name).uid, f"pg/{step}", 1)

                def shown_pod(name: str = name, step: str = step) -> str:
                    return str(named_units(world, name)[f"db/{step}"].get("pod", ""))

                await world.until(shown_pod, "the pod of the running step")
                assert shown_pod() == f"dayfly-runners/{own}"

        live(slow_world, story)

    def test_retry_ends_the_back_off_of_the_own_member_only(self):
        async def story(world: World) -> None:
            for name in ("box", "other"):
                pooled_sandbox(world, name)
            await world.until(lambda: ready(world) and ready(world, "other"), "both to be ready")
            refs = {name: member_of(world, name) for name in ("box", "other")}
            for name in ("box", "other"):
                world.delete(name)

            def attempts(name: str) -> int:
                return int(ledger_of(world, refs[name])["units"].get("pg/drop", {}).get("attempt", 0))

            def waits(name: str) -> bool:
                return bool(named_units(world, name).get("db/release", {}).get("until"))

            await world.until(lambda: min(attempts("box"), attempts("other")) >= 7, "several attempts", 900)
            await world.until(lambda: waits("box") and waits("other"), "both to wait for their retry")
            before, began = attempts("other"), world.cluster.time()
            tried = attempts("box")
            retry(world, "db/release")
            await world.until(lambda: attempts("box") > tried, "a retry")
            assert world.cluster.time() - began < 0.5
            assert attempts("other") == before

        at_work(story, drop=Script(fails=99))
