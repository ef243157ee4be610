"""Blocked actions are retried with pauses. Each of these cases was once retried without one, or every second.

`rig.pace` checks that no key of a queue is taken repeatedly; these tests count requests to the API server.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig import hook_targets
from tests.operator.rig.fork_stories import ended
from tests.operator.rig.kubelet import Script
from tests.operator.rig.outages import LIVES
from tests.operator.rig.scenes import at_work, fork, gone, ready, wish
from tests.operator.rig.world import World, live
from tests.operator.test_previews import play as previews
from tests.operator.test_previews import previewed
from tests.operator.test_route_groups import GROUPS, HOOKS, apply, leftovers, status, tell
from tests.operator.test_routes import play, routed

GROUP, MIXED = LIVES["group"], LIVES["mixed"]


def refuse(world: World, method: str, part: str, code: int = 403) -> None:
    """Refuse from now on, with a different message each time."""
    numbers = itertools.count(1)
    world.cluster.refuses = lambda request: (
        Refusal(code, f"denied, as request {next(numbers)} was")
        if request.method == method and part in request.path
        else None
    )


def admit(world: World) -> None:
    world.cluster.refuses = lambda _request: None


async def asked(world: World, seconds: float, of: Callable[[str], bool] = lambda _: True) -> int:
    """Return the number of requests in that time."""
    before = len(world.cluster.calls)
    await world.rest(seconds)
    return sum(of(f"{call.request.method} {call.request.path}") for call in world.cluster.calls[before:])


def test_a_ledger_that_the_server_cannot_write():
    """A webhook for all kinds is down, or etcd has no quorum: runs must not add to the load."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/make"), "the first step", 60)
        refuse(world, "PUT", "/runs/", 500)
        await world.rest(5)
        assert await asked(world, 20) <= 40
        admit(world)
        await world.until(lambda: ready(world), "ready", 600)
        world.delete()
        await gone(world)

    at_work(story)


def test_object_due_after_an_unrecordable_end_is_throttled():
    """Each turn queues the next one, to create the object from recorded outputs, and fails."""

    async def story(world: World) -> None:
        MIXED.begin(world)
        await world.until(lambda: world.cloud.starts("db/make"), "the first step", 60)
        refuse(world, "POST", "/secrets", 500)
        await world.rest(5)
        assert await asked(world, 20) <= 40
        admit(world)
        await world.until(lambda: ready(world), "ready", 600)
        MIXED.end(world)
        await gone(world)

    async def begin(world: World) -> None:
        world.start()
        await story(world)

    live(MIXED.world, begin)


def test_a_route_that_may_not_be_deleted():
    async def story(world: World) -> None:
        await routed(world)
        refuse(world, "DELETE", "/httproutes/")
        world.delete()
        await world.rest(60)
        assert await asked(world, 300) <= 60
        admit(world)
        await gone(world)

    play(story)


@pytest.mark.parametrize(("method", "part"), [("PUT", "/httproutes/"), ("POST", "/httproutes")])
def test_a_route_that_is_refused_in_other_words_each_time(method, part):
    async def story(world: World) -> None:
        await routed(world)
        refuse(world, method, part)
        world.gateways.change("web", {"spec": {"hostnames": ["shop.example.org", "b.example.org"]}})
        world.gateways.route("second")
        await world.rest(60)
        assert await asked(world, 300) <= 400
        admit(world)
        await world.until(lambda: ready(world), "ready", 120)
        await ended(world)

    play(story)


def test_an_address_that_is_refused_in_other_words_each_time():
    async def story(world: World) -> None:
        refuse(world, "POST", "/httproutes")
        world.sandbox(wish(forks=[fork()], defaultRouteGroup=previewed(site="http://web.shop.svc:80")))
        await world.rest(120)
        assert await asked(world, 300) <= 400
        admit(world)
        await world.until(lambda: world.status().get("endpoints"), "its address", 120)
        await ended(world)

    previews(story)


def test_fork_refused_in_changing_words_is_throttled():
    async def story(world: World) -> None:
        await routed(world)
        refuse(world, "PUT", "/deployments/")
        world.change({"spec": {"forks": [fork(images=[{"image": "web:2"}])]}})
        await world.rest(60)
        assert await asked(world, 300) <= 400
        admit(world)
        await world.until(lambda: world.forks.main().get("image") == "web:2", "its form", 120)
        await ended(world)

    play(story)


def test_a_hook_that_is_removed_while_its_runs_cannot_go_on():
    """The status of a hook changes the hook, but queues none of its runs."""

    async def story(world: World) -> None:
        world.start()
        hook_targets.hook(world)
        await world.until(lambda: hook_targets.is_active(world), "the hook", 60)
        for number in range(5):
            hook_targets.machine(world, f"m{number}")
        await world.until(lambda: hook_targets.hook_status(world).get("objects") == 5, "its objects", 60)
        refuse(world, "PUT", "/runs/")
        hook_targets.remove_hook(world)
        await world.rest(120)
        assert await asked(world, 300, lambda what: what.startswith("PUT") and "/runs/" in what) <= 60
        admit(world)
        await world.until(lambda: hook_targets.hook_of(world) is None, "the hook to go", 1200)

    hook_targets.hooking(story)


def test_group_route_follows_forks_during_an_unrecorded_end():
    """The group's address leads to no fork that ends, whatever its own steps do (the rig checks that)."""

    async def story(world: World) -> None:
        world.start()
        GROUP.begin(world)
        await world.until(lambda: world.cloud.starts("warm"), "its second hook", 60)
        refuse(world, "PUT", "/runs/pay-")
        await world.until(lambda: ready(world), "the sandbox", 60)
        await world.rest(30)
        world.delete()
        await world.until(lambda: not world.forks.all(), "the fork to go", 120)
        admit(world)
        GROUP.end(world)
        await world.until(lambda: GROUP.over(world), "it to be over", 600)

    live(GROUP.world, story)


def test_a_group_that_is_deleted_before_it_started():
    """The object never starts, and is not polled for that until its last hook has run."""

    async def story(world: World) -> None:
        world.start()
        apply(world, **HOOKS)
        await world.until(lambda: world.cloud.starts("before"), "its first hook", 60)
        refuse(world, "PUT", "/runs/")
        await world.rest(30)  # its end is recorded after the group's end
        world.ask("DELETE", f"{GROUPS}/pay")
        admit(world)
        await world.until(lambda: not leftovers(world), "it to be gone", 600)
        assert not status(world)

    scripts = {name: Script(runs=10) for name in ("before", "warm", "drain", "report")}
    tell(story, scripts=scripts)
