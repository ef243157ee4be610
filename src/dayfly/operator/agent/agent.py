"""The agent as the operator's process has it: the conversation, and what it means for the server's Sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES
from dayfly.link.dial import Dial
from dayfly.link.envelope import Opening
from dayfly.link.host_end import REMIND_S
from dayfly.link.http import ServerConnection
from dayfly.link.permits import Births
from dayfly.operator.agent import objects
from dayfly.operator.agent.cluster_host import Admit, ClusterHost
from dayfly.operator.agent.cursor import SecretCursor
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, RunObject, SandboxObject, is_served
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport

log = logging.getLogger(__name__)

UNASKED = "its server is asked whether it is still wanted before anything of it starts, and cannot be asked now: {why}"


class Agent:
    """Of one server.

    Args:
        cluster: Ours.
        way: The connection to it.
        bound: For each organisation the namespace where its Sandboxes live.
        home: The operator's own namespace.
        admit: Refuses what no executor can do.
        seed: Makes pauses repeat.
    """

    def __init__(
        self,
        cluster: ClusterWatches,
        way: ServerConnection,
        bound: Mapping[str, str],
        home: str,
        admit: Admit,
        *,
        seed: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._bound = dict(bound)
        self._uid = ""
        self.served = ClusterHost(cluster, bound, admit)
        self.dial = Dial(
            way, SecretCursor(cluster.client, home), self._opening, self.served.end, self.served.meet, seed=seed
        )
        self.served.lost = self.dial.reset_session
        self._births = Births(self.dial.permitted)

    async def run(self) -> None:
        """Talk to the server, until cancelled."""
        while not self._uid:
            try:
                # Or it would be told that nothing leads requests here, and would take all routes away.
                await self._cluster.looked()
                # Of all objects of a cluster this one is always there, and never made anew.
                self._uid = (await self._cluster.client.get(NAMESPACES, "kube-system")).metadata.uid
            except errors.ApiError as fault:
                log.warning("which cluster this is cannot be read now: %s", fault)
                await asyncio.sleep(REMIND_S)
        reminding = asyncio.create_task(self.served.end.run())
        try:
            await self.dial.run()
        finally:
            reminding.cancel()
            await asyncio.gather(reminding, return_exceptions=True)

    def _opening(self) -> Opening:
        return Opening(cluster_uid=self._uid, namespaces=self._bound, runs=tuple(self.served.living()))

    # --- as Sandboxes as targets see it -------------------------------------------------------------------------------

    async def permits(self, run: RunObject) -> bool | None:
        """Whether the server says that the run's Sandbox is to live; None: it cannot be asked now.

        An operator that stood still with an offer in its hands may have made this run long after another one has
        carried the same sandbox to its end. Nothing of it has begun; now it is held by our finalizer, so whoever works
        on sees it: from here on only its ledger decides.
        """
        offered, target = run.spec.offered, run.ledger.target
        assert offered is not None, "asked of those that were offered"
        wanted = await self._births.may_begin(offered.uid)
        if wanted is not False:
            return wanted
        log.warning("sandbox %s (%s) is not wanted any more: nothing of it begins", offered.name, offered.uid)
        seen = await self._cluster.client.find(SANDBOXES, target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await objects.remove(self._cluster.client, seen)
        return False

    def heard(self, target: Target, report: RunReport) -> None:
        """A Sandbox stands so."""
        self.served.heard(target, report)

    def why_waiting(self, seen: SandboxObject) -> SandboxNotReadyError | None:
        """Why one of its Sandboxes does not begin."""
        if not is_served(seen.metadata) or self.dial.is_connected:
            return None
        return SandboxNotReadyError(
            Reason.RESOURCES_PENDING, UNASKED.format(why=self.dial.trouble or "not connected yet")
        )

    # --- figures ------------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Callable[[], float]]:
        """For whoever watches over the operator."""
        return {
            "server_connected": lambda: self.dial.is_connected,
            "server_refusals": lambda: self.dial.refusals,
            "server_frozen": lambda: self.dial.is_frozen,
        }
