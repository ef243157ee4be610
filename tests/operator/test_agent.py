"""Sandboxes of a server in a cluster whose operator dials it: the real API, store, link and operator."""

from __future__ import annotations

import logging

import pytest
from tests.operator.rig import control_plane as planes
from tests.operator.rig.control_plane import ControlPlane, Fate, joined, wish
from tests.operator.rig.scenes import CHAIN
from tests.operator.rig.scenes import wish as applied
from tests.operator.rig.server_stories import begin, box, gone, left, lost_there, ready, true, until
from tests.operator.rig.world import World
from tests.selection import SELECTION

from dayfly.server.sync import host_sync

HOUR = 3600.0


def test_served_sandbox_lives_and_ends_in_the_cluster(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        uid = await begin(world, plane)
        assert not world.cluster.objects("resourceplugins")
        outputs = await plane.must("GET", "sandboxes/shop/outputs")
        assert ("make", "url", "db://1") in [(each["step"], each["output"], each["value"]) for each in outputs]
        assert [each["move"] for each in await plane.must("GET", "sandboxes/shop/history")].count("Claim") == 2
        await until(world, lambda: kept_log(plane), "its kept log")
        piece = await plane.must("GET", "sandboxes/shop/log?unit=db/make&timestamps=true")
        [time] = piece["times"]
        assert (time["offset"], time["time"][:4]) == (0, "2026")
        later = await plane.must("GET", "sandboxes/shop/log?unit=db/make&sinceTime=2999-01-01T00:00:00Z")
        assert (later["data"], later["offset"], later["sealed"]) == ("", piece["next"], True)
        seen = box(world)
        assert seen["metadata"]["namespace"] == "acme-sandboxes"
        assert seen["metadata"]["labels"]["dayfly.dev/served"] == uid
        assert seen["metadata"]["annotations"]["served.dayfly.dev/for"] == "acme"
        assert seen["metadata"]["annotations"]["served.dayfly.dev/name"] == "shop"
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 1

    story(steps)


async def kept_log(plane: ControlPlane) -> bool:
    return any(each["unit"] == "db/make" for each in await plane.must("GET", "sandboxes/shop/attempts"))


# The number of requests in one run of the story. Faults after that have no effect.
REQUESTS = 40
CELLS = [(number, fate) for number in range(1, REQUESTS + 1) for fate in Fate]


@pytest.mark.parametrize(("number", "fate"), SELECTION.sample(CELLS, 60, "fates of agents' requests"))
def test_any_fate_of_one_request_loses_and_repeats_nothing(story, number, fate, played):
    async def steps(world: World, plane: ControlPlane) -> None:
        plane.hook = lambda now, _what: fate if now == number else None
        await begin(world, plane)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        await world.rest(400)
        assert world.cloud.starts("db/make") == world.cloud.starts("db/seed") == world.cloud.starts("db/drop") == 1
        assert (await plane.ask("GET", "sandboxes/shop"))[0] == 404
        assert not left(world)
        assert (await plane.must("GET", "clusters/east/thaw")) == {"frozen": False}

    played("lives under a server, each with another fate of one request of the agent", 1)
    story(steps)


def test_received_orders_are_carried_out_while_server_is_away(story, monkeypatch):
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 60.0)

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, ttl={"duration": "20m", "offsetFrom": "createdAt"})
        await begin(world, plane, "cart")
        plane.off = True
        await world.rest((24 if SELECTION.is_complete else 0.4) * HOUR)
        # Its time to live has passed, but its end is kept until the server has acknowledged it. The other sandbox lives
        # on.
        assert world.cloud.starts("db/drop") == 1
        assert len(world.cluster.objects("runs")) == 1
        plane.off = False
        await until(world, lambda: lost_there(plane, "shop"), "its end was received")
        await ready(world, plane, "cart")
        await plane.must("DELETE", "sandboxes/cart")
        await gone(world, plane, "cart")
        assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 2

    story(steps)


def test_agent_reconnects_within_seconds_after_long_absence(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        for minutes in (10, 11, 12, 13):
            plane.off = True
            await world.rest(minutes * 60)
            before, plane.off = len(plane.requests), False
            await world.rest(10.5)
            assert len(plane.requests) > before, minutes
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(steps)


async def says(plane: ControlPlane, words: str) -> bool:
    return words in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]


@pytest.mark.parametrize("dated", [True, False])
def test_operator_clock_a_day_ahead_is_harmless_or_reported(story, dated):
    async def steps(world: World, plane: ControlPlane) -> None:
        world.dated, world.behind = dated, -24 * HOUR
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish(ttl={"duration": "2h", "offsetFrom": "createdAt"}))
        if not dated:
            said = "its pod is too old to start: the API server's clock says that it was created at 2026-01-01T"
            await until(world, lambda: says(plane, said), "the status message")
            assert not world.cloud.starts("db/make")
            world.behind = 0.0
        await ready(world, plane)
        await world.rest(60)
        await ready(world, plane)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(steps)


def test_offered_sandbox_begins_only_after_confirmation(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        plane.hook = lambda _now, what: Fate.LOST if what == "POST births" else None
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())
        await world.rest(600)
        assert world.cluster.objects("runs")
        assert not world.cloud.starts("db/make")
        plane.hook = lambda _now, _what: None
        await ready(world, plane)

    story(steps)


@pytest.mark.long_story
def test_stalled_operator_does_not_begin_an_ended_sandbox(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        [old] = world.processes
        held = []

        def pause(request) -> float:
            if request.method == "POST" and request.path.endswith("/runs") and not held:
                held.append(request)
                plane.still.add(old.name)
                return 300.0
            return 0.0

        old.transport.pause = pause
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())
        await until(world, lambda: true(held), "it stands still")
        world.start()
        await ready(world, plane)
        await plane.must("DELETE", "sandboxes/shop")
        await until(world, lambda: lost_there(plane, "shop"), "another one has ended it")
        await world.rest(350)
        plane.still.clear()
        await world.rest(100)
        assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 1
        assert not left(world)

    story(steps)


def test_restored_database_freezes_until_an_admin_decides(story, tmp_path, monkeypatch):
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 10.0)

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await begin(world, plane, "brief", ttl={"duration": "20m", "offsetFrom": "createdAt"})
        await plane.back_up(tmp_path / "backup.db")
        await begin(world, plane, "cart")
        await plane.must("DELETE", "sandboxes/shop")
        await until(world, lambda: true(len(world.cluster.objects("sandboxes")) == 2), "its end is noted")
        await plane.restore(tmp_path / "backup.db")

        async def frozen() -> bool:
            return (await plane.must("GET", "clusters/east/thaw"))["frozen"]

        await until(world, frozen, "it is frozen")
        runs = len(world.cluster.objects("runs"))
        await plane.must("PUT", "sandboxes/new", wish())
        await world.rest(600)
        assert len(world.cluster.objects("runs")) == runs == 2
        sides = await plane.must("GET", "clusters/east/thaw")
        assert (len(sides["onlyInCluster"]), sides["onlyHere"]) == (1, ["new", "shop"])
        assert "frozen" in (await plane.must("GET", "sandboxes/new"))["status"]["message"]
        await world.rest(0.4 * HOUR)
        assert world.cloud.starts("db/drop") == 2
        await plane.must("POST", "clusters/east/thaw", {})
        await until(world, lambda: lost_there(plane, "brief"), "its end was received")

        # The operator starts nothing for a sandbox that has lost its ledger; a person must abandon it.
        async def lost() -> bool:
            told = await plane.must("GET", "sandboxes/shop")
            return "no longer knows this sandbox" in told["status"]["message"]

        await until(world, lost, "its ledger is said to be lost")
        await ready(world, plane, "new")
        assert world.cloud.starts("db/make") == 4
        assert (await plane.ask("POST", "clusters/east/thaw", {}))[0] == 409

    story(steps)


def test_invalid_token_is_logged_once_and_retried_slowly(story, caplog, monkeypatch):
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 30.0)

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        good = dict(plane.tokens)
        plane.tokens.clear()
        await world.rest(60)
        before = len(plane.requests)
        caplog.clear()
        await world.rest(HOUR)
        assert len(plane.requests) - before < 130
        [process] = world.processes
        figures = process.operator.metrics.render().decode()
        assert "dayfly_server_connected 0.0" in figures
        assert not [each for each in caplog.records if "server" in each.getMessage()]
        assert world.cluster.objects("runs")
        plane.tokens |= good
        await world.rest(120)
        await ready(world, plane)
        assert "dayfly_server_connected 1.0" in process.operator.metrics.render().decode()
        refused = float(figures.split("dayfly_server_refusals ")[-1].split()[0])
        assert refused > 3

    with caplog.at_level(logging.WARNING, "dayfly.link.dialer"):
        story(steps)


def test_deleting_the_object_stops_it_and_editing_is_ignored(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        seen = box(world)
        path = f"/apis/dayfly.dev/v1alpha1/namespaces/acme-sandboxes/sandboxes/{seen['metadata']['name']}"
        world.plugin("pg", CHAIN)
        world.ask("PATCH", path, {"spec": applied()}, "application/merge-patch+json")
        await world.rest(60)
        [run] = world.cluster.objects("runs")
        assert len(run["spec"]["documents"]) == 2
        assert (await plane.must("GET", "sandboxes/shop"))["status"]["ready"]
        world.ask("DELETE", path)
        await gone(world, plane)
        assert world.cloud.starts("db/drop") == 1

    story(steps)


def test_served_and_local_sandboxes_live_side_by_side(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        world.plugin("pg", CHAIN)
        world.sandbox(applied())
        await begin(world, plane)
        await world.until(lambda: world.status().get("ready"), "the one that was applied")
        await plane.must("DELETE", "sandboxes/shop")
        await until(world, lambda: lost_there(plane, "shop"), "its end")
        assert world.status()["ready"]
        world.delete()
        await world.until(lambda: not left(world), "nothing left")
        assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 2

    story(steps)


def test_marked_object_without_run_begins_nothing(story):
    """A user applies a copy of the Sandbox, for example from a backup."""

    async def steps(world: World, plane: ControlPlane) -> None:
        world.plugin("pg", CHAIN)
        await begin(world, plane)
        copy = box(world)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        meta = {key: copy["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        body = {"apiVersion": copy["apiVersion"], "kind": "Sandbox", "metadata": meta, "spec": {"cluster": "c"}}
        body["spec"] |= applied()
        world.ask("POST", "/apis/dayfly.dev/v1alpha1/namespaces/acme-sandboxes/sandboxes", body)
        await world.rest(600)
        assert not world.cluster.objects("runs")
        assert world.cloud.starts("db/make") == 1

    story(steps)


def test_unbound_org_and_foreign_plugins_are_refused(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        joined(world, plane, bound={"other": "acme-sandboxes"})
        world.start()
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())

        async def refused() -> bool:
            answer = await plane.must("GET", "sandboxes/shop")
            return "--agent-namespace acme=NAMESPACE" in answer["status"]["message"]

        await until(world, refused, "it is refused")
        status, answer = await plane.ask("PUT", "sandboxes/cart", wish())
        assert (status, "--agent-namespace" in answer["error"]) == (400, True)
        assert not world.cluster.objects("sandboxes")

    story(steps, dialling=False)


def test_token_is_bound_to_the_first_cluster_that_uses_it(story, caplog):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        world.take_away("/api/v1/namespaces/kube-system")
        world.namespace("kube-system")
        world.respawn = False
        for process in list(world.processes):
            await process.end()
            world.processes.remove(process)
        world.start()
        await world.rest(60)
        assert "this token belongs to another cluster" in caplog.text
        assert world.cluster.objects("runs")

    with caplog.at_level(logging.WARNING, "dayfly.link.dialer"):
        story(steps)
