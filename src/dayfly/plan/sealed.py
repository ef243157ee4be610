"""A run's documents, sealed before the first effect, with an index of events and readers."""

import msgspec

from dayfly.spec.lifecycle import CREATE_EVENTS, Lifecycle, LifecycleEvent, Ref, Sharing, Unit, digest, kept_id, unit_id


class SealedStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A unit with its place in the run."""

    id: str
    unit: Unit
    event: LifecycleEvent
    resource: str
    # The units of any document whose outputs it reads, in the order of its inputs.
    reads: tuple[str, ...]
    # The units among `reads` and `unit.after` that must have succeeded before it may start. A stop unit never waits for
    # a create unit: that one has ended by then, with or without outputs.
    needs: tuple[str, ...]
    creates: bool


class KeptStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A kept unit: a desired state, and the digest of its spec (`generation`).

    `after` are the kept units of the same plan that answer before it starts. They end after it.
    """

    id: str
    unit: Unit
    reads: tuple[str, ...]
    generation: str
    after: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The create and delete units of a run, by digest, and the units that its target wants to keep at this revision.

    `steps_by_resource` has the units of each document by resource ('' is the target's own). `readers` names, for a
    resource, the documents whose units read its outputs: their postStop runs first.
    """

    documents: tuple[Lifecycle, ...]
    digest: str
    steps: dict[str, SealedStep]
    events: dict[LifecycleEvent, tuple[SealedStep, ...]]
    steps_by_resource: dict[str, dict[LifecycleEvent, tuple[SealedStep, ...]]]
    kept: dict[str, KeptStep]
    readers: dict[str, frozenset[str]]

    @property
    def sharing(self) -> Sharing | None:
        """The limits of a shared parent; None for other runs."""
        return self.documents[0].sharing if self.documents else None

    def unit(self, name: str) -> Unit | None:
        """Return the unit with that name in the run; None if it is no longer kept."""
        step = self.steps.get(name) or self.kept.get(name)
        return step.unit if step else None

    def creates(self, unit: str) -> bool:
        """Return whether a closed run may not claim this unit: create steps and kept units."""
        return unit not in self.steps or self.steps[unit].creates

    def creators(self, resource: str) -> tuple[SealedStep, ...]:
        """Return the create units of one document."""
        return tuple(step for event in CREATE_EVENTS for step in self.steps_by_resource[resource][event])


def seal(documents: tuple[Lifecycle, ...], kept: tuple[Unit, ...] = ()) -> Plan:
    """Index documents that `compile` has checked: references resolve and there is no cycle.

    Only the documents are part of the digest. Kept units may be revised while the target lives.
    """
    steps: dict[str, SealedStep] = {}
    readers: dict[str, set[str]] = {document.resource: set() for document in documents}
    parts: dict[str, dict[LifecycleEvent, tuple[SealedStep, ...]]] = {document.resource: {} for document in documents}
    where = {
        unit_id(document.resource, unit.name): event
        for document in documents
        for event in LifecycleEvent
        for unit in document.units(event)
    }
    for event in LifecycleEvent:
        for document in documents:
            own = tuple(_seal_step(document.resource, unit, event, where) for unit in document.units(event))
            parts[document.resource][event] = own
            steps |= {step.id: step for step in own}
            for ref in (ref for step in own for ref in references(step.unit)):
                if ref.resource and ref.resource != document.resource:
                    readers.setdefault(ref.resource, set()).add(document.resource)
    return Plan(
        documents=documents,
        digest=digest(documents),
        steps=steps,
        events={event: tuple(step for step in steps.values() if step.event is event) for event in LifecycleEvent},
        steps_by_resource=parts,
        kept=_seal_kept(kept),
        readers={name: frozenset(who) for name, who in readers.items()},
    )


def references(unit: Unit) -> tuple[Ref, ...]:
    """Return every reference in the unit's inputs."""
    return tuple(item.from_ for item in unit.inputs if item.from_ is not None)


def program(unit: Unit) -> tuple[str, ...]:
    """Return the image of a step, and the script's first line or the command's first word."""
    if unit.exec is None:
        return ()
    return unit.exec.image, unit.exec.script.partition("\n")[0], *unit.exec.command[:1]


def sensitive_inputs(plan: Plan, unit: Unit, resource: str) -> frozenset[str]:
    """Return the unit's inputs whose values are secret parameters, or outputs that are declared sensitive."""
    found = {item.name for item in unit.inputs if item.secret}
    for item in unit.inputs:
        if item.from_ is None:
            continue
        producer = plan.steps.get(unit_id(item.from_.resource or resource, item.from_.unit))
        outputs = producer.unit.outputs if producer else ()
        if any(output.sensitive for output in outputs if output.name == item.from_.output):
            found.add(item.name)
    return frozenset(found)


def _seal_step(resource: str, unit: Unit, event: LifecycleEvent, where: dict[str, LifecycleEvent]) -> SealedStep:
    reads = tuple(dict.fromkeys(unit_id(ref.resource or resource, ref.unit) for ref in references(unit)))
    after = (unit_id(resource, name) for name in unit.after)
    creates = event in CREATE_EVENTS
    return SealedStep(
        id=unit_id(resource, unit.name),
        unit=unit,
        event=event,
        resource=resource,
        reads=reads,
        needs=tuple(name for name in dict.fromkeys((*reads, *after)) if (where.get(name) in CREATE_EVENTS) == creates),
        creates=creates,
    )


def _seal_kept(units: tuple[Unit, ...]) -> dict[str, KeptStep]:
    names = {kept_id(unit) for unit in units}
    steps = (
        KeptStep(
            id=kept_id(unit),
            unit=unit,
            reads=tuple(dict.fromkeys(unit_id(ref.resource, ref.unit) for ref in references(unit))),
            generation=digest(unit),
            after=tuple(name for name in unit.after if name in names),
        )
        for unit in units
    )
    return {step.id: step for step in steps}
