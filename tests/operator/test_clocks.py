"""Wrong clocks of nodes and of the operator."""

from __future__ import annotations

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, chain, gone, message, play, ready, runs
from tests.operator.rig.world import World

RETRY_LIFE = Scene(RETRY, RETRY_UNITS, chain)


class TestClocks:
    """The node's clock is wrong by many minutes: healthy steps continue, and failed ones are retried in time."""

    def test_step_on_a_node_that_is_behind_has_all_its_time(self):
        async def story(world: World) -> None:
            world.kubelet.ahead = -3000.0
            await world.until(lambda: ready(world), "ready", 3000)
            world.delete()
            await gone(world)

        world = play(story, RETRY_LIFE, make=Script(runs=1800))
        assert world.cloud.starts("db/make") == 1

    def test_node_clock_ahead_is_reported_as_the_reason(self):
        async def story(world: World) -> None:
            world.kubelet.ahead = 600.0
            await world.until(lambda: "has been pulling the image busybox:1" in message(world), "the pull", 10)
            world.kubelet.scripts["db/make"].hangs = False
            await world.until(lambda: ready(world), "ready", 60)
            world.delete()
            await gone(world)

        play(story, RETRY_LIFE, make=Script(hangs=True))

    def test_operator_clock_set_back_delays_nothing(self):
        """Refused requests are retried, delayed statuses are written, and changes are reported."""
        full = True

        def quota(operation, kind, _old, _new):
            if full and operation == "CREATE" and kind.plural == "pods":
                raise Refusal(403, "exceeded quota: pods")

        async def story(world: World) -> None:
            nonlocal full
            world.dated = False
            world.cluster.admission.append(quota)
            world.kubelet.scripts["db/drop"].runs = 60
            await world.until(lambda: "exceeded quota: pods" in message(world), "the quota", 10)
            world.behind, full = 600.0, False
            await world.until(lambda: runs(world, "db/make"), "the step", 20)
            await world.until(lambda: ready(world), "ready", 30)
            world.delete()
            await world.until(lambda: runs(world, "db/drop"), "the cleanup", 20)
            world.behind += 300.0
            await world.until(lambda: "has been running" in message(world), "the report", 15)
            await gone(world)

        play(story, RETRY_LIFE)

    @pytest.mark.parametrize("ahead", [-3000.0, 600.0])
    def test_pauses_between_tries_are_as_long_as_ever(self, ahead):
        """The intervals are 5 s, 10 s, 20 s, 40 s, also if the node's clock is wrong."""

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


DAY_S = 24 * 3600.0


class TestOperatorsMachine:
    """The operator's clock is wrong by a day; each answer of the API server contains the right time."""

    @pytest.mark.parametrize("behind", [-DAY_S, DAY_S])
    def test_all_goes_on_by_the_api_servers_clock(self, behind):
        async def story(world: World) -> None:
            world.behind = behind
            world.change({"spec": {"ttl": {"duration": "1h", "offsetFrom": "createdAt"}}})
            await world.until(lambda: ready(world), "ready", 60)
            await world.rest(3500)
            assert ready(world), "its hour is not over"
            await world.until(lambda: not world.leftovers(), "its end, when its hour is over", 200)

        assert play(story, RETRY_LIFE).cloud.starts("db/make") == 1

    def test_undetected_clock_ahead_is_reported_by_each_step(self):
        """The pod is kept and starts as soon as the clocks are right, within its time to start."""

        async def story(world: World) -> None:
            world.dated, world.behind = False, -DAY_S
            await world.until(lambda: "its pod is too old to start" in message(world), "the report", 10)
            assert "at 2026-01-01T00:00:0" in message(world)
            assert "operator's clock said 2026-01-02T00:00:0" in message(world)
            assert [each["reason"] for each in world.status()["units"] if "reason" in each] == ["ClockSkew"]
            await world.rest(60)
            made = [write for write in world.writes if write.startswith("POST") and "/pods" in write]
            assert len(made) == 1, "it is not made again and again"
            world.behind = 0.0
            await world.until(lambda: ready(world), "ready", 30)
            world.behind = -DAY_S
            world.delete()
            await world.until(lambda: "its pod is too old to start" in message(world), "the report", 10)
            world.behind = 0.0
            await gone(world)

        world = play(story, RETRY_LIFE)
        assert world.cloud.starts("db/make") == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("ahead", [(900.0, 900.0), (DAY_S, DAY_S / 2)])
    def test_expired_pods_are_replaced_once_clocks_are_right(self, ahead):
        async def story(world: World) -> None:
            world.dated = False
            for seconds in ahead:
                world.behind = -seconds
                await world.until(lambda: "its pod is too old to start" in message(world), "the report", 10)
                await world.rest(1300)
            assert not runs(world, "db/make")
            world.behind = 0.0
            await world.until(lambda: ready(world), "ready", 30)
            world.delete()
            await gone(world)

        play(story, RETRY_LIFE)
