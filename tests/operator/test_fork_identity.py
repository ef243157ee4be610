"""A run's fork is the Deployment whose UID the ledger holds, whatever the caches have and whatever has its name."""

from __future__ import annotations

from tests.operator.rig.fork_stories import ended, made, play
from tests.operator.rig.scenes import gone, message, ready
from tests.operator.rig.world import World

from dayfly.kube.objects import Key


class TestIdentity:
    def test_fork_that_the_cache_lacks_stays_ready(self):
        """Only a quorum read proves that a fork is gone: a stale cache must not make it unready."""

        async def story(world: World) -> None:
            found = await made(world)
            [process] = world.processes
            said = len(world.writes)
            process.operator.cluster.forks.drop(Key("shop", found["metadata"]["name"]))
            await world.rest(60)
            assert ready(world)
            assert len(world.writes) == said, world.writes[said:]
            await ended(world)

        play(story)

    def test_stranger_in_place_of_a_claimed_fork_is_left_alone(self):
        """The stranger is neither the running fork nor part of the sandbox's end. The name conflict is reported."""

        async def story(world: World) -> None:
            found = await made(world)
            name = found["metadata"]["name"]
            world.forks.delete(name)
            template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 1}
            path = "/apis/apps/v1/namespaces/shop/deployments"
            stranger = world.ask("POST", path, {"metadata": {"name": name}, "spec": spec})
            await world.until(
                lambda: "exists and does not belong to Dayfly; delete it" in message(world), "the objection", 60
            )
            assert not ready(world)
            world.delete()
            await world.until(lambda: not world.cluster.objects("runs"), "the end", 300)
            [left] = [each for each in world.cluster.objects("deployments") if each["metadata"]["name"] == name]
            assert (left["metadata"]["uid"], left["spec"]["replicas"]) == (stranger["metadata"]["uid"], 1)
            world.ask("DELETE", f"{path}/{name}")
            await gone(world)

        play(story, operators=2)
