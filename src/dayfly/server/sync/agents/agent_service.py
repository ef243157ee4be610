"""Transfers messages between mailboxes and this replica's links, and wakes the long polls of agents."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from dayfly.lib.clock import now_ms
from dayfly.link.server_end import Link, Links
from dayfly.server.admin import cluster_tokens
from dayfly.server.db.store import StoreError
from dayfly.server.sync.agents import mailbox_rows, sessions
from dayfly.server.sync.agents.mailbox_transport import MailboxTransport
from dayfly.server.sync.agents.resource_states import ResourceStates

if TYPE_CHECKING:
    from dayfly.server.db.store import Store
    from dayfly.server.sync.agents.sessions import MailboxState
    from dayfly.spec.resource_token import ResourceToken

POLL_INTERVAL_S = 0.5
# The poll interval while no cluster has an agent.
IDLE_POLL_INTERVAL_S = 5.0

log = logging.getLogger(__name__)


class ClusterIdentity(Protocol):
    """The cluster of a token."""

    @property
    def org(self) -> str: ...
    @property
    def cluster(self) -> str: ...


Identify = Callable[[str, str], Awaitable[ClusterIdentity | None]]


class AgentService:
    """Moves messages between this replica's links and the mailboxes. `agent_api` has the endpoints for agents.

    Args:
        store: The database with the mailboxes.
        identify: Returns the cluster of a token, given the token and the client's IP address; None if it is invalid.
        now: Returns Unix milliseconds.
    """

    def __init__(self, store: Store, *, identify: Identify | None = None, now: Callable[[], int] | None = None) -> None:
        self.store = store
        self.identify = identify or functools.partial(cluster_tokens.authenticate, store)
        self.now = now or now_ms
        self._links = Links()
        self._resources = ResourceStates(store)
        self._hosts: dict[tuple[str, str], MailboxTransport] = {}
        self._has_work = asyncio.Event()
        # Clusters whose mailboxes may have changed, and when all mailboxes are read again (time of the event loop).
        self._touched: set[tuple[str, str]] = set()
        self._full_read_at = 0.0
        # Pending long polls at this replica, by cluster.
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self.is_closing = False
        # The change marker at the last complete read; None if messages may still be unread.
        self._last_marker: object = None

    def set_links(self, links: Links) -> None:
        """Keep a link in `links` for each cluster that was added for an agent."""
        self._links = links

    def mailbox_state(self, org: str, cluster: str) -> MailboxState | None:
        """Return the state of a cluster's mailbox."""
        host = self._hosts.get((org, cluster))
        return host.mailbox if host else None

    async def find_resources(self, asking: ClusterIdentity, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return which resources belong to other clusters of the organisation of a cluster."""
        return await self._resources.find(self._links, asking.org, asking.cluster, tokens)

    async def load_mailboxes(self) -> None:
        """Read all mailboxes once, so that each cluster has a link before the first request."""
        self._full_read_at = 0.0
        try:
            await self._read_mailboxes()
        except StoreError as fault:
            log.warning("cannot use the store: %s", fault)

    async def run(self) -> None:
        """Transfer messages between links and mailboxes, until cancelled."""
        notified = asyncio.create_task(self.store.receive_notifications(self.touch))
        try:
            while True:
                self._has_work.clear()
                try:
                    await self._publish()
                    await self._poll()
                except StoreError as fault:
                    log.warning("cannot use the store: %s", fault)
                except Exception:
                    log.exception("the transfer of messages failed")
                with contextlib.suppress(TimeoutError):
                    # `wait_for` may lose a cancellation.
                    async with asyncio.timeout(self._seconds_to_full_read() if self._hosts else IDLE_POLL_INTERVAL_S):
                        await self._has_work.wait()
        finally:
            notified.cancel()
            await asyncio.gather(notified, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """End all long polls."""
        self.is_closing = True
        for key in list(self._waiting):
            self._wake(key)

    async def _publish(self) -> None:
        """Store the pending messages of the links: in sequence for each host, concurrently for several hosts."""
        ended = await asyncio.gather(
            *(self._publish_to(host) for host in list(self._hosts.values()) if host.pending), return_exceptions=True
        )
        for fault in ended:
            if fault is not None:
                raise fault

    async def _publish_to(self, host: MailboxTransport) -> None:
        (org, cluster), (pending, host.pending) = (host.mailbox.org, host.mailbox.cluster), (host.pending, [])
        # If this fails, the messages are lost. Any message may be lost, and its sender repeats it.
        await self.store.for_org(org).write(lambda rows: mailbox_rows.publish(rows, cluster, pending, self.now()))
        self._touched.add((org, cluster))

    def _seconds_to_full_read(self) -> float:
        return max(0.0, self._full_read_at - asyncio.get_running_loop().time())

    async def _poll(self) -> None:
        """Read the touched mailboxes. After the poll interval, read all of them if the store has changed."""
        if self._seconds_to_full_read():
            await self._read_mailboxes()
            return
        marker = await self.store.read_change_marker(POLL_INTERVAL_S)
        if marker == self._last_marker and not self._touched:
            self._full_read_at = asyncio.get_running_loop().time() + POLL_INTERVAL_S
            return
        self._last_marker = None
        await self._read_mailboxes()
        self._last_marker = None if self._has_work.is_set() else marker

    async def _read_mailboxes(self) -> None:
        """Read the mailboxes that may have changed, and periodically all of them."""
        touched, self._touched = self._touched, set()
        if self._seconds_to_full_read():
            touched &= self._hosts.keys()
            if not touched:
                return
            found = await self.store.all_orgs().read(lambda rows: sessions.read_states(rows, touched))
        else:
            self._full_read_at = asyncio.get_running_loop().time() + POLL_INTERVAL_S
            found = await self.store.all_orgs().read(sessions.read_all_states)
            for gone in self._hosts.keys() - {(each.org, each.cluster) for each in found}:
                self._forget(gone)
        for state in found:
            await self._apply(state)

    async def _apply(self, state: MailboxState) -> None:
        key = state.org, state.cluster
        host = self._hosts.get(key)
        if host is not None and host.mailbox.created_at not in (0, state.created_at):
            # The cluster was removed and added again since the last poll.
            self._forget(key)
            host = None
        if host is None:
            host = self._connect(state)
        before, host.mailbox = host.mailbox, state
        if state.sent != before.sent or state.frozen != before.frozen or state.session != before.session:
            self._wake(key)
        if state.inbox > host.read:
            await self._receive(host)

    def _connect(self, state: MailboxState) -> MailboxTransport:
        host = self._hosts[state.org, state.cluster] = MailboxTransport(state, self.now, self._has_work.set)
        self._links.add_link(state.cluster, Link(host, state.org, lambda: host.compile_target, shared=True))
        return host

    def _forget(self, key: tuple[str, str]) -> None:
        del self._hosts[key]
        self._links.remove(*key)
        self._wake(key)

    async def _receive(self, host: MailboxTransport) -> None:
        at = host.mailbox
        found = await self.store.for_org(at.org).read(lambda rows: mailbox_rows.read_inbox(rows, at.cluster, host.read))
        for number, body in found:
            host.read = number
            host.receive(body)
        if not found:
            host.read = at.inbox  # the messages belonged to an earlier session and are deleted
        elif host.read < at.inbox:
            self.touch(at.org, at.cluster)

    def touch(self, org: str, cluster: str) -> None:
        """Schedule a read of a cluster's mailbox."""
        if (org, cluster) not in self._hosts:
            self._full_read_at = 0.0
        self._touched.add((org, cluster))
        self._has_work.set()

    def _wake(self, key: tuple[str, str]) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    @contextlib.contextmanager
    def wait_for_change(self, org: str, cluster: str) -> Iterator[asyncio.Future[None]]:
        """Return a future that ends when the mailbox of the cluster has changed, or this service closes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((org, cluster), set()).add(future)
        try:
            yield future
        finally:
            self._waiting.get((org, cluster), set()).discard(future)
