"""Step slots: the limit of a namespace, the order of waiting runs, and the effect on others. In virtual time."""

from __future__ import annotations

import dataclasses

import pytest
from tests.kube.fake import FakeCluster, run
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import OUTPUTS, RETRY, RETRY_UNITS, gone, plugin, ready, step
from tests.operator.rig.world import KINDS, Unit, World, live

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT, MAX_IMAGE_WAITS, StepSlots
from dayfly.plan.actions import Claim, Decision, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import Lifecycle, Target
from dayfly.spec.lifecycle import Unit as Step
from dayfly.spec.run import Run

SLOW = plugin([step("wait")], [step("end")])
SLOW_UNITS = {"x/wait": Unit(creates=True, once=True, undone_by="x/end"), "x/end": Unit(creates=False)}
QUICK = {"resources": [{"name": "db", "plugin": "pg"}]}
LONG = {"resources": [{"name": "x", "plugin": "slow"}]}


def play(story, steps: int = DEFAULT_LIMIT, **scripts: Script) -> None:
    """Return a story with two plugins. One is quick, the steps of the other behave as `wait` and `end` define."""
    units = {**RETRY_UNITS, **SLOW_UNITS}
    known = {"x/wait": scripts.get("wait", Script(runs=30)), "x/end": scripts.get("end", Script())}
    known |= {name: dataclasses.replace(Script(), outputs=OUTPUTS.get(name, {})) for name in RETRY_UNITS}

    async def begin(world: World) -> None:
        world.plugin("pg", RETRY)
        world.plugin("slow", SLOW)
        world.steps = steps
        world.start()
        await story(world)

    live(lambda: World(units, known), begin)


def target(name: str) -> Target:
    return Target(kind="Sandbox", namespace="shop", name=name, uid=name)


def stored(cluster: ClusterWatches, name: str) -> RunObject:
    """Return a run without a claim."""
    meta = AnnotatedMeta(name=name, uid=name, resource_version="1")
    cluster.runs.put(RunObject(metadata=meta, ledger=Run(uid=name, target=target(name), plan="sha256:0")))
    found = cluster.ledger.get(name)
    assert found is not None
    return found


def most_at_once(world: World, unit: str) -> int:
    """Return the maximum number of a unit's scripts that ran at the same time."""
    running = most = 0
    for entry in world.cloud.log:
        if entry.unit == unit:
            running += 1 if entry.what == "start" else -1
            most = max(most, running)
    return most


def most_pods(world: World, unit: str) -> int:
    """Return the maximum number of a unit's pods, including gated ones."""
    there, most = set(), 0
    for write in world.cluster.store.after(world.cluster.kind("pods"), 0):
        item = write.new or write.old
        if item["metadata"].get("annotations", {}).get("dayfly.dev/unit") != unit:
            continue
        over = write.new is None or write.new.get("status", {}).get("phase") in ("Succeeded", "Failed")
        (there.discard if over else there.add)(item["metadata"]["uid"])
        most = max(most, len(there))
    return most


def say_steps(world: World, count: int | str, namespace: str = "shop") -> None:
    world.grant(namespace, annotations={"dayfly.dev/steps": str(count)})


async def end(world: World, names, namespace: str = "shop") -> None:
    for name in names:
        world.delete(name, namespace)


class TestBound:
    @pytest.mark.slow
    @pytest.mark.parametrize(("said", "limit"), [("3", 3), ("many", 4)])
    def test_so_many_steps_run_at_once_and_no_more(self, said, limit):
        """Each run gets its turn, and waiting ones report the reason."""

        async def story(world: World) -> None:
            say_steps(world, said)
            boxes = [f"box{number}" for number in range(2 * limit + 1)]
            for name in boxes:
                world.sandbox(LONG, name)
            await world.until(lambda: world.cloud.starts("x/wait") == limit, "the first ones", 20)
            await world.rest(15)
            told = [world.status(name)["message"] for name in boxes]
            words = f"waits for a free slot: sandboxes of namespace shop may run at most {limit} steps at once"
            assert sum(words in each for each in told) == len(boxes) - limit
            units = [unit for name in boxes for unit in world.status(name)["units"] if unit["id"] == "x/wait"]
            assert sum(unit["reason"] == "WaitingForSlot" for unit in units) == len(boxes) - limit
            await world.until(lambda: all(ready(world, name) for name in boxes), "all of them", 150)
            assert most_at_once(world, "x/wait") == limit
            assert most_pods(world, "x/wait") <= 2 * limit  # the last statuses of ended runs follow a moment later
            await end(world, boxes)
            await gone(world)

        play(story, steps=4)

    def test_first_come_first_served(self):
        """The run that has waited longest is next; later ones do not overtake it."""

        async def story(world: World) -> None:
            say_steps(world, 1)
            uids = []
            for number in range(5):
                uids.append(world.sandbox(LONG, f"box{number}"))
                await world.rest(3)
            await world.until(lambda: all(ready(world, f"box{number}") for number in range(5)), "all of them", 300)
            started = [entry.run for entry in world.cloud.log if (entry.what, entry.unit) == ("start", "x/wait")]
            assert started == uids
            await end(world, (f"box{number}" for number in range(5)))
            await gone(world)

        play(story)

    def test_newcomer_waits_behind_runs_already_waiting(self):
        """The new run may take its turn before the waiting runs, which are queued but have not taken theirs yet."""
        plan = seal((Lifecycle(target=target("a"), pre_start=(Step(name="wait", kind="exec"),)),))
        claim = Claim(unit="wait", attempt=1, kind="exec", ref="r", at=1)

        async def story() -> None:
            cluster = ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1))
            slots = StepSlots(cluster, limit=1)
            first, second, late = (stored(cluster, name) for name in ("a", "b", "c"))

            async def grant(run: RunObject) -> int:
                return (await slots.grant(run, plan, {}, {}, is_cleanup=False)).slots

            assert await grant(first) == 1
            assert slots.claim(first, (claim,), is_cleanup=False)
            assert await grant(second) == 0
            waits = Wait(unit="wait", reason=Reason.WAITING_FOR_SLOT, message="")
            slots.end_turn("b", Decision(waits=(waits,)))
            slots.end_turn("a", Decision())
            assert await grant(late) == 0
            assert await grant(second) == 1

        run(story())

    def test_raised_bound_is_heeded(self):
        """No step may run before the administrator allows it."""

        async def story(world: World) -> None:
            say_steps(world, 0)
            for number in range(4):
                world.sandbox(QUICK, f"box{number}")
            await world.rest(300)
            assert not world.pods()
            say_steps(world, 4)
            await world.until(lambda: all(ready(world, f"box{number}") for number in range(4)), "ready", 75)
            await end(world, (f"box{number}" for number in range(4)))
            await gone(world)

        play(story)

    def test_slots_of_deleted_sandboxes_are_freed(self):
        """A sandbox that is deleted while it waits or runs does not delay others."""

        async def story(world: World) -> None:
            say_steps(world, 1)
            for number in range(4):
                world.sandbox(LONG, f"box{number}")
                await world.rest(2)
            world.delete("box1")
            await world.rest(5)
            world.delete("box0")
            await world.until(lambda: ready(world, "box2"), "the next one", 60)
            await world.until(lambda: ready(world, "box3"), "the last one", 60)
            await end(world, ("box2", "box3"))
            await gone(world)

        play(story)

    def test_pod_that_cannot_be_made_blocks_no_other(self):
        async def story(world: World) -> None:
            say_steps(world, 1)
            secret = "spec: {containers: [{name: main, envFrom: [{secretRef: {name: none}}]}]}"
            world.plugin("blocked", SLOW | {"runner": {"image": "busybox:1", "podTemplateOverlay": secret}})
            world.sandbox({"resources": [{"name": "x", "plugin": "blocked"}]}, "stuck")
            await world.until(lambda: "does not exist" in world.status("stuck").get("message", ""), "the objection", 10)
            world.sandbox(QUICK)
            await world.until(lambda: ready(world), "the other one", 30)
            await end(world, ("stuck", "box"))
            await gone(world)

        play(story)

    def test_cleanup_has_places_of_its_own(self):
        """Create steps do not delay cleanup steps."""

        async def story(world: World) -> None:
            say_steps(world, 2)
            world.sandbox(QUICK)
            await world.until(lambda: ready(world), "ready", 20)
            for number in range(4):
                world.sandbox(LONG, f"box{number}")
            await world.until(lambda: world.cloud.starts("x/wait") == 2, "all slots to be taken", 20)
            world.delete()
            await world.until(lambda: world.box() is None, "the cleanup beside them", 20)
            assert world.cloud.starts("x/wait") == 2
            await world.until(lambda: all(ready(world, f"box{number}") for number in range(4)), "the others", 200)
            await end(world, (f"box{number}" for number in range(4)))
            await gone(world)
            assert most_at_once(world, "x/end") == 2

        play(story, end=Script(runs=30))


class TestImages:
    @pytest.mark.slow
    def test_steps_that_lack_their_image_hold_no_place(self):
        """A namespace with a missing image fills neither its own slots nor the nodes: these steps have a separate limit."""

        async def story(world: World) -> None:
            boxes = [f"box{number}" for number in range(MAX_IMAGE_WAITS + 12)]
            for name in boxes:
                world.sandbox(LONG, name)
            await world.rest(60)
            assert MAX_IMAGE_WAITS <= len(world.pods("x/wait")) < MAX_IMAGE_WAITS + 5
            told = [world.status(name)["message"] for name in boxes]
            assert sum("steps of namespace shop are waiting for their images" in each for each in told) > 7
            world.kubelet.scripts["x/wait"].image_missing = ""
            await world.until(lambda: all(ready(world, name) for name in boxes), "all of them", 300)
            assert most_pods(world, "x/wait") < MAX_IMAGE_WAITS + 5
            await end(world, boxes)
            await gone(world)

        play(story, steps=5, wait=Script(runs=5, image_missing="not found"))

    def test_few_of_them_leave_the_places_to_others(self):
        async def story(world: World) -> None:
            say_steps(world, 2)
            for number in range(6):
                world.sandbox(LONG, f"box{number}")
            await world.rest(60)
            assert len(world.pods("x/wait")) == 6
            world.sandbox(QUICK)
            await world.until(lambda: ready(world), "the step with its image", 20)
            world.kubelet.scripts["x/wait"].image_missing = ""
            await end(world, ["box", *(f"box{number}" for number in range(6))])
            await gone(world)

        play(story, wait=Script(image_missing="not found"))


class TestNeighbours:
    @pytest.mark.slow
    @pytest.mark.long_story
    @pytest.mark.parametrize("missing", [True, False], ids=["without its image", "busy"])
    def test_noisy_namespace_does_not_slow_down_another(self, missing):
        """Many sandboxes of one namespace start at once: another's are ready in less than twice the usual time."""

        async def story(world: World) -> None:
            world.namespace("quiet")

            async def taken(name: str) -> float:
                began = world.cluster.time()
                world.sandbox(QUICK, name, "quiet")
                await world.until(lambda: world.status(name, "quiet").get("ready"), "ready", 60)
                return world.cluster.time() - began

            alone = [await taken(f"alone{number}") for number in range(3)]
            for number in range(30):
                world.sandbox(LONG, f"noise{number}")
            beside = [await taken(f"beside{number}") for number in range(6)]
            assert max(beside) < 2 * max(alone), (alone, beside)
            await end(world, [*(f"alone{n}" for n in range(3)), *(f"beside{n}" for n in range(6))], "quiet")
            world.kubelet.scripts["x/wait"].image_missing = ""
            await end(world, (f"noise{number}" for number in range(30)))
            await gone(world)

        play(story, steps=8, wait=Script(image_missing="not found") if missing else Script(runs=30))
