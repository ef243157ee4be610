"""Hooks and their targets: Machines, whose own controller is the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, Unit, World, live

HOOKS = f"/apis/{API}/lifecyclehooks"
MACHINES = "/apis/cluster.example.org/v1/namespaces/shop/machines"
MERGE = "application/merge-patch+json"
OWN = "example.org/machine"  # the finalizer of the Machines' own controller
FOUR = {"preStart": "before", "postStart": "warm", "preStop": "drain", "postStop": "report"}
CREATING = ("preStart", "postStart")
HOOK = "volume-backup"
OURS = f"lifecycle.dayfly.dev/{HOOK}"


def step(name: str, **more: Object) -> Object:
    return {"name": name, "script": "#!/bin/sh\n", **more}


def hook(world: World, name: str = HOOK, *, selector: Object | None = None, **spec: Object) -> str:
    """Apply a hook as an administrator; without steps, it backs up."""
    if not spec.keys() & FOUR.keys():
        spec["preStop"] = [step("drain")]
    selects = {"apiVersion": "cluster.example.org/v1", "kind": "Machine", **(selector or {})}
    whole = {"selector": selects, "runner": {"image": "busybox:1"}, **spec}
    body = {"apiVersion": API, "kind": "LifecycleHook", "metadata": {"name": name}, "spec": whole}
    return str(world.ask("POST", HOOKS, body)["metadata"]["uid"])


def remove_hook(world: World, name: str = HOOK) -> None:
    world.ask("DELETE", f"{HOOKS}/{name}")


def hook_of(world: World, name: str = HOOK) -> Object | None:
    return next((each for each in world.cluster.objects("lifecyclehooks") if each["metadata"]["name"] == name), None)


def hook_status(world: World, name: str = HOOK) -> Object:
    """Return the status of a hook."""
    return (hook_of(world, name) or {}).get("status", {})


def is_active(world: World, name: str = HOOK) -> bool:
    return hook_status(world, name).get("reason") == "HookActive"


def machine(world: World, name: str = "m", *, spec: Object | None = None, **meta: Object) -> str:
    body = {"apiVersion": "cluster.example.org/v1", "kind": "Machine", "metadata": {"name": name, **meta}}
    return str(world.ask("POST", MACHINES, {**body, "spec": spec or {}})["metadata"]["uid"])


def delete(world: World, name: str = "m") -> None:
    world.ask("DELETE", f"{MACHINES}/{name}")


def change(world: World, patch: Object, name: str = "m") -> None:
    world.ask("PATCH", f"{MACHINES}/{name}", patch, MERGE)


def set_machine_status(world: World, status: Object, name: str = "m") -> None:
    """Act as the Machine's own controller."""
    world.ask("PATCH", f"{MACHINES}/{name}/status", {"status": status}, MERGE)


def machine_of(world: World, name: str = "m") -> Object | None:
    return next((each for each in world.cluster.objects("machines") if each["metadata"]["name"] == name), None)


def finalizers(world: World, name: str = "m") -> list[str]:
    return list((machine_of(world, name) or {"metadata": {}})["metadata"].get("finalizers", []))


def release_machine(world: World, name: str = "m") -> None:
    """Remove the finalizer of the Machine's own controller, after it has deleted the machine."""
    left = [each for each in finalizers(world, name) if each != OWN]
    change(world, {"metadata": {"finalizers": left}}, name)


def held(world: World, name: str = "m") -> bool:
    return OURS in finalizers(world, name)


def is_over(world: World) -> bool:
    return not world.leftovers() and not world.cluster.objects("machines")


def hooking(
    story: Callable[[World], Awaitable[None]],
    *,
    creating: tuple[str, ...] = ("before", "warm"),
    others: tuple[str, ...] = ("drain", "report"),
    scripts: dict[str, Script] | None = None,
    **about: Any,
) -> World:
    """Return a story in a world with these steps; create steps must run once."""

    def born() -> World:
        units = {name: Unit(creates=True, once=True) for name in creating}
        units |= {name: Unit(creates=False) for name in others}
        world = World(units, {name: Script() for name in units} | (scripts or {}))
        for key, value in about.items():
            setattr(world, key, value)
        return world

    return live(born, story)
