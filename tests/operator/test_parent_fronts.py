"""Sandboxes, pools and plugins with a shared parent: applied with kubectl, and offered by a server."""

from __future__ import annotations

from collections.abc import Callable

from tests.operator.rig.cloud import Object
from tests.operator.rig.control_plane import ControlPlane
from tests.operator.rig.kubelet import Script
from tests.operator.rig.parents import PARENT_PLUGIN, URL, child_plugin, holders, parent_ledgers, parent_world, parents
from tests.operator.rig.pool_stories import is_full, labelled
from tests.operator.rig.pools import MEMBERS, pool
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.server_stories import left, until
from tests.operator.rig.world import Unit, World, live

from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.kube.client import KubeClient
from dayfly.operator.sandboxes.extension import SandboxesExtension

BOX = {"resources": [{"name": "db", "plugin": "pg"}]}
LOCAL = {"server@1.0.0": PARENT_PLUGIN, "pg@1.0.0": child_plugin()}


MEMBER_UNITS = {
    "pg/clone": Unit(creates=True, once=True, undone_by="pg/drop"),
    "pg/drop": Unit(creates=False),
}


def front_world(**scripts: Script) -> World:
    world = parent_world(**scripts)
    world.front = SandboxesExtension
    for name, unit in MEMBER_UNITS.items():
        world.units[name] = unit
        world.kubelet.scripts[name] = Script(outputs={"name": b"db"} if unit.creates else {})
        world.cloud.knows(name, creates=unit.creates, once=unit.once, reads={})
    return world


def chain_world() -> World:
    """Return a world with another parent, `middle`, between the server and the child."""
    world = front_world()
    for name, creates in (("middle/start", True), ("middle/drop", False)):
        world.units[name] = Unit(creates=creates, once=creates, undone_by="middle/drop" if creates else "")
        world.kubelet.scripts[name] = Script(outputs={"url": URL} if creates else {})
        world.cloud.knows(name, creates=creates, once=creates, reads={})
    return world


def pair_world() -> World:
    """Return a world for sandboxes with two resources, `db` and `more`."""
    world = front_world()
    for name, creates in (("more/clone", True), ("more/drop", False)):
        world.units[name] = Unit(creates=creates, once=creates, undone_by="more/drop" if creates else "")
        world.kubelet.scripts[name] = Script(outputs={"name": b"db"} if creates else {})
        world.cloud.knows(name, creates=creates, once=creates, reads={})
    return world


def at_work(
    story, plugins: dict[str, Object] = LOCAL, *, make: Callable[..., World] = front_world, **scripts: Script
) -> World:
    async def begin(world: World) -> None:
        for name, spec in plugins.items():
            world.plugin(name, spec)
        world.start()
        await story(world)

    return live(lambda: make(**scripts), begin)


def message(world: World, box: str = "box") -> str:
    return world.status(box).get("message", "")


class TestKubectl:
    def test_sandboxes_share_the_parent_of_their_plugin(self):
        async def story(world: World) -> None:
            for box in ("box", "bag"):
                world.sandbox(BOX, box)
            await world.until(lambda: ready(world) and ready(world, "bag"), "both", 120)
            assert holders(world) == {"box", "bag"}
            assert {"server.1.0.0", "pg.1.0.0", "shop"} <= labelled(world)
            for box in ("box", "bag"):
                world.delete(box)
            await gone(world)
            assert world.cloud.starts("server/start") == 1

        at_work(story)

    def test_two_resources_of_a_sandbox_share_a_parent(self):
        async def story(world: World) -> None:
            world.sandbox({"resources": [{"name": name, "plugin": "pg"} for name in ("db", "more")]})
            await world.until(lambda: ready(world), "ready", 300)
            [ledger] = parent_ledgers(world)
            assert {each["resource"] for each in ledger["holders"]} == {"db", "more"}
            world.delete()
            await gone(world)
            assert world.cloud.starts("server/start") == world.cloud.starts("server/stop") == 1

        at_work(story, make=pair_world)

    def test_sandbox_waits_until_the_parent_is_published(self):
        async def story(world: World) -> None:
            world.sandbox(BOX)
            await world.until(lambda: 'the parent "server@1.0.0" is not published' in message(world), "the reason", 60)
            world.plugin("server@1.0.0", PARENT_PLUGIN)
            await world.until(lambda: ready(world), "ready", 120)
            world.delete()
            await gone(world)

        at_work(story, {"pg@1.0.0": LOCAL["pg@1.0.0"]})

    def test_parents_that_form_a_cycle_are_refused(self):
        async def story(world: World) -> None:
            world.sandbox(BOX)
            await world.until(lambda: "cycle" in message(world), "the reason", 60)
            assert not parents(world)
            world.delete()
            await gone(world)

        at_work(story, {"pg@1.0.0": child_plugin("other@1.0.0"), "other@1.0.0": child_plugin("pg@1.0.0")})

    def test_parent_with_a_forbidden_pod_is_refused_at_once(self):
        above = {**PARENT_PLUGIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}}

        async def story(world: World) -> None:
            world.sandbox(BOX)
            await world.until(lambda: "step start is refused" in message(world), "the reason", 60)
            assert not parents(world)
            world.delete()
            await gone(world)

        at_work(story, {**LOCAL, "server@1.0.0": above})

    def test_members_of_a_pool_share_a_parent(self):
        async def story(world: World) -> None:
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool", 300)
            assert len(parent_ledgers(world)) == 1
            world.sandbox(BOX)
            await world.until(lambda: ready(world), "ready", 60)
            assert world.cloud.starts("server/start") == 1
            await world.until(lambda: is_full(world), "a full pool", 300)
            world.delete()
            world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/namespaces/shop/resourcepools/warm")
            await gone(world)
            assert world.cloud.starts("server/stop") == 1

        at_work(story)


async def logs_of(world: World, found: Object) -> set[str]:
    """Return the units with stored logs that a user of kubectl finds for a Sandbox, or a ResourcePool with `members`."""
    client = KubeClient(world.cluster.transport("ada"), seed=1)
    return {each.unit for each in await ClusterLogs(client, "shop").list_stored(found)}


class TestLogs:
    def test_logs_of_a_pooled_child_include_those_of_its_parent(self):
        async def story(world: World) -> None:
            pool(world, ready=1)
            await world.until(lambda: is_full(world), "a full pool", 300)
            world.sandbox(BOX)
            await world.until(lambda: ready(world), "ready", 60)

            async def has_all_logs() -> bool:
                [box] = world.cluster.objects("sandboxes")
                return {"db/parent.start", "db/clone"} <= await logs_of(world, box)

            await until(world, has_all_logs, "logs of the member and its parent")
            [warm] = world.cluster.objects("resourcepools")
            first = min(
                (each for each in world.cluster.objects("poolmembers") if not each["spec"].get("parent")),
                key=lambda member: member["spec"]["number"],
            )
            name = first["metadata"]["name"]
            assert await logs_of(world, {**warm, "members": [first]}) == {f"{name}/parent.start", f"{name}/clone"}

        at_work(story)

    def test_logs_of_a_child_include_those_of_all_parents_of_a_chain(self):
        async def story(world: World) -> None:
            world.sandbox(BOX)
            await world.until(lambda: ready(world), "ready", 300)

            async def has_all_logs() -> bool:
                [box] = world.cluster.objects("sandboxes")
                return await logs_of(world, box) == {"db/parent.parent.start", "db/parent.start", "db/clone"}

            await until(world, has_all_logs, "logs of all parents")

        middle = child_plugin()
        middle["create"][0] |= {"name": "start", "outputs": PARENT_PLUGIN["create"][0]["outputs"]}
        plugins = {"server@1.0.0": PARENT_PLUGIN, "middle@1.0.0": middle, "pg@1.0.0": child_plugin("middle@1.0.0")}
        at_work(story, plugins, make=chain_world)

    def test_status_that_names_itself_as_its_parent_ends_the_search(self):
        async def story(world: World) -> None:
            world.sandbox(BOX)
            await world.until(lambda: ready(world), "ready", 300)
            [made] = parents(world)
            unit = {"id": "server/start", "kind": "exec", "state": "succeeded", "parent": made["metadata"]["name"]}
            path = f"{MEMBERS}/{made['metadata']['name']}/status"
            world.ask("PATCH", path, {"status": {"units": [unit]}}, "application/merge-patch+json")
            [box] = world.cluster.objects("sandboxes")
            assert "db/clone" in {each["id"] for each in box["status"]["units"]}
            assert all(unit.count("parent.") <= 3 for unit in await logs_of(world, box))

        at_work(story)


def served_world(**scripts: Script) -> World:
    made = front_world(**scripts)
    for name in ("kube-system", "dayfly-system", "acme-sandboxes"):
        made.namespace(name)
    return made


class TestServer:
    def test_sandboxes_of_a_server_share_a_parent(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            for name, spec in LOCAL.items():
                await plane.must("PUT", f"resource-plugins/{name.partition('@')[0]}", {"name": name, "spec": spec})
            boxes = ("one", "two")
            for box in boxes:
                spec = {"cluster": "east", "resources": [{"name": "db", "plugin": "pg@1.0.0"}]}
                await plane.must("PUT", f"sandboxes/{box}", {"spec": spec})
            for box in boxes:
                await until(world, lambda box=box: is_ready(plane, box), f"{box} to be ready")
            [made] = parents(world)
            found = await plane.must("GET", "sandboxes/one")
            assert [each["parent"] for each in found["status"]["resources"]] == [made["metadata"]["name"]]
            outputs = await plane.must("GET", "sandboxes/one/outputs")
            assert {(each["step"], each["output"]) for each in outputs} == {("clone", "name")}
            await until(
                world, lambda: has_log(plane, "sandboxes/one/log?unit=db/parent.start"), "the log of the parent"
            )
            for box in boxes:
                await plane.must("DELETE", f"sandboxes/{box}")
            await until(world, lambda: nothing_left(world), "everything to go")
            assert world.cloud.starts("server/start") == world.cloud.starts("server/stop") == 1

        story(steps, born=served_world)


async def has_log(plane: ControlPlane, path: str) -> bool:
    status, _ = await plane.ask("GET", path)
    return status == 200


async def is_ready(plane: ControlPlane, box: str) -> bool:
    return bool((await plane.must("GET", f"sandboxes/{box}"))["status"]["ready"])


async def nothing_left(world: World) -> bool:
    return not left(world)
