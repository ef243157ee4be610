"""A cluster receives only what it has to do: plugins stay on the server, and sandboxes arrive compiled."""

from __future__ import annotations

import json
from collections import Counter

from tests.operator.rig.control_plane import ORG, PLUGIN, ControlPlane, wish
from tests.operator.rig.replay import ReplayedAgent
from tests.operator.rig.server_stories import begin, until
from tests.operator.rig.world import World

from dayfly.server.admin.cluster_tokens import ClusterCaller


def counted(plane: ControlPlane) -> Counter[str]:
    """Count the bytes of the messages that are fetched from now on, by token."""
    found: Counter[str] = Counter()
    reach = plane.reach

    async def count(token, method, path, query, body):
        status, headers, answer = await reach(token, method, path, query, body)
        if (status, method, path) == (200, "GET", "messages"):
            found[token] += sum(len(each["body"]) for each in json.loads(answer)["messages"])
        return status, headers, answer

    plane.reach = count
    return found


def test_unused_plugin_sends_no_bytes_to_the_cluster(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        plane.tokens["t-west"] = ClusterCaller(ORG, "west", "2")
        await plane.must("PUT", "clusters/west", {})
        west = ReplayedAgent(plane, token="t-west")
        async with west.at_work():
            await begin(world, plane)
            await world.rest(40)
            bytes_of = counted(plane)
            for name in ("pg@2.0.0", "pg@3.0.0", "other"):
                await plane.must("PUT", f"resource-plugins/{name.partition('@')[0]}", {**PLUGIN, "name": name})
            await world.rest(90)
            # The cluster that uses it does not receive it either: its run has sealed documents.
            assert not +bytes_of
            await plane.must("PUT", "sandboxes/far", {"spec": wish()["spec"] | {"cluster": "west"}})
            await until(world, lambda: offered(west), "its users receive it")
            assert bytes_of["t-west"] > 0

    story(steps)


def test_reading_a_status_sends_no_request_to_the_cluster(story):
    """A question would cost a round trip, so the report is sent together with the change."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await world.rest(40)
        bytes_of = counted(plane)
        for what in ("", "/report", "/why"):
            await plane.must("GET", f"sandboxes/shop{what}")
        await plane.must("GET", "sandboxes")
        await world.rest(40)
        assert not +bytes_of

    story(steps)


async def offered(played: ReplayedAgent) -> bool:
    return bool(played.uid)
