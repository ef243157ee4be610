"""This cluster as a host of a server: what is offered and ordered becomes objects, and the turns do the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.link import run_queries, wire
from dayfly.link.envelope import Session
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Verdict
from dayfly.operator.agent import admission, objects, offer_dedup, run_reads
from dayfly.operator.agent.api_errors import unavailable_on_error
from dayfly.operator.agent.local_keys import LocalKeys
from dayfly.operator.agent.release import ReleaseQueue
from dayfly.operator.agent.report_log import ReportLog
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, finalized
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    FORGET_ANNOTATION,
    RETRY_ANNOTATION,
    SANDBOXES,
    TARGET_FINALIZER,
    RunObject,
    SandboxObject,
    is_served,
    retries,
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
    """`link.host_interface.Host` over the objects of one organisation, in the namespace that is bound to it."""

    is_remote = True

    def __init__(self, cluster: ClusterWatches, bound: Mapping[str, str], admit: Admit) -> None:
        """`bound` says for each organisation where its Sandboxes live; `admit` refuses what no executor can do."""
        self._cluster = cluster
        self._client = cluster.client
        self._bound = bound
        self._admit = admit
        self.org = self.cluster_name = ""
        self.session = 0
        self._spoken = ReportLog()
        self._foreign = LocalKeys(cluster)
        self._keys: dict[str, Key] = {}
        # What is over, with its last word as it was read if the caches do not show that yet.
        self._over: dict[str, RunReport | None] = {}
        # Called where the cluster has less than the server was told.
        self.lost: Callable[[], None] = lambda: None
        self._release = ReleaseQueue(cluster)
        self.end = HostEnd(self)
        cluster.sandboxes.listen(self._heard)
        cluster.runs.listen(self._run_heard)
        for kinds in (cluster.gateway, cluster.istio):
            kinds.listen(self.end.pulse)

    def meet(self, session: Session) -> None:
        """The server knows us by these names."""
        self.org, self.cluster_name, self.session = session.org, session.cluster, session.session
        self._spoken.begin(session.session)

    @property
    def namespace(self) -> str:
        """Where the organisation's Sandboxes live; empty if its administrator has not said so."""
        return self._bound.get(self.org, "")

    # --- what a link asks (`link.host_interface.Host`) ----------------------------------------------------------------

    @property
    def routes(self) -> bool:
        """Whether it leads requests to forks by their routing key: as far as is known."""
        return self._cluster.routed

    def begin_session(self) -> int:
        return self.session

    def living(self) -> Iterable[str]:
        return [uid for uid in self._keys if (seen := self._seen(uid)) is not None and not self._is_over(seen)]

    def unacknowledged(self) -> Iterable[str]:
        return [uid for uid in self._keys if (seen := self._seen(uid)) is not None and self._is_over(seen)]

    def version(self, uid: str) -> int:
        return self._spoken.version(uid)

    def has_ended(self, uid: str) -> bool:
        seen = self._seen(uid)
        return seen is not None and self._is_over(seen)

    def standing(self, uid: str) -> wire.Standing | None:
        if (last := self._over.get(uid)) is not None:
            return wire.Standing(uid=uid, seq=self.version(uid), report=last)
        seen = self._seen(uid)
        if seen is None:
            return None
        run, endpoints = self._run(seen), self._spoken.endpoints(uid)
        if objects.has_ended(seen, run=run is not None):
            report, endpoints = objects.last_word(seen, uid), ()
        elif run is None and finalized(seen.metadata, TARGET_FINALIZER):
            report = objects.lost(uid)
        elif (said := self._spoken.report(uid)) is not None:
            report = said
        elif run is not None:
            # Of whatever was there before us, and had no turn yet.
            report = describe(seal(()), World(run=run.ledger), Decision(), self._cluster.now())
            report = msgspec.structs.replace(report, ready=False, reason=Reason.RESOURCES_PENDING)
        else:
            return None
        report = msgspec.structs.replace(report, uid=uid)
        return wire.Standing(uid=uid, seq=self.version(uid), report=report, endpoints=endpoints)

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        if not self.namespace:
            raise DocumentsRefusedError(
                f"no namespace of the cluster {self.cluster_name} is bound to the organisation {self.org}: its "
                f"administrator can have the operator begin with --agent-namespace {self.org}=NAMESPACE"
            )
        admission.check_documents(documents, self.org)
        self._admit(documents, forks)
        admission.check_kept(forks, group=documents[-1].target.kind == GROUP, foreign=self._foreign)

    @unavailable_on_error
    async def offer(self, offer: wire.Offer) -> Verdict:
        if offer_dedup.is_carried_out(self._cluster, self._seen(offer.uid), offer):
            return Verdict.TAKEN
        seen = await self._begin(offer) or await self._find(offer.uid)
        if seen is None:
            if offer.birth:
                raise HostUnavailableError("its Sandbox is gone again")
            return Verdict.UNKNOWN
        run = await self._fresh(seen)
        if objects.has_ended(seen, run=run is not None):
            return self._ends(offer.uid, seen)
        if run is not None:
            await self._revise(run, offer)
        elif finalized(seen.metadata, TARGET_FINALIZER) or not offer.birth:
            return Verdict.UNKNOWN
        else:
            # Somebody else may have sealed it meanwhile, with what was offered before.
            await self._revise(run := await self._seal(seen, offer), offer)
        self._keys.setdefault(offer.uid, Key.of(seen))
        self._cluster.queue.add(run.metadata.name)
        return Verdict.TAKEN

    @unavailable_on_error
    async def stop(self, uid: str, request: EndRequest, *, known: bool) -> Verdict:
        seen = await self._find(uid)
        if seen is None:
            return Verdict.UNKNOWN if known else await self._bar(uid)
        run = await self._fresh(seen)
        if run is None:
            return await self._drop(seen, uid)
        if objects.has_ended(seen, run=True):
            return self._ends(uid, seen)
        await self._change(run, lambda offered: msgspec.structs.replace(offered, stop=offered.stop or request))
        return Verdict.TAKEN

    @unavailable_on_error
    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        seen = await self._find(uid)
        if seen is None:
            return await self._bar(uid)
        run = await self._fresh(seen)
        if objects.has_ended(seen, run=run is not None):
            return self._ends(uid, seen)
        by = f" (by {request.by})" if request.by else ""
        meta = seen.metadata
        if ABANDON_ANNOTATION not in (meta.annotations or {}):
            await self._annotate(seen, {ABANDON_ANNOTATION: f"{request.message or request.reason}{by}"})
        await objects.remove(self._client, seen)
        self._cluster.wishes.add(Key.of(seen))
        self._cluster.queue.add(names.run_name(meta.name, meta.uid))
        return Verdict.TAKEN

    @unavailable_on_error
    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:  # noqa: ARG002 - said nowhere yet
        seen = await self._find(uid)
        if seen is None or await self._fresh(seen) is None:
            return Verdict.UNKNOWN
        known = retries((seen.metadata.annotations or {}).get(RETRY_ANNOTATION, ""))
        newest = {unit: max(attempts.get(unit, 0), known.get(unit, 0)) for unit in {*attempts, *known}}
        note = " ".join(f"{unit}={attempt}" for unit, attempt in sorted(newest.items()))
        await self._annotate(seen, {RETRY_ANNOTATION: note})
        return Verdict.TAKEN

    @unavailable_on_error
    async def lease(self, uid: str, until: int) -> Verdict:
        seen = await self._find(uid)
        run = await self._fresh(seen) if seen is not None else None
        if seen is None or run is None:
            return Verdict.UNKNOWN
        if objects.has_ended(seen, run=True):
            return self._ends(uid, seen)
        if run.ledger.closed is not None:
            return Verdict.CLOSED
        await self._change(run, lambda offered: msgspec.structs.replace(offered, lease_until=until))
        return Verdict.TAKEN

    @unavailable_on_error
    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        # From here on a birth that was sent before cannot be told from one of these.
        self.end.forgets()
        # What is there and not seen yet says its end again.
        await self._release.noted([uid for uid in uids if uid in self._keys], self._ended)

    async def _ended(self, uid: str) -> SandboxObject | None:
        """It, if it has indeed ended."""
        seen = self._seen(uid)
        # What it has said, and that it was deleted before anything began, stays true however old our caches are.
        if seen is None or not objects.has_ended(seen, run=False):
            seen = await self._find(uid)
        if seen is None or objects.says_end(seen):
            return seen
        run = await self._fresh(seen)
        return seen if objects.has_ended(seen, run=run is not None) else None

    def seen_run(self, uid: str) -> RunObject | None:
        """The run of a sandbox, as far as the caches know."""
        seen = self._seen(uid)
        return self._run(seen) if seen is not None else None

    @unavailable_on_error
    async def look_up(self, question: wire.RunQuestion) -> wire.Answer:
        run, address = self.seen_run(question.uid), question.address
        match question:
            case wire.AskValues():
                found = await run_reads.values(self._cluster, run) if run is not None else ()
                return wire.Values(**address, values=found)
            case wire.AskHistory():
                return wire.History(**address, entries=run_reads.history(run) if run is not None else ())
        kept = await run_reads.logs(self._client, run) if run is not None else {}
        infos = run_reads.infos(kept)
        if isinstance(question, wire.AskLogs):
            return wire.Logs(**address, logs=infos)
        return run_queries.piece(question, infos, lambda key: kept[key])

    # --- what the operator tells --------------------------------------------------------------------------------------

    def heard(self, target: Target, report: RunReport) -> None:
        """A Sandbox stands so."""
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid or not (uid := is_served(seen.metadata)):
            return
        urls = self._cluster.urls.get(names.run_name(target.name, target.uid), {})
        # On the wire a report is whole, as every host's is: its Sandbox here says what is lacking by itself.
        bare = msgspec.structs.replace(report, unsupported=())
        if self._spoken.note(uid, with_unsupported(bare, report.unsupported), urls):
            self.end.changed(uid)

    def _heard(self, change: Change[SandboxObject]) -> None:
        seen = change.seen
        if not (uid := is_served(seen.metadata)):
            return
        if change.new is not None:
            self._keys[uid] = change.key
            self._may_be_over(seen, uid)
        else:
            if offer_dedup.is_lost(seen, run=self._run(seen) is not None):
                self.lost()
            self._keys.pop(uid, None)
            self._spoken.forget(uid)
            self._over.pop(uid, None)

    def _run_heard(self, change: Change[RunObject]) -> None:
        offered = change.gone.spec.offered if change.gone is not None else None
        if offered is not None and (seen := self._seen(offered.uid)) is not None:
            self._may_be_over(seen, offered.uid)
        if offer_dedup.went_back(change):
            self.lost()

    def _may_be_over(self, seen: SandboxObject, uid: str) -> None:
        if not self._is_over(seen):
            return
        if FORGET_ANNOTATION in (seen.metadata.annotations or {}):
            self.end.begin(self._release.one(seen))
        else:
            self._ends(uid)

    def _ends(self, uid: str, read: SandboxObject | None = None) -> Verdict:
        """It is over: the caches show that, or it was `read`."""
        if uid not in self._over:
            self._over[uid] = objects.last_word(read, uid) if read is not None else None
            self._spoken.advance(uid)
            self.end.ended(uid)
        elif read is None:
            self._over[uid] = None
        return Verdict.OVER

    # --- objects ------------------------------------------------------------------------------------------------------

    def _key(self, uid: str) -> Key:
        if not self.namespace:
            raise HostUnavailableError(f"no namespace is bound to the organisation {self.org}")
        return Key(self.namespace, objects.name_of(uid))

    def _seen(self, uid: str) -> SandboxObject | None:
        key = self._keys.get(uid)
        return self._cluster.sandboxes.get(key.name, key.namespace) if key is not None else None

    def _run(self, seen: SandboxObject) -> RunObject | None:
        return self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))

    def _is_over(self, seen: SandboxObject) -> bool:
        return objects.has_ended(seen, run=self._run(seen) is not None)

    async def _find(self, uid: str) -> SandboxObject | None:
        """By a quorum read; one of another's making is in the way."""
        key = self._key(uid)
        seen = await self._client.find(SANDBOXES, key.name, key.namespace)
        if seen is not None and is_served(seen.metadata) != uid:
            raise DocumentsRefusedError(f"Sandbox {key} is there already, and is not the server's; delete it")
        return seen

    async def _fresh(self, seen: SandboxObject) -> RunObject | None:
        """Its run by a quorum read, after the Sandbox was read: the finalizer there goes before the run does."""
        return await self._cluster.ledger.fresh(names.run_name(seen.metadata.name, seen.metadata.uid))

    async def _begin(self, offer: wire.Offer) -> SandboxObject | None:
        """Make its Sandbox; None where it is not to be made, or may be there already."""
        if not offer.birth or self._seen(offer.uid) is not None:
            return None
        wanted = objects.body(self._key(offer.uid), offer.uid, self.org, self.cluster_name, offer)
        return await objects.make(self._client, wanted)

    async def _seal(self, seen: SandboxObject, offer: wire.Offer) -> RunObject:
        """Whatever the server calls it, or has: here the target of its run is that very object."""
        meta = seen.metadata
        target = Target(
            api_version=SANDBOXES.api_version,
            kind=SANDBOXES.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        documents = tuple(msgspec.structs.replace(each, target=target) for each in offer.documents)
        offered = ServerTarget(
            uid=offer.uid,
            org=self.org,
            name=offer.name,
            kind=offer.documents[-1].target.kind,
            generation=offer.generation,
            expires_at=offer.expires_at,
            lease_until=offer.lease_until,
        )
        return await births.seal(self._cluster, meta, documents, RunSpec(forks=offer.forks, offered=offered))

    async def _revise(self, run: RunObject, offer: wire.Offer) -> None:
        offered = run.spec.offered
        if offered is None or offer.generation < offered.generation or run.ledger.closed is not None:
            return
        admission.check_kept(offer.forks, group=offered.kind == GROUP, foreign=self._foreign)
        newest = msgspec.structs.replace(offered, generation=offer.generation, expires_at=offer.expires_at)
        spec = msgspec.structs.replace(run.spec, forks=offer.forks, offered=newest)
        await self._write(run, spec)

    async def _change(self, run: RunObject, change: Callable[[ServerTarget], ServerTarget]) -> None:
        if run.spec.offered is not None:
            await self._write(run, msgspec.structs.replace(run.spec, offered=change(run.spec.offered)))

    async def _write(self, run: RunObject, spec: RunSpec) -> None:
        if spec != run.spec and not await self._cluster.ledger.replace(run, msgspec.structs.replace(run, spec=spec)):
            raise HostUnavailableError("its ledger has changed meanwhile")
        self._cluster.queue.add(run.metadata.name)

    async def _bar(self, uid: str) -> Verdict:
        key = self._key(uid)
        made = await objects.bar(self._client, objects.body(key, uid, self.org, self.cluster_name, None))
        self._keys.setdefault(uid, key)
        return self._ends(uid, made)

    async def _drop(self, seen: SandboxObject, uid: str) -> Verdict:
        """It has no run: nothing of it has begun, or nobody knows what has."""
        if finalized(seen.metadata, TARGET_FINALIZER):
            return Verdict.UNKNOWN
        await objects.remove(self._client, seen)
        return self._ends(uid, seen)

    async def _annotate(self, seen: SandboxObject, notes: dict[str, str]) -> None:
        patch: dict[str, Any] = {"metadata": {"uid": seen.metadata.uid, "annotations": notes}}
        await self._client.patch(SANDBOXES.metadata_only(), patch, seen.metadata.name, seen.metadata.namespace)
