"""Resting runs share equal parts of their objects, and the shared parts do not change."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.rig.world import World, live

from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.interning import share
from dayfly.operator.cluster.objects import DocumentObject, RunObject, SandboxObject
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Lifecycle, Target, Unit
from dayfly.spec.run import Run, State, UnitRecord

UID = "fcbd04c3-4021-2ef7-cca5-a5a19e4d6e3c"


def fresh(number: int = 1) -> tuple[RunObject, DocumentObject, SandboxObject]:
    """The objects of one run, each decoded by itself."""
    uid = f"{UID}-{number}"
    target = Target(kind="Sandbox", namespace="shop", name=f"box-{number}", uid=uid)
    meta = AnnotatedMeta(name="r", uid="u", finalizers=["dayfly.dev/run"], labels={"dayfly.dev/run-target": uid})
    units = {"db/make": UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", ref=uid)}
    pins = (Pin(name="plan", uid="p", digest="sha256:0"),)
    run = RunObject(meta, Run(uid=uid, target=target, plan="sha256:0", units=units), RunSpec(documents=pins))
    planned = AnnotatedMeta(name="plan", uid="p", finalizers=["dayfly.dev/plan"])
    document = DocumentObject(planned, Lifecycle(target=target, pre_start=(Unit(name="make", kind="exec"),)))
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"ready": True, "phase": "Ready", "reason": "AllDesiredWorkloadsReady", "conditions": conditions}
    named = {"name": f"box-{number}", "namespace": "shop", "uid": uid, "finalizers": ["dayfly.dev/lifecycle"]}
    sandbox = {"metadata": named, "spec": {"cluster": "c"}, "status": status}
    coded = [msgspec.json.encode(each) for each in (run, document, sandbox)]
    return (
        msgspec.json.decode(coded[0], type=RunObject),
        msgspec.json.decode(coded[1], type=DocumentObject),
        msgspec.json.decode(coded[2], type=SandboxObject),
    )


def test_shared_objects_keep_their_values():
    run, document, sandbox = fresh()
    share(run, [document], sandbox)
    assert (run, document, sandbox) == fresh()
    share(run, [document], None)
    assert (run, document, sandbox) == fresh()


def test_equal_parts_of_one_run_are_shared():
    run, document, sandbox = fresh()
    assert run.ledger.target.uid is not sandbox.metadata.uid
    share(run, [document], sandbox)
    assert document.spec.target is run.ledger.target
    assert run.ledger.uid is run.ledger.target.uid is sandbox.metadata.uid
    assert run.ledger.units["db/make"].ref is run.ledger.uid
    assert (run.metadata.labels or {})["dayfly.dev/run-target"] is run.ledger.uid
    assert run.ledger.target.name is sandbox.metadata.name


def test_equal_parts_of_several_runs_are_shared():
    one, another = fresh(1), fresh(2)
    for run, document, sandbox in (one, another):
        share(run, [document], sandbox)
    assert one[2].status is not None
    assert another[2].status is not None
    assert one[2].status.reason is another[2].status.reason
    assert one[2].status.conditions[0].type is another[2].status.conditions[0].type
    assert one[2].metadata.namespace is another[2].metadata.namespace
    for mine, theirs in zip(one, another, strict=True):
        assert mine.metadata.finalizers is theirs.metadata.finalizers


def test_a_document_of_another_target_keeps_its_own():
    run, document, sandbox = fresh()
    theirs = fresh(2)[1]
    share(run, [theirs], sandbox)
    assert theirs == fresh(2)[1]
    assert theirs.spec.target is not run.ledger.target
    assert document == fresh()[1]


def test_invented_finalizers_are_not_shared():
    """A tenant who invents more and more of them fills no memory."""

    def shared(name: str) -> list[str]:
        run, _, _ = fresh()
        msgspec.structs.force_setattr(run.metadata, "finalizers", [name])
        share(run, [], None)
        assert run.metadata.finalizers == [name]
        return run.metadata.finalizers

    assert shared("dayfly.dev/run") is shared("dayfly.dev/run")
    for number in range(200):
        shared(f"x.example/{number}")
    assert shared("x.example/last") is not shared("x.example/last")
    assert shared("dayfly.dev/run") is shared("dayfly.dev/run")


@pytest.mark.parametrize("restarted", [False, True])
def test_resting_sandbox_shares_its_parts(restarted):
    """The operator that created the sandbox shares its parts, and so does an operator that finds it."""

    async def story(world: World) -> None:
        world.start()
        for name in ("one", "two"):
            world.sandbox({}, name=name)
        await world.until(lambda: world.status("one").get("ready") and world.status("two").get("ready"), "ready")
        await world.rest(60)
        if restarted:
            await world.processes.pop().end()
            world.start()
            await world.rest(60)
        cluster = world.processes[0].operator.cluster
        one, two = (cluster.sandboxes.get(name, "shop") for name in ("one", "two"))
        assert one is not None
        assert two is not None
        assert one.status is not None
        assert two.status is not None
        assert one.status.message is two.status.message
        [run] = [cluster.runs.get(name) for name in cluster.runs_of(one.metadata.uid)]
        assert run is not None
        assert run.ledger.target.uid is one.metadata.uid
        world.delete("one")
        world.delete("two")
        await world.until(lambda: not world.leftovers(), "gone")

    live(lambda: World({}, {}), story)
