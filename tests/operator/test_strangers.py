"""Objects of other users with our names or our labels: an operator does not change them."""

from __future__ import annotations

import pytest
from tests.kube.fake.store import Object
from tests.operator.rig.fork_stories import ended, made
from tests.operator.rig.fork_stories import play as with_forks
from tests.operator.rig.scenes import READY, at_work, gone, message, play, ready, wish
from tests.operator.rig.world import World

from dayfly.execute.pod import names
from dayfly.kube.objects import Key

RUNNERS = "/api/v1/namespaces/dayfly-runners"
GATED = {"schedulingGates": [{"name": "dayfly.dev/claim"}], "containers": [{"name": "main", "image": "x"}]}
DIED = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]}


def stranger(world: World, path: str, name: str, run: str, body: Object) -> Object:
    """Create an object with all of our fields that other users can set, which are all except for the owner."""
    meta = {"name": name, "labels": {"dayfly.dev/run": run}, "annotations": {"dayfly.dev/unit": "db/make"}}
    return world.ask("POST", path, {"metadata": meta, **body})


def as_it_was(world: World, plural: str, before: Object) -> bool:
    """Return whether the object is unchanged."""
    meta = before["metadata"]
    return world.cluster.store.get(world.cluster.kind(plural), Key(meta["namespace"], meta["name"])) == before


@pytest.mark.parametrize("ends", [True, False])
def test_pods_of_a_run_that_is_gone_by_their_label_alone(ends):
    """One pod has ended, and one is gated: the sweep would release both if they belonged to a run."""

    async def story(world: World) -> None:
        world.kubelet.held.add("mine")
        spec = GATED if not ends else {"containers": [{"name": "main", "image": "x"}]}
        mine = stranger(world, f"{RUNNERS}/pods", "mine", "gone", {"spec": spec})
        if ends:
            status = {"status": DIED}
            mine = world.ask("PATCH", f"{RUNNERS}/pods/mine/status", status, "application/merge-patch+json")
        await world.rest(200)
        assert as_it_was(world, "pods", mine)

    at_work(story)


def test_foreign_gated_pod_with_the_run_label_is_kept():
    async def story(world: World) -> None:
        await world.until(lambda: ready(world), "ready")
        [run] = world.cluster.objects("runs")
        mine = stranger(world, f"{RUNNERS}/pods", "mine", run["metadata"]["name"], {"spec": GATED})
        world.delete()
        await world.until(lambda: not world.cluster.objects("runs"), "the run to go")
        await world.rest(200)
        assert as_it_was(world, "pods", mine)

    play(story)


def test_pod_behind_our_gate_of_the_very_name():
    """Users may write all of the object's fields: it is reported, and the step waits for its deletion."""

    async def story(world: World) -> None:
        found: list[Object] = []

        def squat(operation, kind, _old, new):
            if (operation, kind.plural) == ("CREATE", "runs"):
                name = names.pod_name(new["ledger"]["uid"], "db/make", 1)
                found.append(stranger(world, f"{RUNNERS}/pods", name, new["metadata"]["name"], {"spec": GATED}))

        world.cluster.admission.append(squat)
        world.sandbox(wish())
        await world.until(lambda: "does not belong to Dayfly; delete it" in message(world), "the objection", 60)
        assert as_it_was(world, "pods", found[0])
        world.ask("DELETE", f"{RUNNERS}/pods/{found[0]['metadata']['name']}")
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await gone(world)

    at_work(story)


def test_secret_of_the_name_in_which_outputs_are_to_lie():
    """The step's outputs have no other place, so its end is recorded once the other Secret is deleted."""

    async def story(world: World) -> None:
        uid = world.box()["metadata"]["uid"]
        body = {"data": {"url": "bWluZQ=="}}
        mine = stranger(world, f"{RUNNERS}/secrets", names.outputs_name(uid, "db/make", 1), "mine", body)
        await world.until(lambda: "does not belong to Dayfly; delete it" in message(world), "the objection", 120)
        assert as_it_was(world, "secrets", mine)
        world.ask("DELETE", f"{RUNNERS}/secrets/{mine['metadata']['name']}")
        await world.until(lambda: ready(world), "ready", 600)
        world.delete()
        await gone(world)

    play(story)


def test_secret_of_the_name_that_hands_outputs_out():
    async def story(world: World) -> None:
        uid = world.box()["metadata"]["uid"]
        name = names.derive_name("", "box-db", "resource", uid, "db")
        mine = stranger(world, "/api/v1/namespaces/shop/secrets", name, "mine", {"data": {"make.url": "bWluZQ=="}})
        await world.until(lambda: ready(world), "ready")
        await world.rest(60)
        assert as_it_was(world, "secrets", mine)
        assert world.resource()["status"].get("binding") is None
        world.delete()
        await world.until(lambda: world.box() is None, "the sandbox to go")
        assert as_it_was(world, "secrets", mine)

    play(story)


def test_resource_of_the_very_name():
    """A Resource is for users, and nothing waits for it; another user's Resource is not changed."""

    async def story(world: World) -> None:
        uid = world.box()["metadata"]["uid"]
        name = names.derive_name("", "box-db", "resource", uid, "db")
        path = "/apis/dayfly.dev/v1alpha1/resources"
        mine = world.ask("POST", path, {"metadata": {"name": name}, "spec": {"name": "mine"}})
        await world.until(lambda: ready(world), "ready")
        await world.rest(60)
        assert world.cluster.objects("resources") == [mine]
        world.ask("DELETE", f"{path}/{name}")
        await world.until(lambda: world.resource().get("status", {}).get("ready"), "ours in its place", 120)
        world.delete()
        await gone(world)

    play(story)


def test_logs_that_wear_the_label_of_a_run():
    """Old logs of a step with many attempts are deleted: only those of the run."""

    async def story(world: World) -> None:
        await world.until(lambda: ready(world), "ready")
        [run] = world.cluster.objects("runs")
        spec = {"sandbox": {"namespace": "shop", "name": "box", "uid": "u"}, "logs": []}
        path = "/apis/dayfly.dev/v1alpha1/namespaces/shop/steplogs"
        mine = stranger(world, path, "mine", run["metadata"]["name"], {"spec": spec})
        world.kubelet.scripts["db/drop"].fails = 14
        world.delete()
        await world.until(lambda: world.cloud.starts("db/drop") > 13, "many tries")
        await world.rest(700)
        assert as_it_was(world, "steplogs", mine)

    play(story)


def test_service_that_was_put_in_the_place_of_a_forks_own():
    """The owner of the Service chose its ports, whatever happens to the baseline's Service."""

    async def story(world: World) -> None:
        name = (await made(world))["metadata"]["name"]
        path = "/api/v1/namespaces/shop/services"
        [own] = world.forks.all("services")
        world.ask("DELETE", f"{path}/{name}")
        meta = {"name": name, "labels": own["metadata"]["labels"]}
        spec = {"ports": [{"port": 7}], "selector": {"app": "mine"}}
        mine = world.ask("POST", path, {"metadata": meta, "spec": spec})
        world.forks.reports([90])
        await world.until(
            lambda: "exists and does not belong to Dayfly; delete it" in message(world), "the objection", 60
        )
        assert as_it_was(world, "services", mine)
        world.ask("DELETE", f"{path}/{name}")
        await world.until(lambda: world.status().get("reason") == READY and world.forks.ports() == [90], "ours", 120)
        await ended(world)

    with_forks(story)
