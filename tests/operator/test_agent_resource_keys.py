"""Keys of resource tokens that a server gives to clusters, and clusters that use the same account."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.operator.rig.control_plane import ControlPlane, Fate, joined
from tests.operator.rig.leaks import Account, check, item, leak_status, leave_orphan, living, next_sweep, verdicts
from tests.operator.rig.served_leaks import publish, sandbox, served_world
from tests.operator.rig.server_stories import ready, until
from tests.operator.rig.world import HOME, World, playing

from dayfly.operator.records import key_ring
from dayfly.server.admin.cluster_tokens import ClusterCaller
from dayfly.server.db.tables import clusters
from dayfly.server.records import organisation_keys
from dayfly.server.sync.agents import sessions
from dayfly.server.sync.agents.mailbox_transport import SILENT_MS
from dayfly.spec.resource_token import derive_key, resource_token, verified_host

ORG = "acme"
ELSEWHERE = "0123456789abcdef0123456789"


@contextlib.asynccontextmanager
async def second_cluster(east: World, plane: ControlPlane) -> AsyncIterator[World]:
    """Connect a second cluster, `west`, whose items are in the account of the first one."""
    west = served_world()
    # Its own UID: both are created in the same way.
    west.ask("DELETE", "/api/v1/namespaces/kube-system")
    west.namespace("kube-system")
    plane.tokens["t-west"] = ClusterCaller(ORG, "west", "2")
    await plane.must("PUT", "clusters/west", {})
    await plane.agents.load_mailboxes()
    joined(west, plane, "t-west")
    shared: list[tuple[Account, Account]] = [(east.account, west.account), (west.account, east.account)]
    for mine, other in shared:
        mine.shared.append(other)
    async with playing(west):
        west.start()
        await until(east, lambda: has_key(west), "the key of west")
        yield west


async def has_key(world: World) -> bool:
    return bool(given(world))


def given(world: World) -> list[tuple[str, str, bytes]]:
    """Return organisation, host and key of all given keys, the newest last."""
    found = [each for each in world.cluster.objects("secrets") if each["type"] == key_ring.TYPE]
    data = [msgspec.convert(each["data"], dict[str, bytes])["keys"] for each in found]
    return [tuple(row) for each in data for row in msgspec.msgpack.decode(each)]


def token_of(world: World, id_: str) -> str:
    """Return the token that the steps of a resource had."""
    found = {given["DAYFLY_RESOURCE_ID"].decode(): given for given in world.cloud.given.values()}
    return found[id_]["DAYFLY_RESOURCE_TOKEN"].decode()


async def organisation_key(plane: ControlPlane, org: str = ORG) -> bytes:
    found = await plane.store.for_org(org).read(organisation_keys.find)
    assert found is not None
    return found


class TestKey:
    def test_connected_cluster_uses_the_key_of_its_organisation(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await until(world, lambda: has_key(world), "the key")
            id_ = await living(world)
            key = await organisation_key(plane)
            [(org, host, own)] = given(world)
            assert (org, own) == (ORG, derive_key(key, host))
            assert verified_host(own, token_of(world, id_), id_) == host
            assert key.hex() not in str(world.cluster.objects("secrets"))

        story(steps, born=served_world)

    def test_items_from_before_the_connection_stay_ours(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            before = await living(world, "first")
            own = token_of(world, before)
            world.account.add(item(ELSEWHERE), ELSEWHERE, foreign_to(world, ELSEWHERE))
            joined(world, plane)
            await restart(world)
            await until(world, lambda: has_key(world), "the key")
            after = await living(world, "second")
            assert token_of(world, after).partition(".")[0] != own.partition(".")[0]
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            # No record proves its plugin, so it is not deleted. By a lost key it would be foreign.
            assert verdicts(world) == {item(ELSEWHERE): "orphan"}
            assert leak_status(world)["counts"]["held"] == 2
            assert not world.cloud.starts("pg/drop")

        story(steps, born=served_world, dialling=False)

    def test_moved_cluster_makes_no_token_for_its_former_org(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await until(world, lambda: has_key(world), "the key")
            before = await living(world, "first")
            row = {"name": "moved", "created_at": 1, "agent": True}
            await plane.store.for_org("other").write(lambda rows: rows.insert(clusters, row))
            plane.tokens["t-moved"] = ClusterCaller("other", "moved", "3")
            joined(world, plane, "t-moved", {"other": "acme-sandboxes"})
            plane.still.add("operator-2")  # before its first session, too
            await restart(world)
            between = await living(world, "second")
            plane.still.clear()

            async def is_thawed() -> bool:
                """The other organisation has sent nothing, so the cluster is frozen at first."""
                return await plane.store.for_org("other").write(lambda rows: sessions.thaw(rows, "moved"))

            await until(world, is_thawed, "the thaw")
            await until(world, lambda: has_keys(world, 2), "the key of the other organisation")
            after = await living(world, "third")
            former, later = await organisation_key(plane), await organisation_key(plane, "other")
            assert verifies(former, token_of(world, before), before)
            for id_ in (between, after):
                assert not verifies(former, token_of(world, id_), id_)
            assert verifies(later, token_of(world, after), after)
            assert not verifies(later, token_of(world, before), before)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            assert (verdicts(world), leak_status(world)["counts"]["held"]) == ({}, 3)

        story(steps, born=served_world)

    def test_disconnected_cluster_makes_tokens_by_its_own_key_again(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await until(world, lambda: has_key(world), "the key")
            first = await living(world, "first")
            world.agent = None
            await restart(world)
            second = await living(world, "second")
            assert not verifies(await organisation_key(plane), token_of(world, second), second)
            check(world)
            await next_sweep(world)
            assert leak_status(world)["counts"]["held"] == 2
            assert verifies(await organisation_key(plane), token_of(world, first), first)

        story(steps, born=served_world)

    def test_key_that_is_altered_in_transit_is_not_used(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await plane.kill()
            plane.requests.clear()
            plane.hook = lambda number, what: Fate.GARBAGE if what == "POST session" and number < 20 else None
            await plane.start()
            await plane.agents.load_mailboxes()
            await restart(world)
            await until(world, lambda: has_key(world), "the key")
            key = await organisation_key(plane)
            assert all(own == derive_key(key, host) for _, host, own in given(world))

        story(steps, born=served_world)

    def test_damaged_secret_blocks_steps_until_it_is_deleted(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await until(world, lambda: has_key(world), "the key")
            path = f"/api/v1/namespaces/{HOME}/secrets/{key_ring.NAME}"
            world.ask("PATCH", path, {"data": {"keys": "AAAA"}}, "application/merge-patch+json")
            await restart(world)
            world.sandbox({"resources": [{"name": "db", "plugin": "pg@1.0.0"}]})
            await world.until(lambda: key_ring.NAME in world.status().get("message", ""), "the report")
            assert not world.cloud.starts("db/make")
            world.ask("DELETE", path)
            await world.until(lambda: world.status().get("ready"), "ready")
            await until(world, lambda: has_key(world), "the key")

        story(steps, born=served_world)


class TestSharedAccount:
    def test_items_of_another_cluster_are_held_and_never_deleted(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                theirs = await living(west)
                mine = await living(east)
                east.account.protected.add(theirs)
                west.account.protected.add(mine)
                left = await leave_orphan(west)
                east.account.protected.add(left)
                await east.rest(120)
                for each in (east, west):
                    check(each, action="delete")
                await next_sweep(east, 1)
                assert leak_status(east)["counts"]["held"] == 2
                await next_sweep(east, 2)
                await next_sweep(west, 3)
                # The orphan of west is deleted by the check of west, which has its record, and by no other one.
                assert leak_status(east)["counts"] | {"unknown": 0} == leak_status(west)["counts"] | {"unknown": 0}
                assert (east.cloud.starts("pg/drop"), west.cloud.starts("pg/drop")) == (0, 1)
                assert leak_status(east)["counts"]["held"] == 2
                assert "foreign" not in verdicts(east).values()

        story(steps, born=served_world)

    def test_sandboxes_of_the_server_in_another_cluster_are_held(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                await publish(plane)
                spec = sandbox()["spec"] | {"cluster": "west"}
                await plane.must("PUT", "sandboxes/shop", {"spec": spec})
                await ready(west, plane)
                check(east)
                await next_sweep(east)
                assert leak_status(east)["counts"]["held"] == 1

        story(steps, born=served_world)

    def test_items_of_a_cluster_that_is_away_are_unknown(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                theirs = await living(west)
                plane.still.update(process.name for process in west.processes)
                for process in west.processes:
                    process.transport.dead = True
                west.respawn = False
                await east.rest(2 * SILENT_MS / 1000)
                plane.still.clear()
                check(east, action="delete")
                await next_sweep(east, 3)
                assert verdicts(east) == {item(theirs): "unknown"}
                assert not east.cloud.starts("pg/drop")

        story(steps, born=served_world)

    def test_items_are_unknown_while_the_server_does_not_answer(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                theirs = await living(west)
                plane.off = True
                await east.rest(120)
                check(east, action="delete")
                await next_sweep(east, 3)
                assert verdicts(east) == {item(theirs): "unknown"}
                plane.off = False
                await east.rest(120)
                await next_sweep(east)
                assert leak_status(east)["counts"]["held"] == 1

        story(steps, born=served_world)

    def test_items_of_a_removed_cluster_are_undeletable_orphans(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                theirs = await living(west)
                for process in west.processes:
                    process.transport.dead = True
                west.respawn = False
                await plane.must("DELETE", "clusters/west")
                await east.rest(120)
                check(east, action="delete")
                await next_sweep(east, 3)
                [found] = leak_status(east)["findings"]
                assert (found["id"], found["verdict"], found.get("deletable", False)) == (theirs, "orphan", False)
                assert not east.cloud.starts("pg/drop")

        story(steps, born=served_world)

    def test_forged_tokens_of_another_cluster_are_foreign(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                await living(west)
                [(_, host, _)] = given(west)
                [(_, _, mine)] = given(east)
                east.account.add("forged", ELSEWHERE, resource_token(mine, host, ELSEWHERE))
                east.account.add("garbage", "1" * 26, f"{host}.{'0' * 32}")
                check(east)
                await next_sweep(east)
                assert verdicts(east) == {"forged": "foreign", "garbage": "foreign"}

        story(steps, born=served_world)

    def test_key_of_one_cluster_never_reaches_another(self, story):
        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                (_, _, mine), (_, _, theirs) = given(east)[0], given(west)[0]
                assert mine != theirs
                for world, key in ((east, theirs), (west, mine)):
                    stored = [each["data"] for each in world.cluster.objects("secrets")]
                    raw = [msgspec.convert(each, dict[str, bytes]) for each in stored if each]
                    assert not [each for data in raw for each in data.values() if key in each]

        story(steps, born=served_world)


class TestRestore:
    def test_items_of_lost_runs_stay_unknown_after_a_restore(self, story):
        """The cluster is restored from a backup that is older than a sandbox, whose item exists."""

        async def steps(east: World, plane: ControlPlane) -> None:
            async with second_cluster(east, plane) as west:
                await publish(plane)
                spec = sandbox()["spec"] | {"cluster": "west"}
                await plane.must("PUT", "sandboxes/shop", {"spec": spec})
                await ready(west, plane)
                west.account.play()
                [theirs] = [each["id"] for each in west.account.items.values()]
                lose_sandbox(west)
                await east.rest(200)
                for world in (east, west):
                    check(world, action="delete")
                    await next_sweep(world, 3)
                    assert verdicts(world) == {item(theirs): "unknown"}, world
                    assert not world.cloud.starts("pg/drop")

        story(steps, born=served_world)


def lose_sandbox(world: World) -> None:
    """Remove the Sandbox and its Run as if they had never been, as after a restore of an older backup."""
    world.cloud.forgiven = True
    for plural in ("runs", "sandboxes", "objectlifecyclemethods", "resources", "secrets", "pods"):
        for each in world.cluster.objects(plural):
            meta = each["metadata"]
            if plural == "secrets" and not each["type"].endswith("outputs"):
                continue
            prefix = "/api/v1" if plural in ("secrets", "pods") else "/apis/dayfly.dev/v1alpha1"
            namespace = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
            world.take_away(f"{prefix}{namespace}/{plural}/{meta['name']}")


async def restart(world: World) -> None:
    for process in world.processes:
        process.transport.dead = True
    await world.rest(60)


async def has_keys(world: World, count: int) -> bool:
    return len(given(world)) == count


def verifies(key: bytes, token: str, id_: str) -> bool:
    """Return whether any host of the organisation with a key has made a token."""
    host = token.partition(".")[0]
    return verified_host(derive_key(key, host), token, id_) == host


def foreign_to(world: World, id_: str) -> str:
    """Return the token that this installation's own key makes for an ID."""
    [secret] = [each for each in world.cluster.objects("secrets") if each["type"] == "dayfly.dev/resource-key"]
    data: dict[str, Any] = msgspec.convert(secret["data"], dict[str, bytes])
    return resource_token(data["key"], data["host"].decode(), id_)


@pytest.mark.parametrize("field", ["token_hosts"])
def test_session_request_of_an_older_operator_gets_no_key(story, field):
    async def steps(world: World, plane: ControlPlane) -> None:
        body = msgspec.json.encode({"clusterUid": "u", field: []})
        status, _, answer = await plane.reach("t-east", "POST", "session", {}, body)
        assert status == 200
        assert msgspec.json.decode(answer).get("tokenKey") is None

    story(steps, born=served_world, dialling=False)
