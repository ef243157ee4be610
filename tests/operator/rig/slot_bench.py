"""Slots of namespaces: the test defines the runs and sees which ones are queued."""

from __future__ import annotations

import json

import msgspec
from tests.kube.fake import FakeCluster, run
from tests.operator.rig.world import KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta
from dayfly.kube.transport import KubeRequest as Call
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.operator.pods.step_slots import SlotGrant, StepSlots
from dayfly.plan.actions import Claim, Decision, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Waiting
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import EndRequest, Result, Run, State, UnitRecord

EVERY = ("a", "b", "c", "d")
UNITS = tuple(Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh")) for name in EVERY)
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
PLAN = seal((Lifecycle(target=TARGET, resource="x", pre_start=UNITS[:3], post_stop=UNITS[3:]),))
A, B, C, D = (f"x/{name}" for name in EVERY)
RESULT = Result(outcome="succeeded")
WAITS = Decision(waits=(Wait(unit=A, reason=Reason.WAITING_FOR_SLOT, message="m"),))
LACKS = Waiting(since=1, reason="r", recallable=True)


class Queue:
    """Records the queued runs."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.later: list[tuple[str, float]] = []

    def add(self, key, *, urgency=None, after=0.0):
        if after:
            self.later.append((key, after))
        else:
            self.keys.append(key)

    def taken(self) -> list[str]:
        keys, self.keys = self.keys, []
        return keys


class Server(KubeClient):
    """Answers quorum reads with the runs that a test has stored."""

    recorded: RunObject | None = None

    async def find(self, resource, name, namespace=""):
        return self.recorded if resource is RUNS else await super().find(resource, name, namespace)


class Bench:
    """Slots of namespaces with a limit, and known runs."""

    def __init__(self, limit: int = 2) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.clock, self.version = 1_000, 0
        self.client = Server(self.server.transport("operator"), seed=1)
        self.caches = ClusterWatches(self.client, now=lambda: self.clock)
        self.queue = self.caches.queue = Queue()
        self.slots = StepSlots(self.caches, limit)
        for namespace in ("shop", "quiet"):
            self.ask("POST", "", {"metadata": {"name": namespace}})

    def ask(self, method, name, body, kind="application/json"):
        path = f"/api/v1/namespaces/{name}".rstrip("/")
        assert self.server.answer(Call(method, path, {}, json.dumps(body).encode(), kind)).status < 300

    def annotate(self, steps):
        notes = {"metadata": {"annotations": {"dayfly.dev/steps": steps}}}
        self.ask("PATCH", "shop", notes, "application/merge-patch+json")

    def run(self, name, namespace="shop", closed=0, **units) -> RunObject:
        """Add a run with these records to the cache."""
        found = self.made(name, namespace, closed, **units)
        self.caches.runs.put(found)
        self.queue.taken()
        return found

    def made(self, name, namespace="shop", closed=0, **units) -> RunObject:
        """Store a new version of a run without an event."""
        target = msgspec.structs.replace(TARGET, namespace=namespace)
        records = {f"x/{unit}": record for unit, record in units.items()}
        request = EndRequest(at=closed, reason="Deleted") if closed else None
        ledger = Run(uid=name, target=target, plan="", units=records, closed=request)
        self.version += 1
        meta = AnnotatedMeta(name=name, uid=name, resource_version=str(self.version))
        return RunObject(metadata=meta, ledger=ledger)

    async def recorded(self, name, **how) -> None:
        """Store a version of a run that we have read or written, before its event."""
        self.client.recorded = self.made(name, **how)
        await self.caches.ledger.read_current(name)

    def heard(self, name, **how) -> list[str]:
        """Deliver the event of a run. Return which other runs are queued."""
        self.queue.taken()
        self.caches.runs.put(self.made(name, **how))
        return [key for key in self.queue.taken() if key != name]

    async def grant(self, of, facts=None, blocked=(), *, is_cleanup=False) -> SlotGrant:
        return await self.slots.grant(of, PLAN, facts or {}, dict.fromkeys(blocked), is_cleanup=is_cleanup)

    async def free_slots(self, of, **how) -> int:
        return (await self.grant(of, **how)).slots

    async def wait(self, *names):
        """Let these runs wait for slots, in this order."""
        for name in names:
            found = self.run(name)
            await self.grant(found)
            self.slots.end_turn(name, WAITS)
        self.queue.taken()


def alive(at=5, state=State.CLAIMED, kind="exec", attempt=1):
    return UnitRecord(attempt=attempt, state=state, kind=kind, ref="p", claimed_at=at)


def claims(*units, kind="exec"):
    return tuple(Claim(unit=unit, attempt=1, kind=kind, ref="p", at=1) for unit in units)


def run_story(story, **how):
    async def main():
        return await story(Bench(**how))

    return run(main())
