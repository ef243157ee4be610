"""Leak checks of a server in a cluster: made, changed, applied and deleted over the link."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.control_plane import ControlPlane, joined
from tests.operator.rig.leaks import CHECKS, check, item, leak_status, next_sweep, verdicts
from tests.operator.rig.served_leaks import (
    CHECK,
    apply_check,
    audited,
    leave_served_orphan,
    publish,
    sandbox,
    served_sweeps,
    served_world,
    status,
)
from tests.operator.rig.server_stories import ready, until
from tests.operator.rig.world import World
from tests.selection import SELECTION

from dayfly.link import wire
from dayfly.operator.leaks import served_checks
from dayfly.server.leaks import leak_sync
from dayfly.server.sync.agents.mailbox_transport import SILENT_MS, MailboxTransport
from dayfly.spec.lifecycle import Kind, Object, StepOrigin, Target, Unit, digest


async def seen_by_sync(world: World, plane: ControlPlane, count: int) -> None:
    """Wait until the audit log has that many deletions."""

    async def so() -> bool:
        return len(await audited(plane)) >= count

    await until(world, so, f"{count} audited deletions")


class TestServedCheck:
    def test_orphan_is_deleted_by_a_plan_and_audited(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            id_ = await leave_served_orphan(world, plane)
            await plane.must("PUT", "sandboxes/other", sandbox())
            await ready(world, plane, "other")
            made = await apply_check(plane)
            assert (made["spec"]["cluster"], made["plugin"]) == ("east", "pg@1.0.0")
            [seen] = world.cluster.objects("leakchecks")
            assert seen["metadata"]["annotations"]["served.dayfly.dev/for"] == "acme"
            found = await served_sweeps(world, plane, 2)
            assert (found["counts"], found["error"]) == ({"orphan": 1, "held": 1}, "")
            [leak] = found["findings"]
            assert (leak["name"], leak["verdict"], leak["plugin"]) == (item(id_), "orphan", "pg@1.0.0")
            owner = {"sandbox": "shop", "cluster": "east", "createdBy": "this home"}
            assert {key: leak[key] for key in owner} == owner
            assert not world.cloud.starts("pg/drop")
            await plane.must("POST", f"{CHECK}/sweep", {"plan": found["plan"]})
            found = await served_sweeps(world, plane)
            assert (found["applied"], found["deleted"]) == ("done", [id_])
            await seen_by_sync(world, plane, 1)
            assert await audited(plane) == [f"leakchecks/items/{id_}/pg@1.0.0"]
            assert leak_status(world)["reason"] in ("NoLeaks", "LeaksFound")
            await plane.must("DELETE", CHECK)
            assert (await plane.ask("GET", CHECK))[0] == 404
            await world.until(lambda: not world.cluster.objects("leakchecks"), "the end of the check")

        story(steps, born=served_world)

    def test_check_with_action_delete_is_audited_once_over_restarts(self, story, monkeypatch):
        monkeypatch.setattr(leak_sync, "REMOTE_INTERVAL_MS", 10_000)

        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            ids = [await leave_served_orphan(world, plane, name) for name in ("shop", "shop2")]
            await apply_check(plane, action="delete")
            await seen_by_sync(world, plane, 1)
            for process in world.processes:
                process.transport.dead = True
            await world.rest(200)
            await plane.restart()
            found = await status(plane)
            assert (found["left"], found["counts"]["orphan"]) == (1, 1)
            await plane.must("POST", f"{CHECK}/sweep", {"plan": found["plan"]})
            await seen_by_sync(world, plane, 2)
            await world.rest(100)
            assert sorted(await audited(plane)) == sorted(f"leakchecks/items/{id_}/pg@1.0.0" for id_ in ids)

        story(steps, born=served_world)

    def test_plan_brings_the_delete_steps_of_a_version(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            id_ = await leave_served_orphan(world, plane)
            [order] = [each async for each in orders(plane, "1.1.0")]
            await plane.link.order(msgspec.structs.replace(order, deletes={}))
            found = await served_sweeps(world, plane, 2)
            assert found["plan"]
            await plane.must("POST", f"{CHECK}/sweep", {"plan": found["plan"]})
            found = await served_sweeps(world, plane)
            assert (found["applied"], found["deleted"]) == ("done", [id_])

        story(steps, born=served_world)

    @pytest.mark.parametrize("undeletable", [("pg@1.0.0",), ()], ids=["known", "not known yet"])
    def test_orphan_without_delete_steps_stays(self, story, undeletable):
        """If the server knows that the version has none, no plan has the orphan; otherwise the plan is refused."""

        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            id_ = await leave_served_orphan(world, plane)
            [order] = [each async for each in orders(plane, "1.1.0")]
            spec = msgspec.structs.replace(order.spec, action="delete")
            await plane.link.order(replaced(order, deletes={}, spec=spec, undeletable=undeletable))
            found = await served_sweeps(world, plane, 2)
            [leak] = found["findings"]
            assert (leak["verdict"], leak["deletable"], found["left"]) == ("orphan", not undeletable, 0)
            assert bool(found["plan"]) is not bool(undeletable)
            if found["plan"]:
                await plane.link.order(wire.SweepLeaks(uid="leakcheck/items", name="items", plan=found["plan"]))
                found = await served_sweeps(world, plane)
                assert "nothing was deleted: the check has no delete steps of pg@1.0.0" in found["applied"]
            assert (found["deleted"], await audited(plane)) == ([], [])
            assert item(id_) in world.account.items

        story(steps, born=served_world)

    def test_missing_resource_has_its_sandbox_and_creator(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await plane.must("PUT", "sandboxes/shop", sandbox())
            await ready(world, plane, "shop")
            world.account.play()
            world.account.items.clear()
            await world.rest(120)
            await apply_check(plane)
            [lost] = (await served_sweeps(world, plane, 2))["findings"]
            assert (lost["verdict"], lost["name"]) == ("missing", "shop/db")
            assert (lost["sandbox"], lost["createdBy"]) == ("shop", "this home")

        story(steps, born=served_world)

    def test_changed_check_lists_with_its_new_spec(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await apply_check(plane)
            await served_sweeps(world, plane)
            await apply_check(plane, every="24h")
            await served_sweeps(world, plane)
            [seen] = world.cluster.objects("leakchecks")
            assert seen["spec"]["every"] == "24h"
            assert ("Warning", "Refused") not in world.events()

        story(steps, born=served_world)

    def test_edit_in_the_cluster_stops_the_check_and_is_reported(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await leave_served_orphan(world, plane)
            await apply_check(plane)
            await served_sweeps(world, plane, 2)
            spec = {"spec": {"action": "delete"}}
            world.ask("PATCH", f"{CHECKS}/items", spec, "application/merge-patch+json")
            await world.until(lambda: leak_status(world)["reason"] == "Refused", "the report")
            found = await status(plane)
            assert "its spec was edited in the cluster" in found["error"]
            assert found["counts"]["orphan"] == 1
            await world.rest(2_000)
            assert (await status(plane))["number"] == found["number"]
            assert not world.cloud.starts("pg/drop")
            await apply_check(plane)
            assert (await served_sweeps(world, plane))["error"] == ""

        story(steps, born=served_world)

    def test_object_deleted_in_the_cluster_is_gone_at_the_server(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await apply_check(plane)
            await served_sweeps(world, plane)
            world.ask("DELETE", f"{CHECKS}/items")

            async def is_gone() -> bool:
                return await plane.must("GET", "leakchecks") == []

            await until(world, is_gone, "the end at the server")
            await apply_check(plane)
            await served_sweeps(world, plane)

        story(steps, born=served_world)

    def test_check_of_an_offline_cluster_keeps_its_last_verdicts(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await leave_served_orphan(world, plane)
            await apply_check(plane)
            before = await served_sweeps(world, plane, 2)
            await world.rest(100)
            plane.still.update(process.name for process in world.processes)
            await world.rest(2 * SILENT_MS / 1000)
            [found] = await plane.must("GET", "leakchecks")
            state = found["status"]
            assert (state["counts"], state["plan"], state["findings"]) == (before["counts"], "", [])
            assert state["listedAt"] >= before["listedAt"]
            assert (
                "this is the last report of the cluster, which cannot be reached: its operator last connected at"
                in state["error"]
            )
            assert (await status(plane))["error"] == state["error"]
            for method, path, body in (
                ("POST", f"{CHECK}/sweep", {}),
                ("DELETE", CHECK, None),
                ("PUT", CHECK, {"spec": found["spec"]}),
            ):
                code, answer = await plane.ask(method, path, body)
                assert (code, "cannot be reached: its operator last connected at" in answer["error"]) == (503, True), (
                    answer
                )
            plane.still.clear()

            async def is_back() -> bool:
                return (await status(plane))["error"] == ""

            await until(world, is_back, "the cluster answers")

        story(steps, born=served_world)

    def test_check_of_the_cluster_stays_unknown_to_the_server(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            check(world)
            await next_sweep(world)
            assert await plane.must("GET", "leakchecks") == []
            spec = {"cluster": "east", "plugin": "pg"}
            code, answer = await plane.ask("PUT", CHECK, {"spec": spec})
            assert (code, "another LeakCheck with the name items" in answer["error"]) == (400, True), answer
            await world.rest(700)
            assert leak_status(world)["reason"] == "NoLeaks"

        story(steps, born=served_world)

    def test_items_of_a_plugin_of_the_cluster_are_never_deleted(self, story):
        """The plugin of the cluster has the same name and version, and its sandbox was applied with kubectl."""

        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            world.sandbox({"resources": [{"name": "db", "plugin": "pg@1.0.0"}]})
            await world.until(lambda: world.status().get("ready"), "ready")
            world.account.forgets = True
            world.delete()
            await world.until(lambda: world.box() is None, "the end of the sandbox")
            await world.rest(120)
            await apply_check(plane, action="delete")
            found = await served_sweeps(world, plane, 3)
            assert found["counts"] == {"foreign": 1}
            assert not world.cloud.starts("pg/drop")

        story(steps, born=served_world)

    def test_cluster_has_a_limited_number_of_checks(self, story, monkeypatch):
        monkeypatch.setattr(served_checks, "MAX_CHECKS", 1)

        async def steps(world: World, plane: ControlPlane) -> None:
            await publish(plane)
            await apply_check(plane)
            await served_sweeps(world, plane)
            spec = {"cluster": "east", "plugin": "pg"}
            code, answer = await plane.ask("PUT", "leakchecks/more", {"spec": spec})
            assert (code, "1 leak checks of servers, the maximum" in answer["error"]) == (400, True), answer

        story(steps, born=served_world)


async def orders(plane: ControlPlane, version: str):
    """Yield the orders for the check, as a server sends them."""
    sent: list[wire.PutLeakCheck] = []
    send = MailboxTransport.send

    def keep(host, message):
        sent.extend([message] if isinstance(message, wire.PutLeakCheck) else [])
        send(host, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MailboxTransport, "send", keep)
        await publish(plane, version)
        await apply_check(plane)
    for each in sent:
        yield each


def altered(order: wire.PutLeakCheck, **changes) -> wire.PutLeakCheck:
    return msgspec.structs.replace(order, inventory=msgspec.structs.replace(order.inventory, **changes))


def replaced(order: wire.PutLeakCheck, **changes) -> wire.PutLeakCheck:
    return msgspec.structs.replace(order, **changes)


def steps_of(order: wire.PutLeakCheck, **changes) -> tuple[Unit, ...]:
    return tuple(msgspec.structs.replace(each, **changes) for each in order.inventory.pre_start)


REFUSED = {
    "a plugin of the cluster": (
        lambda order: altered(order, origin=msgspec.structs.replace(order.inventory.origin, publisher="cluster")),
        "the plugin cluster:pg was not published by acme",
    ),
    "no plugin": (lambda order: altered(order, origin=StepOrigin()), "a leak check needs a published plugin"),
    "another plugin": (
        lambda order: altered(order, origin=msgspec.structs.replace(order.inventory.origin, plugin="vault")),
        "must be of its plugin pg",
    ),
    "another version's steps": (
        lambda order: replaced(order, deletes={"pg@9.0.0": order.deletes["pg@1.0.0"]}),
        "has the delete steps of acme:pg",
    ),
    "the target of a sandbox": (
        lambda order: altered(order, target=Target(kind="Sandbox", name="x", uid="y")),
        "no target or resource ID",
    ),
    "the resource ID of another owner": (
        lambda order: altered(order, resource_id="0123456789abcdef0123456789"),
        "no target or resource ID",
    ),
    "steps at the end": (
        lambda order: altered(order, post_stop=order.inventory.pre_start),
        "has only create steps",
    ),
    "an object": (
        lambda order: altered(order, pre_start=steps_of(order, kind=Kind.OBJECT, exec=None, object=Object())),
        "a leak check has only scripts and webhooks",
    ),
    "a namespace that leads elsewhere": (
        lambda order: altered(
            order,
            pre_start=tuple(
                msgspec.structs.replace(each, exec=msgspec.structs.replace(each.exec, namespace="../../x"))
                for each in order.inventory.pre_start
            ),
        ),
        "is not the name of a namespace",
    ),
    "no steps": (lambda order: altered(order, pre_start=()), "a leak check has only scripts"),
    "a name that leads elsewhere": (lambda order: replaced(order, name="../secrets/x"), "cannot be the name"),
    "a short interval": (
        lambda order: replaced(order, spec=msgspec.structs.replace(order.spec, every="1s")),
        "is too short",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_forbidden_check_is_refused_and_creates_nothing(story, monkeypatch, what):
    change, said = REFUSED[what]
    send = MailboxTransport.send

    async def steps(world: World, plane: ControlPlane) -> None:
        monkeypatch.setattr(
            MailboxTransport,
            "send",
            lambda host, message: send(host, change(message) if isinstance(message, wire.PutLeakCheck) else message),
        )
        await publish(plane)
        code, answer = await plane.ask("PUT", CHECK, {"spec": {"cluster": "east", "plugin": "pg"}})
        assert (code, said in answer["error"]) == (400, True), answer
        assert not world.cluster.objects("leakchecks")
        assert not world.cluster.objects("runs")

    story(steps, born=served_world)


def test_upper_case_name_is_refused_with_the_rule(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        code, answer = await plane.ask("PUT", "leakchecks/Things", {"spec": {"cluster": "east", "plugin": "pg"}})
        assert (code, "use lower-case letters" in answer["error"]) == (400, True), answer
        assert not world.cluster.objects("leakchecks")

    story(steps, born=served_world)


def test_check_without_a_bound_namespace_names_the_option(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        code, answer = await plane.ask("PUT", CHECK, {"spec": {"cluster": "east", "plugin": "pg"}})
        assert (code, "--agent-namespace acme=NAMESPACE" in answer["error"]) == (400, True), answer

    async def unbound(world: World, plane: ControlPlane) -> None:
        for process in list(world.processes):
            process.transport.dead = True
        joined(world, plane, bound={"other": "acme-sandboxes"})
        await world.rest(60)
        await steps(world, plane)

    story(unbound, born=served_world)


def test_check_with_a_lost_order_waits_until_it_is_applied_again(story):
    """The plugin of the cluster, which has other grants, must never take the place of the server's documents."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        await apply_check(plane)
        await served_sweeps(world, plane)
        starts = world.cloud.starts("pg/look")
        [secret] = [each for each in world.cluster.objects("secrets") if each["type"] == "dayfly.dev/leak-check"]
        meta = secret["metadata"]
        world.ask("DELETE", f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}")
        await world.rest(2_000)
        assert world.cloud.starts("pg/look") <= starts + 1
        assert "its order is missing" in (await status(plane))["error"]
        await apply_check(plane)
        assert (await served_sweeps(world, plane))["error"] == ""

    story(steps, born=served_world)


def test_check_with_another_plugin_uses_no_earlier_lists(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        await leave_served_orphan(world, plane)
        await apply_check(plane)
        await served_sweeps(world, plane, 2)
        [before] = [each async for each in orders(plane, "2.0.0")]
        assert before.plugin == "pg@2.0.0"
        assert digest((before.inventory,))
        found = await served_sweeps(world, plane)
        assert set(verdicts(world).values()) == {"unknown"}
        assert found["counts"]["unknown"] == 1

    story(steps, born=served_world)


def test_missing_role_is_named_with_its_command(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        world.cluster.denied.add(("create", "leakchecks.dayfly.dev"))
        code, answer = await plane.ask("PUT", CHECK, {"spec": {"cluster": "east", "plugin": "pg"}})
        wanted = "kubectl create clusterrolebinding dayfly-agent-leaks --clusterrole dayfly-agent-leaks"
        assert (code, wanted in answer["error"]) == (503, True), answer

    story(steps, born=served_world)


WRITES = {
    "the object": ("POST", "/leakchecks"),
    "the order": ("POST", "/secrets"),
    "the changed order": ("PUT", "/secrets/dayfly-leaks-"),
    "the spec": ("PATCH", "/leakchecks/items"),
    "the deletion": ("DELETE", "/leakchecks/items"),
}


HARMS = (Harm.CRASH_BEFORE, Harm.CRASH_AFTER, Harm.LOST_ANSWER, Harm.CONFLICT)
INTERRUPTIONS = SELECTION.sample(list(itertools.product(WRITES, HARMS)), 4, "interrupted orders")


@pytest.mark.parametrize(("what", "harm"), INTERRUPTIONS)
def test_interrupted_order_is_completed_when_it_is_repeated(story, what, harm):
    """A check is made, changed and deleted, and the first such write of the operator fails."""
    method, path = WRITES[what]
    faults: list[Fault] = [Fault(harm)]

    def hook(_number: int, call: Call) -> Fault | None:
        is_it = call.request.method == method and path in call.request.path and b"dayfly-agent" not in call.request.body
        return faults.pop() if faults and is_it and call.write is not None else None

    async def steps(world: World, plane: ControlPlane) -> None:
        await publish(plane)
        world.hook = hook
        await repeat(world, plane, "PUT", {"spec": {"cluster": "east", "plugin": "pg", "every": "5m", "grace": "1m"}})
        await served_sweeps(world, plane)
        await repeat(world, plane, "PUT", {"spec": {"cluster": "east", "plugin": "pg", "every": "10m", "grace": "1m"}})
        found = await served_sweeps(world, plane)
        assert (found["counts"], found["error"]) == ({}, "")
        [seen] = world.cluster.objects("leakchecks")
        assert seen["spec"]["every"] == "10m"
        await repeat(world, plane, "DELETE")
        await world.until(lambda: not world.cluster.objects("leakchecks"), "the end of the check")
        assert await plane.must("GET", "leakchecks") == []
        assert not faults

    story(steps, born=served_world)


async def repeat(world: World, plane: ControlPlane, method: str, body: object = None) -> None:
    """Repeat a request until it succeeds. A deletion may have succeeded before."""

    async def succeeds() -> bool:
        code, answer = await plane.ask(method, CHECK, body)
        assert code in (200, 404, 503), answer
        return code == 200 or (code == 404 and method == "DELETE")

    await until(world, succeeds, f"{method} succeeds")
