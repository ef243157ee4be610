"""This cluster as a host of a server: offers and orders become objects, which the operator's turns then process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import format_time
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.link import run_queries, wire
from dayfly.link.envelope import Session
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Verdict
from dayfly.operator.agent import admission, offer_dedup, run_reads, served_runs, served_sandboxes
from dayfly.operator.agent.admission import LocalKeys
from dayfly.operator.agent.api_errors import OPERATOR, unavailable_on_error
from dayfly.operator.agent.leak_orders import LeakOrders, ServedChecks
from dayfly.operator.agent.release import ReleaseQueue
from dayfly.operator.agent.report_log import ReportLog
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    FORGET_ANNOTATION,
    POOL_REQUEST_ANNOTATION,
    RESET_ANNOTATION,
    RETRY_ANNOTATION,
    SANDBOXES,
    TARGET_FINALIZER,
    RunObject,
    SandboxObject,
    format_resets,
    parse_retries,
    served_uid,
)
from dayfly.plan.actions import Decision
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.status import describe, with_unsupported
from dayfly.plan.world import World
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.kinds import RunSpec, ServerTarget
from dayfly.spec.lifecycle import Lifecycle, Target, Unit
from dayfly.spec.report import RunReport
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.run import EndRequest

Admit = Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]


class ClusterHost:
    """The host (`link.host_interface.Host`) of one organisation, over the objects in its namespace."""

    is_remote = True

    def __init__(self, cluster: ClusterWatches, bound: Mapping[str, str], admit: Admit) -> None:
        """Create the host; `bound` has the namespace of each organisation, `admit` refuses what no executor can run."""
        self._cluster = cluster
        self._client = cluster.client
        self._bound = bound
        self._admit = admit
        self.org = self.cluster_name = ""
        self.session = 0
        self._reports = ReportLog()
        self._local_keys = LocalKeys(cluster)
        self._keys: dict[str, Key] = {}
        # Ended runs, each with its final report if the caches do not show the end yet.
        self._ended_reports: dict[str, RunReport | None] = {}
        # Called if the cluster has less than the server was told.
        self.on_data_loss: Callable[[], None] = lambda: None
        self._release = ReleaseQueue(cluster)
        self.leak_checks: LeakOrders | None = None
        self.end = HostEnd(self)
        cluster.sandboxes.listen(self._on_sandbox_change)
        cluster.runs.listen(self._on_run_change)
        for kinds in (cluster.gateway, cluster.istio):
            kinds.listen(self.end.send_heartbeat)

    def start_session(self, session: Session) -> None:
        """Begin a session. The server's names for the organisation and this cluster are in it."""
        self.org, self.cluster_name, self.session = session.org, session.cluster, session.session
        self._reports.start_session(session.session)

    def serve_leak_checks(self, checks: ServedChecks) -> None:
        """Let the server make leak checks."""
        self.leak_checks = LeakOrders(self, checks, self._admit)

    @property
    def namespace(self) -> str:
        """Return the namespace of the organisation's Sandboxes; empty if the administrator has not bound one."""
        return self._bound.get(self.org, "")

    @property
    def grant_command(self) -> str:
        role = "dayfly-agent"
        return f"kubectl create rolebinding {role} -n {self.namespace} --clusterrole {role} --serviceaccount {OPERATOR}"

    # --- called by the link (`link.host_interface.Host`) --------------------------------------------------------------

    @property
    def routes(self) -> bool:
        """Whether the cluster routes requests by routing key, as far as is known."""
        return self._cluster.can_route

    @property
    def pools(self) -> bool:
        """Return whether the operator has pools."""
        return self._cluster.holds.is_enabled

    @property
    def parents(self) -> bool:
        """Return whether the operator has shared parents: it has them with the members of pools."""
        return self._cluster.holds.is_enabled

    def begin_session(self) -> int:
        return self.session

    def living_runs(self) -> Iterable[str]:
        return [
            uid for uid in self._keys if (seen := self._cached_sandbox(uid)) is not None and not self._is_over(seen)
        ]

    def unacknowledged_ends(self) -> Iterable[str]:
        return [uid for uid in self._keys if (seen := self._cached_sandbox(uid)) is not None and self._is_over(seen)]

    def version(self, uid: str) -> int:
        return self._reports.version(uid)

    def has_ended(self, uid: str) -> bool:
        seen = self._cached_sandbox(uid)
        return seen is not None and self._is_over(seen)

    def run_status(self, uid: str) -> wire.RunStatus | None:
        if (last := self._ended_reports.get(uid)) is not None:
            return wire.RunStatus(uid=uid, seq=self.version(uid), report=last)
        seen = self._cached_sandbox(uid)
        if seen is None:
            return None
        run, endpoints = self._find_cached_run(seen), self._reports.endpoints(uid)
        if served_sandboxes.has_ended(seen, run=run is not None):
            report, endpoints = served_sandboxes.last_report(seen, uid), ()
        elif run is None and has_finalizer(seen.metadata, TARGET_FINALIZER):
            report = served_sandboxes.ledger_lost_report(uid)
        elif (recorded := self._reports.report(uid)) is not None:
            report = recorded
        elif run is not None:
            # The run was there before this process and has had no turn yet.
            report = describe(seal(()), World(run=run.ledger), Decision(), self._cluster.now())
            report = msgspec.structs.replace(report, ready=False, reason=Reason.RESOURCES_PENDING)
        else:
            return None
        report = msgspec.structs.replace(report, uid=uid)
        return wire.RunStatus(uid=uid, seq=self.version(uid), report=report, endpoints=endpoints)

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        if not self.namespace:
            raise DocumentsRefusedError(
                f"no namespace of the cluster {self.cluster_name} is bound to the organisation {self.org}: its "
                f"administrator can start the operator with --agent-namespace {self.org}=NAMESPACE"
            )
        admission.check_documents(documents, self.org)
        for found in (documents, *admission.templates(documents)):
            self._admit(found, forks if found is documents else ())
        admission.check_kept_units(forks, group=documents[-1].target.kind == GROUP, local_keys=self._local_keys)

    @unavailable_on_error
    async def offer(self, offer: wire.Offer) -> Verdict:
        if offer.pool is not None and not self.pools:
            raise DocumentsRefusedError("this operator has no pools")
        served_runs.check_kind(offer)
        if offer_dedup.is_carried_out(self._cluster, self._cached_sandbox(offer.uid), offer):
            return Verdict.TAKEN
        seen = await self._create(offer) or await self._find(offer.uid)
        if seen is None:
            if offer.birth:
                raise HostUnavailableError("its Sandbox is gone again")
            return Verdict.UNKNOWN
        run = await self._read_run(seen)
        if served_sandboxes.has_ended(seen, run=run is not None):
            return self._report_end(offer.uid, seen)
        if run is not None:
            await self._revise(run, offer)
        elif has_finalizer(seen.metadata, TARGET_FINALIZER) or not offer.birth:
            return Verdict.UNKNOWN
        else:
            # Another operator may have sealed the run since, from an earlier offer.
            await self._revise(run := await served_runs.seal(self._cluster, seen, offer, self.org), offer)
        self._keys.setdefault(offer.uid, Key.from_object(seen))
        self._cluster.queue.add(run.metadata.name)
        return Verdict.TAKEN

    @unavailable_on_error
    async def stop(self, uid: str, request: EndRequest, *, known: bool) -> Verdict:
        seen = await self._find(uid)
        if seen is None:
            return Verdict.UNKNOWN if known else await self._block(uid)
        run = await self._read_run(seen)
        if run is None:
            return await self._remove_unstarted(seen, uid)
        if served_sandboxes.has_ended(seen, run=True):
            return self._report_end(uid, seen)
        await self._change(run, lambda offered: msgspec.structs.replace(offered, stop=offered.stop or request))
        return Verdict.TAKEN

    @unavailable_on_error
    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        seen = await self._find(uid)
        if seen is None:
            return await self._block(uid)
        run = await self._read_run(seen)
        if served_sandboxes.has_ended(seen, run=run is not None):
            return self._report_end(uid, seen)
        by = f" (by {request.by})" if request.by else ""
        meta = seen.metadata
        if ABANDON_ANNOTATION not in (meta.annotations or {}):
            await self._annotate(seen, {ABANDON_ANNOTATION: f"{request.message or request.reason}{by}"})
        await served_sandboxes.delete(self._client, seen)
        self._cluster.sandbox_queue.add(Key.from_object(seen))
        self._cluster.queue.add(names.run_name(meta.name, meta.uid))
        return Verdict.TAKEN

    @unavailable_on_error
    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:  # noqa: ARG002 - not recorded yet
        seen = await self._find(uid)
        if seen is None or await self._read_run(seen) is None:
            return Verdict.UNKNOWN
        known = parse_retries((seen.metadata.annotations or {}).get(RETRY_ANNOTATION, ""))
        newest = {unit: max(attempts.get(unit, 0), known.get(unit, 0)) for unit in {*attempts, *known}}
        note = " ".join(f"{unit}={attempt}" for unit, attempt in sorted(newest.items()))
        await self._annotate(seen, {RETRY_ANNOTATION: note})
        return Verdict.TAKEN

    @unavailable_on_error
    async def lease(self, uid: str, until: int) -> Verdict:
        seen = await self._find(uid)
        run = await self._read_run(seen) if seen is not None else None
        if seen is None or run is None:
            return Verdict.UNKNOWN
        if served_sandboxes.has_ended(seen, run=True):
            return self._report_end(uid, seen)
        if run.ledger.closed is not None:
            return Verdict.CLOSED
        await self._change(run, lambda offered: msgspec.structs.replace(offered, lease_until=until))
        return Verdict.TAKEN

    @unavailable_on_error
    async def reset(self, uid: str, resource: str, member: str, by: str) -> Verdict:  # noqa: ARG002 - not recorded yet
        seen = await self._find(uid)
        run = await self._read_run(seen) if seen is not None else None
        if seen is None or run is None:
            return Verdict.UNKNOWN
        if served_sandboxes.has_ended(seen, run=True):
            return self._report_end(uid, seen)
        stop = run.spec.offered.stop if run.spec.offered is not None else None
        if run.ledger.closed is not None or stop is not None or seen.metadata.deletion_timestamp:
            return Verdict.CLOSED
        before = (seen.metadata.annotations or {}).get(RESET_ANNOTATION, "")
        await self._annotate(seen, {RESET_ANNOTATION: format_resets(before, resource, member)})
        return Verdict.TAKEN

    @unavailable_on_error
    async def control_pool(self, uid: str, action: wire.PoolAction, by: str) -> Verdict:
        seen = await self._find(uid)
        run = await self._read_run(seen) if seen is not None else None
        if seen is None or run is None or run.spec.pool is None or run.spec.offered is None:
            return Verdict.UNKNOWN
        if served_sandboxes.has_ended(seen, run=True):
            return self._report_end(uid, seen)
        if run.ledger.closed is not None or run.spec.offered.stop is not None or seen.metadata.deletion_timestamp:
            return Verdict.CLOSED
        # With the time, an action is a new one although the author repeats it.
        author = f"{by or 'the server'} at {format_time(self._cluster.now())}"
        await self._annotate(seen, {POOL_REQUEST_ANNOTATION: f"{action.value} {author}"})
        self._cluster.pooled.add(Key.from_object(seen))
        return Verdict.TAKEN

    @unavailable_on_error
    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        # From here on, a delayed birth could be of one of these runs.
        self.end.reject_older_births()
        # A Sandbox that the caches do not have yet reports its end again.
        await self._release.release_acknowledged([uid for uid in uids if uid in self._keys], self._find_ended)

    async def _find_ended(self, uid: str) -> SandboxObject | None:
        """Return the Sandbox, if it has really ended."""
        seen = self._cached_sandbox(uid)
        # A reported end, and a deletion before the first run, stay true however old the caches are.
        if seen is None or not served_sandboxes.has_ended(seen, run=False):
            seen = await self._find(uid)
        if seen is None or served_sandboxes.has_reported_end(seen):
            return seen
        run = await self._read_run(seen)
        return seen if served_sandboxes.has_ended(seen, run=run is not None) else None

    def cached_run(self, uid: str) -> RunObject | None:
        """Return the run of a sandbox from the caches."""
        seen = self._cached_sandbox(uid)
        return self._find_cached_run(seen) if seen is not None else None

    @unavailable_on_error
    async def answer_query(self, query: wire.RunQuery) -> wire.Answer:
        run, address = self.cached_run(query.uid), query.address
        match query:
            case wire.ValuesQuery():
                found = await run_reads.read_values(self._cluster, run) if run is not None else ()
                return wire.Values(**address, values=found)
            case wire.HistoryQuery():
                return wire.History(**address, entries=run_reads.build_history(run) if run is not None else ())
        kept = await run_reads.read_logs(self._client, run) if run is not None else {}
        infos = run_reads.list_logs(kept)
        if isinstance(query, wire.LogsQuery):
            return wire.Logs(**address, logs=infos)
        return run_queries.read_piece(query, infos, lambda key: kept[key])

    # --- called by the operator ---------------------------------------------------------------------------------------

    def record_report(self, target: Target, report: RunReport) -> None:
        """Record the newest report of a Sandbox's run, and send it if it has changed."""
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid or not (uid := served_uid(seen.metadata)):
            return
        urls = self._cluster.urls.get(names.run_name(target.name, target.uid), {})
        # Every host sends complete reports, and the local Sandbox has its own list of unsupported fields.
        bare = msgspec.structs.replace(report, unsupported=())
        if self._reports.record(uid, with_unsupported(bare, report.unsupported), urls):
            self.end.report_change(uid)

    def _on_sandbox_change(self, change: ObjectChange[SandboxObject]) -> None:
        seen = change.latest
        if not (uid := served_uid(seen.metadata)):
            return
        if change.new is not None:
            self._keys[uid] = change.key
            self._report_end_if_over(seen, uid)
        else:
            if not served_sandboxes.has_ended(seen, run=self._find_cached_run(seen) is not None):
                self.on_data_loss()
            self._keys.pop(uid, None)
            self._reports.forget(uid)
            self._ended_reports.pop(uid, None)

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        offered = change.deleted.spec.offered if change.deleted is not None else None
        if offered is not None and (seen := self._cached_sandbox(offered.uid)) is not None:
            self._report_end_if_over(seen, offered.uid)
        if offer_dedup.has_regressed(change):
            self.on_data_loss()

    def _report_end_if_over(self, seen: SandboxObject, uid: str) -> None:
        if not self._is_over(seen):
            return
        if FORGET_ANNOTATION in (seen.metadata.annotations or {}):
            self.end.start_task(self._release.release(seen))
        else:
            self._report_end(uid)

    def _report_end(self, uid: str, read: SandboxObject | None = None) -> Verdict:
        """Report the end of a run. `read` is the ended Sandbox by a quorum read, if the caches lack the end."""
        if uid not in self._ended_reports:
            self._ended_reports[uid] = served_sandboxes.last_report(read, uid) if read is not None else None
            self._reports.advance(uid)
            self.end.report_end(uid)
        elif read is None:
            self._ended_reports[uid] = None
        return Verdict.OVER

    # --- objects ------------------------------------------------------------------------------------------------------

    def _key(self, uid: str) -> Key:
        if not self.namespace:
            raise HostUnavailableError(f"no namespace is bound to the organisation {self.org}")
        return Key(self.namespace, served_sandboxes.object_name(uid))

    def _cached_sandbox(self, uid: str) -> SandboxObject | None:
        key = self._keys.get(uid)
        return self._cluster.sandboxes.get(key.name, key.namespace) if key is not None else None

    def _find_cached_run(self, seen: SandboxObject) -> RunObject | None:
        return self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))

    def _is_over(self, seen: SandboxObject) -> bool:
        return served_sandboxes.has_ended(seen, run=self._find_cached_run(seen) is not None)

    async def _find(self, uid: str) -> SandboxObject | None:
        """Read the Sandbox by a quorum read.

        Raises:
            DocumentsRefusedError: a Sandbox that is not the server's has its name.
        """
        key = self._key(uid)
        seen = await self._client.find(SANDBOXES, key.name, key.namespace)
        if seen is not None and served_uid(seen.metadata) != uid:
            raise DocumentsRefusedError(f"Sandbox {key} already exists and is not the server's; delete it")
        return seen

    async def _read_run(self, seen: SandboxObject) -> RunObject | None:
        """Read the run by a quorum read. Call this after reading the Sandbox, whose finalizer goes before the run."""
        return await self._cluster.ledger.read_current(names.run_name(seen.metadata.name, seen.metadata.uid))

    async def _create(self, offer: wire.Offer) -> SandboxObject | None:
        """Create the Sandbox; return None if it must not be created or may exist already."""
        if not offer.birth or self._cached_sandbox(offer.uid) is not None:
            return None
        wanted = served_sandboxes.manifest(self._key(offer.uid), offer.uid, self.org, self.cluster_name, offer)
        return await served_sandboxes.create(self._client, wanted)

    async def _revise(self, run: RunObject, offer: wire.Offer) -> None:
        if (spec := served_runs.revise(run, offer, self.admit)) is None:
            return
        assert spec.offered is not None, "the run is a server's"
        admission.check_kept_units(offer.forks, group=spec.offered.kind == GROUP, local_keys=self._local_keys)
        await self._write(run, spec)

    async def _change(self, run: RunObject, change: Callable[[ServerTarget], ServerTarget]) -> None:
        if run.spec.offered is not None:
            await self._write(run, msgspec.structs.replace(run.spec, offered=change(run.spec.offered)))

    async def _write(self, run: RunObject, spec: RunSpec) -> None:
        if spec != run.spec and not await self._cluster.ledger.replace(run, msgspec.structs.replace(run, spec=spec)):
            raise HostUnavailableError("its ledger has changed since it was read")
        self._cluster.queue.add(run.metadata.name)

    async def _block(self, uid: str) -> Verdict:
        key = self._key(uid)
        made = await served_sandboxes.create_deleted(
            self._client, served_sandboxes.manifest(key, uid, self.org, self.cluster_name, None)
        )
        self._keys.setdefault(uid, key)
        return self._report_end(uid, made)

    async def _remove_unstarted(self, seen: SandboxObject, uid: str) -> Verdict:
        """Delete a Sandbox without a run, unless our finalizer shows that it has had one, with unknown outcome."""
        if has_finalizer(seen.metadata, TARGET_FINALIZER):
            return Verdict.UNKNOWN
        await served_sandboxes.delete(self._client, seen)
        return self._report_end(uid, seen)

    async def _annotate(self, seen: SandboxObject, annotations: dict[str, str]) -> None:
        patch: dict[str, Any] = {"metadata": {"uid": seen.metadata.uid, "annotations": annotations}}
        await self._client.patch(SANDBOXES.metadata_only(), patch, seen.metadata.name, seen.metadata.namespace)
