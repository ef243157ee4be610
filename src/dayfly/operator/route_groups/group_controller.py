"""One RouteGroup: its hooks compiled and sealed in a run, and noted in it what its time to live is counted from."""

import contextlib

import msgspec

from dayfly import compile as compiler
from dayfly.execute.pod import names, pod_precheck
from dayfly.kube.objects import Key
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    GROUPS,
    TARGET_FINALIZER,
    RouteGroupObject,
    RunObject,
)
from dayfly.operator.route_groups.membership import ClusterMembership
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.targets.sandbox import counts_updates
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Lifecycle, Unit


class GroupController:
    """Sees to it that each group has its run, and the run what only we know."""

    def __init__(self, cluster: ClusterWatches, membership: ClusterMembership) -> None:
        self._cluster = cluster
        self._membership = membership

    async def reconcile(self, key: Key) -> SandboxNotReadyError | None:
        """Take one group a step further; what is returned is why it has no run.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        seen = self._cluster.groups.get(key.name, key.namespace)
        if seen is None:
            return None
        run = self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))
        if run is None and has_finalizer(seen.metadata, TARGET_FINALIZER):
            lost = await births.recover(self._cluster, GROUPS, seen, "route group")
            return SandboxNotReadyError(Reason.LEDGER_LOST, lost) if lost else None
        if seen.metadata.deletion_timestamp:
            return None
        await self._cluster.wait_discovered()
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
        if bool(spec.unmatched_since) == self._membership.has_any(seen.metadata.uid):
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
        if not self._cluster.can_route:
            return ()
        return compiler.group_previews(seen.parsed(), routing_key(seen.metadata.uid), None)

    async def _seal(self, seen: RouteGroupObject, document: Lifecycle) -> None:
        if await births.find_without_run(self._cluster, GROUPS, seen) is None:
            # The cache is behind. A run that is born now would be a second one.
            self._cluster.grouped.add(Key.of(seen), after=1.0)
            return
        unmatched = 0 if self._membership.has_any(seen.metadata.uid) else self._cluster.now()
        spec = RunSpec(forks=self._previews(seen), plural=GROUPS.plural, unmatched_since=unmatched)
        made = await births.seal(self._cluster, seen.metadata, (document,), spec)
        self._cluster.queue.add(made.metadata.name)


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
