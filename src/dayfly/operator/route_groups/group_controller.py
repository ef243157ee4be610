"""The controller of RouteGroups: it seals a group's hooks in a run, and records when its time to live starts."""

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
from dayfly.operator.targets.adapter import restarts_ttl_on_update
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Lifecycle, Unit


class GroupController:
    """Creates the run of each group, and updates the run's spec."""

    def __init__(self, cluster: ClusterWatches, membership: ClusterMembership) -> None:
        self._cluster = cluster
        self._membership = membership

    async def reconcile(self, key: Key) -> SandboxNotReadyError | None:
        """Reconcile one group; return why it has no run.

        Raises:
            errors.ApiError: the API server does not answer.
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
            await self._update_run(seen, run)
            return None
        try:
            document = _compile(seen)
        except SpecError as error:
            return SandboxNotReadyError(Reason.REFUSED, str(error))
        await self._seal(seen, document)
        return None

    async def _update_run(self, seen: RouteGroupObject, run: RunObject) -> None:
        """Write into the run's spec the wanted addresses, since when no sandbox matches, and the last change."""
        if run.ledger.closed is not None:
            return
        spec, generation = run.spec, seen.metadata.generation
        if bool(spec.unmatched_since) == self._membership.has_any(seen.metadata.uid):
            since = 0 if spec.unmatched_since else self._cluster.now()
            spec = msgspec.structs.replace(spec, unmatched_since=since)
        if restarts_ttl_on_update(seen.spec) and generation != (spec.generation or 1):
            spec = msgspec.structs.replace(spec, generation=generation, updated_at=self._cluster.now())
        with contextlib.suppress(SpecError):  # an invalid spec changes nothing
            if (wanted := self._previews(seen)) != spec.forks:
                spec = msgspec.structs.replace(spec, forks=wanted)
        if spec is not run.spec and not await self._cluster.ledger.replace(
            run, msgspec.structs.replace(run, spec=spec)
        ):
            self._cluster.grouped.add(Key.from_object(seen), after=0.1)
            return
        self._cluster.queue.add(run.metadata.name)

    def _previews(self, seen: RouteGroupObject) -> tuple[Unit, ...]:
        """Return the addresses of the group's endpoints; none if the cluster cannot route by key.

        Raises:
            SpecError: the group's spec is invalid.
        """
        if not self._cluster.can_route:
            return ()
        return compiler.group_previews(seen.parsed(), routing_key(seen.metadata.uid), None)

    async def _seal(self, seen: RouteGroupObject, document: Lifecycle) -> None:
        if await births.find_without_run(self._cluster, GROUPS, seen) is None:
            # The cache is behind: the group may already have a run.
            self._cluster.grouped.add(Key.from_object(seen), after=1.0)
            return
        unmatched = 0 if self._membership.has_any(seen.metadata.uid) else self._cluster.now()
        spec = RunSpec(forks=self._previews(seen), plural=GROUPS.plural, unmatched_since=unmatched)
        made = await births.seal(self._cluster, seen.metadata, (document,), spec)
        self._cluster.queue.add(made.metadata.name)


def _compile(seen: RouteGroupObject) -> Lifecycle:
    """Compile a group's hooks, and check their pods.

    Raises:
        SpecError: the spec is invalid, or a step's pod would not be allowed.
    """
    meta = seen.metadata
    made = compiler.compile_group(
        seen.parsed(), uid=meta.uid, routing_key=routing_key(meta.uid), namespace=meta.namespace
    )
    for problem in pod_precheck.objections(made):
        raise SpecError(problem, ("spec", "runner"))
    return made
