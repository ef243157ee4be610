"""Clocks that are wrong: those of nodes, and that of the operator."""

from __future__ import annotations

import pytest
from rig.kubelet import Script
from rig.scenes import RETRY, RETRY_UNITS, Scene, chain, gone, message, play, ready, runs
from rig.world import World

from kube.fake import Refusal

RETRY_LIFE = Scene(RETRY, RETRY_UNITS, chain)


class TestClocks:
    """A node's clock is wrong by many minutes: what is healthy is let be, what fails is tried again in its time."""

    def test_step_on_a_node_that_is_behind_has_all_its_time(self):
        async def story(world: World) -> None:
            world.kubelet.ahead = -3000.0
            await world.until(lambda: ready(world), "ready", 3000)
            world.delete()
            await gone(world)

        world = play(story, RETRY_LIFE, make=Script(runs=1800))
        assert world.cloud.starts("db/make") == 1

    def test_on_a_node_that_is_ahead_it_is_said_why_a_step_does_not_start(self):
        async def story(world: World) -> None:
            world.kubelet.ahead = 600.0
            await world.until(lambda: "has been pulling the image busybox:1" in message(world), "the pull", 10)
            world.kubelet.scripts["db/make"].hangs = False
            await world.until(lambda: ready(world), "ready", 60)
            world.delete()
            await gone(world)

        play(story, RETRY_LIFE, make=Script(hangs=True))

    def test_an_operators_clock_that_is_set_back_stops_nothing_for_as_long(self):
        """What was refused is tried again, what was not written yet is, and what is new is said."""
        full = True

        def quota(operation, kind, _old, _new):
            if full and operation == "CREATE" and kind.plural == "pods":
                raise Refusal(403, "exceeded quota: pods")

        async def story(world: World) -> None:
            nonlocal full
            world.cluster.admission.append(quota)
            world.kubelet.scripts["db/drop"].runs = 60
            await world.until(lambda: "exceeded quota: pods" in message(world), "the quota", 10)
            world.behind, full = 600.0, False
            await world.until(lambda: runs(world, "db/make"), "the step", 20)
            await world.until(lambda: ready(world), "ready", 30)
            world.delete()
            await world.until(lambda: runs(world, "db/drop"), "the cleanup", 20)
            world.behind += 300.0
            await world.until(lambda: "has been running" in message(world), "that to be said", 15)
            await gone(world)

        play(story, RETRY_LIFE)

    @pytest.mark.parametrize("ahead", [-3000.0, 600.0])
    def test_pauses_between_tries_are_as_long_as_ever(self, ahead):
        """5 s, 10 s, 20 s, 40 s: a cleanup does not hammer what it needs, nor wait until its node's time has come."""

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            world.kubelet.ahead = ahead
            world.delete()
            await gone(world)

        world = play(story, RETRY_LIFE, drop=Script(fails=4))
        starts = [line.at for line in world.cloud.log if (line.what, line.unit) == ("start", "db/drop")]
        ends = [line.at for line in world.cloud.log if (line.what, line.unit) == ("end", "db/drop")]
        pauses = [start - end for start, end in zip(starts[1:], ends, strict=False)]
        assert [5 * 2**turn <= pause < 5 * 2**turn + 3 for turn, pause in enumerate(pauses)] == [True] * 4, pauses
