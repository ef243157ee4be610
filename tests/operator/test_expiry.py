"""When a target expires, and the time of the warning."""

from __future__ import annotations

import pytest
from tests.operator.rig.scenes import at_work, gone, ready, wish
from tests.operator.rig.world import World as Cluster

from dayfly.operator.status.expiry_warning import Expiry
from dayfly.plan.world import TargetIntent, World
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Phase, Run

END = 1_800_000_000_000
HOUR = {"ttl": {"duration": "1h"}}


def world(phase: Phase = Phase.OPEN, at: int = END) -> World:
    target = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
    return World(run=Run(uid="u", target=target, plan="", phase=phase), intent=TargetIntent(expires_at=at))


def test_expiry_is_soon_in_the_last_tenth_of_the_life():
    warns = END - 360_000
    assert Expiry.from_world(world(), HOUR, warns - 1) == Expiry(END, warns)
    assert Expiry.from_world(world(), HOUR, warns) == Expiry(END, warns, soon=True)


@pytest.mark.parametrize("spec", [{}, {"ttl": None}, {"ttl": "1h"}, {"ttl": {}}, {"ttl": {"duration": "soon"}}])
def test_unreadable_ttl_has_no_expiry(spec):
    """The owner may write any value; the status is written nevertheless."""
    assert Expiry.from_world(world(), spec, END) == Expiry()


@pytest.mark.parametrize("of", [None, world(Phase.CLOSED), world(at=0)], ids=["no run", "it ends", "for ever"])
def test_sandbox_without_end_has_no_expiry(of):
    assert Expiry.from_world(of, HOUR, END) == Expiry()


def test_ttl_beyond_the_calendar_is_shown_as_its_last_day():
    """The TTL may have 32 bits of weeks: the sandbox starts, shows its expiry, and ends when it is deleted."""

    async def story(world: Cluster) -> None:
        world.sandbox(wish() | {"ttl": {"duration": "4294967295w", "offsetFrom": "createdAt"}})
        await world.until(lambda: ready(world), "ready")
        assert world.status()["expiresAt"] == "9999-12-31T23:59:59Z"
        world.delete()
        await gone(world)

    at_work(story)
