"""Parents of plugins: the template of a shared parent, and the units with which a document joins and leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import pool_cut, references, units
from dayfly.compile.acquire_units import release_unit, stand_in
from dayfly.compile.origins import published_origin
from dayfly.compile.pool_cut import describe
from dayfly.compile.references import suggest
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import PARENT_TARGET, Lifecycle, LifecycleEvent, Sharing
from dayfly.spec.scalars import semver
from dayfly.spec.shared_parent import MAX_LEVELS, Parent, ParentParam

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dayfly.compile.resources import PluginVersion
    from dayfly.compile.units import DocumentSettings
    from dayfly.spec.plugin import Plugin, PluginSpec
    from dayfly.spec.sandbox import Param

    Plugins = Mapping[PluginVersion, Plugin]


def add_parents(plugins: Plugins, find: Callable[[str, str], Plugin | None]) -> dict[PluginVersion, Plugin]:
    """Return plugins with all their parents. `find(name, version)` returns None for a plugin that is not published."""
    found = dict(plugins)
    waiting = list(plugins.values())
    for plugin in waiting:
        if plugin.spec.parent is None or (version := plugin.spec.parent.version) in found:
            continue
        parent = find(*version)
        if parent is not None:
            found[version] = parent
            waiting.append(parent)
    return found


def check_chain(spec: PluginSpec, plugins: Plugins, keys: Path) -> None:
    """Check the parents of a plugin, and all references to their outputs and params. `keys` is the path to its spec.

    Raises:
        SpecError: A parent is missing or cannot be shared, the chain is too long or a cycle, or a reference of this
            plugin leads nowhere.
    """
    if spec.parent is None:
        return
    parent = _find(spec.parent, plugins, (*keys, "parent", "plugin"))
    _check_levels(spec.parent, plugins, (*keys, "parent", "plugin"))
    faults = Faults()
    for fault in (
        *_param_faults(spec, parent, (*keys, "parent", "params")),
        *_share_faults(parent, (*keys, "parent", "plugin")),
    ):
        with faults:
            raise fault
    _check_outputs(spec, parent, keys, faults)
    faults.settle()
    try:
        check_chain(parent.spec, plugins, ())
    except SpecError as fault:
        problem = f"the plugin {parent.wire_name} is invalid: {fault}"
        raise SpecError(problem, (*keys, "parent", "plugin")) from None


def with_parent(
    document: Lifecycle,
    spec: PluginSpec,
    params: Mapping[str, str | Param],
    plugins: Plugins,
    publisher: str,
    params_at: Path,
) -> Lifecycle:
    """Return the document of a resource with the units of its parent, if the plugin has one.

    Each create step of the parent has a unit, and all create steps of the resource wait for these. The last delete
    unit leaves the parent.

    Args:
        document: The document of the resource or pool member.
        spec: The spec of its plugin, which `check_chain` has checked.
        params: The values of its params.
        plugins: All parents, by name and version.
        publisher: The publisher of the parents.
        params_at: The path to the params.

    Raises:
        SpecError: A param of the parent is missing or is known only in the run.
    """
    if spec.parent is None:
        return document
    template = _parent_document(spec.parent, params, plugins, publisher, params_at)
    obtained = tuple(stand_in(unit, parent=True) for unit in template.pre_start)
    names = tuple(unit.name for unit in obtained)
    taken = {unit.name for event in LifecycleEvent for unit in document.units(event)}
    release = release_unit(tuple(unit.name for unit in document.post_stop), taken, parent=True)
    waiting = (msgspec.structs.replace(unit, after=(*names, *unit.after)) for unit in document.pre_start)
    return msgspec.structs.replace(
        document,
        pre_start=(*obtained, *waiting),
        post_stop=(*document.post_stop, release),
        template=(msgspec.json.decode(msgspec.json.encode(template)),),
    )


def unfixed_params(spec: PluginSpec, fixed: Iterable[str]) -> list[str]:
    """Return the params that the parent reads and a pool does not fix. Their sandboxes may have different parents."""
    return sorted(set(spec.parent.read_params() if spec.parent is not None else ()) - set(fixed))


def _parent_document(
    parent: Parent, given: Mapping[str, str | Param], plugins: Plugins, publisher: str, params_at: Path
) -> Lifecycle:
    plugin = _find(parent, plugins, params_at)
    params = dict(_values(parent, plugin, given, params_at))
    shared = parent_settings(plugin, params, publisher, params_at)
    made = units.build_document(PARENT_TARGET, references.plugin_workflows(plugin.spec, ("spec",)), shared)
    sharing = Sharing(linger_ms=parent.linger_ms, capacity=parent.capacity, max_parents=parent.max_parents)
    made = msgspec.structs.replace(made, sharing=sharing)
    return with_parent(made, plugin.spec, params, plugins, publisher, params_at)


def parent_settings(
    plugin: Plugin, params: Mapping[str, str], publisher: str, params_at: Path = ("spec", "params")
) -> DocumentSettings:
    """Return the settings of a document without a sandbox: it has no variables of a sandbox and no secrets."""
    return units.DocumentSettings(
        resource=plugin.name,
        params=params,
        params_at=params_at,
        exec_template=units.exec_template(plugin.spec.runner, {}, state=plugin.spec.state),
        origin=published_origin(plugin, publisher, params),
    )


def _values(
    parent: Parent, plugin: Plugin, given: Mapping[str, str | Param], params_at: Path
) -> Iterator[tuple[str, str]]:
    """Return the values of the parent's params."""
    for name, rule in plugin.spec.params().items():
        written, here = parent.params.get(name), params_at
        value: str | Param | None
        if isinstance(written, ParentParam):
            value, here = given.get(written.value_from_param), (*params_at, written.value_from_param)
        else:
            value = written
        if value is None:
            value = rule.default
        if value is None and rule.required:
            source = written.value_from_param if isinstance(written, ParentParam) else name
            problem = f"the parent {plugin.wire_name} needs a value for the param {quote(source)}; give it one"
            raise SpecError(problem, params_at)
        if value is None:
            continue
        if not isinstance(value, str):
            problem = (
                f"the parent {plugin.wire_name} reads this param and may exist before this sandbox, so the param "
                "cannot be an output of another resource; write a constant"
            )
            raise SpecError(problem, here)
        yield name, value


def _find(parent: Parent, plugins: Plugins, keys: Path) -> Plugin:
    name, version = parent.version
    if (name, version) in plugins:
        return plugins[name, version]
    wanted, known = semver.join_name(name, version), [semver.join_name(*each) for each in sorted(plugins)]
    problem = f"the parent {quote(wanted)} is not published; publish it first, or correct the name or version"
    if "@" not in parent.plugin:
        raise SpecError(f"{problem}: write its version, like {quote(f'{name}@1.0.0')}", keys)
    hint = suggest(wanted, [each for each in known if each.startswith(f"{name}@")] or known)
    raise SpecError(f"{problem} ({hint})" if hint.startswith("did you mean") else problem, keys)


def _check_levels(parent: Parent, plugins: Plugins, keys: Path) -> None:
    """Refuse a cycle of parents, and a chain of more than `MAX_LEVELS` plugins."""
    chain: list[PluginVersion] = []
    above: Parent | None = parent
    while above is not None:
        chain.append(above.version)
        path = " -> ".join(semver.join_name(*each) for each in chain)
        if above.version in chain[:-1]:
            raise SpecError(f"the parents form a cycle: {path}; remove the parent of one of them", keys)
        if len(chain) >= MAX_LEVELS:
            problem = f"too many parents: {path}; a chain has at most {MAX_LEVELS} plugins"
            raise SpecError(problem, keys)
        above = plugins[above.version].spec.parent if above.version in plugins else None


def _param_faults(spec: PluginSpec, parent: Plugin, keys: Path) -> Iterator[SpecError]:
    assert spec.parent is not None, "only plugins with a parent are checked"
    rules, own = parent.spec.params(), spec.params()
    for name, value in spec.parent.params.items():
        if name not in rules:
            yield SpecError(f"no step of {parent.wire_name} reads it; {suggest(name, rules)}", (*keys, name))
        if isinstance(value, ParentParam) and own[value.value_from_param].secret:
            problem = (
                f"{quote(value.value_from_param)} is a secret, and a parent is shared by sandboxes with other secrets; "
                "write a constant or another param"
            )
            yield SpecError(problem, (*keys, name))
    missing = [name for name, rule in rules.items() if rule.required and name not in spec.parent.params]
    if missing:
        names = " and ".join(map(quote, missing))
        problem = f"needs {names} under params: the plugin {parent.wire_name} requires a value"
        yield SpecError(problem, keys[:-1])


def _share_faults(parent: Plugin, keys: Path) -> Iterator[SpecError]:
    """Return what prevents several sandboxes from sharing the parent, with each step that needs one sandbox."""
    about = f"the plugin {parent.wire_name} cannot be a parent"
    if not parent.spec.create:
        yield SpecError(f"{about}: it has no create steps", keys)
    halves = pool_cut.cut(parent.spec, parent.spec.params())
    for kind, steps in (("create", halves.create), ("delete", halves.delete)):
        for name, causes in steps.items():
            if causes:
                problem = f"{about}: its {kind} step {quote(name)} {describe(causes)}, and a parent has no sandbox"
                yield SpecError(problem, keys)


def _check_outputs(spec: PluginSpec, parent: Plugin, keys: Path, faults: Faults) -> None:
    """Refuse references to outputs that no create step of the parent has."""
    creating = {step.name: step for step in parent.spec.create}
    for workflow in references.plugin_workflows(spec, keys):
        for step, here in workflow.steps_with_paths():
            for index, item in enumerate(step.inputs):
                if (wanted := item.value_from_parent) is None:
                    continue
                place = (*here, "inputs", index, "valueFromParent")
                with faults:
                    if wanted.step not in creating:
                        problem = f"{parent.wire_name} has no create step {quote(wanted.step)}"
                        raise SpecError(f"{problem}; {suggest(wanted.step, creating)}", (*place, "step"))
                    references.check_output(creating[wanted.step], wanted.output, (*place, "output"))
