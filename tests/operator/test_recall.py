"""Steps that cannot start are ended with proof: a container of a recall excludes that they ever begin."""

import msgspec
import pytest
from tests.kube.fake import FakeCluster, Refusal, run
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import Scene, chain, gone, message, play, plugin, ready, step
from tests.operator.rig.world import Unit, World

from dayfly.kube.client import KubeClient
from dayfly.kube.transport import KubeRequest
from dayfly.operator.pods.images import FallbackImage

SAID = 'Back-off pulling image "busybox:1"'
ADDED = "ephemeralContainers"


def missing(**more) -> Script:
    return Script(image_missing=SAID, **more)


def unit(world: World, name: str = "db/make") -> dict:
    return next(each for each in world.status()["units"] if each["id"] == name)


def made(world: World, name: str) -> int:
    """Return the number of a step's pods that were ever created."""
    pods = versions(world)
    return len({pod["metadata"]["uid"] for pod in pods if pod["metadata"]["annotations"]["dayfly.dev/unit"] == name})


def versions(world: World) -> list[dict]:
    """Return all versions of all pods."""
    return [write.new for write in world.cluster.store.after(world.cluster.kind("pods"), 0) if write.new]


async def missed(world: World) -> None:
    await world.until(lambda: SAID in message(world), "the report of the missing image", 30)


def test_sandbox_deleted_without_image_needs_no_cleanup():
    async def story(world: World) -> None:
        await missed(world)
        world.delete()
        began = world.cluster.time()
        await world.until(lambda: not world.leftovers(), "everything to go", 20)
        assert world.cluster.time() - began < 10
        await gone(world)

    world = play(story, make=missing())
    assert not world.cloud.log
    assert (made(world, "db/make"), made(world, "db/drop")) == (1, 0)


def test_sandbox_deleted_during_a_silent_pull_needs_no_cleanup():
    """A registry does not answer: only an Event reports the pull, and no query has read it yet."""

    async def story(world: World) -> None:
        await world.until(lambda: any(e["reason"] == "Pulling" for e in world.cluster.objects("events")), "its word")
        assert world.cluster.time() < 1
        world.delete()
        await world.until(lambda: not world.leftovers(), "everything to go", 20)

    world = play(story, make=Script(hangs=True, turns=True))
    assert not world.cloud.log
    assert (made(world, "db/make"), made(world, "db/drop")) == (1, 0)


def test_recall_is_reported_until_it_is_done():
    """At first, the fallback image is missing too."""

    async def story(world: World) -> None:
        await missed(world)
        world.delete()
        await world.until(lambda: unit(world)["reason"] == "Fencing", "the recall", 30)
        assert (
            "the runner, in another container of its pod, was asked to confirm that it never began; without an answer"
            in message(world)
        )
        await world.rest(60)
        world.kubelet.scripts["db/make"].spare_missing = False
        await world.until(lambda: not world.leftovers(), "everything to go", 20)

    assert not play(story, make=missing(spare_missing=True)).cloud.log


def test_unconfirmed_recall_is_cleaned_up_as_started():
    async def story(world: World) -> None:
        world.cloud.lossy = True
        await missed(world)
        world.delete()
        began = world.cluster.time()
        await gone(world)
        [dropped] = [event.at for event in world.cloud.log if event.what == "start"]
        assert 120 < dropped - began < 150

    world = play(story, make=missing(spare_missing=True))
    assert world.cloud.starts("db/drop") == 1


@pytest.mark.parametrize("why", ["none is known", "it is the missing one", "the cluster does not admit it"])
def test_step_without_fallback_image_is_cleaned_up_as_started(why):
    def refused(operation, _kind, old, new):
        if operation == "UPDATE" and ADDED in new.get("spec", {}):
            raise Refusal(403, "images come only from our own registry")

    async def story(world: World) -> None:
        world.cloud.lossy = True
        if why == "the cluster does not admit it":
            world.cluster.admission.append(refused)
        else:
            world.spare = "" if why == "none is known" else "busybox:1"
            await world.processes.pop().end()
            world.start()
        await missed(world)
        world.delete()
        await world.until(lambda: world.cloud.starts("db/drop"), "the cleanup", 30)
        await gone(world)

    assert play(story, make=missing()).cloud.starts("db/drop") == 1


def test_missing_image_is_tried_three_times_without_cleanup():
    async def story(world: World) -> None:
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure", 2400)
        assert unit(world)["reason"] == "StartDeadlineExceeded"
        said = unit(world)["message"]
        assert said.startswith("was scheduled but did not start within 10 min; last report")
        assert said.endswith("Failed to pull: " + SAID)
        world.delete()
        await world.until(lambda: not world.leftovers(), "everything to go", 20)

    world = play(story, make=missing())
    assert not world.cloud.log
    assert made(world, "db/make") == 3


def test_image_that_arrives_late_is_used_by_the_next_attempt():
    async def story(world: World) -> None:
        await world.until(lambda: made(world, "db/make") == 2, "the second attempt", 900)
        world.kubelet.scripts["db/make"].image_missing = ""
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await gone(world)

    world = play(story, make=missing())
    assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 1


def test_script_that_was_quicker_than_its_recall_counts_as_run():
    """The image arrives during the recall: the new version of the pod is not recalled."""

    async def story(world: World) -> None:
        def pause(request: KubeRequest) -> float:
            if not request.path.endswith("/ephemeralcontainers"):
                return 0.0
            world.kubelet.scripts["db/make"].image_missing = ""
            return 5.0

        await missed(world)
        world.processes[0].transport.pause = pause
        world.delete()
        await gone(world)

    world = play(story, make=missing(runs=600))
    assert world.cloud.starts("db/make") == world.cloud.starts("db/drop") == 1
    assert not any(ADDED in pod["spec"] for pod in versions(world))


def test_container_that_cannot_be_created_is_recalled():
    async def story(world: World) -> None:
        await world.until(lambda: "couldn't find key" in message(world), "the report of the missing key", 30)
        world.delete()
        await world.until(lambda: not world.leftovers(), "everything to go", 20)

    said = "couldn't find key password in Secret dayfly-runners/db"
    world = play(story, make=Script(config_missing=said), drop=Script(config_missing=said))
    assert not world.cloud.log
    assert (made(world, "db/make"), made(world, "db/drop")) == (1, 0)


def test_fallback_image_is_that_of_the_operator_by_default():
    cluster = FakeCluster(seed=1)
    client = KubeClient(cluster.transport("operator"), seed=1)
    containers = [{"name": "mesh", "image": "mesh:1"}, {"name": "operator", "image": "mine:2"}]
    body = msgspec.json.encode({"metadata": {"name": "me"}, "spec": {"containers": containers}})

    async def asked() -> list[str]:
        assert cluster.answer(KubeRequest("POST", "/api/v1/namespaces/default/pods", {}, body)).status == 201
        spares = (
            FallbackImage(client, pod=("default", "me")),
            FallbackImage(client, "other:3", ("default", "me")),
            FallbackImage(client, pod=("default", "nobody")),
            FallbackImage(client),
        )
        return [await spare.find() for spare in spares]

    assert run(asked()) == ["mine:2", "other:3", "", ""]


def test_silent_registry_does_not_delay_a_run_without_cleanup():
    """A kubelet pulls one image at a time, so the last of many missing images is not reported for minutes."""

    async def story(world: World) -> None:
        await world.until(lambda: "attempt 1 is starting" in message(world), "the report of the silent registry", 60)
        await world.rest(30)
        world.delete()
        began = world.cluster.time()
        await world.until(lambda: not world.leftovers(), "everything to go", 60)
        assert world.cluster.time() - began < 20
        assert not world.cloud.log

    bare = plugin([step("make", outputs=("url",))], [])
    play(story, Scene(bare, {"db/make": Unit(creates=True, once=True)}, chain), make=Script(hangs=True))
