"""Small plans drawn at random, and how each of their scripts behaves."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

import msgspec

from dayfly.plan.sealed import Plan, seal
from dayfly.spec.lifecycle import (
    CREATE_EVENTS,
    Baseline,
    EnvChange,
    Exec,
    ForkUnit,
    Lifecycle,
    LifecycleEvent,
    Ref,
    Target,
    Unit,
    UnitInput,
    UnitOutput,
    UnitRetry,
    UnitTimeouts,
    fork_id,
    unit_id,
)
from dayfly.spec.run import OutputRecord

TIMEOUTS = UnitTimeouts(schedule_ms=20_000, pull_ms=10_000, run_ms=60_000, grace_ms=5_000)
TARGET = Target(kind="Sandbox", name="box", uid="box-uid")
DIFFERENT_PLANS = 2_000
# A success always writes the first, and the second at odd attempts only.
OUTPUTS = ("one", "two")


class Shape(NamedTuple):
    """A unit as the oracle knows it. It comes from the generator and not from the product's index."""

    id: str
    event: LifecycleEvent | None  # None: a fork
    resource: str
    needs: tuple[str, ...]
    reads: tuple[tuple[str, str], ...]  # (unit, output)
    idempotent: bool
    limit: int
    backoff_ms: int
    fails: int  # the number of first starts that fail
    hangs: bool
    deaf: bool  # ignores SIGTERM
    spills: bool  # leaves outputs behind even when it fails
    unfit: bool = False  # what it reads cannot be given to it
    broken: bool = False  # its program cannot be executed
    after: tuple[str, ...] = ()  # forks that must be ready before this fork starts, and end after it
    undoes: str = ""  # the create unit of the same document that a postStop unit undoes

    @property
    def creates(self) -> bool:
        return self.event is None or self.event in CREATE_EVENTS


class Scenario(NamedTuple):
    """Documents, revisions of the forks, and the oracle's view of both."""

    documents: tuple[Lifecycle, ...]
    revisions: tuple[tuple[Unit, ...], ...]
    shapes: dict[str, Shape]
    # resource -> resources ('' is the target's own hooks) that read it and are cleaned up before it
    readers: dict[str, frozenset[str]]
    plans: tuple[Plan, ...]
    self_starting: bool  # whether its target starts and stops by itself

    def of(self, event: LifecycleEvent | None, resource: str | None = None) -> tuple[Shape, ...]:
        """The units of an event, of one document or of all."""
        return tuple(
            shape
            for shape in self.shapes.values()
            if shape.event is event and (resource is None or shape.resource == resource)
        )


@lru_cache(maxsize=DIFFERENT_PLANS)
def draw(number: int) -> Scenario:
    """Return the plan with this number, always the same."""
    return _Draughtsman(Random(number)).draw()


def value(unit: str, attempt: int, output: str) -> bytes:
    """Return the value that an attempt writes to an output. All attempts write different values."""
    return f"{unit}#{attempt}.{output}".encode()


@lru_cache(maxsize=20_000)
def output_record(unit: str, attempt: int, output: str) -> OutputRecord:
    """Return the ledger's record of the output."""
    content = value(unit, attempt, output)
    return OutputRecord(digest="sha256:" + hashlib.sha256(content).hexdigest(), size=len(content), attempt=attempt)


class _Draughtsman:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.shapes: dict[str, Shape] = {}
        self.chained = False  # the second fork comes after the first
        self.readers: dict[str, set[str]] = {}

    def draw(self) -> Scenario:
        rng = self.rng
        resources = [f"r{number}" for number in range(rng.choice((1, 1, 1, 1, 2, 2, 3)))]
        documents = [self._resource(name, resources[:index]) for index, name in enumerate(resources)]
        if rng.random() < 0.4:
            documents.append(self._hooks(resources))
        rng.shuffle(documents)
        names = [f"app{number}" for number in range(rng.choice((0, 1, 1, 2)))]
        self.chained = rng.random() < 0.5
        first = tuple(self._fork(name, revision=0) for name in names)
        revisions = [first]
        for revision in range(1, 3):
            kept = [name for name in names if rng.random() < 0.6]
            revisions.append(tuple(self._fork(name, revision) for name in kept))
        return Scenario(
            documents=tuple(documents),
            revisions=tuple(revisions),
            shapes=self.shapes,
            readers={name: frozenset(who) for name, who in self.readers.items()},
            plans=tuple(seal(tuple(documents), forks) for forks in revisions),
            self_starting=rng.random() < 0.25,
        )

    def _resource(self, name: str, earlier: list[str]) -> Lifecycle:
        rng = self.rng
        foreign = [shape.id for other in earlier for shape in self._created(other)]
        creates, deletes = [], []
        for number in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 4))):
            creates.append(
                self._unit(name, f"make{number}", LifecycleEvent.PRE_START, self._some(name, creates, foreign))
            )
        for number in range(rng.choice((0, 1, 1, 1, 2))):
            reads = self._some(name, creates, foreign) + self._some(name, deletes, [])
            deletes.append(self._unit(name, f"drop{number}", LifecycleEvent.POST_STOP, reads))
        return Lifecycle(target=TARGET, resource=name, pre_start=tuple(creates), post_stop=tuple(deletes))

    def _hooks(self, resources: list[str]) -> Lifecycle:
        rng = self.rng
        foreign = [shape.id for name in resources for shape in self._created(name)]
        hooks: dict[LifecycleEvent, tuple[Unit, ...]] = {}
        for event in LifecycleEvent:
            earlier = [unit for units in hooks.values() for unit in units]
            hooks[event] = tuple(
                self._unit("", f"{event.value.lower()}{number}", event, self._some("", earlier, foreign))
                for number in range(rng.choice((0, 1, 1, 2)))
            )
        return Lifecycle(
            target=TARGET,
            pre_start=hooks[LifecycleEvent.PRE_START],
            post_start=hooks[LifecycleEvent.POST_START],
            pre_stop=hooks[LifecycleEvent.PRE_STOP],
            post_stop=hooks[LifecycleEvent.POST_STOP],
        )

    def _created(self, resource: str) -> Iterator[Shape]:
        return (shape for shape in self.shapes.values() if shape.resource == resource and shape.event in CREATE_EVENTS)

    def _some(self, resource: str, own: list[Unit], foreign: list[str]) -> list[str]:
        rng = self.rng
        chosen = [unit_id(resource, unit.name) for unit in own if rng.random() < 0.5]
        return chosen + [name for name in foreign if rng.random() < 0.25]

    def _unit(self, resource: str, name: str, event: LifecycleEvent, reads: list[str]) -> Unit:
        rng = self.rng
        creates = event in CREATE_EVENTS
        idempotent = not creates or rng.random() < 0.4
        limit = rng.choice((2, 3, 3, 0)) if idempotent and creates else 0 if idempotent else 1
        retry = UnitRetry(idempotent=idempotent, limit=limit, backoff_ms=rng.choice((1_000, 5_000)))
        fails = self._fails(event, idempotent)
        hangs, deaf, spills = rng.random() < 0.05, rng.random() < 0.15, rng.random() < 0.5
        shape = Shape(
            id=unit_id(resource, name),
            event=event,
            resource=resource,
            needs=tuple(read for read in reads if self.shapes[read].creates == creates),
            reads=tuple((read, output) for read in reads for output in OUTPUTS),
            idempotent=idempotent,
            limit=limit,
            backoff_ms=retry.backoff_ms,
            fails=fails,
            hangs=hangs,
            deaf=deaf,
            spills=spills,
            unfit=creates and bool(reads) and rng.random() < 0.05,
            # This draws no random number, so other plans stay the same. A broken postStop would never end.
            broken=event is not LifecycleEvent.POST_STOP and deaf and not spills and not fails,
            undoes=self._undone(resource, name, event, reads),
        )
        self.shapes[shape.id] = shape
        for read in reads:
            other = self.shapes[read].resource
            if other and other != resource:
                self.readers.setdefault(other, set()).add(resource)
        return Unit(
            name=name,
            kind="exec",
            exec=Exec(script="#!/bin/sh\n"),
            inputs=tuple(self._input(resource, read, output) for read, output in shape.reads),
            outputs=tuple(UnitOutput(name=output, path=f"/outputs/{output}") for output in OUTPUTS),
            retry=retry,
            timeouts=TIMEOUTS,
            undoes=shape.undoes.rpartition("/")[2],
        )

    def _undone(self, resource: str, name: str, event: LifecycleEvent, reads: list[str]) -> str:
        """Return the create unit that a postStop unit undoes, for every other postStop unit. It draws no random number,
        so other plans stay the same.
        """
        if event is not LifecycleEvent.POST_STOP or not name.endswith("0"):
            return ""
        own = [shape.id for shape in self._created(resource)]
        return next((read for read in reads if read in own), own[0] if own else "")

    def _fails(self, event: LifecycleEvent, idempotent: bool) -> int:
        rng = self.rng
        match event:
            case LifecycleEvent.POST_STOP:
                return rng.choice((0, 0, 0, 0, 1, 2, 7))
            case LifecycleEvent.PRE_STOP:
                return rng.choice((0, 0, 1, 4, 5, 9))
            case _:
                return rng.choice((0, 0, 0, 1, 2, 9)) if idempotent else rng.choice((0, 0, 0, 0, 0, 1))

    def _input(self, resource: str, read: str, output: str) -> UnitInput:
        home = self.shapes[read].resource
        ref = Ref(
            unit=read.rpartition("/")[2],
            output=output,
            resource="" if home == resource else home,
        )
        return UnitInput(name=f"{read}.{output}".replace("/", "-"), from_=ref)

    def _fork(self, name: str, revision: int) -> Unit:
        baseline = Baseline(kind="Deployment", namespace="shop", name=name)
        uid = fork_id(baseline)
        before = msgspec.structs.replace(baseline, name="app0")
        after = (fork_id(before),) if self.chained and name != before.name else ()
        reads = [
            shape.id for shape in self.shapes.values() if shape.event is LifecycleEvent.PRE_START and shape.resource
        ]
        if uid not in self.shapes:
            self.shapes[uid] = Shape(
                id=uid,
                event=None,
                resource="",
                needs=(),
                reads=tuple((read, "one") for read in reads[:1]),
                idempotent=True,
                limit=0,
                backoff_ms=1_000,
                fails=0,
                hangs=True,
                deaf=self.rng.random() < 0.15,
                spills=False,
                after=after,
            )
        changes = (EnvChange(name="REVISION", value=str(revision * self.rng.randrange(2))),)
        inputs = tuple(self._input("", read, output) for read, output in self.shapes[uid].reads)
        return Unit(name=name, kind="fork", inputs=inputs, after=after, fork=ForkUnit(baseline=baseline, env=changes))
