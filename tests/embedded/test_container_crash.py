"""The kills of `test_crash.py` with containers, including kills of the engine and of its container monitors.

Each commit plays one of these lives, the proof all of them. `test_rootless.py` plays them without root.
"""

import contextlib

import pytest
from tests.embedded.killed_server import Life, killed_at_moments, killed_at_writes, podman
from tests.embedded.machine import until
from tests.embedded.test_containers import IMAGE, store
from tests.selection import SELECTION

__all__ = ["store"]

MOST_WRITES = 100
TRIES = 8
DELAYS = [0.03 * number for number in range(1, 13)]
STEPS = ("make", "seed", "fill", "warm", "drain", "clear")  # and each has one after it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("store"),
    pytest.mark.long_story,
]


def one_of(cells, about):
    """Return all lives in the proof, otherwise one."""
    cells = list(cells)
    return SELECTION.sample(cells, len(cells), about)


async def test_the_server_is_killed_at_each_of_its_writes(tmp_path, runner, played):
    numbers = one_of(range(1, MOST_WRITES), "writes beside containers")
    survived = await killed_at_writes(tmp_path, numbers, runner, contained=True)
    last = min(survived, default=MOST_WRITES)
    played("lives in containers, killed at a write", sum(number <= last for number in numbers))
    assert last > 20, "fewer writes than there are attempts: the hook is not called"
    assert survived or not SELECTION.is_complete, "the run never ended"


@pytest.mark.parametrize(
    "victims",
    [{"servers"}, {"runners"}, {"clients"}, {"containers"}, {"servers", "runners", "clients", "containers"}],
    ids=lambda each: " ".join(sorted(each)),
)
async def test_anything_is_killed_at_any_moment(tmp_path, runner, victims, played):
    seeds = one_of(range(TRIES), f"kills of {sorted(victims)} beside containers")
    played("lives in containers, where anything is killed at any moment", len(seeds))
    await killed_at_moments(tmp_path, seeds, runner, victims, contained=True)


async def test_the_engine_is_killed_at_each_moment_of_a_start(tmp_path, runner, played):
    """Kill each step once: before there is a container, before it starts, and while it runs."""
    delays = one_of(DELAYS, "the engine's deaths")
    for seconds in delays:
        life = Life(tmp_path / f"{seconds:g}".replace(".", "-"), runner, contained=True)
        life.fatal.write_text(f"{seconds:g}")
        try:
            assert await life.run()
            await life.check(only_servers=True)
        except AssertionError as fault:
            raise AssertionError("\n".join([f"after {seconds:g} s: {fault}", *life.lines()])) from fault
        finally:
            await life.clear()
    played("lives in containers, with the engine killed as it starts each step", len(delays))


@contextlib.asynccontextmanager
async def life_up_to(folder, runner, step):
    """Wait with the engine before the step after this one, which has ended."""
    life = Life(folder, runner, contained=True)
    try:
        await life.start()
        await life.wrote(f"+ {step}")
        life.hold.touch()
        await life.wrote(f"- {step}")
        yield life
        assert await life.server.wait() == 0
        await life.check(only_servers=True)
    except AssertionError as fault:
        raise AssertionError("\n".join([f"after {step}: {fault}", *life.lines()])) from fault
    finally:
        await life.clear()


def refused(life, words):
    """Return whether a step could not be started, with this message."""
    return any(reason == "CannotStart" and words in message for _, _, reason, message in life.history())


@pytest.mark.parametrize("also", ["", "and so is the server"])
async def test_the_engine_is_gone_for_a_while_after_each_step(tmp_path, runner, also, played):
    cells = one_of(STEPS, f"engine gone {also}")
    for step in cells:
        async with life_up_to(tmp_path / step, runner, step) as life:
            life.engine.unlink()
            life.hold.unlink()
            if also:
                life.server.kill()
                await life.server.wait()
                await life.start()
            await until(lambda: refused(life, str(life.engine)), life.history, 100)
            life.install()
    played("lives in containers, with the engine gone for a while", len(cells))


async def test_the_images_are_gone_for_a_while_after_each_step(tmp_path, runner, store, played):
    cells = one_of(STEPS, "images gone")
    for step in cells:
        async with life_up_to(tmp_path / step, runner, step) as life:
            try:
                await emptied(life)
                life.hold.unlink()
                await until(lambda: refused(life, "podman ended"), life.history, 100)
            finally:
                code, said = await podman("import", store / "tree.tar", IMAGE)
            assert not code, said
    played("lives in containers, with the images gone for a while", len(cells))


async def emptied(life):
    """Wait until the step's container is gone, so that the kill does not hit it."""
    while await life.containers():
        pass
    code, said = await podman("rmi", "--all", "--force")
    assert not code, said
