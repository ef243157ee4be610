"""Worlds with leak checks: an account with the items of the steps, and the scripts that list and delete them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import EPOCH_MS, Script
from tests.operator.rig.scenes import step
from tests.operator.rig.world import API, HOME, Unit, World

from dayfly.spec.identity import resource_id

CHECKS = f"/apis/{API}/leakchecks"
PLUGIN = {
    "runner": {"image": "busybox:1"},
    "create": [step("make")],
    "delete": [step("drop")],
    "inventory": [{"name": "look", "script": "#!/bin/sh\n"}],
}
BOX = {"resources": [{"name": "db", "plugin": "pg@1.0.0"}]}
UNITS = {
    "db/make": Unit(creates=True, once=True),
    "db/drop": Unit(creates=False),
    "pg/look": Unit(creates=True),
    "pg/drop": Unit(creates=True),
}


class Account:
    """The items that exist. Create steps make one for each resource, delete steps remove those of an ID."""

    def __init__(self, world: World) -> None:
        self.items: dict[str, Object] = {}
        self.shared: list[Account] = []
        """The items of other clusters that use the same account. This cluster lists them, too."""
        self.is_complete = True
        self.forgets = False
        """Whether the delete steps of sandboxes succeed and remove nothing."""
        self.protected: set[str] = set()
        """IDs that no delete step of a check may select."""
        self._world = world
        self._handled = 0

    def play(self) -> None:
        """Let the steps act that have run since the last call."""
        for entry in self._world.cloud.log[self._handled :]:
            given = self._world.cloud.given[entry.pod, entry.unit, entry.attempt]
            id_ = given["DAYFLY_RESOURCE_ID"].decode()
            if (entry.what, entry.unit) == ("start", "db/make"):
                self.add(item(id_), id_, given.get("DAYFLY_RESOURCE_TOKEN", b"").decode(), created=entry.at)
            if (entry.what, entry.outcome) != ("end", "exited 0"):
                continue
            if entry.unit == "pg/drop" and id_ in self.protected:
                self._world.cloud.broken(f"a check deletes {id_}")
            if entry.unit == "pg/drop" or (entry.unit == "db/drop" and not self.forgets):
                self.items = {name: item for name, item in self.items.items() if item["id"] != id_}
        self._handled = len(self._world.cloud.log)

    def add(self, name: str, id_: str, token: str = "", *, created: float = 0.0) -> None:
        at = dt.datetime.fromtimestamp(EPOCH_MS / 1000 + created, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.items[name] = {"id": id_, "name": name, "created": at, "token": token}

    def list_now(self) -> bytes:
        """Return what the inventory script prints."""
        every = [self, *self.shared]
        for each in every:
            each.play()
        lines = [msgspec.json.encode(item) for each in every for item in each.items.values()]
        end = {"complete": self.is_complete, "count": len(lines)}
        return b"\n".join([b"a warning", *lines, msgspec.json.encode(end)]) + b"\n"


class InventoryScript(Script):
    """The script that lists the account."""

    account: Account | None = None

    @property
    def prints(self) -> bytes:  # type: ignore[override] # computed when the script ends
        return self.account.list_now() if self.account is not None else b""

    @prints.setter
    def prints(self, _value: bytes) -> None:
        """Ignore the default."""


def leak_world(seed: int = 0, **scripts: Script) -> World:
    """Return a world with the plugin `pg@1.0.0` and `world.account`."""
    look = InventoryScript()
    behaves = {unit: scripts.get(unit.replace("/", "_"), Script()) for unit in UNITS} | {"pg/look": look}
    world = World(UNITS, behaves, seed=seed)
    world.keep_records()
    world.plugin("pg@1.0.0", PLUGIN)
    look.account = world.account = Account(world)
    return world


def check(world: World, name: str = "items", **spec: Any) -> str:
    """Apply a check of the plugin. Return its UID."""
    wanted = {"plugin": "pg", "every": "5m", "grace": "1m", **spec}
    body = {"apiVersion": API, "kind": "LeakCheck", "metadata": {"name": name}, "spec": wanted}
    return world.ask("POST", CHECKS, body)["metadata"]["uid"]


def request(world: World, text: str, name: str = "items") -> None:
    """Annotate a check with a request."""
    patch = {"metadata": {"annotations": {"dayfly.dev/leak-request": text}}}
    world.ask("PATCH", f"{CHECKS}/{name}", patch, "application/merge-patch+json")


def leak_status(world: World, name: str = "items") -> Object:
    every = world.cluster.objects("leakchecks")
    return next((each.get("status", {}) for each in every if each["metadata"]["name"] == name), {})


def sweeps(world: World, name: str = "items") -> int:
    """Return the number of sweeps that have ended."""
    return leak_status(world, name).get("number", 0)


def verdicts(world: World, name: str = "items") -> dict[str, str]:
    """Return the verdicts about all items that a report shows, by their names."""
    return {each["name"]: each["verdict"] for each in leak_status(world, name).get("findings", ())}


async def next_sweep(world: World, count: int = 1, name: str = "items") -> None:
    """Wait until `count` more sweeps have ended."""
    wanted = sweeps(world, name) + count

    def is_over() -> bool:
        return sweeps(world, name) >= wanted and not leak_status(world, name).get("sweeping")

    await world.until(is_over, f"sweep {wanted}")


def change(world: World, **spec: Any) -> None:
    """Change the spec of the check."""
    world.ask("PATCH", f"{CHECKS}/items", {"spec": spec}, "application/merge-patch+json")


async def apply_plan(world: World) -> str:
    """Apply the plan of the check, and wait for the end of its sweep. Return the plan."""
    plan = leak_status(world)["plan"]
    request(world, f"apply {plan} ann")
    await next_sweep(world)
    return plan


async def listed_orphans(world: World, count: int = 1, lists: int = 2, **spec: Any) -> list[str]:
    """Start an operator, leave orphans, apply a check, and wait for `lists` sweeps. Return the IDs."""
    world.start()
    ids = [await leave_orphan(world, f"box{number}") for number in range(count)]
    await world.rest(120)
    check(world, **spec)
    await next_sweep(world, lists)
    return ids


async def leave_orphan(world: World, name: str = "box") -> str:
    """Create a sandbox and delete it with steps that remove nothing. Return the ID of the resource."""
    uid = world.sandbox(BOX, name)
    await world.until(lambda: world.status(name).get("ready"), "ready")
    world.account.forgets = True
    world.delete(name)
    await world.until(lambda: world.box(name) is None, "the end of the sandbox")
    world.account.play()
    world.account.forgets = False
    return resource_id(uid, "db")


def item(id_: str) -> str:
    """Return the name of the item of a resource."""
    return f"pg-{id_}"


async def living(world: World, name: str = "other") -> str:
    """Create a sandbox, and return the ID of its resource."""
    uid = world.sandbox(BOX, name)
    await world.until(lambda: world.status(name).get("ready"), "ready")
    return resource_id(uid, "db")


def state_secrets(world: World) -> list[Object]:
    return [
        each
        for each in world.cluster.objects("secrets")
        if each["metadata"]["namespace"] == HOME and each["type"] == "dayfly.dev/leak-check"
    ]
