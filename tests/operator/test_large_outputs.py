"""Outputs in a log that cannot be read for a while."""

from __future__ import annotations

from tests.kube.fake import Fault, Harm
from tests.operator.rig.scenes import at_work, gone, message, ready, wish
from tests.operator.rig.world import World


class TestLargeOutputs:
    """The values are only in the log, and the followed log was interrupted: the API server or a kubelet is down."""

    def silent(self, world: World) -> list[float]:
        """Refuse all logs from now on. Return the times of requests that do not follow a log."""
        asked: list[float] = []

        def refuse(_number, call):
            if not call.request.path.endswith("/log"):
                return None
            if not call.request.query.get("follow"):
                asked.append(world.cluster.time())
            return Fault(Harm.TROUBLE_BEFORE)

        world.hook = refuse
        for script in world.kubelet.scripts.values():
            script.in_log = True
        return asked

    def test_they_are_waited_for_and_read_once_the_log_is(self):
        async def story(world: World) -> None:
            asked = self.silent(world)
            world.sandbox(wish())
            await world.until(lambda: "its outputs cannot be read" in message(world), "a word", 10)
            assert world.status()["phase"] == "Creating"
            await world.rest(300)
            assert len(asked) < 30
            assert world.ledger()["units"]["db/make"]["state"] == "claimed"
            world.hook = lambda _number, _call: None
            await world.until(lambda: ready(world), "ready", 70)
            world.delete()
            await gone(world)

        world = at_work(story)
        given = {unit: inputs for (_, unit, _), inputs in world.cloud.given.items()}
        assert (given["db/drop"]["MAKE_URL"], given["db/drop"]["SEED_USER"]) == (b"db://1", b"ann\xff")

    def test_deletion_keeps_the_log_with_the_outputs(self):
        """Cleanup finds its objects by the outputs."""

        async def story(world: World) -> None:
            self.silent(world)
            world.sandbox(wish())
            await world.until(lambda: "its outputs cannot be read" in message(world), "a word", 10)
            world.delete()
            await world.rest(120)
            [pod] = world.pods("db/make")
            assert not pod["metadata"].get("deletionTimestamp")
            world.hook = lambda _number, _call: None
            await gone(world)

        world = at_work(story)
        given = {unit: inputs for (_, unit, _), inputs in world.cloud.given.items()}
        assert given["db/drop"]["MAKE_URL"] == b"db://1"

    def test_abandoned_cleanup_does_not_wait_for_outputs(self):
        async def story(world: World) -> None:
            world.cloud.lossy = world.cloud.forgiven = True
            self.silent(world)
            world.sandbox(wish())
            await world.until(lambda: "its outputs cannot be read" in message(world), "a word", 10)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "made by nobody"}}})
            world.delete()
            await world.until(lambda: not world.leftovers(), "everything to go", 60)

        at_work(story)

    def test_outputs_without_a_readable_log_are_lost(self):
        async def story(world: World) -> None:
            world.cloud.lossy = True
            self.silent(world)
            world.sandbox(wish())
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure", 700)
            assert world.cluster.time() > 600
            assert "OutputsLost" in message(world)
            world.delete()
            await gone(world)

        at_work(story)
