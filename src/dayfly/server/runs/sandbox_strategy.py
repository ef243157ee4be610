"""What the API does only for sandboxes: plugins, baselines, leases and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.link.transport import HERE
from dayfly.plan.status import with_unsupported
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import clusters
from dayfly.server.attention import tone
from dayfly.server.catalog import run_specs
from dayfly.server.catalog.run_specs import CompiledRun
from dayfly.server.records.run_records import SANDBOXES
from dayfly.server.runs import endpoints, run_secrets
from dayfly.server.runs.run_requests import lease_seconds
from dayfly.server.runs.run_states import RunState, current_report, query_hosts, run_form
from dayfly.server.runs.run_strategy import Strategy, Wanted
from dayfly.spec import documents
from dayfly.spec.errors import Faults
from dayfly.spec.sandbox import Sandbox, SandboxSpec
from dayfly.spec.unsupported_fields import unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.link.transport import CompileTarget
    from dayfly.link.wire import Standing
    from dayfly.server.access.scopes import Scope
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

    async def states(self, records: Sequence[RunRecord[SandboxSpec]], _scope: Scope = WHOLE) -> dict[str, RunState]:
        """Return the states of runs by UID, with what their hosts do not know yet or do not support."""
        states, silence = await query_hosts(self._links, self._sync, records)
        return {
            record.uid: self._state(record, states.get(record.uid), silence[record.org, record.cluster])
            for record in records
        }

    async def shown(self, records: Sequence[RunRecord[SandboxSpec]], _scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """Return sandboxes as clients know them."""
        states = await self.states(records)
        found = ((record, states[record.uid]) for record in records)
        return [run_form(each, state, each.expires_at, tone(state.report).name.lower()) for each, state in found]

    def parse(self, body: Any, name: str) -> Wanted[SandboxSpec]:
        """Read the body of a PUT, with the secrets and the lease that are no part of the spec."""
        given = run_secrets.take_out(body)
        sandbox = documents.from_wire(body, "Sandbox", name=name)
        assert isinstance(sandbox, Sandbox), "asked for by its kind"
        lease = lease_seconds(body["lease"], ("lease",)) if body.get("lease") is not None else 0
        return Wanted(sandbox.spec, lease, given)

    def resolve(self, rows: Rows, spec: SandboxSpec, place: CompileTarget) -> SandboxSpec:
        """Return a new spec with the versions of its plugins; refuse forks of undeclared baselines."""
        faults = Faults()
        with faults:
            spec = run_specs.resolve(rows, spec)
        with faults:
            if place.declares:
                run_specs.check_baselines(rows, spec)
        faults.settle()
        return spec

    def changed(self, old: SandboxSpec, new: SandboxSpec) -> SandboxSpec:
        return run_specs.changed(old, new)

    def check_secrets(self, record: RunRecord[SandboxSpec], given: Given) -> None:
        self._secrets.refuse_others(record, given)

    def keep_secrets(
        self, record: RunRecord[SandboxSpec], compiled: Compiled, given: Given
    ) -> AbstractAsyncContextManager[None]:
        return self._secrets.kept(record, compiled, given)

    async def compile_change(self, record: RunRecord[SandboxSpec]) -> CompiledRun:
        link = self._sync.link(record)
        place = link.place() if link is not None else HERE
        if place.routes:
            await self._sync.grouped(record.org)
        keys = self._sync.routed(record.org, record.uid)

        def understand(rows: Rows) -> Compiled:
            if self.declares(rows, record):
                run_specs.check_baselines(rows, record.spec)
            return run_specs.compiled(rows, record, place, keys)

        compiled = await self._store.of(record.org).read(understand)
        if link is not None:
            await link.admit(compiled.documents, compiled.forks)
        return CompiledRun(compiled, place, keys)

    def declares(self, rows: Rows, record: RunRecord[SandboxSpec]) -> bool:
        link = self._sync.link(record)
        return link.place().declares if link is not None else record.cluster not in clusters.names(rows)

    def _state(self, record: RunRecord[SandboxSpec], last: Standing | None, silence: str) -> RunState:
        report, link = current_report(self._sync, record, last, silence), self._sync.link(record)
        place = link.place() if link is not None else HERE
        # A host that has not described itself yet may route requests.
        routes = place.routes or (link is not None and not link.has_met)
        spec = documents.export(record.document)["spec"]
        in_vain = unsupported(spec, by_name=place.declares, routes=routes, local=place.to_local)
        found = endpoints.describe(record.spec, last.endpoints if last else (), routes=routes)
        return RunState(with_unsupported(report, in_vain), found, last.seq if last else None)
