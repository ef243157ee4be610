"""The agent: the connection to one server, and the server's sandboxes in this cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES
from dayfly.lib.tasks import cancel_and_wait
from dayfly.link.dialer import Dialer
from dayfly.link.envelope import Session, SessionRequest
from dayfly.link.host_end import RESEND_INTERVAL_S
from dayfly.link.http import ServerConnection
from dayfly.link.permits import StartPermits
from dayfly.operator.agent import served_sandboxes
from dayfly.operator.agent.cluster_host import Admit, ClusterHost
from dayfly.operator.agent.cursor import SecretCursor
from dayfly.operator.agent.leak_orders import ServedChecks
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, RunObject, SandboxObject, served_uid
from dayfly.operator.records.key_ring import GivenKey
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.records.resource_key import BrokenKeyError
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.resource_token import KEY_BYTES, HostIdentity, ResourceToken

log = logging.getLogger(__name__)

WAITING_FOR_SERVER = "its server must confirm that it is still wanted before it starts, and is not reachable: {why}"


class Agent:
    """The agent of one server.

    Args:
        cluster: The caches of this cluster.
        connection: The HTTP connection to the server.
        bound: The namespace of the Sandboxes of each organisation.
        home: The operator's own namespace.
        admit: Refuses documents that no executor can run.
        seed: The seed of the random pauses between attempts to connect.
    """

    def __init__(
        self,
        cluster: ClusterWatches,
        connection: ServerConnection,
        bound: Mapping[str, str],
        home: str,
        admit: Admit,
        *,
        seed: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._bound = dict(bound)
        self._uid = ""
        self._registry: ResourceRegistry | None = None
        self._token_hosts: tuple[str, ...] = ()
        self._offered: GivenKey | None = None
        self._has_key = asyncio.Event()
        self._asking = asyncio.Lock()
        self.served = ClusterHost(cluster, bound, admit)
        self.dial = Dialer(
            connection,
            SecretCursor(cluster.client, home),
            self._opening,
            self.served.end,
            self._start_session,
            seed=seed,
        )
        self.served.on_data_loss = self.dial.reset_session
        cluster.holds.is_server_frozen = lambda: self.dial.is_frozen
        self._permits = StartPermits(self.dial.query_startable)

    async def run(self) -> None:
        """Exchange messages with the server, until cancelled."""
        while not self._uid:
            try:
                # Until then the cluster seems to have no routing, and the server would withdraw all routes.
                await self._cluster.wait_discovered()
                # This namespace exists in each cluster and is never recreated, so its UID identifies the cluster.
                uid = (await self._cluster.client.get(NAMESPACES, "kube-system")).metadata.uid
                self._token_hosts = await self._registry.hosts() if self._registry is not None else ()
                self._uid = uid
            except (errors.ApiError, BrokenKeyError) as fault:
                log.warning("cannot read the UID of the namespace kube-system, or the key of tokens: %s", fault)
                await asyncio.sleep(RESEND_INTERVAL_S)
        tasks = [asyncio.create_task(self.served.end.run()), asyncio.create_task(self._keep_keys())]
        try:
            await self.dial.run()
        finally:
            await cancel_and_wait(*tasks)

    def _opening(self) -> SessionRequest:
        return SessionRequest(
            cluster_uid=self._uid,
            namespaces=self._bound,
            runs=tuple(self.served.living_runs()),
            token_hosts=self._token_hosts,
        )

    def _start_session(self, session: Session) -> None:
        self.served.start_session(session)
        key = session.token_key
        if key is None or self._registry is None:
            return
        if len(key.key) != KEY_BYTES or not (key.host.isascii() and key.host.isalnum()):
            log.warning("the server has given a key for resource tokens that cannot be used")
            return
        self._offered = GivenKey(session.org, HostIdentity(key.host, key.key))
        self._has_key.set()

    async def _keep_keys(self) -> None:
        """Store the keys that the server gives. Until one is stored, tokens have the key from before."""
        while True:
            await self._has_key.wait()
            given = self._offered
            if given is None or self._registry is None:
                self._has_key.clear()
                continue
            try:
                await self._registry.adopt(given.org, given.identity)
                self._token_hosts = await self._registry.hosts()
            except (errors.ApiError, BrokenKeyError) as fault:
                log.warning("the server's key for resource tokens cannot be stored, which is retried: %s", fault)
                await asyncio.sleep(RESEND_INTERVAL_S)
                continue
            self._offered = None if self._offered == given else self._offered

    async def query_resources(self, tokens: Sequence[ResourceToken]) -> dict[str, str] | None:
        """Return the states of resources of other clusters, by ID; None if the server does not answer.

        Before the organisation has given a key, no cluster of it can have made a token.
        """
        if self._registry is None or not await self._registry.has_given_key():
            return {}
        async with self._asking:
            return await self.dial.query_resources(tuple(tokens))

    def use_registry(self, registry: ResourceRegistry) -> None:
        """Make resource tokens with the key that the server gives for the organisation."""
        self._registry = registry
        registry.orgs = frozenset(self._bound)

    def serve_leak_checks(self, checks: ServedChecks) -> None:
        """Let the server make leak checks in this cluster."""
        self.served.serve_leak_checks(checks)

    # --- for the target adapter of Sandboxes --------------------------------------------------------------------------

    async def permits(self, run: RunObject) -> bool | None:
        """Return whether the server still wants the run's Sandbox; None if the server is not reachable.

        An operator that was paused before it wrote an offered run may write it long after another operator has ended
        the same sandbox. The run has started nothing, and our finalizer is now on its Sandbox, so every other
        operator sees it. After this check only the run's ledger decides.
        """
        offered, target = run.spec.offered, run.ledger.target
        assert offered is not None, "only runs that a server has offered are checked"
        wanted = await self._permits.may_start(offered.uid)
        if wanted is not False:
            return wanted
        log.warning("sandbox %s (%s) is no longer wanted by its server and is not started", offered.name, offered.uid)
        seen = await self._cluster.client.find(SANDBOXES, target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await served_sandboxes.delete(self._cluster.client, seen)
        return False

    def record_report(self, target: Target, report: RunReport) -> None:
        """Record the newest report of a run, for the server."""
        self.served.record_report(target, report)

    def why_waiting(self, seen: SandboxObject) -> SandboxNotReadyError | None:
        """Return why a Sandbox of the server cannot start now, if the server is not reachable."""
        if not served_uid(seen.metadata) or self.dial.is_connected:
            return None
        return SandboxNotReadyError(
            Reason.RESOURCES_PENDING, WAITING_FOR_SERVER.format(why=self.dial.trouble or "not connected yet")
        )

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return the gauges of the connection, by metric name."""
        return {
            "server_connected": lambda: self.dial.is_connected,
            "server_refusals": lambda: self.dial.refusals,
            "server_frozen": lambda: self.dial.is_frozen,
        }
