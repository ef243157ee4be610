"""Previews as text: what would run, in which order, with which values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dayfly.cli.output import show
from dayfly.spec.lifecycle import LifecycleEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.compile.pools import CompiledPool
    from dayfly.compile.preview import CompilePreview, CutStep, EnvLine, InputLine, Stage, StepLine
    from dayfly.spec.lifecycle_hook import LifecycleHook, Selector
    from dayfly.spec.route_group import RouteGroup
    from dayfly.spec.sandbox import Sandbox
    from dayfly.spec.steps.kube_object import ReadyRule


def sandbox_lines(sandbox: Sandbox, preview: CompilePreview) -> Iterator[str]:
    """Return the preview of a sandbox."""
    yield f'Sandbox "{sandbox.name}" in cluster "{sandbox.spec.cluster}"'
    if preview.pools:
        yield "\npools"
        yield from (f'  {each.resource} comes from the pool "{each.pool}"' for each in preview.pools)
    if preview.parents:
        yield "\nshared parents"
        yield from (f"  {each.resource} shares {each.plugin} with other sandboxes" for each in preview.parents)
    yield from _waves(preview, LifecycleEvent.PRE_START)
    yield from _forks(preview)
    yield from _waves(preview, LifecycleEvent.POST_START)
    yield from _stages(preview, preview.deletion, "delete")
    if not preview.deletion:
        yield "\ndelete: nothing to run"


def route_group_lines(group: RouteGroup, preview: CompilePreview) -> Iterator[str]:
    """Return the preview of a route group's hooks. Only a server knows which sandboxes the group matches."""
    where = f'in cluster "{group.spec.cluster}"' if group.spec.cluster else "in all clusters"
    yield f'Route group "{group.name}" {where}'
    yield from _waves(preview, LifecycleEvent.PRE_START)
    yield from _waves(preview, LifecycleEvent.POST_START)
    yield from _stages(preview, preview.deletion, "delete", stop="  its routing key is no longer routed")


def pool_lines(pool: CompiledPool, preview: CompilePreview) -> Iterator[str]:
    """Return the preview of a pool's members, and the steps that run for a sandbox instead."""
    assert preview.cut is not None, "the preview of a pool has its cut"
    yield f'Resource pool "{pool.name}" of {pool.plugin}'
    yield f"  {preview.cut.sentence}"
    yield from _waves(preview, LifecycleEvent.PRE_START)
    yield from _claimed("for a sandbox", preview.cut.create)
    yield from _claimed("delete, for a sandbox", preview.cut.delete)
    yield from _stages(preview, preview.deletion, "delete")
    if not preview.deletion:
        yield "\ndelete: nothing to run"


def _claimed(title: str, steps: tuple[CutStep, ...]) -> Iterator[str]:
    """Yield the steps that run for a sandbox, with the reasons."""
    claimed = [step for step in steps if step.runs != "pool"]
    if claimed:
        yield f"\n{title}"
    for step in claimed:
        why = " and ".join(step.reasons)
        yield f"  {step.step} ({why or 'a step for the sandbox reads it; also runs in the pool'})"


def lifecycle_hook_lines(hook: LifecycleHook, preview: CompilePreview) -> Iterator[str]:
    """Return the preview of a lifecycle hook for each selected object."""
    spec = hook.spec
    yield f'LifecycleHook "{hook.name}" for {_describe_selector(spec.selector)}'
    if spec.hold is not None:
        where = f"annotation {spec.hold.annotation}" if spec.hold.annotation else spec.hold.path
        value = "" if spec.hold.value is None else spec.hold.value
        yield f"\nhold\n  {where} = {_quoted(value)}, until preStop is done"
    yield from _waves(preview, LifecycleEvent.PRE_START)
    started = f"  has started once {_describe_rule(spec.started)}" if spec.started else "  has started once it exists"
    yield f"\nstart\n{started}"
    yield from _waves(preview, LifecycleEvent.POST_START)
    gone = _describe_rule(spec.stopped) if spec.stopped else "only Dayfly's finalizer is left"
    yield from _stages(preview, preview.deletion, "delete", stop=f"  has stopped once {gone}")
    yield from _stages(preview, preview.removal, "removal of the hook")
    if not preview.removal:
        yield "\nremoval of the hook: nothing to run"


def _describe_selector(selector: Selector) -> str:
    """Return text like `any Machine of namespace shop with backup=yes`."""
    names = selector.namespaces
    where = f"namespace{'s' if len(names) > 1 else ''} {' and '.join(names)}" if names else "any namespace"
    labels = "".join(f" {'with' if not n else 'and'} {k}={v}" for n, (k, v) in enumerate(selector.labels.items()))
    return f"any {selector.kind} of {where}{labels}"


def _describe_rule(verdict: ReadyRule) -> str:
    if verdict.contract:
        return "its contract says that it is ready"
    if verdict.when is not None:
        return f"{verdict.when.path} is {' or '.join(_quoted(value) for value in verdict.when.in_)}"
    return f"its condition {verdict.condition} is {verdict.status}"


def _waves(preview: CompilePreview, wanted: LifecycleEvent) -> Iterator[str]:
    for event in preview.events:
        for number, wave in enumerate(event.waves if event.event == wanted else (), 1):
            yield f"\n{wanted}, wave {number}"
            for step in wave:
                yield from _step(step)


def _stages(preview: CompilePreview, stages: tuple[Stage, ...], word: str, *, stop: str = "") -> Iterator[str]:
    """Yield the stages of a deletion. `stop` is the line of a stage without units."""
    steps = {step.id: step for event in preview.events for wave in event.waves for step in wave}
    for number, stage in enumerate(stages, 1):
        yield f"\n{word}, stage {number}: {stage.what}"
        if not stage.units:
            yield stop
        for unit in stage.units:
            if unit in steps:
                yield from _step(steps[unit])
            else:
                yield f"  {unit} stops"


def _forks(preview: CompilePreview) -> Iterator[str]:
    if preview.forks:
        yield "\nstart"
    for fork in preview.forks:
        yield f"  {fork.id} ({fork.kind})"
        yield from (f"    image {image}" for image in fork.images)
        yield from (f"    {_env(change)}" for change in fork.env)
        if fork.patch:
            yield f"    {fork.patch} patch"


def _env(change: EnvLine) -> str:
    where = f" in {change.container}" if change.container else ""
    if change.delete:
        return f"${change.name}{where} is removed"
    return f"${change.name}{where} = {_source(change.source, change.value, change.sensitive)}"


def _step(step: StepLine) -> Iterator[str]:
    image = f", image {step.image}" if step.image else ""
    yield f"  {step.id} ({step.tries}{image})"
    if step.request:
        yield f"    {step.request}"
    for each in step.inputs:
        yield f"    {_targets(each)} = {_source(each.source, each.value, each.sensitive)}"
    for out in step.outputs:
        yield f"    {out.path} -> {out.name}{' (sensitive)' if out.sensitive else ''}"


def _targets(line: InputLine) -> str:
    found = [f"${line.env}"] if line.env else []
    return " and ".join([*found, line.path] if line.path else found) or line.name


def _source(source: str, value: str | None, sensitive: bool) -> str:
    if source:
        return f"{source}{' (sensitive)' if sensitive else ''}"
    return show.truncate(_quoted(value), 80) if value is not None else "(no value)"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
