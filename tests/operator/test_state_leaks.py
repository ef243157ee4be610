"""The built-in check for Terraform states in a cluster: it reports states without a run, and deletes none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.operator.rig.kubelet import EPOCH_MS
from tests.operator.rig.leaks import BOX, CHECKS, leak_status, leak_world, next_sweep, request, verdicts
from tests.operator.rig.world import API, HOME, World, live

from dayfly.execute.pod import names
from dayfly.execute.state.head import Head, LockHolder, Version
from dayfly.spec.identity import resource_id

CHECK = "terraform-states"
SECRETS = f"/api/v1/namespaces/{HOME}/secrets"
HOUR_S = 3_600
WRITER = LockHolder(unit="db/make", attempt=1)


def leave_state(world: World, uid: str = "gone", sandbox: str = "old", data: bytes | None = None) -> str:
    """Store a state of a run, which changes now. Return the name of the run."""
    run = names.run_name(sandbox, uid)
    at = EPOCH_MS + int(world.cluster.time() * 1000)
    version = Version(number=1, at=at, holder=WRITER, size=1, digest="", blob="b")
    head = Head(sandbox=sandbox, namespace="shop", resource="db", versions=(version,))
    meta: dict[str, Any] = {
        "name": f"state-{uid}",
        "labels": {"dayfly.dev/state": "head", "dayfly.dev/run": run},
        "annotations": {"dayfly.dev/state-run-uid": uid},
    }
    content = msgspec.to_builtins({"head": msgspec.json.encode(head) if data is None else data})
    world.ask("POST", SECRETS, {"metadata": meta, "type": "dayfly.dev/state", "data": content})
    return run


def apply_check(world: World, **spec: str) -> None:
    """Create the check, as an administrator may do."""
    body = {"apiVersion": API, "kind": "LeakCheck", "metadata": {"name": CHECK}, "spec": {"plugin": CHECK, **spec}}
    world.ask("POST", CHECKS, body)


async def next_list(world: World, note: str) -> dict[str, str]:
    """Request a list, and return its verdicts."""
    request(world, f"sweep {note}", CHECK)
    await next_sweep(world, 1, CHECK)
    return verdicts(world, CHECK)


def test_state_without_a_run_is_an_orphan_that_is_never_deleted():
    async def story(world: World) -> None:
        world.start(2)
        await world.rest(2 * HOUR_S)
        assert not world.cluster.objects("leakchecks"), "the check appears with its first finding"
        name = f"states/{leave_state(world)}/db"
        await world.until(lambda: verdicts(world, CHECK) == {name: "unknown"}, "the check", 2 * HOUR_S)
        await world.until(lambda: verdicts(world, CHECK) == {name: "orphan"}, "the orphan", 3 * HOUR_S)
        status = leak_status(world, CHECK)
        [found] = status["findings"]
        assert (found["id"], found.get("deletable", False)) == (resource_id("gone", "db"), False)
        assert (status["plan"], status["reason"], status["plugin"]) == ("", "LeaksFound", CHECK)
        await world.until(lambda: ("Warning", "LeaksFound") in world.events(), "the Event")
        world.ask("DELETE", f"{SECRETS}/state-gone")
        assert await next_list(world, "1") == {}
        assert (leak_status(world, CHECK)["reason"], leak_status(world, CHECK)["listedAt"] != "") == ("NoLeaks", True)
        assert not world.cloud.log

    live(leak_world, story)


def test_state_is_reported_with_its_plugin_after_the_run():
    async def story(world: World) -> None:
        world.start()
        uid = world.sandbox(BOX)
        await world.until(lambda: world.status().get("ready"), "ready")
        name = f"states/{leave_state(world, uid, 'box')}/db"
        apply_check(world)
        await next_sweep(world, 1, CHECK)
        assert verdicts(world, CHECK) == {}
        world.delete()
        await world.until(lambda: world.box() is None, "the end of the sandbox")
        await world.rest(60)
        assert await next_list(world, "1") == {name: "unknown"}
        [found] = leak_status(world, CHECK)["findings"]
        assert (found["id"], found["plugin"]) == (resource_id(uid, "db"), "pg@1.0.0")
        assert found["reason"] == "it is not older than the grace period"

    live(leak_world, story)


def test_state_of_a_lost_ledger_is_unknown():
    async def story(world: World) -> None:
        world.start()
        uid = world.sandbox(BOX)
        await world.until(lambda: world.status().get("ready"), "ready")
        name = f"states/{leave_state(world, uid, 'box')}/db"
        world.lose_ledger()
        await world.rest(3 * HOUR_S)
        assert await next_list(world, "1") == {name: "unknown"}
        assert "the ledger of its run is lost" in leak_status(world, CHECK)["findings"][0]["reason"]

    live(leak_world, story)


def test_damaged_state_hides_no_other_state():
    async def story(world: World) -> None:
        damaged = f"states/{leave_state(world, 'bad', data=b'x')}/state-bad"
        name = f"states/{leave_state(world)}/db"
        await world.rest(2 * HOUR_S)
        world.start()
        await world.until(lambda: leak_status(world, CHECK).get("number"), "the first list")
        assert verdicts(world, CHECK) == {damaged: "unknown", name: "orphan"}
        reasons = {each["name"]: each["reason"] for each in leak_status(world, CHECK)["findings"]}
        assert "the head of a state is damaged" in reasons[damaged]

    live(leak_world, story)


def test_check_with_the_built_in_name_is_refused():
    async def story(world: World) -> None:
        world.start()
        apply_check(world, plugin="pg")
        await world.until(lambda: leak_status(world, CHECK).get("reason") == "Refused", "the report")
        assert "is a built-in check; use another name" in leak_status(world, CHECK)["message"]
        assert not world.cloud.log

    live(leak_world, story)


@pytest.mark.parametrize("pause", [0, 30 * 60])
def test_deleted_check_comes_back_only_while_a_state_is_left(pause: int):
    async def story(world: World) -> None:
        leave_state(world)
        world.start()
        await world.until(lambda: leak_status(world, CHECK).get("number"), "the first list")
        await world.rest(pause)
        world.ask("DELETE", f"{CHECKS}/{CHECK}")
        await world.until(lambda: leak_status(world, CHECK).get("number"), "another list", 2 * HOUR_S)
        world.ask("DELETE", f"{SECRETS}/state-gone")
        world.ask("DELETE", f"{CHECKS}/{CHECK}")
        await world.rest(3 * HOUR_S)
        assert not world.cluster.objects("leakchecks")

    live(leak_world, story)
