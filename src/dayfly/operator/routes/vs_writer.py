"""Rules for forks in VirtualServices: kept as they are to be, and taken out again."""

import functools
from collections.abc import Collection

from dayfly.execute.gateway.read import Lack
from dayfly.execute.istio.read import VirtualService, written_at
from dayfly.execute.istio.rules import owners_of, remove_rules
from dayfly.execute.istio.run import AlteredRulesError, VirtualServices
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, owner
from dayfly.operator.refusals import all_done
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.operator.routes.vs_edits import Strand
from dayfly.plan import messages

# Istio does not tell when its proxies go by what was written: it sends it on within a tenth of a second of silence, and
# within this time if changes come without a pause.
SETTLE_MS = 5_000


class Weaver:
    """One for each operator."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._services = VirtualServices(cluster.client)

    def lack(self, run: RunObject, strands: tuple[Strand, ...], memory: RouteMemory) -> Lack | None:
        """Why requests may not be led yet."""
        now, until = self._cluster.now(), 0
        for strand in strands:
            said = f"{strand.key}/{strand.thread.owner.fork}"
            if strand.is_off or strand.seen is None:
                memory.woven_at.pop(said, None)
                return Lack(messages.route_written("VirtualService", str(strand.key)))
            heard = memory.woven_at.setdefault(said, now)
            until = max(until, min(written_at(strand.seen) or heard, heard) + SETTLE_MS)
        if now >= until:
            return None
        self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
        return Lack(messages.waits_for_istio())

    def unwanted(self, run: RunObject, fork: str, namespace: str, strands: tuple[Strand, ...]) -> list[VirtualService]:
        """Those that have rules for a fork, and are not to."""
        keys = {each.key for each in strands}
        return [each for each in self.of(run.metadata.name, fork, namespace) if Key.of(each) not in keys]

    def of(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """Those with rules for a fork, as the cache knows them."""
        found = [each for each in self._cluster.woven.of(run) if each.metadata.namespace == namespace]
        return [each for each in found if fork in _forks(each, run)]

    async def left(self, run: str, fork: str, namespace: str) -> list[VirtualService]:
        """Those by quorum reads."""
        return await self._services.list_of_fork(run, fork, namespace) if self._cluster.istio.kinds else []

    async def weave(self, run: RunObject, strand: Strand) -> None:
        """Put the rules in; what is raised says why not (`VirtualServices`)."""
        if strand.service:
            await self._services.ensure_shared(strand.key, strand.service, owner(run), strand.weave)
        else:
            await self._services.update_rules(strand.key, strand.weave)

    async def take_out(self, run: str, seen: VirtualService, fork: str = "") -> None:
        """Take the rules for a fork out of one, or all of a run.

        Raises:
            errors.Conflict: somebody else was faster.
            errors.Refused: the server does not admit it, or would keep the others' rules in another form.
        """
        try:
            await self._services.update_rules(Key.of(seen), functools.partial(remove_rules, run=run, fork=fork))
        except AlteredRulesError as error:  # the server's way, which whoever ends a fork waits for as for any other
            raise errors.Refused(f"VirtualService {Key.of(seen)}", str(error), status=0) from error

    async def tidy(self, run: str, stays: set[str], within: Collection[str] | None = None) -> None:
        """Take out the rules for forks that no living route is for: a paused peer may have put them in.

        `within` are the namespaces that the run has routes in: elsewhere somebody else writes in its name, where the
        operator may have no rights, and the run is not to wait for those.
        """
        strays = self._strays(run, stays, within)
        every = ((seen, fork) for seen in strays for fork in sorted(_forks(seen, run) - stays))
        await all_done(self.take_out(run, seen, fork) for seen, fork in every)

    def has_strays(self, run: str, stays: set[str], within: Collection[str] | None = None) -> bool:
        """Whether there are any."""
        return bool(self._strays(run, stays, within))

    def _strays(self, run: str, stays: set[str], within: Collection[str] | None) -> list[VirtualService]:
        found = [each for each in self._cluster.woven.of(run) if _forks(each, run) - stays]
        return [each for each in found if within is None or each.metadata.namespace in within]


def _forks(seen: VirtualService, run: str) -> set[str]:
    return {mark.fork for mark in owners_of(seen.rules) if mark.run == run}
