"""A route group on both hosts: the moves of its hooks in the ledger, and its reports."""

from __future__ import annotations

import concurrent.futures
import logging

import pytest
from tests.conformance.cluster import Moves, reconcilers
from tests.conformance.machine import opened
from tests.conformance.story_log import EVENTS, line, said, settled
from tests.embedded.machine import Machine, until
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, Unit, World, live
from tests.server.client import Client, serving
from tests.server.fake_host import FakeHost

from dayfly.compile import compile_group
from dayfly.execute.pod import names
from dayfly.kube.objects import Key
from dayfly.link.wire import Offer
from dayfly.operator.monitoring import json_log
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.plan.reasons import Reason
from dayfly.server.db.store import Store
from dayfly.spec import documents
from dayfly.spec.lifecycle import CREATE_EVENTS, LifecycleEvent
from dayfly.spec.run import EndRequest

STEPS = {"preStart": "announce", "postStart": "warm", "preStop": "drain", "postStop": "withdraw"}
MATCH = {"label": {"key": "team", "value": "pay*"}}
# How often each hook fails before it succeeds.
STORIES = {
    "all goes well": {},
    "its end is tried again": {"withdraw": 1, "drain": 1},
    "what comes before it fails": {"announce": 9},
    "what comes after its start fails": {"warm": 9},
    "it has no hooks": None,
}
WHOLE = [
    "claimed announce#1",
    "recorded announce#1 succeeded",
    "started",
    "claimed warm#1",
    "recorded warm#1 succeeded",
    "closed Deleted",
    "claimed drain#1",
    "recorded drain#1 succeeded",
    "stopped",
    "claimed withdraw#1",
    "recorded withdraw#1 succeeded",
    "ended cleaned",
]


def wish(fails):
    step = {"retry": {"backoff": "1s"}}
    hooks = {
        event: [
            {"name": name, **(step if event.endswith("Stop") else {}), "script": _script((fails or {}).get(name, 0))}
        ]
        for event, name in STEPS.items()
    }
    spec = {"match": MATCH, "runner": {"image": "busybox:1"}, **({"hooks": hooks} if fails is not None else {})}
    return documents.from_wire({"name": "pay", "spec": spec}, "RouteGroup", name="pay")


def _script(fails):
    return f'#!/bin/sh\n[ "$DAYFLY_ATTEMPT" -gt {fails} ] || exit 1\n'


def at_rest(report):
    """Return whether its start is over."""
    return report is not None and (report.ready or report.reason in ("ResourceFailed", "HookFailed"))


async def on_machine(machine: Machine, fails):
    engine = await opened(machine)
    document = compile_group(wish(fails), uid="u", routing_key="k")
    await machine.host.offer(Offer(uid="u", name="pay", target=document.target, documents=(document,), birth=True))
    await until(lambda: at_rest(settled(engine.scene("u"))), machine.history)
    look = said(machine.report())
    await machine.host.stop("u", EndRequest(at=1, reason="Deleted", message="deleted"))
    await machine.gone()
    moves = [
        (move, {"unit": unit, "attempt": attempt} if unit else {}, why)
        for move, unit, attempt, why in machine.history()
    ]
    return [line(EVENTS[move], {**about, "reason": why}) for move, about, why in moves if move in EVENTS], look


def on_cluster(fails):
    moves, looks = Moves(), []

    def born():
        known = {
            name: Unit(creates=LifecycleEvent(event) in CREATE_EVENTS, drains=event == "preStop")
            for event, name in STEPS.items()
        }
        world = World(known, {name: Script(fails=(fails or {}).get(name, 0)) for name in known})
        world.groups = RouteGroupsExtension
        return world

    async def story(world):
        with reconcilers() as made:
            world.start()
            spec = documents.export(wish(fails))["spec"]
            body = {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": "pay"}, "spec": spec}
            place = f"/apis/{API}/namespaces/shop/routegroups"
            run = names.run_name("pay", world.ask("POST", place, body)["metadata"]["uid"])

            def report():
                return settled(made[-1].latest_scene(run))

            await world.until(lambda: at_rest(report()), "it to come to rest", 300)
            looks.append(said(report()))
            world.ask("DELETE", f"{place}/pay")
            await world.until(
                lambda: not world.cluster.objects("routegroups") and not world.leftovers(), "its end", 300
            )

    json_log.log.addHandler(moves)
    level = json_log.log.level
    json_log.log.setLevel(logging.INFO)
    try:
        live(born, story)
    finally:
        json_log.log.removeHandler(moves)
        json_log.log.setLevel(level)
    return moves.lines, looks[0]


@pytest.mark.parametrize("title", STORIES)
async def test_group_hooks_run_alike_on_both_hosts(machine, title):
    moves, look = await on_machine(machine, STORIES[title])
    told, seen = on_cluster_beside(STORIES[title])
    assert moves == told
    assert look == seen
    if title == "all goes well":
        assert moves == WHOLE


def on_cluster_beside(fails):
    """The fake cluster has a separate event loop in virtual time."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(on_cluster, fails).result()


SANDBOXES = ({"team": "payments"}, {"team": "shipping"}, {"team": "pay"})


def test_group_members_are_reported_alike_on_both_hosts(tmp_path):
    """The server of a home and a cluster's operator, of the same sandboxes: not one word differs."""
    path, host = tmp_path / "control.db", FakeHost()
    Store.open(path).close()
    fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
    with serving(path, {"local": host}) as client:
        told = _on_server(client, host, fork)

    async def story(world):
        world.forks.baseline("web")
        world.start()
        for number, labels in enumerate(SANDBOXES):
            world.sandbox({"labels": labels, "forks": [fork]}, f"s{number}")
            await world.rest(5)
        body = {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": "pay"}, "spec": {"match": MATCH}}
        world.ask("POST", f"/apis/{API}/namespaces/shop/routegroups", body)
        kind = world.cluster.kind("routegroups")

        def status():
            return (world.cluster.store.get(kind, Key("shop", "pay")) or {}).get("status", {})

        await world.until(lambda: status().get("ready"), "it to be ready", 300)
        found.append(status())

    found = []

    def born():
        world = World({}, {})
        world.groups = RouteGroupsExtension
        return world

    live(born, story)
    (status,) = found
    for field in ("ready", "reason", "message", "matchedSandboxes", "conflicts"):
        assert status[field] == told[field], field
    assert told["matchedSandboxes"] == ["s0", "s2"]
    conditions = {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}
    assert all(
        conditions[each["type"]] == (each["status"], each["reason"], each["message"]) for each in told["conditions"]
    )


def _on_server(client: Client, host, fork):
    client.put(
        "workloads/shop/web", {"kind": "Deployment", "name": "web", "namespace": "shop", "command": ["x"], "port": 1}
    )
    for number, labels in enumerate(SANDBOXES):
        client.put(f"sandboxes/s{number}", {"spec": {"cluster": "local", "labels": labels, "forks": [fork]}})
    client.put("routegroups/pay", {"spec": {"cluster": "local", "match": MATCH}})
    for place in ("sandboxes/s0", "sandboxes/s2", "routegroups/pay"):
        uid = client.get(f"{place}/report")["uid"]
        host.say(uid, ready=True, reason=Reason.READY, message="All desired workloads are available.")
    return client.get("routegroups/pay")["status"]
