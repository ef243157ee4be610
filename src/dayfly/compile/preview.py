"""A preview of a compiled sandbox: each unit by its earliest start, and the order of the cleanup.

The result is data; the caller formats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dayfly.compile.graph import waves
from dayfly.spec.errors import with_article
from dayfly.spec.lifecycle import (
    CREATE_EVENTS,
    EnvChange,
    ForkValue,
    Kind,
    Lifecycle,
    LifecycleEvent,
    Ref,
    Unit,
    UnitInput,
    UnitOutput,
    UnitRetry,
    kept_id,
    unit_id,
)
from dayfly.spec.meta import doc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.compile.compiler import Compiled
    from dayfly.compile.pool_cut import ClaimCause
    from dayfly.compile.pools import CompiledPool


class PreviewStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Immutable data that the command line formats, or prints as JSON."""


class InputLine(PreviewStruct, frozen=True, kw_only=True):
    """An input: its constant `value`, the `source` of it (`db/provision.path`), or neither if it has no value."""

    name: Annotated[str, doc("Name of the input.")]
    value: Annotated[str | None, doc("Constant value, if it has one.")] = None
    source: Annotated[str, doc("Source of the value, like `db/provision.path`.")] = ""
    sensitive: Annotated[bool, doc("Whether the value is sensitive.")] = False
    env: Annotated[str, doc("Environment variable that holds it, if any.")] = ""
    path: Annotated[str, doc("File that holds it, if any.")] = ""


class OutputLine(PreviewStruct, frozen=True, kw_only=True):
    """An output and its source: a file, or a part of a response."""

    name: Annotated[str, doc("Name of the output.")]
    path: Annotated[str, doc("Its source: a file, or a part of a response or an object.")]
    sensitive: Annotated[bool, doc("Whether the value is sensitive.")] = False


class StepLine(PreviewStruct, frozen=True, kw_only=True):
    """One unit, with its time limits and retries as text."""

    id: Annotated[str, doc("ID of the unit.")]
    image: Annotated[str, doc("Image; empty if the host or the pod template chooses it.")]
    request: Annotated[str, doc("Request of a webhook, operation on an object, or program that runs.")] = ""
    inputs: Annotated[tuple[InputLine, ...], doc("Its inputs.")]
    outputs: Annotated[tuple[OutputLine, ...], doc("Its outputs.")]
    clocks: Annotated[str, doc("Its time limits, as text.")]
    tries: Annotated[str, doc("Its retries, as text.")]


class EventLine(PreviewStruct, frozen=True, kw_only=True):
    """One event. The units of a wave may start together, once the units that they read have succeeded."""

    event: Annotated[LifecycleEvent, doc("The event.")]
    waves: Annotated[tuple[tuple[StepLine, ...], ...], doc("Units by their earliest start.")]


class EnvLine(PreviewStruct, frozen=True, kw_only=True):
    """One change to a fork's environment: a constant, a `source`, or the removal of the variable."""

    name: Annotated[str, doc("Name of the variable.")]
    value: Annotated[str | None, doc("Constant value, if it has one.")] = None
    source: Annotated[str, doc("Source of the value, like `db/provision.path`.")] = ""
    sensitive: Annotated[bool, doc("Whether the value is sensitive.")] = False
    container: Annotated[str, doc("Container; empty for all.")] = ""
    delete: Annotated[bool, doc("Whether the variable is removed.")] = False


class ForkLine(PreviewStruct, frozen=True, kw_only=True):
    """One fork: its baseline and its differences."""

    id: Annotated[str, doc("ID of the fork.")]
    kind: Annotated[str, doc("Kind of its baseline.")]
    env: Annotated[tuple[EnvLine, ...], doc("Changes to its environment.")]
    images: Annotated[tuple[str, ...], doc("Images that replace those of the baseline.")]
    patch: Annotated[str, doc("Type of the patch, if it has one.")]


class RouteLine(PreviewStruct, frozen=True, kw_only=True):
    """A route: requests with one of `keys` reach a fork, or, with `address`, requests to a preview address."""

    id: Annotated[str, doc("ID of the route.")]
    kind: Annotated[str, doc("`route` or `preview`.")]
    after: Annotated[tuple[str, ...], doc("IDs of the forks that must be ready before it.")] = ()
    keys: Annotated[tuple[str, ...], doc("Routing keys whose requests it routes.")] = ()
    address: Annotated[str, doc("Target behind a preview address; empty for other routes.")] = ""


class Stage(PreviewStruct, frozen=True, kw_only=True):
    """One stage of the cleanup."""

    what: Annotated[str, doc("Stage: `preStop`, `routes`, `forks`, `stop` (of the target) or `postStop`.")]
    units: Annotated[tuple[str, ...], doc("Units that end together.")]


class CutStep(PreviewStruct, frozen=True, kw_only=True):
    """A step of a pool's plugin: the run that it is in, and the reasons if it waits for a sandbox."""

    step: Annotated[str, doc("Name of the step.")]
    runs: Annotated[str, doc("`pool` (in the pool's member), `claim` (for the sandbox) or `both`.")]
    reasons: Annotated[tuple[str, ...], doc("Reasons for which it runs for the sandbox.")] = ()


class CutLine(PreviewStruct, frozen=True, kw_only=True):
    """The cut of a pool's plugin: the steps that run before a sandbox needs the resource, and the others."""

    sentence: Annotated[str, doc("The cut of the create steps in one sentence.")]
    create: Annotated[tuple[CutStep, ...], doc("Create steps.")]
    delete: Annotated[tuple[CutStep, ...], doc("Delete steps.")]
    digest: Annotated[str, doc("Digest of the template, by which members are recognised.")]


class PoolUse(PreviewStruct, frozen=True, kw_only=True):
    """A resource that comes from a pool."""

    resource: Annotated[str, doc("Name of the resource.")]
    pool: Annotated[str, doc("Name of the pool.")]


class ParentUse(PreviewStruct, frozen=True, kw_only=True):
    """A resource that shares a parent with those of other sandboxes."""

    resource: Annotated[str, doc("Name of the resource.")]
    plugin: Annotated[str, doc("Plugin of the parent.")]


class CompilePreview(PreviewStruct, frozen=True, kw_only=True):
    """A plan: the units of a run by event, and the stages of its deletion."""

    events: Annotated[tuple[EventLine, ...], doc("Events in their order.")]
    forks: Annotated[tuple[ForkLine, ...], doc("Forks.")]
    deletion: Annotated[tuple[Stage, ...], doc("Stages of a deletion, in their order.")]
    routes: Annotated[tuple[RouteLine, ...], doc("Routes and preview addresses.")] = ()
    removal: Annotated[tuple[Stage, ...], doc("Stages if a hook is removed while its target continues to exist.")] = ()
    cut: Annotated[CutLine | None, doc("For a pool: the steps that run in its members.")] = None
    pools: Annotated[tuple[PoolUse, ...], doc("For a sandbox: its resources that come from pools.")] = ()
    parents: Annotated[tuple[ParentUse, ...], doc("For a sandbox: its resources that share a parent.")] = ()
    warnings: Annotated[tuple[str, ...], doc("Warnings about the spec.")]


def preview(compiled: Compiled) -> CompilePreview:
    """Return a preview of a compiled sandbox, without empty events and without sensitive values."""
    index = _UnitIndex(compiled.documents)
    deletion: list[Stage] = []
    forks = tuple(unit for unit in compiled.forks if unit.kind is Kind.FORK)
    routes = tuple(unit for unit in compiled.forks if unit.kind is not Kind.FORK)
    if forks:
        # preStop prepares the end of the forks, so it is skipped without forks.
        deletion += index.stages(LifecycleEvent.PRE_STOP)
    deletion += [
        Stage(what=what, units=tuple(map(kept_id, units)))
        for what, units in (("routes", routes), ("forks", forks))
        if units
    ]
    deletion += index.stages(LifecycleEvent.POST_STOP)
    return CompilePreview(
        events=index.events(),
        forks=tuple(index.fork_line(unit) for unit in forks),
        deletion=tuple(deletion),
        routes=tuple(map(_route_line, routes)),
        pools=tuple(PoolUse(resource=resource, pool=pool) for resource, pool in compiled.pools.items()),
        parents=tuple(ParentUse(resource=resource, plugin=plugin) for resource, plugin in compiled.parents.items()),
        warnings=compiled.warnings,
    )


def preview_pool(pool: CompiledPool) -> CompilePreview:
    """Return a preview of a member of a pool, with the steps that run for a sandbox instead."""
    index = _UnitIndex(pool.documents)
    halves = pool.cut
    shared = halves.holder_delete - halves.claimed_delete
    line = CutLine(
        sentence=halves.sentence,
        create=tuple(_cut_step(name, causes, "claim" if causes else "pool") for name, causes in halves.create.items()),
        delete=tuple(
            _cut_step(name, causes, "claim" if name in halves.claimed_delete else "both" if name in shared else "pool")
            for name, causes in halves.delete.items()
        ),
        digest=pool.digest,
    )
    return CompilePreview(
        events=index.events(),
        forks=(),
        deletion=index.stages(LifecycleEvent.POST_STOP),
        cut=line,
        warnings=pool.warnings,
    )


def preview_hook(document: Lifecycle, warnings: tuple[str, ...] = ()) -> CompilePreview:
    """Return a preview of a hook's document for its target."""
    index = _UnitIndex((document,))
    undoing = tuple(unit for unit in document.post_stop if unit.undoes)
    removal = _UnitIndex((msgspec.structs.replace(document, post_stop=undoing),))
    return CompilePreview(
        events=index.events(),
        forks=(),
        deletion=(
            *index.stages(LifecycleEvent.PRE_STOP),
            Stage(what="stop", units=()),
            *index.stages(LifecycleEvent.POST_STOP),
        ),
        removal=removal.stages(LifecycleEvent.POST_STOP),
        warnings=warnings,
    )


class _UnitIndex:
    """Return the units of all documents by their name in the run."""

    def __init__(self, documents: tuple[Lifecycle, ...]) -> None:
        self.readers: dict[str, list[Lifecycle]] = {}
        for document in documents:
            for resource in _read_resources(document):
                self.readers.setdefault(resource, []).append(document)
        self.units = {
            unit_id(document.resource, unit.name): (document, event, unit)
            for document in documents
            for event in LifecycleEvent
            for unit in document.units(event)
        }
        self.sensitive = {
            (name, output.name)
            for name, (_, _, unit) in self.units.items()
            for output in unit.outputs
            if output.sensitive
        }

    def events(self) -> tuple[EventLine, ...]:
        ordered = {event: self.waves(event) for event in LifecycleEvent}
        return tuple(
            EventLine(event=event, waves=tuple(tuple(self.step_line(name) for name in wave) for wave in found))
            for event, found in ordered.items()
            if found
        )

    def stages(self, event: LifecycleEvent) -> tuple[Stage, ...]:
        return tuple(Stage(what=event, units=wave) for wave in self.waves(event))

    def waves(self, event: LifecycleEvent) -> tuple[tuple[str, ...], ...]:
        names = [name for name, (_, when, _) in self.units.items() if when is event]
        return waves(names, {name: list(self.needs(name)) for name in names})

    def needs(self, name: str) -> Iterator[str]:
        """Return the units that must succeed first: those it reads and, for a cleanup, the cleanups of its resource's
        readers.
        """
        document, event, unit = self.units[name]
        yield from (_producer(document, ref) for ref in _references(unit))
        yield from (unit_id(document.resource, other) for other in unit.after)
        if event is LifecycleEvent.POST_STOP:
            for reader in self.readers.get(document.resource, ()):
                yield from (unit_id(reader.resource, other.name) for other in reader.post_stop)

    def step_line(self, name: str) -> StepLine:
        document, event, unit = self.units[name]
        return StepLine(
            id=name,
            image=unit.exec.image if unit.exec else "",
            request=_request(unit),
            inputs=tuple(self.input_line(document, item, unit) for item in unit.inputs),
            outputs=tuple(
                OutputLine(name=o.name, path=_output_source(o, unit), sensitive=o.sensitive) for o in unit.outputs
            ),
            clocks=_timeouts_text(unit),
            tries=_retries_text(unit.retry, creates=event in CREATE_EVENTS),
        )

    def input_line(self, document: Lifecycle, item: UnitInput, unit: Unit) -> InputLine:
        producer = _producer(document, item.from_) if item.from_ else ""
        output = item.from_.output if item.from_ else ""
        return InputLine(
            name=item.name,
            value=item.value,
            source=f"{producer}.{output}" if item.from_ else _input_source(document, item),
            sensitive=item.secret or (producer, output) in self.sensitive,
            env=item.as_.env if unit.exec is not None else "",
            path=item.as_.path,
        )

    def fork_line(self, unit: Unit) -> ForkLine:
        assert unit.fork is not None, "a fork has a baseline"
        refs = {item.name: item.from_ for item in unit.inputs if item.from_ is not None}
        return ForkLine(
            id=kept_id(unit),
            kind=unit.fork.baseline.kind,
            env=tuple(self.env_line(change, refs.get(change.input)) for change in unit.fork.env),
            images=tuple(_image(image) for image in unit.fork.images),
            patch=str(unit.fork.patch["type"]) if unit.fork.patch else "",
        )

    def env_line(self, change: EnvChange, ref: Ref | None) -> EnvLine:
        if change.delete:
            return EnvLine(name=change.name, container=change.container, delete=True)
        if ref is not None:
            producer = unit_id(ref.resource, ref.unit)
            return EnvLine(
                name=change.name,
                source=f"{producer}.{ref.output}",
                sensitive=(producer, ref.output) in self.sensitive,
                container=change.container,
            )
        if change.source is not None:
            secret = "secret" in change.source
            return EnvLine(
                name=change.name, source=_source_text(change.source), sensitive=secret, container=change.container
            )
        return EnvLine(name=change.name, value=change.value, container=change.container)


def _cut_step(name: str, causes: tuple[ClaimCause, ...], runs: str) -> CutStep:
    return CutStep(step=name, runs=runs, reasons=tuple(map(str, causes)))


def _input_source(document: Lifecycle, item: UnitInput) -> str:
    if item.comes_with_run:
        return "the secrets file"
    return f"{item.target} of the {document.target.kind}" if item.target else _fork_value_text(item.fork)


def _request(unit: Unit) -> str:
    if unit.acquire is not None and unit.acquire.parent:
        return "is a step of the shared parent" if unit.acquire.step else "releases the shared parent"
    if unit.acquire is not None:
        return "is taken from the pool's member" if unit.acquire.step else "releases the pool's member"
    if unit.exec is not None and unit.exec.command:
        return f"runs {' '.join(unit.exec.command)}"
    if unit.object is not None:
        manifest = unit.object.written.get("manifest", {})
        return (
            f"removes the object of {unit.object.remove}"
            if unit.object.remove
            else f"makes {with_article(manifest['kind'])}"
        )
    return f"{unit.webhook.request['method']} {unit.webhook.request['url']}" if unit.webhook else ""


def _output_source(output: UnitOutput, unit: Unit) -> str:
    if output.secret is not None:
        return f"{output.secret.key} of Secret {output.secret.name or output.secret.json_path}"
    if unit.object is not None:
        return f"{output.json_path} of the object" if output.json_path else "once it is gone"
    if output.json_path:
        return f"{output.json_path} of the answer"
    if output.header:
        return f"header {output.header} of the answer"
    return "status of the answer" if output.status else output.path


def _references(unit: Unit) -> Iterator[Ref]:
    return (item.from_ for item in unit.inputs if item.from_ is not None)


def _producer(document: Lifecycle, ref: Ref) -> str:
    return unit_id(ref.resource or document.resource, ref.unit)


def _read_resources(document: Lifecycle) -> list[str]:
    """Return the resources of other documents whose outputs this one reads, without duplicates, in order."""
    units = (unit for event in LifecycleEvent for unit in document.units(event))
    return list(dict.fromkeys(ref.resource for unit in units for ref in _references(unit) if ref.resource))


def _route_line(unit: Unit) -> RouteLine:
    line = RouteLine(id=kept_id(unit), kind=unit.kind, after=unit.after)
    if unit.route is not None:
        return msgspec.structs.replace(line, keys=unit.route.keys)
    assert unit.preview is not None, "a kept unit is a fork, a route or a preview address"
    shown = unit.preview
    return msgspec.structs.replace(line, keys=(shown.key,), address=f"{shown.scheme}://{shown.host}:{shown.port}")


def _image(change: dict[str, Any]) -> str:
    container = change.get("container")
    return f"{container}: {change['image']}" if container else str(change["image"])


def _source_text(source: dict[str, Any]) -> str:
    """Return the source of a value as text: `secret pg.password`, or `fork default/shop: {{.Service.Host}}`."""
    for kind in ("configMap", "secret"):
        if kind in source:
            return f"{kind} {source[kind]['name']}.{source[kind]['key']}"
    return _fork_value_text(msgspec.convert(source["fork"], ForkValue))


def _fork_value_text(value: ForkValue | None) -> str:
    return f"fork {value.fork_of.namespace}/{value.fork_of.name}: {value.expression}" if value else ""


def _timeouts_text(unit: Unit) -> str:
    timeouts = unit.timeouts
    if unit.acquire is not None:
        return "has no time limit"
    if unit.object is not None:
        return f"is ready within {_span(timeouts.run_ms)}" if timeouts.run_ms else "no time limit until it is gone"
    return (
        f"starts within {_span(timeouts.schedule_ms)}, pulls its image within {_span(timeouts.pull_ms)}, "
        f"runs at most {_span(timeouts.run_ms)}, then has {_span(timeouts.grace_ms)} to end"
    )


def _retries_text(retry: UnitRetry, *, creates: bool) -> str:
    """Return the retries as text. A create unit that is not idempotent starts once, despite its limit."""
    if creates and not retry.idempotent:
        return "once"
    often = f"up to {retry.limit} times" if retry.limit else "until it succeeds"
    return f"{often}, {_span(retry.backoff_ms)} apart at first"


def _span(milliseconds: int) -> str:
    for unit, size in (("h", 3_600_000), ("min", 60_000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds / 1_000:g} s"
