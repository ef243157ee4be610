"""The strategy for sandboxes: plugins, baselines, leases and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.lib.clock import now_ms
from dayfly.link.transport import LOCAL_TARGET
from dayfly.plan.status import with_unsupported
from dayfly.server.access import agent_limits, callers
from dayfly.server.access.agent_limits import enforced_labels, is_enforced_label, keep_enforced_labels
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import clusters
from dayfly.server.attention import severity
from dayfly.server.catalog import run_specs
from dayfly.server.catalog.run_specs import CompiledRun
from dayfly.server.http.request_data import read_flag
from dayfly.server.records import agent_budget
from dayfly.server.records.run_records import SANDBOXES
from dayfly.server.runs import endpoints, pool_forms, run_secrets
from dayfly.server.runs.run_requests import parse_lease
from dayfly.server.runs.run_states import RunState, current_report, query_hosts, run_form
from dayfly.server.runs.run_strategy import Strategy, Wanted
from dayfly.spec import documents
from dayfly.spec.errors import Faults
from dayfly.spec.sandbox import Sandbox, SandboxSpec
from dayfly.spec.unsupported_fields import unsupported_sandbox_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.link.transport import CompileTarget
    from dayfly.link.wire import RunStatus
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Actor
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.run_secrets import Given, SecretStores
    from dayfly.server.sync.host_sync import HostSync


class SandboxStrategy(Strategy[SandboxSpec]):
    """`Strategy` of sandboxes."""

    kind = SANDBOXES
    has_leases = True
    cluster_hint = "one machine can be several: dayfly up --cluster NAME; one with an agent: dayfly cluster add NAME"

    def __init__(self, store: Store, links: Links, sync: HostSync, secrets: SecretStores) -> None:
        super().__init__(store, links, sync)
        self._secrets = secrets

    async def read_selection(self, request: Request) -> Callable[[RunRecord[SandboxSpec]], bool]:
        """Return whether a sandbox was created by the caller, if the query parameter `mine` is set."""
        if not read_flag(request, "mine"):
            return await super().read_selection(request)
        name = callers.get_caller(request).name
        return lambda record: record.created_by == name

    async def query_states(
        self, records: Sequence[RunRecord[SandboxSpec]], _scope: Scope = WHOLE
    ) -> dict[str, RunState]:
        """Return the states of runs by UID, with pending orders and unsupported fields."""
        states, silence = await query_hosts(self._links, self._sync, records)
        return {
            record.uid: self._state(record, states.get(record.uid), silence[record.org, record.cluster])
            for record in records
        }

    async def describe_all(
        self, records: Sequence[RunRecord[SandboxSpec]], _scope: Scope = WHOLE
    ) -> list[dict[str, Any]]:
        """Return the API objects of sandboxes."""
        states = await self.query_states(records)
        found = []
        for each in records:
            report = states[each.uid].report
            pooled = pool_forms.describe_resources(report.units)
            told = {"resources": pooled} if pooled else {}
            found.append(run_form(each, states[each.uid], each.expires_at, severity(report).name.lower(), told))
        return found

    def parse(self, body: Any, name: str) -> Wanted[SandboxSpec]:
        """Read the body of a PUT; secrets and lease are not part of the spec."""
        given = run_secrets.extract_secrets(body)
        sandbox = documents.from_wire(body, "Sandbox", name=name)
        assert isinstance(sandbox, Sandbox), "the kind is given"
        lease = parse_lease(body["lease"], ("lease",)) if body.get("lease") is not None else 0
        return Wanted(sandbox.spec, lease, given)

    def restrict(self, who: Actor, spec: SandboxSpec, record: RunRecord[SandboxSpec] | None) -> SandboxSpec:
        """Return the spec with the labels of the server, after a check against the limits of a key for agents."""
        agent = who.scope.agent
        if agent is None:
            own = {key: value for key, value in record.labels.items() if is_enforced_label(key)} if record else {}
            return msgspec.structs.replace(spec, labels=keep_enforced_labels(spec.labels, own))
        labels = record.labels if record else enforced_labels(agent.limits, agent.session)
        ttl = record.ttl if record else None
        spec = agent_limits.restrict(agent.limits, spec, labels, session=agent.session, ttl=ttl)
        if record is not None and spec.ttl != record.ttl:
            agent_limits.check_end(spec, record.created_at, now_ms())
        return spec

    def check_resolved(self, who: Actor, spec: SandboxSpec) -> None:
        if (agent := who.scope.agent) is not None:
            agent_limits.check_resources(agent.limits, spec)

    def reserve(self, rows: Rows, who: Actor, record: RunRecord[SandboxSpec]) -> RunRecord[SandboxSpec]:
        """Reserve the time to live of a sandbox of an agent, also if another key changes it."""
        agent, now = who.scope.agent, now_ms()
        if agent is None and not record.reserved_seconds:
            return record
        record = msgspec.structs.replace(record, reserved_seconds=agent_budget.needed_seconds(record, now))
        if agent is not None:
            agent_budget.reserve(rows, agent, record, now)
        return record

    def resolve(self, rows: Rows, who: Actor, spec: SandboxSpec, target: CompileTarget) -> SandboxSpec:
        """Return a new spec with the versions of its plugins; refuse forks of undeclared baselines."""
        faults, agent = Faults(), who.scope.agent
        with faults:
            spec = run_specs.resolve(rows, spec, agent.limits.allows_plugin if agent else None)
        with faults:
            if target.declares:
                run_specs.check_baselines(rows, spec)
        faults.settle()
        return spec

    def apply_change(self, old: SandboxSpec, new: SandboxSpec) -> SandboxSpec:
        return run_specs.apply_change(old, new)

    def check_secrets(self, record: RunRecord[SandboxSpec], given: Given) -> None:
        self._secrets.refuse_changes(record, given)

    def keep_secrets(
        self, record: RunRecord[SandboxSpec], compiled: Compiled, given: Given
    ) -> AbstractAsyncContextManager[None]:
        return self._secrets.store_for_write(record, compiled, given)

    async def compile_change(self, record: RunRecord[SandboxSpec]) -> CompiledRun:
        link = self._sync.link(record)
        target = link.compile_target() if link is not None else LOCAL_TARGET
        if target.routes:
            await self._sync.load_routing_keys(record.org)
        keys = self._sync.routing_keys(record.org, record.uid)

        def compile_run(rows: Rows) -> Compiled:
            if self.declares(rows, record):
                run_specs.check_baselines(rows, record.spec)
            return run_specs.compile_run(rows, record, target, keys)

        compiled = await self._store.for_org(record.org).read(compile_run)
        if link is not None:
            await link.admit(compiled.documents, compiled.forks)
        return CompiledRun(compiled, target, keys)

    def declares(self, rows: Rows, record: RunRecord[SandboxSpec]) -> bool:
        link = self._sync.link(record)
        return link.compile_target().declares if link is not None else record.cluster not in clusters.names(rows)

    def _state(self, record: RunRecord[SandboxSpec], last: RunStatus | None, silence: str) -> RunState:
        report, link = current_report(self._sync, record, last, silence), self._sync.link(record)
        target = link.compile_target() if link is not None else LOCAL_TARGET
        # A host that has not connected yet may route requests.
        routes = target.routes or (link is not None and not link.has_inventory)
        spec = documents.export(record.document)["spec"]
        ignored = unsupported_sandbox_fields(spec, by_name=target.declares, routes=routes, local=target.to_local)
        found = endpoints.describe(record.spec, last.endpoints if last else (), routes=routes)
        return RunState(with_unsupported(report, ignored), found, last.seq if last else None)
