"""Writes and removes the rules for forks in VirtualServices."""

import functools
from collections.abc import Collection

from dayfly.execute.gateway.read import RouteProblem
from dayfly.execute.istio.read import VirtualService, written_at
from dayfly.execute.istio.rules import owners_of, remove_rules
from dayfly.execute.istio.run import AlteredRulesError, VirtualServices
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, run_owner_reference
from dayfly.operator.refusals import all_done
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.operator.routes.vs_edits import VirtualServiceEdit
from dayfly.plan import messages

# Istio does not report when its proxies use a new rule. It sends changes after a tenth of a second without another one,
# and after this time if changes come continuously.
ISTIO_SETTLE_MS = 5_000


class VirtualServiceWriter:
    """Writes rules for forks; one instance for each operator."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._services = VirtualServices(cluster.client)

    def find_problem(
        self, run: RunObject, edits: tuple[VirtualServiceEdit, ...], memory: RouteMemory
    ) -> RouteProblem | None:
        """Return why requests may not reach the fork yet."""
        now, until = self._cluster.now(), 0
        for edit in edits:
            name = f"{edit.key}/{edit.fork_rules.owner.fork}"
            if edit.is_outdated or edit.seen is None:
                memory.rules_seen_at.pop(name, None)
                return RouteProblem(messages.route_written("VirtualService", str(edit.key)))
            first_seen = memory.rules_seen_at.setdefault(name, now)
            until = max(until, min(written_at(edit.seen) or first_seen, first_seen) + ISTIO_SETTLE_MS)
        if now >= until:
            return None
        self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
        return RouteProblem(messages.waits_for_istio())

    def list_unwanted(
        self, run: RunObject, fork: str, namespace: str, edits: tuple[VirtualServiceEdit, ...]
    ) -> list[VirtualService]:
        """Return the cached VirtualServices that have rules for a fork and must not."""
        keys = {each.key for each in edits}
        return [
            each for each in self.list_cached(run.metadata.name, fork, namespace) if Key.from_object(each) not in keys
        ]

    def list_cached(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """Return the cached VirtualServices with rules for a fork."""
        found = [each for each in self._cluster.vs_index.with_rules_of(run) if each.metadata.namespace == namespace]
        return [each for each in found if fork in _forks(each, run)]

    async def read_remaining(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """Return the VirtualServices with rules for a fork by quorum reads."""
        return await self._services.list_of_fork(run, fork, namespace) if self._cluster.istio.kinds else []

    async def write(self, run: RunObject, edit: VirtualServiceEdit) -> None:
        """Write the rules; raise the errors of `VirtualServices`."""
        if edit.service:
            await self._services.ensure_shared(edit.key, edit.service, run_owner_reference(run), edit.apply)
        else:
            await self._services.update_rules(edit.key, edit.apply)

    async def remove_rules(self, run: str, seen: VirtualService, fork: str = "") -> None:
        """Remove the rules for a fork, or all rules of a run, from a VirtualService.

        Raises:
            errors.Conflict: another client has changed it at the same time.
            errors.Refused: the API server rejects the write, or would change rules that are not ours.
        """
        try:
            await self._services.update_rules(
                Key.from_object(seen), functools.partial(remove_rules, run=run, fork=fork)
            )
        except AlteredRulesError as error:  # a fork's end waits for this as for any other rejection
            raise errors.Refused(f"VirtualService {Key.from_object(seen)}", str(error), status=0) from error

    async def remove_strays(self, run: str, stays: set[str], within: Collection[str] | None = None) -> None:
        """Remove the rules for forks without a live route: a paused peer may have written them.

        `within` has the namespaces of the run's routes. In other namespaces another user has written rules in the run's
        name. The operator may have no rights there, and the run must not wait for that.
        """
        strays = self._strays(run, stays, within)
        every = ((seen, fork) for seen in strays for fork in sorted(_forks(seen, run) - stays))
        await all_done(self.remove_rules(run, seen, fork) for seen, fork in every)

    def has_strays(self, run: str, stays: set[str], within: Collection[str] | None = None) -> bool:
        """Return whether there are such rules."""
        return bool(self._strays(run, stays, within))

    def _strays(self, run: str, stays: set[str], within: Collection[str] | None) -> list[VirtualService]:
        found = [each for each in self._cluster.vs_index.with_rules_of(run) if _forks(each, run) - stays]
        return [each for each in found if within is None or each.metadata.namespace in within]


def _forks(seen: VirtualService, run: str) -> set[str]:
    return {mark.fork for mark in owners_of(seen.rules) if mark.run == run}
