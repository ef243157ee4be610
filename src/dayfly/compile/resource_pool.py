"""The compiler for pools: a pool and its plugin to the template of its members, with every rule for such a plugin."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import compiler, pool_cut, pools
from dayfly.compile.parents import check_chain, parent_settings, unfixed_params, with_parent
from dayfly.compile.pool_cut import describe
from dayfly.compile.pools import CompiledPool
from dayfly.compile.references import plugin_workflows, suggest
from dayfly.compile.resources import Instance, requested_version
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import Target, digest
from dayfly.spec.plugin import AT_POOL
from dayfly.spec.sandbox import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.compile.pool_cut import ClaimCause, Cut
    from dayfly.compile.resources import PluginVersion
    from dayfly.spec.parsing.text import ParsedDocument
    from dayfly.spec.plugin import Plugin, PluginSpec, Step
    from dayfly.spec.resource_pool import ResourcePool

_PLUGIN: Path = ("spec", "plugin")


def pool_plugin(pool: ResourcePool) -> PluginVersion:
    """Return the plugin that `compile_pool` needs: name and canonical version, "" for the latest."""
    return requested_version(pool.spec.plugin, _PLUGIN)


def compile_pool(
    pool: ResourcePool,
    plugin: Plugin,
    *,
    parents: Mapping[PluginVersion, Plugin] = MappingProxyType({}),
    publisher: str = "local",
    source: ParsedDocument | None = None,
) -> CompiledPool:
    """Compile a pool.

    Args:
        pool: The pool, loaded and checked by `spec`.
        plugin: The plugin that `pool_plugin` names.
        parents: All parents of the plugin, by name and canonical version.
        publisher: The publisher of the plugin. With its name it is the identity for a host's grants.
        source: The document of the pool, for lines and columns in errors and warnings.

    Raises:
        SpecError: The plugin is invalid, a param cannot be fixed, or no member can be created and deleted
            without a sandbox. All faults are reported, each with the step that prevents it.
    """
    try:
        workflows = plugin_workflows(plugin.spec, ("spec",))
        resource = Resource(name=plugin.name, plugin=plugin.wire_name)
        compiler.check_instance(Instance(resource, ("spec",), plugin, plugin.spec, workflows), {})
        check_chain(plugin.spec, parents, ("spec",))
        halves = pool_cut.cut(plugin.spec, pool.spec.params)
        faults = Faults()
        for fault in (*_param_faults(pool, plugin), *_step_faults(plugin.spec, halves)):
            with faults:
                raise fault
        faults.settle()
        fixed = pools.fixed_values(pool.spec.params, plugin)
        shared = parent_settings(plugin, {name: each for name, each in fixed.items() if each is not None}, publisher)
        template = pools.member_document(workflows, shared, halves)
        template = with_parent(template, plugin.spec, shared.params, parents, publisher, _PLUGIN)
        made = CompiledPool(
            name=pool.name,
            cluster=pool.spec.cluster,
            publisher=publisher,
            plugin=plugin.wire_name,
            plugin_digest=digest(plugin.spec),
            fixed=fixed,
            documents=(template,),
            digest=digest((template,)),
            cut=halves,
        )
        holder = pools.holder_document(Target(kind="Sandbox", name="", uid=""), workflows, shared, made)
        compiler.check_document_size(holder, _PLUGIN)
    except SpecError as fault:
        raise compiler.with_position(fault, source) from None
    doubts = (compiler.with_position(doubt, source) for doubt in _warnings(plugin.spec, pool, halves))
    return msgspec.structs.replace(made, warnings=tuple(map(str, doubts)))


def _param_faults(pool: ResourcePool, plugin: Plugin) -> Iterator[SpecError]:
    """Return the params that the pool cannot fix."""
    rules = plugin.spec.params()
    for name, value in pool.spec.params.items():
        keys = ("spec", "params", name)
        rule = rules.get(name)
        if rule is None:
            yield SpecError(f"no step of the plugin {plugin.wire_name} reads it; {suggest(name, rules)}", keys)
        elif rule.secret:
            problem = "is a secret param, which a pool cannot fix; leave it out: its steps run for each sandbox"
            yield SpecError(problem, keys)
        elif value is None and rule.required:
            problem = f"the plugin {plugin.wire_name} requires this param, so null is not possible"
            yield SpecError(f"{problem}; give it a value, or leave it out: its steps run for each sandbox", keys)
    for name in unfixed_params(plugin.spec, pool.spec.params):
        problem = f"the parent of {plugin.wire_name} reads the param {quote(name)}, so a member needs its value"
        yield SpecError(f"{problem}; fix it in the pool's params", _PLUGIN)


def _step_faults(spec: PluginSpec, halves: Cut) -> Iterator[SpecError]:
    """Return everything that prevents a pool of the plugin, each with its step."""
    steps = {step.name: step for step in (*spec.create, *spec.delete)}
    problems = [*_create_problems(steps, halves)]
    if halves.pool_create:
        problems += [*_delete_problems(spec, steps, halves), *_removal_problems(steps, halves)]
        problems += _state_problems(spec, halves)
    return (SpecError(problem, _PLUGIN) for problem in problems)


def _create_problems(steps: Mapping[str, Step], halves: Cut) -> Iterator[str]:
    for name in halves.claim_create:
        if steps[name].at == AT_POOL:
            causes = halves.create[name]
            advice = _remedy(halves, causes, "remove at: pool")
            yield f"the create step {quote(name)} has at: pool but {describe(causes)}: {advice}"
    if not halves.create:
        yield "has no create steps, so there is nothing to create before a sandbox needs it"
    elif not halves.pool_create:
        waiting = "; ".join(f"{quote(name)} {describe(causes)}" for name, causes in halves.create.items())
        advice = _remedy(halves, [cause for causes in halves.create.values() for cause in causes])
        yield f"no create step can run before a sandbox needs it: {waiting}; {advice}"


def _delete_problems(spec: PluginSpec, steps: Mapping[str, Step], halves: Cut) -> Iterator[str]:
    """Return the delete steps that need a value of the sandbox and do not have `at: claim`."""
    wrong = {name: causes for name, causes in halves.delete.items() if causes and name not in halves.claimed_delete}
    for name, causes in wrong.items():
        step = steps[name]
        about = f"the delete step {quote(name)}"
        if step.object is not None:
            maker = f"removes the object of {quote(step.object.remove)}, so it runs in the pool's member"
            advice = "leave that out: the member's delete steps run after all delete steps of the sandbox"
            yield f"{about} {maker}, but it {describe(causes)}; {advice}"
        elif step.at == AT_POOL:
            yield f"{about} has at: pool but {describe(causes)}: {_remedy(halves, causes, 'remove at: pool')}"
        else:
            claim = "write at: claim in it if it undoes only steps that run for the sandbox"
            yield f"{about} {describe(causes)}: {_remedy(halves, causes, claim)}"
    for name in halves.claimed_delete:
        if steps[name].at == AT_POOL:
            problem = "has at: pool but removes an object of the sandbox's run; remove at: pool"
            yield f"the delete step {quote(name)} {problem}"
    undoing = [step.name for step in spec.delete if step.object is None]
    objects = any(steps[name].object is not None for name in halves.pool_create)
    if undoing and halves.pool_create and not objects and not wrong and halves.claimed_delete.issuperset(undoing):
        made = _names(halves.pool_create)
        advice = "remove at: claim from one of them"
        yield f"all delete steps have at: claim, so no step undoes {made} in the pool; {advice}"


def _removal_problems(steps: Mapping[str, Step], halves: Cut) -> Iterator[str]:
    """Return the steps of the sandbox that wait for the removal of an object, which only the member's run removes."""
    for name in sorted(halves.holder_delete):
        for item in steps[name].inputs:
            read = steps.get(item.value_from_step.name) if item.value_from_step is not None else None
            if read is None or read.object is None or not read.object.remove or read.name in halves.claimed_delete:
                continue
            about = f"the delete step {quote(name)} runs for the sandbox and waits for {quote(read.name)}"
            later = f"which removes the object of {quote(read.object.remove)} later, in the pool's member"
            yield f"{about}, {later}; leave the input {quote(item.name)} out"


def _state_problems(spec: PluginSpec, halves: Cut) -> Iterator[str]:
    if not spec.state:
        return
    programs = {step.name for step in (*spec.create, *spec.delete) if step.script is not None or step.command}
    member = [name for name in (*halves.pool_create, *halves.member_delete) if name in programs]
    holder = [name for name in (*halves.claim_create, *sorted(halves.holder_delete)) if name in programs]
    if member and holder:
        both = f"{_names(member)} in the pool, {_names(holder)} for the sandbox"
        problem = "the programs of a plugin with state: true share one Terraform state, but they are in both halves"
        waiting = {**halves.create, **halves.delete}
        why = "; ".join(f"{quote(name)} {describe(waiting[name])}" for name in holder if waiting[name])
        advice = _remedy(halves, [cause for name in holder for cause in waiting[name]], "use one half for all of them")
        yield f"{problem}: {both}. {why}: {advice}"


def _warnings(spec: PluginSpec, pool: ResourcePool, halves: Cut) -> Iterator[SpecError]:
    """Return warnings about params that are fixed without an effect on members."""
    mine = {*halves.pool_create, *halves.member_delete}
    read = {item.name for step in (*spec.create, *spec.delete) if step.name in mine for item in step.inputs}
    read |= set(spec.parent.read_params() if spec.parent is not None else ())
    for name in pool.spec.params:
        if name not in read:
            problem = "no step of a member reads it; leave it out, so that sandboxes with other values use the pool"
            yield SpecError(problem, ("spec", "params", name))


def _remedy(halves: Cut, causes: Iterable[ClaimCause], other: str = "") -> str:
    """Return what the owner of the pool or the author of the plugin can do."""
    roots = halves.roots(causes)
    params = [cause.name for cause in roots if cause.kind == "param"]
    advice = [f"give {_names(params)} a value in the pool's params"] if params else []
    if any(cause.kind == "variable" for cause in roots):
        advice.append("use DAYFLY_RESOURCE_ID in the plugin instead, or write at: pool if the step needs no sandbox")
    advice += [other] if other else []
    return ", or ".join(advice) or "publish a version of the plugin whose first steps need nothing of a sandbox"


def _names(names: Iterable[str]) -> str:
    return " and ".join(quote(name) for name in dict.fromkeys(names))
