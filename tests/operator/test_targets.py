"""A target of another kind needs only an adapter, which this test defines, and no change of the operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.kube.fake import Fault, Harm
from tests.operator.rig.kubelet import EPOCH_MS, Script
from tests.operator.rig.world import API, Unit, World, live
from tests.selection import SELECTION

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.cache import Cache
from dayfly.kube.objects import AnnotatedMeta, ApiResource, KubeStruct
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    TARGET_FINALIZER,
    DocumentObject,
    RunObject,
)
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, Times, UndecidableError, rights
from dayfly.plan.world import TargetState
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, digest
from dayfly.spec.lifecycle import Unit as Step
from dayfly.spec.report import RunReport
from dayfly.spec.run import Run

MAPS = "/api/v1/namespaces/shop/configmaps"
STEPS = ("before", "warm", "drain", "report")


class Map(KubeStruct, frozen=True):
    """A ConfigMap whose data states whether its target has started or stopped, and how long it is wanted."""

    metadata: AnnotatedMeta
    data: dict[str, str] = {}


class Maps(BaseAdapter):
    """The adapter of the kind. `journal` belongs to the test and outlives the processes."""

    def __init__(self, cluster: ClusterWatches, journal: list[str], *, removes: bool = False) -> None:
        super().__init__(ApiResource("", "v1", "configmaps", "ConfigMap", Map))
        self.cache: Cache[Map] = Cache()
        self.removes = removes
        self._client = cluster.client
        self._journal = journal

    def as_cached(self, item: Map) -> CachedTarget:
        return CachedTarget(item.metadata, dict(item.data))

    def get_times(self, _run: RunObject, seen: CachedTarget) -> Times:
        return Times(int(seen.spec.get("expires", "0")), int(seen.spec.get("lease", "0")))

    async def read_state(self, run: RunObject) -> TargetState:
        target = run.ledger.target
        found = await self._client.find(self.resource, target.name, target.namespace)
        gone = found is None or found.metadata.uid != target.uid
        data = {"stopped": ""} if found is None or gone else found.data
        return TargetState(started="started" in data, stopped="stopped" in data)

    async def report_status(self, _scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        if (word := hindrance or report.reason) not in self._journal[-1:]:
            self._journal.append(word)
        return 0.0

    async def report_frozen(self, _run: RunObject, why: UndecidableError) -> None:
        self._journal.append(str(why))

    def on_run_missing(self, item: Map) -> None:
        self._journal.append(f"no run of {item.metadata.name}")


def _post(world: World, path: str, body: msgspec.Struct) -> dict[str, Any]:
    return world.ask("POST", path, msgspec.json.decode(msgspec.json.encode(body)))


def seal(world: World) -> str:
    """Write the documents of a ConfigMap, as a controller for such objects would."""
    uid = place(world)
    target = Target(api_version="v1", kind="ConfigMap", namespace="shop", name="box", uid=uid)
    run = names.run_name("box", uid)
    document, hooks = seal_document(world, target, run)
    ledger = Run(uid=uid, target=target, plan=digest((hooks,)), born_at=world.now())
    body = RunObject(
        metadata=AnnotatedMeta(name=run, finalizers=[RUN_FINALIZER]),
        ledger=ledger,
        spec=RunSpec(documents=(Pin(name="hooks", uid=document, digest=digest(hooks)),), plural="configmaps"),
    )
    _post(world, f"/apis/{API}/runs", body)
    return run


def seal_document(world: World, target: Target, run: str) -> tuple[str, Lifecycle]:
    before, warm, drain, report = (
        (Step(name=name, kind="exec", exec=Exec(script="#!/bin/sh\n", image="busybox:1")),) for name in STEPS
    )
    hooks = Lifecycle(target=target, pre_start=before, post_start=warm, pre_stop=drain, post_stop=report)
    meta = AnnotatedMeta(name="hooks", finalizers=[DOCUMENT_FINALIZER], labels={names.RUN_LABEL: run})
    document = _post(world, f"/apis/{API}/objectlifecyclemethods", DocumentObject(metadata=meta, spec=hooks))
    return document["metadata"]["uid"], hooks


def place(world: World, *finalizers: str) -> str:
    meta = {"name": "box", "finalizers": list(finalizers)}
    return world.ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})["metadata"]["uid"]


def say(world: World, **data: str) -> None:
    """Change the ConfigMap as its owner."""
    world.ask("PATCH", f"{MAPS}/box", {"data": data}, "application/merge-patch+json")


def target(world: World) -> dict[str, Any] | None:
    return next((each for each in world.cluster.objects("configmaps") if each["metadata"]["name"] == "box"), None)


def tell(
    story: Callable[[World], Awaitable[None]], journal: list[str] | None = None, *, removes: bool = False
) -> World:
    """Run a story in a world whose operators know ConfigMaps as well as Sandboxes."""
    words: list[str] = [] if journal is None else journal

    def born() -> World:
        world = World({name: Unit(creates=name in STEPS[:2]) for name in STEPS}, {name: Script() for name in STEPS})
        world.front = None
        world.kinds = (lambda cluster: Maps(cluster, words, removes=removes),)
        return world

    return live(born, story)


async def whole_life(world: World) -> None:
    """Only the watch of its kind queues its run."""
    await world.until(lambda: world.cloud.starts("before"), "preStart")
    await world.rest(60)
    assert not world.cloud.starts("warm")
    say(world, started="yes")
    await world.until(lambda: world.cloud.starts("warm"), "postStart", 60)
    await world.rest(60)
    world.ask("DELETE", f"{MAPS}/box")
    await world.until(lambda: world.cloud.starts("drain"), "preStop", 60)
    await world.rest(60)
    assert not world.cloud.starts("report")
    ledger = world.ledger()
    assert ledger["startedAt"]
    assert "stoppedAt" not in ledger
    say(world, stopped="yes")
    await world.until(lambda: target(world) is None, "the target to go", 60)
    assert world.cloud.starts("report") == 1
    await world.until(lambda: not world.leftovers(), "everything to go")


def test_target_starts_and_stops_by_itself():
    journal: list[str] = []

    async def story(world: World) -> None:
        seal(world)
        world.start()
        await whole_life(world)
        await world.quiet()

    tell(story, journal)
    assert [word for word in journal if word in ("WaitingForTarget", "AllDesiredWorkloadsReady", "Deleted")]


@pytest.mark.parametrize("harm", [Harm.CRASH_BEFORE, Harm.CRASH_AFTER])
def test_life_survives_a_crash_at_any_change(harm, played):
    """The next process has the same adapters, and its own watch."""
    sent = 0

    async def life(world: World) -> None:
        nonlocal sent
        seal(world)
        world.start()
        # Crashes delay the steps, so the story waits; forbidden states are still checked at each moment.
        await whole_life(world)
        sent = len(world.writes)

    tell(life)
    share = SELECTION.sample(range(1, sent + 1), 16, f"a target of another kind, {harm.name}")
    played("changes for a target of another kind, each with a crash", len(share))
    for number in share:

        async def story(world: World, number: int = number) -> None:
            world.hook = lambda count, _call: Fault(harm) if count == number else None
            await life(world)

        tell(story)


@pytest.mark.parametrize(("until", "reason"), [("expires", "Expired"), ("lease", "LeaseExpired")])
@pytest.mark.parametrize("removes", [False, True])
def test_target_ends_by_its_ttl_or_lapsed_lease(until, reason, removes):
    """The time to live or the lease of the target ends the run. The target is deleted only if its adapter requires it."""
    reasons = []

    async def story(world: World) -> None:
        seal(world)
        end = world.now() + 600_000
        say(world, started="yes", stopped="yes", **{until: str(end)})
        world.start()
        await world.until(lambda: world.cloud.starts("warm"), "postStart", 60)
        await world.until(lambda: world.cloud.starts("drain"), "preStop", 700)
        assert EPOCH_MS + int(world.cluster.time() * 1000) >= end
        reasons.append(world.ledger()["closed"]["reason"])
        await world.until(lambda: not world.leftovers(), "everything to go", 120)
        assert world.cloud.starts("report") == 1
        left = target(world)
        assert (left is None) is removes
        if left is not None:
            assert not left["metadata"].get("finalizers")
            assert "deletionTimestamp" not in left["metadata"]

    tell(story, removes=removes)
    assert reasons == [reason]


def test_target_that_never_started_skips_pre_stop():
    """After its preStart no start followed, so preStop is skipped and postStop runs."""

    async def story(world: World) -> None:
        seal(world)
        world.start()
        await world.until(lambda: world.cloud.starts("before"), "preStart")
        await world.rest(60)
        world.ask("DELETE", f"{MAPS}/box")
        await world.rest(60)
        say(world, stopped="yes")
        await world.until(lambda: not world.leftovers(), "everything to go", 120)
        assert (world.cloud.starts("drain"), world.cloud.starts("report")) == (0, 1)

    tell(story)


def test_given_up_by_an_annotation_it_lives_on():
    async def story(world: World) -> None:
        world.cloud.forgiven = True
        seal(world)
        world.start()
        await world.until(lambda: world.cloud.starts("before"), "preStart")
        patch = {"metadata": {"annotations": {"dayfly.dev/abandon": "force: nobody needs it"}}}
        world.ask("PATCH", f"{MAPS}/box", patch, "application/merge-patch+json")
        await world.until(lambda: not world.cluster.objects("runs"), "its run to end", 60)
        left = target(world)
        assert left is not None
        assert not left["metadata"].get("finalizers")
        assert "deletionTimestamp" not in left["metadata"]

    tell(story)


def test_documents_of_a_target_without_a_run_are_removed():
    """The kind of the target, and the object with that UID, decide whether a run may still be created."""

    async def story(world: World) -> None:
        uid = place(world)
        seal_document(
            world, Target(api_version="v1", kind="ConfigMap", namespace="shop", name="box", uid=uid), "box-run"
        )
        world.start()
        await world.rest(180)
        assert world.cluster.objects("objectlifecyclemethods")
        world.ask("DELETE", f"{MAPS}/box")
        place(world)  # another object with its name
        await world.until(lambda: not world.cluster.objects("objectlifecyclemethods"), "the document to go", 120)

    tell(story)


def test_held_target_without_a_run_is_reported_to_its_adapter():
    journal: list[str] = []

    async def story(world: World) -> None:
        place(world, TARGET_FINALIZER)
        world.start()
        await world.until(lambda: journal, "the report to its adapter", 120)

    tell(story, journal)
    assert set(journal) == {"no run of box"}


def test_kind_added_later_is_watched_from_then_on():
    """Kinds can be added while the operator runs. Until then, units that depend on the target wait."""

    async def story(world: World) -> None:
        world.kinds = ()
        seal(world)
        world.start()
        await world.until(lambda: world.cloud.starts("before"), "preStart")
        await world.rest(60)
        [process] = world.processes
        cluster = process.operator.cluster
        process.operator.targets.add(Maps(cluster, []))
        assert cluster.age < float("inf")
        await whole_life(world)

    tell(story)


def test_rights_of_a_target_kind_are_derived():
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]}
    cluster = ClusterWatches(client=None)  # type: ignore[arg-type] - nobody is asked
    assert rights(Maps(cluster, [])) == rule
    assert rights(Maps(cluster, [], removes=True))["verbs"][-1] == "delete"
