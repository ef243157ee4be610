"""The API server refuses requests: each is retried with a separate backoff, and the rest of the run continues."""

from __future__ import annotations

import collections
import itertools

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.outages import LIVES, asked
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, Scene, at_work, chain, gone, message, ready, wish
from tests.operator.rig.world import World, live

from dayfly.kube.transport import KubeRequest
from dayfly.lib.queue import Backoff
from dayfly.operator.refusals import RETRY_AFTER_S

BACKOFF = Backoff()
CHANGES = 200
# Tries of one object in that number of seconds: after waits of at least 0.1 s, doubled each time.
TRIES = 12
NO = "the webhook says no"


class Webhook:
    """Refuses one change of objects of one kind, and records when each of them was tried."""

    def __init__(self, world: World, plural: str, code: int = 403, does: str = "delete") -> None:
        self.tries: dict[str, list[float]] = collections.defaultdict(list)
        self._world, self._what, self._code = world, (does, plural), code
        world.cluster.refuses = self._refuse

    def _refuse(self, request: KubeRequest) -> Refusal | None:
        what = asked(self._world, request)
        if what is None or (what.does, what.plural) != self._what:
            return None
        self.tries[request.path].append(self._world.cluster.time())
        return Refusal(self._code, NO)

    def permit(self) -> None:
        self._world.cluster.refuses = lambda _request: None

    def check_backoff(self) -> None:
        """Each wait is at least half of the backoff's, which doubles with each refusal."""
        assert self.tries
        for path, times in self.tries.items():
            for number, (before, after) in enumerate(itertools.pairwise(times)):
                least = min(BACKOFF.first * 2.0**number, BACKOFF.maximum) / 2
                assert after - before >= least * 0.99, f"try {number + 2} of {path} after {after - before:.2f} s"


def ledger(world: World) -> str:
    return next((item["ledger"]["uid"] for item in world.cluster.objects("runs")), "")


async def change_often(world: World) -> None:
    """Give the run a turn each second."""
    for number in range(CHANGES):
        world.change({"metadata": {"labels": {"number": str(number)}}})
        await world.rest(1)


@pytest.mark.parametrize("code", [403, 500])
def test_refused_pod_deletion_is_not_sent_with_each_turn(code):
    async def story(world: World) -> None:
        webhook = Webhook(world, "pods", code)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        await change_often(world)
        webhook.check_backoff()
        assert len(webhook.tries) == 2, "each step has a pod"
        assert max(map(len, webhook.tries.values())) <= TRIES
        assert ready(world)
        webhook.permit()
        world.delete()
        await gone(world)

    at_work(story, Scene(CHAIN, CHAIN_UNITS, chain))


@pytest.mark.parametrize("code", [403, 500])
def test_refused_output_secret_is_not_sent_with_each_turn(code):
    """The end of the step is not recorded before its outputs are stored, so the next step waits."""

    async def story(world: World) -> None:
        webhook = Webhook(world, "secrets", code, does="create")
        world.sandbox(wish())
        await world.until(lambda: webhook.tries, "the first outputs", 60)
        await change_often(world)
        webhook.check_backoff()
        assert list(map(len, webhook.tries.values())) <= [TRIES]
        assert NO in message(world)
        assert world.status()["reason"] == "Blocked"
        webhook.permit()
        await world.until(lambda: ready(world), "ready", 600)
        world.delete()
        await gone(world)

    at_work(story, Scene(CHAIN, CHAIN_UNITS, chain))


def test_abandoned_run_does_not_wait_for_refused_outputs():
    async def story(world: World) -> None:
        world.cloud.lossy = world.cloud.forgiven = True
        webhook = Webhook(world, "secrets", does="create")
        world.sandbox(wish())
        await world.until(lambda: webhook.tries, "the first outputs", 60)
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "force: a quota"}}})
        await world.until(lambda: world.box() is None, "it to go", 60)

    at_work(story)


def test_permitted_pod_deletion_follows_within_the_longest_backoff():
    async def story(world: World) -> None:
        webhook = Webhook(world, "pods")
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        await world.rest(3600)
        webhook.check_backoff()
        assert ready(world)
        assert len(world.pods()) == 2
        webhook.permit()
        await world.until(lambda: not world.pods(), "the pods to go", BACKOFF.maximum)
        world.delete()
        await gone(world)

    at_work(story, Scene(CHAIN, CHAIN_UNITS, chain))


def test_refused_pod_deletion_delays_no_delete_step():
    """The last steps are polled. A run whose turns fail would poll only every few minutes."""
    life = LIVES["mixed"]

    async def story(world: World) -> None:
        world.start()
        Webhook(world, "pods")
        life.begin(world)
        await world.until(lambda: life.stands(world), "ready", 60)
        await world.rest(60)
        life.end(world)
        await world.until(lambda: world.cloud.succeeded("db/settle", ledger(world)), "the last delete step", 30)
        await world.until(lambda: life.over(world), "it to be over", 300)

    live(life.world, story)


@pytest.mark.parametrize("plural", ["deployments", "services", "httproutes"])
@pytest.mark.parametrize("ends", [False, True], ids=["unwanted", "deleted"])
def test_refused_deletion_of_a_fork_is_not_sent_with_each_turn(plural, ends):
    life = LIVES["routed"]

    async def story(world: World) -> None:
        world.start()
        life.begin(world)
        await world.until(lambda: life.stands(world), "ready", 120)
        webhook = Webhook(world, plural)
        if ends:
            world.delete()
        else:
            world.change({"spec": {"forks": [], "defaultRouteGroup": None}})
        await change_often(world)
        if not ends:
            webhook.check_backoff()
        # In a run that ends, both desired units and leftovers are checked.
        assert 0 < max(map(len, webhook.tries.values())) <= TRIES * (1 + ends)
        assert ready(world) or NO in message(world)
        webhook.permit()
        if not ends:
            left = ("deployments", "services")
            await world.until(lambda: not any(map(world.forks.all, left)), "the fork to go", BACKOFF.maximum)
            world.delete()
        await world.until(lambda: life.over(world), "it to be over", 2 * BACKOFF.maximum)

    live(life.world, story)


@pytest.mark.parametrize(
    ("plural", "does", "code"),
    [
        ("resources", "create", 403),
        ("resources", "create", 500),
        ("resources", "patch", 403),
        ("steplogs", "create", 500),
    ],
)
def test_refused_report_is_not_sent_with_each_turn_and_delays_nothing(plural, does, code):
    life = LIVES["mixed"]

    async def story(world: World) -> None:
        world.start()
        webhook = Webhook(world, plural, code, does)
        life.begin(world)
        await world.until(lambda: world.cloud.starts("db/prove"), "the last create step", 30)
        await change_often(world)
        webhook.check_backoff()
        assert max(map(len, webhook.tries.values())) <= TRIES
        life.end(world)
        await world.until(lambda: life.over(world), "it to be over", 60)

    live(life.world, story)


@pytest.mark.parametrize("does", ["create", "patch", "delete"])
def test_unanswered_dry_run_of_an_object_blocks_no_other_step(does):
    """A webhook for the object's kind does not answer. A dry run stores nothing, so nothing is unknown."""
    life = LIVES["mixed"]

    async def story(world: World) -> None:
        world.start()
        webhook = Webhook(world, "claims", 500, does)
        life.begin(world)
        await world.until(lambda: world.cloud.succeeded("db/make", ledger(world)), "the first step", 30)
        await world.until(lambda: NO in message(world), "the refusal", 30)
        before = sum(map(len, webhook.tries.values()))
        await change_often(world)
        tries = sum(map(len, webhook.tries.values())) - before
        assert tries <= CHANGES / RETRY_AFTER_S + 1
        webhook.permit()
        await world.until(lambda: life.stands(world), "ready", 60)
        life.end(world)
        await world.until(lambda: life.over(world), "it to be over", 60)

    live(life.world, story)


def test_refused_end_of_a_run_is_not_sent_with_each_turn():
    """Every step is done. Our finalizer may not be removed from an object that the run created."""
    life = LIVES["mixed"]

    async def story(world: World) -> None:
        world.start()
        life.begin(world)
        await world.until(lambda: life.stands(world), "ready", 60)
        life.end(world)
        await world.until(lambda: world.cloud.starts("db/unregister"), "the second delete step", 30)
        webhook = Webhook(world, "claims", 403, "patch")
        await change_often(world)
        webhook.check_backoff()
        assert NO in message(world)
        webhook.permit()
        await world.until(lambda: life.over(world), "it to be over", BACKOFF.maximum)

    live(life.world, story)


def test_refused_status_is_not_sent_with_each_turn_and_delays_nothing():
    life = LIVES["mixed"]

    async def story(world: World) -> None:
        world.start()
        life.begin(world)
        await world.until(lambda: world.cloud.starts("db/make"), "the first step", 30)
        webhook = Webhook(world, "sandboxes", 500, "patch")
        await world.until(lambda: world.cloud.succeeded("db/prove", ledger(world)), "the last create step", 30)
        await change_often(world)
        webhook.check_backoff()
        webhook.permit()
        await world.until(lambda: life.stands(world), "its status", BACKOFF.maximum)
        life.end(world)
        await world.until(lambda: life.over(world), "it to be over", 60)

    live(life.world, story)
