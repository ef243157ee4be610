"""Stories of a resource with steps of all kinds: script, object, webhook, script, and cleanup in another order."""

from __future__ import annotations

from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CLAIM, Scene, gone, plugin, ready, runs, step, wish
from tests.operator.rig.world import Unit, World

from dayfly.execute.object.render import FINALIZER

URL = "https://dns.internal:8443/v1"
REGISTER: Object = {
    "name": "register",
    "inputs": [{"name": "host", "valueFromStep": {"name": "claim", "output": "host"}}],
    "outputs": [{"name": "id", "valueFromJSONPath": "$.id"}],
    "webhook": {"method": "POST", "url": URL, "body": {"host": {"$input": "host"}}},
}
WITHDRAW: Object = {"name": "withdraw", "object": {"remove": "claim"}}
UNREGISTER: Object = {
    "name": "unregister",
    "inputs": [
        {"name": "id", "valueFromStep": {"name": "register", "output": "id"}},
        {"name": "withdrawn", "valueFromStep": {"name": "withdraw", "output": "gone"}},
    ],
    "outputs": [{"name": "status", "valueFromStatus": True}],
    "webhook": {"method": "DELETE", "url": URL, "query": {"id": {"$input": "id"}}},
}
MIXED = plugin(
    [step("make", outputs=("url",)), CLAIM, REGISTER, step("prove", reads=("register.id",))],
    [WITHDRAW, UNREGISTER, step("settle", reads=("unregister.status",))],
)
UNITS = {
    "db/make": Unit(creates=True, once=True, undone_by="db/settle"),
    "db/register": Unit(creates=True, once=True, undone_by="db/unregister"),
    "db/prove": Unit(creates=True, once=True, reads={"REGISTER_ID": ("db/register", "id")}),
    "db/unregister": Unit(creates=False, reads={"DAYFLY_INPUT_ID": ("db/register", "id")}),
    "db/settle": Unit(creates=False, reads={"UNREGISTER_STATUS": ("db/unregister", "status")}),
}
TOLD = {
    "db/make": Script(outputs={"url": b"db://1"}),
    "db/register": Script(outputs={"id": b"r-1"}),
    "db/unregister": Script(outputs={"status": b"204"}),
}


def _in_order(world: World) -> None:
    """Check before each delete step that its predecessors are done."""

    def heard(run: str, unit: str) -> None:
        left = [item["metadata"] for item in world.cluster.objects("claims")]
        if there := [meta["name"] for meta in left if not _is_gone(meta)]:
            world.cloud.broken(f"order: {unit} starts while {there} are not gone")
        if unit == "db/settle" and not world.cloud.succeeded("db/unregister", run):
            world.cloud.broken(f"order: {unit} starts before db/unregister has succeeded")

    world.cloud.listen(heard)


def _is_gone(meta: Object) -> bool:
    """Return whether it is being deleted and only has our finalizer."""
    return "deletionTimestamp" in meta and meta.get("finalizers", []) == [FINALIZER]


async def mixed(world: World) -> None:
    """Create the sandbox until it is ready, then delete it until it is gone."""
    _may(world)
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    [claim] = world.cluster.objects("claims")
    assert claim["spec"]["url"] == "db://1"
    told = [values for (_, unit, _), values in world.cloud.given.items() if unit == "db/register"]
    assert [values["DAYFLY_INPUT_HOST"].decode() for values in told] == [claim["status"]["host"]]
    world.delete()
    await gone(world)
    assert not world.cluster.objects("claims")


async def mixed_midway(world: World) -> None:
    """Deletion while the webhook waits for its answer, which cannot be interrupted."""
    _may(world)
    world.sandbox(wish())
    await world.until(lambda: runs(world, "db/register"), "the webhook")
    world.delete()
    await gone(world)
    assert not world.cloud.starts("db/prove")
    assert not world.cluster.objects("claims")


def _may(world: World) -> None:
    world.may("claims.db.example.org")
    world.may("secrets", verbs="get")
    _in_order(world)


LIVES = {
    "mixed": Scene(MIXED, UNITS, mixed, TOLD),
    "mixed-midway": Scene(MIXED, UNITS, mixed_midway, TOLD | {"db/register": Script(runs=8, outputs={"id": b"r-1"})}),
}
