"""One RouteGroup: its hooks compiled and sealed in a run, and noted in it what its time to live is counted from."""

import contextlib
import logging

import msgspec

from dayfly import compile as compiler
from dayfly.execute.pod import names, pod_precheck
from dayfly.kube.objects import Key
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, finalized
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    GROUPS,
    TARGET_FINALIZER,
    RouteGroupObject,
    RunObject,
    abandonment,
)
from dayfly.operator.route_groups.membership import GroupMembership
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.targets.sandbox import counts_updates
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Lifecycle, Unit

log = logging.getLogger(__name__)


class GroupController:
    """Sees to it that each group has its run, and the run what only we know."""

    def __init__(self, cluster: ClusterWatches, crowd: GroupMembership) -> None:
        self._cluster = cluster
        self._crowd = crowd

    async def reconcile(self, key: Key) -> SandboxNotReadyError | None:
        """Take one group a step further; what is returned is why it has no run.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        seen = self._cluster.groups.get(key.name, key.namespace)
        if seen is None:
            return None
        run = self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))
        if run is None and finalized(seen.metadata, TARGET_FINALIZER):
            return await self._lost(seen)
        if seen.metadata.deletion_timestamp:
            return None
        await self._cluster.looked()
        if run is not None:
            await self._note(seen, run)
            return None
        try:
            document = _compiled(seen)
        except SpecError as error:
            return SandboxNotReadyError(Reason.REFUSED, str(error))
        await self._seal(seen, document)
        return None

    async def _note(self, seen: RouteGroupObject, run: RunObject) -> None:
        """Write down which addresses it wishes for, since when nobody matches, and when its wish was changed."""
        if run.ledger.closed is not None:
            return
        spec, generation = run.spec, seen.metadata.generation
        if bool(spec.unmatched_since) == self._crowd.has_any(seen.metadata.uid):
            since = 0 if spec.unmatched_since else self._cluster.now()
            spec = msgspec.structs.replace(spec, unmatched_since=since)
        if counts_updates(seen.spec) and generation != (spec.generation or 1):
            spec = msgspec.structs.replace(spec, generation=generation, updated_at=self._cluster.now())
        with contextlib.suppress(SpecError):  # what cannot be read changes nothing
            if (wished := self._previews(seen)) != spec.forks:
                spec = msgspec.structs.replace(spec, forks=wished)
        if spec is not run.spec and not await self._cluster.ledger.replace(
            run, msgspec.structs.replace(run, spec=spec)
        ):
            self._cluster.grouped.add(Key.of(seen), after=0.1)
            return
        self._cluster.queue.add(run.metadata.name)

    def _previews(self, seen: RouteGroupObject) -> tuple[Unit, ...]:
        """The addresses of its endpoints, where anything leads by a key.

        Raises:
            SpecError: its wish cannot be read.
        """
        if not self._cluster.routed:
            return ()
        return compiler.group_previews(seen.parsed(), routing_key(seen.metadata.uid), None)

    async def _lost(self, seen: RouteGroupObject) -> SandboxNotReadyError | None:
        """The group has our finalizer, and the cache has no run of it.

        The finalizer comes after the run's birth and goes before the run does. So if by quorum reads, in this order,
        there is no run and still the finalizer, the ledger is lost. Whatever has run may not run again: freeze.
        """
        run = names.run_name(seen.metadata.name, seen.metadata.uid)
        if await self._cluster.ledger.fresh(run) is not None:
            self._cluster.queue.add(run)
            return None
        now = await self._living(seen)
        if now is None or not finalized(now.metadata, TARGET_FINALIZER):
            return None
        meta = now.metadata
        asked = abandonment(meta.annotations, closing=bool(meta.deletion_timestamp))
        if asked is not None and asked.applies:
            log.warning("route group %s is let go without its ledger: %s", Key.of(now), asked.reason)
            if not meta.deletion_timestamp:
                await self._cluster.client.delete(GROUPS, meta.name, meta.namespace, uid=meta.uid)
            await self._cluster.drop_finalizer(GROUPS, meta, TARGET_FINALIZER)
            return None
        return SandboxNotReadyError(
            Reason.LEDGER_LOST,
            f"its ledger, Run {run}, is gone, so nobody knows what has run: nothing is started or cleaned up. Restore "
            "the Run from a backup, or clean up by hand and annotate the route group "
            f"{ABANDON_ANNOTATION}='force: <reason>'",
        )

    async def _living(self, seen: RouteGroupObject) -> RouteGroupObject | None:
        """That very group by a quorum read."""
        now = await self._cluster.client.find(GROUPS, seen.metadata.name, seen.metadata.namespace)
        return now if now is not None and now.metadata.uid == seen.metadata.uid else None

    async def _seal(self, seen: RouteGroupObject, document: Lifecycle) -> None:
        meta = seen.metadata
        now = await self._living(seen)
        if now is None or now.metadata.deletion_timestamp or finalized(now.metadata, TARGET_FINALIZER):
            # The cache is behind. A run that is born now would be a second one.
            self._cluster.grouped.add(Key.of(seen), after=1.0)
            return
        unmatched = 0 if self._crowd.has_any(meta.uid) else self._cluster.now()
        spec = RunSpec(forks=self._previews(seen), plural=GROUPS.plural, unmatched_since=unmatched)
        await births.seal(self._cluster, meta, (document,), spec)
        self._cluster.queue.add(names.run_name(meta.name, meta.uid))


def _compiled(seen: RouteGroupObject) -> Lifecycle:
    """What it means, if a pod may be made for each of its steps.

    Raises:
        SpecError: it means nothing, or a step's pod would have what no pod of a step may have.
    """
    meta = seen.metadata
    made = compiler.compile_group(
        seen.parsed(), uid=meta.uid, routing_key=routing_key(meta.uid), namespace=meta.namespace
    )
    for problem in pod_precheck.objections(made):
        raise SpecError(problem, ("spec", "runner"))
    return made
