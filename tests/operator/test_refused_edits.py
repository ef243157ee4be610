"""A Sandbox is edited, and the new spec cannot be applied."""

from __future__ import annotations

from tests.operator.rig.fork_stories import ended, made, play
from tests.operator.rig.scenes import RETRY, fork, ready
from tests.operator.rig.world import World


class TestRefusedEdit:
    """A spec that cannot be applied changes no running unit, and is not reported as applied."""

    WRONG = fork(env=[{"name": "URL", "valueFrom": {"resource": {"name": "db", "outputKey": "make.nosuch"}}}])

    async def refused(self, world: World) -> None:
        await made(world)
        world.change({"spec": {"forks": [self.WRONG]}})
        await world.until(lambda: world.status()["reason"] == "Refused", "the refusal", 10)

    async def said_by_the_next(self, world: World) -> list[str]:
        """Replace the operator. Return the status writes of its first minute."""
        await world.rest(60)
        await world.processes.pop().end()
        world.start()
        began = len(world.writes)
        await world.rest(60)
        return [each for each in world.writes[began:] if each.endswith("box/status")]

    def test_refused_edit_is_reported_until_it_is_fixed(self):
        async def story(world: World) -> None:
            await self.refused(world)
            for pod in world.forks.all("pods"):  # events of the run do not change the refusal
                world.ask("DELETE", f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}")
            await world.rest(120)
            status = world.status()
            assert (status["ready"], status["reason"], status["observedGeneration"]) == (False, "Refused", 2)
            assert 'has no output "nosuch"' in status["message"]
            assert status["message"].endswith("; its forks stay as they are")
            assert (status["progress"], len(status["units"])) == ("2/2", 3)
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world) and world.status()["observedGeneration"] == 3, "it is mended", 10)
            await ended(world)

        play(story)

    def test_next_operator_reports_the_same_refusal(self):
        async def story(world: World) -> None:
            await self.refused(world)
            said = await self.said_by_the_next(world)
            assert world.status()["reason"] == "Refused"
            assert said == []
            await ended(world)

        play(story)

    def test_accepted_sandbox_is_not_refused_after_a_restart(self):
        """The plugin is gone, and the spec has not changed since."""

        async def story(world: World) -> None:
            await made(world)
            world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/resourceplugins/pg")
            said = await self.said_by_the_next(world)
            assert said == []
            assert ready(world)
            await ended(world)

        play(story)

    def test_refused_edit_is_accepted_once_its_plugin_exists(self):
        async def story(world: World) -> None:
            await made(world)
            world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/resourceplugins/pg")
            world.change({"spec": {"forks": [fork(images=[{"image": "web:2"}])]}})
            await world.until(lambda: world.status()["reason"] == "PluginMissing", "the lack", 10)
            world.plugin("pg", RETRY)
            await world.until(lambda: world.forks.main()["image"] == "web:2" and ready(world), "the edit", 30)
            await ended(world)

        play(story)

    def test_ready_is_never_said_of_a_wish_that_was_not_looked_at(self):
        """A client that edits a sandbox and waits for Ready of that generation finds the new state."""

        async def story(world: World) -> None:
            await made(world)
            world.change({"spec": {"forks": [fork(images=[{"image": "web:2"}])]}})
            await world.until(lambda: world.status()["observedGeneration"] == 2 and ready(world), "ready again", 60)
            told = [write.new for write in world.cluster.store.after(world.cluster.kind("sandboxes"), 0) if write.new]
            said = [each["status"]["reason"] for each in told if each.get("status", {}).get("observedGeneration") == 2]
            assert said[0] == "ForksPending"
            assert world.forks.main()["image"] == "web:2"
            await ended(world)

        play(story)
