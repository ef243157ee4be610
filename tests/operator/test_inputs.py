"""Inputs and outputs of steps, with the same results and messages as on the embedded host (`tests/embedded/test_steps.py`)."""

from __future__ import annotations

import pytest
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CHAIN, Scene, gone, message, ready, step, wish
from tests.operator.rig.world import Unit, World, live

from dayfly.execute.outputs import RUN_OUTPUT_LIMIT

MAKE, SEED, DROP = "db/make", "db/seed", "db/drop"


def play(story, made: bytes, units: dict[str, Unit], plugin=CHAIN) -> World:
    """Return a story in which `make` writes these bytes as its output."""

    def born() -> World:
        world = Scene(plugin, units, story).world()
        world.kubelet.scripts[MAKE] = Script(outputs={"url": made})
        world.cloud.lossy = True
        return world

    async def begin(world: World) -> None:
        world.start()
        world.sandbox(wish())
        await story(world)

    return live(born, begin)


def unit(world: World, name: str) -> dict:
    return next(each for each in world.status()["units"] if each["id"] == name)


READER = {
    MAKE: Unit(creates=True, once=True),
    SEED: Unit(creates=True, once=True),
    DROP: Unit(creates=False),
}


@pytest.mark.parametrize(
    ("made", "reason", "said"),
    [
        (b"a\0b", "InputNotText", "input make-url contains a zero byte, which environment variables cannot contain"),
        (
            b"x" * 65_537,
            "InputTooLarge",
            "input make-url has 65537 bytes; an environment variable may have at most 65536",
        ),
    ],
    ids=["a zero byte", "too large"],
)
def test_create_step_with_an_unfit_input_never_runs_or_is_undone(made, reason, said):
    """One of two documents has nothing to undo, because its step never ran."""

    async def story(world: World) -> None:
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its word", 60)
        assert said in message(world)
        record = world.ledger()["units"][SEED]
        assert (record["state"], record["attempt"], record["reason"]) == ("void", 1, reason)
        world.delete()
        await gone(world)

    world = play(story, made, READER)
    assert not world.cloud.starts(SEED)
    assert world.cloud.starts(DROP) == 1  # `make` did run


def test_a_cleanup_runs_whatever_it_would_be_given():
    """The pod that was prepared ahead is useless: the unsuitable input is absent and reported."""
    plugin = {**CHAIN, "create": [step("make", outputs=("url",))], "delete": [step("drop", reads=("make.url",))]}

    async def story(world: World) -> None:
        await world.until(lambda: ready(world), "ready", 60)
        world.kubelet.scripts[DROP].runs = 60
        world.delete()
        await world.until(lambda: world.cloud.starts(DROP), "the cleanup to start", 60)
        await world.until(lambda: "it is passed as absent" in unit(world, DROP).get("message", ""), "a word", 60)
        assert "input make-url contains a zero byte" in unit(world, DROP)["message"]
        await gone(world)

    world = play(story, b"a\0b", {MAKE: READER[MAKE], DROP: READER[DROP]}, plugin)
    [given] = [inputs for (_, name, _), inputs in world.cloud.given.items() if name == DROP]
    assert (given["MAKE_URL"], given["DAYFLY_ABSENT_INPUTS"]) == (b"", b"make-url")
    assert world.cloud.starts(DROP) == 1


def test_all_outputs_of_a_run_have_a_limit():
    plugin = {**CHAIN, "create": [step(name, outputs=("url",)) for name in ("make", "more", "most")], "delete": []}
    names = [f"db/{name}" for name in ("make", "more", "most")]
    half = b"x" * (RUN_OUTPUT_LIMIT // 2)

    def born() -> World:
        world = Scene(plugin, {name: Unit(creates=True) for name in names}, None).world()
        for name in names:
            world.kubelet.scripts[name] = Script(outputs={"url": half}, in_log=True)
        return world

    async def story(world: World) -> None:
        world.start()
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its word", 60)
        await world.rest(10)
        said = (
            f"{len(half)} bytes of outputs the run would have {3 * len(half)}; at most {RUN_OUTPUT_LIMIT} are allowed"
        )
        assert said in message(world)
        records = world.ledger()["units"]
        assert sorted(records[name].get("outcome") for name in names) == ["failed", "succeeded", "succeeded"]
        world.delete()
        await gone(world)

    live(born, story)


def test_a_time_to_live_counts_from_the_last_change_of_the_wish():
    ttl = {"duration": "10m", "offsetFrom": "updatedAt"}

    async def story(world: World) -> None:
        world.start()
        world.sandbox(wish(ttl=ttl))
        await world.until(lambda: ready(world), "ready", 60)
        await world.rest(500)
        world.change({"spec": {"ttl": {**ttl, "duration": "11m"}}})
        await world.rest(300)
        [process] = world.processes
        world.processes.remove(process)
        await process.end()
        world.start()  # another process, which knows the time from the ledger
        await world.rest(300)
        assert ready(world)
        assert not world.ledger().get("closed")
        await world.until(lambda: world.box() is None, "its time to be over", 120)
        await gone(world)

    live(Scene(CHAIN, READER, None).world, story)
