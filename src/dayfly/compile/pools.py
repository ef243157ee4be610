"""Compiled pools, the resources of a sandbox that they have, and the documents of both.

A pool's members have a template, which depends only on the plugin, its publisher and the fixed params. So a host
recognises a suitable member by the digest of the template in the sandbox's own document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dayfly.compile import units
from dayfly.compile.acquire_units import release_unit, stand_in
from dayfly.compile.pool_cut import Cut
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.lifecycle import MEMBER_TARGET, Lifecycle, LifecycleEvent, Target, digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from dayfly.compile.references import Workflow
    from dayfly.compile.resources import Instance
    from dayfly.compile.units import DocumentSettings
    from dayfly.spec.parsing.text import ParsedDocument
    from dayfly.spec.plugin import Plugin


PoolIdentity: TypeAlias = tuple[str, str, str, str, frozenset[tuple[str, str | None]]]


class CompiledPool(msgspec.Struct, frozen=True):
    """The compiled form of a pool, from which a host creates members.

    Attributes:
        name: The name of the pool.
        cluster: The cluster of its members; empty for any.
        publisher: The publisher of its plugin.
        plugin: The plugin, as `name` or `name@version`.
        plugin_digest: The digest of the plugin's spec.
        fixed: The effective values of the fixed params: a param that is fixed as not given has its default or None.
        documents: The template: the documents of each member.
        digest: The digest of the template, by which members are recognised.
        cut: The halves of the plugin: the steps of members, and the steps of sandboxes.
        warnings: Sentences with their path, about parts that are valid and probably unintended.
        namespace: The namespace of the pool, if it is not that of the sandbox.
        refusal: Why such a pool does not serve the sandbox; empty if it does.
    """

    name: str
    cluster: str
    publisher: str
    plugin: str
    plugin_digest: str
    fixed: dict[str, str | None]
    documents: tuple[Lifecycle, ...]
    digest: str
    cut: Cut
    warnings: tuple[str, ...] = ()
    namespace: str = ""
    refusal: str = ""

    @property
    def visible_name(self) -> str:
        """Its name for users of the sandbox's namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def identity(self) -> PoolIdentity:
        """Its cluster, publisher, plugin and fixed params. Two pools with the same identity would compete."""
        fixed = frozenset(self.fixed.items())
        return self.cluster, self.publisher, self.plugin, self.plugin_digest, fixed


def check_duplicate(
    pool: CompiledPool, others: Iterable[CompiledPool], *, source: ParsedDocument | None = None
) -> None:
    """Refuse a pool with the plugin and fixed params of another one.

    Raises:
        SpecError: Another pool has them.
    """
    for other in others:
        if other.name != pool.name and other.identity == pool.identity:
            problem = f"the pool {quote(other.name)} already has {pool.plugin} with these params; change that pool"
            fault = SpecError(problem, ("spec", "plugin"))
            raise fault if source is None else source.with_positions(fault)


def match_all(
    instances: Mapping[str, Instance], pools: Iterable[CompiledPool], publisher: str, cluster: str
) -> dict[str, CompiledPool]:
    """Return the pools that have resources of a sandbox, by resource.

    The pool with the most fixed params is used, then the first one by its name. A pool of another namespace is used
    only if no pool of the sandbox's namespace has the resource. A pool that refuses the sandbox is returned only if no
    other pool has it. A plugin inside the sandbox matches by its content.

    Args:
        instances: The resources, by name.
        pools: The pools of the sandbox's namespace, home or organisation, and those of other namespaces that serve it.
        publisher: The publisher of the sandbox's plugins.
        cluster: The cluster of the sandbox.
    """
    every = tuple(pools)
    wanted = (each for each in instances.values() if every and each.resource.pool != "never")
    found = {
        each.name: min(_suitable(each, every, publisher, cluster), key=_preference, default=None) for each in wanted
    }
    return {name: pool for name, pool in found.items() if pool is not None}


def _suitable(
    instance: Instance, pools: Iterable[CompiledPool], publisher: str, cluster: str
) -> Iterator[CompiledPool]:
    """Return the pools whose members are such resources."""
    plugin, given = instance.plugin, {**instance.defaults(), **instance.resource.params}
    spec_digest = digest(instance.spec)
    return (
        pool
        for pool in pools
        if (pool.publisher, pool.plugin_digest) == (publisher, spec_digest)
        and (plugin is None or pool.plugin == plugin.wire_name)
        and pool.cluster in ("", cluster)
        and all(given.get(name) == value for name, value in pool.fixed.items())
    )


def _preference(pool: CompiledPool) -> tuple[bool, bool, int, str, str]:
    return bool(pool.refusal), bool(pool.namespace), -len(pool.fixed), pool.name, pool.namespace


def refusals(instances: Mapping[str, Instance], matches: Mapping[str, CompiledPool]) -> Iterator[SpecError]:
    """Return warnings about resources that are created although a pool of another namespace has such resources."""
    for name, pool in matches.items():
        if pool.refusal:
            problem = f"the pool {quote(pool.visible_name)} does not serve this namespace: {pool.refusal}"
            yield SpecError(f"{problem}; apply a pool in this namespace if creation is too slow", instances[name].keys)


def fixed_values(params: Mapping[str, str | None], plugin: Plugin) -> dict[str, str | None]:
    """Return the effective values of a pool's params: the given one, else the plugin's default."""
    rules = plugin.spec.params()
    return {name: rules[name].default if value is None and name in rules else value for name, value in params.items()}


def member_document(workflows: tuple[Workflow, ...], shared: DocumentSettings, halves: Cut) -> Lifecycle:
    """Return the document of a member: the pool-time create steps, in a topological order, and the member's cleanup.

    Raises:
        SpecError: A constant that no environment variable can hold.
    """
    parts = _select(workflows, create=halves.pool_create, delete=halves.member_delete)
    made = units.build_document(MEMBER_TARGET, parts, shared)
    order = {name: number for number, name in enumerate(halves.create)}
    return msgspec.structs.replace(made, pre_start=tuple(sorted(made.pre_start, key=lambda unit: order[unit.name])))


def holder_document(
    target: Target, workflows: tuple[Workflow, ...], shared: DocumentSettings, pool: CompiledPool
) -> Lifecycle:
    """Return the document of a resource that a pool has.

    Each step of the member has a unit of its name, which ends as the step does and has its outputs. The other steps
    wait for all of these units. The last unit releases the member.

    Raises:
        SpecError: A constant that no environment variable can hold.
    """
    halves = pool.cut
    parts = _select(workflows, create=halves.claim_create, delete=halves.holder_delete)
    made = units.build_document(target, parts, shared)
    (template,) = pool.documents
    obtained = tuple(map(stand_in, template.pre_start))
    names = tuple(unit.name for unit in obtained)
    every = {step.name for workflow in workflows for step in workflow.steps} | {unit.name for unit in made.post_stop}
    return msgspec.structs.replace(
        made,
        pre_start=(*obtained, *(msgspec.structs.replace(unit, after=names) for unit in made.pre_start)),
        post_stop=(*made.post_stop, release_unit(tuple(unit.name for unit in made.post_stop), every)),
        template=tuple(msgspec.json.decode(msgspec.json.encode(document)) for document in pool.documents),
    )


def _select(
    workflows: tuple[Workflow, ...], *, create: Collection[str], delete: Collection[str]
) -> tuple[Workflow, ...]:
    """Return the workflows with only these steps."""
    wanted = {LifecycleEvent.PRE_START: create, LifecycleEvent.POST_STOP: delete}
    return tuple(
        msgspec.structs.replace(each, steps=tuple(step for step in each.steps if step.name in wanted[each.event]))
        for each in workflows
    )
