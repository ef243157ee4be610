"""A run's documents, sealed before the first effect and indexed once: who reads whom, in which event."""

import msgspec

from dayfly.spec.lifecycle import CREATING, Event, Kind, Lifecycle, Ref, Unit, digest, fork_id, unit_id


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A unit in its place within the run."""

    id: str
    unit: Unit
    event: Event
    resource: str
    # Units of any document whose outputs it reads, in the order of its inputs.
    reads: tuple[str, ...]
    # Those among them that must have succeeded before it may start. A unit of a stop event never waits for one of a
    # start event: by then that one has come to rest, with outputs or without.
    needs: tuple[str, ...]
    creates: bool


class ForkStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A kept unit: the fork itself, and the digest of the wish it must be started from."""

    id: str
    unit: Unit
    reads: tuple[str, ...]
    generation: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run will do for create and delete, by digest, and the forks its target wishes for at this revision.

    `parts` has the units of each document by its resource ('' is the target's own). `readers` names, for a resource,
    the documents whose units read its outputs: their postStop comes first.
    """

    documents: tuple[Lifecycle, ...]
    digest: str
    steps: dict[str, Step]
    events: dict[Event, tuple[Step, ...]]
    parts: dict[str, dict[Event, tuple[Step, ...]]]
    forks: dict[str, ForkStep]
    readers: dict[str, frozenset[str]]

    def creators(self, resource: str) -> tuple[Step, ...]:
        """The units of one document that create."""
        return tuple(step for event in CREATING for step in self.parts[resource][event])


def seal(documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...] = ()) -> Plan:
    """Index documents that `compile` (or whoever wrote them) has checked: references resolve and there is no cycle.

    Only the documents enter the digest; forks may be revised while the target lives.
    """
    steps: dict[str, Step] = {}
    readers: dict[str, set[str]] = {document.resource: set() for document in documents}
    parts: dict[str, dict[Event, tuple[Step, ...]]] = {document.resource: {} for document in documents}
    where = {
        unit_id(document.resource, unit.name): event
        for document in documents
        for event in Event
        for unit in document.units(event)
    }
    for event in Event:
        for document in documents:
            own = tuple(_step(document.resource, unit, event, where) for unit in document.units(event))
            parts[document.resource][event] = own
            steps |= {step.id: step for step in own}
            for ref in (ref for step in own for ref in references(step.unit)):
                if ref.resource and ref.resource != document.resource:
                    readers.setdefault(ref.resource, set()).add(document.resource)
    return Plan(
        documents=documents,
        digest=digest(documents),
        steps=steps,
        events={event: tuple(step for step in steps.values() if step.event is event) for event in Event},
        parts=parts,
        forks={step.id: step for step in map(_fork, forks)},
        readers={name: frozenset(who) for name, who in readers.items()},
    )


def references(unit: Unit) -> tuple[Ref, ...]:
    """Every reference of the unit's inputs."""
    return tuple(item.from_ for item in unit.inputs if item.from_ is not None)


def _step(resource: str, unit: Unit, event: Event, where: dict[str, Event]) -> Step:
    reads = tuple(dict.fromkeys(unit_id(ref.resource or resource, ref.unit) for ref in references(unit)))
    creates = event in CREATING
    return Step(
        id=unit_id(resource, unit.name),
        unit=unit,
        event=event,
        resource=resource,
        reads=reads,
        needs=tuple(name for name in reads if (where.get(name) in CREATING) == creates),
        creates=creates,
    )


def _fork(unit: Unit) -> ForkStep:
    assert unit.kind == Kind.FORK, "only forks are kept units"
    assert unit.fork is not None, "a fork says what it derives from"
    return ForkStep(
        id=fork_id(unit.fork.baseline),
        unit=unit,
        reads=tuple(dict.fromkeys(unit_id(ref.resource, ref.unit) for ref in references(unit))),
        generation=digest(unit),
    )
