"""The strategy for resource pools. Their hosts create members of a template and report them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly import compile as compiler
from dayfly.server.access.scopes import WHOLE
from dayfly.server.catalog import run_specs
from dayfly.server.catalog.run_specs import refuse_changes
from dayfly.server.http.errors import RequestError
from dayfly.server.records.run_records import POOLS, read_entries, read_page
from dayfly.server.runs import pool_forms
from dayfly.server.runs.run_states import RunState, current_report, query_hosts
from dayfly.server.runs.run_strategy import Strategy, Wanted
from dayfly.server.sync.host_sync import NO_POOLS
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.resource_pool import MAY_CHANGE, ResourcePool, ResourcePoolSpec
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.link.transport import CompileTarget
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Actor
    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord

MAX_POOLS = 200


class PoolStrategy(Strategy[ResourcePoolSpec]):
    """`Strategy` of resource pools."""

    kind = POOLS
    cluster_hint = "its members are created there"

    async def query_states(
        self, records: Sequence[RunRecord[ResourcePoolSpec]], scope: Scope = WHOLE
    ) -> dict[str, RunState]:
        """Return the states of pools by UID, with the holders that a key with that scope may see."""
        states, silence = await query_hosts(self._links, self._sync, records)
        found = {}
        for record in records:
            last = states.get(record.uid)
            report = current_report(self._sync, record, last, silence[record.org, record.cluster])
            found[record.uid] = RunState(pool_forms.hide_holders(report, scope), [], last.seq if last else None)
        return found

    async def describe_all(
        self, records: Sequence[RunRecord[ResourcePoolSpec]], scope: Scope = WHOLE
    ) -> list[dict[str, Any]]:
        """Return the API objects of pools, with the holders that a key with that scope may see."""
        states = await self.query_states(records, scope)
        return [pool_forms.describe(each, states[each.uid].report) for each in records]

    def parse(self, body: Any, name: str) -> Wanted[ResourcePoolSpec]:
        """Read the body of a PUT. The plugin is stored as `name` if the pool follows its newest version."""
        pool = documents.from_wire(body, "ResourcePool", name=name)
        assert isinstance(pool, ResourcePool), "the kind is given"
        plugin, version = semver.split_reference(pool.spec.plugin, ("spec", "plugin"))
        reference = plugin if version == semver.LATEST else f"{plugin}@{version}"
        return Wanted(msgspec.structs.replace(pool.spec, plugin=reference))

    async def choose_cluster(self, who: Actor, spec: ResourcePoolSpec) -> str:
        """Return the cluster of the spec; refuse a cluster whose host has no pools."""
        if not spec.cluster:
            raise SpecError("is required: the cluster of its members", ("spec", "cluster"))
        link = self._links.get(who.org, spec.cluster)
        if link is not None and link.has_inventory and not link.compile_target().pools:
            raise SpecError(f"cluster {quote(spec.cluster)} cannot run this: {NO_POOLS}", ("spec", "cluster"))
        return spec.cluster

    def resolve(self, rows: Rows, _who: Actor, spec: ResourcePoolSpec, target: CompileTarget) -> ResourcePoolSpec:
        """Return the spec; refuse a pool that would never be used because of another one."""
        _refuse_duplicate(rows, spec, target)
        return spec

    def apply_change(self, old: ResourcePoolSpec, new: ResourcePoolSpec) -> ResourcePoolSpec:
        refuse_changes(old, new, MAY_CHANGE, "pool")
        return new

    def check_limit(self, rows: Rows, record: RunRecord[ResourcePoolSpec]) -> None:
        """Refuse more than `MAX_POOLS` in an organisation, and a duplicate that another request has just created."""
        count = sum(each.name != record.key for each in read_entries(rows, POOLS))
        if count >= MAX_POOLS:
            raise RequestError(409, f"there are {count} pools, the maximum of an organisation; delete some")
        link = self._links.get(record.org, record.cluster)
        if link is not None:
            _refuse_duplicate(rows, record.spec, link.compile_target())


def _refuse_duplicate(rows: Rows, spec: ResourcePoolSpec, target: CompileTarget) -> None:
    """Refuse a pool with the plugin and fixed params of another pool of its cluster.

    Raises:
        SpecError: with the name of the other pool.
    """
    plugin = semver.split_reference(spec.plugin)[0]
    others = [
        each
        for each in read_page(rows, POOLS)
        if each.cluster == spec.cluster and semver.split_reference(each.spec.plugin)[0] == plugin
    ]
    if not others:
        return
    found = []
    for other in others:
        with contextlib.suppress(SpecError):  # its plugin has a newer version that cannot be pooled
            pool = ResourcePool(name=other.name, spec=other.spec)
            found.append(run_specs.compile_pool(rows, pool, target))
    wanted = run_specs.compile_pool(rows, ResourcePool(name="", spec=spec), target)
    compiler.check_duplicate(wanted, found)
