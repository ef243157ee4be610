"""Transfers messages between mailboxes, this replica's links and hosts, and serves the endpoints for agents."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from starlette.requests import Request

from dayfly.lib.clock import now_ms
from dayfly.link.envelope import (
    FROZEN_STATUS,
    MAX_BODY_BYTES,
    MAX_MESSAGES,
    PROTOCOL_HEADER,
    SESSION_HEADER,
    TOKEN_HEADER,
    ReceivedCount,
    SentMessages,
    SessionRequest,
    StartRequest,
    UnreadMessages,
)
from dayfly.link.server_end import Link, Links
from dayfly.link.wire import PROTOCOL
from dayfly.server.access import callers
from dayfly.server.admin import audit, cluster_tokens
from dayfly.server.db.store import StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_body, read_number, read_wait, rfc3339
from dayfly.server.http.shared_slots import AGENTS_SHARE, LongPollSlots
from dayfly.server.records import run_records
from dayfly.server.sync.agents import mailbox_rows
from dayfly.server.sync.agents.mailbox_rows import FrozenState, MailboxError, SessionEndedError
from dayfly.server.sync.agents.mailbox_transport import MailboxTransport

if TYPE_CHECKING:
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.sync.agents.mailbox_rows import MailboxState

POLL_INTERVAL_S = 0.5
# The poll interval while no cluster has an agent.
IDLE_POLL_INTERVAL_S = 5.0
MAX_RUNS = 20_000
# The length of the column. UUIDs have 36 characters, and digests 64.
MAX_UID_LENGTH = 64
# The maximum of session and message numbers. A thaw adopts the numbers of the cluster and continues from them.
MAX_COUNTER = 1 << 53

log = logging.getLogger(__name__)


class ClusterIdentity(Protocol):
    """The cluster of a token."""

    @property
    def org(self) -> str: ...
    @property
    def cluster(self) -> str: ...


Identify = Callable[[str, str], Awaitable[ClusterIdentity | None]]


class AgentService:
    """Moves messages between this replica's links and the mailboxes, and serves the endpoints of agents.

    Args:
        store: The database with the mailboxes.
        identify: Returns the cluster of a token, given the token and the client's IP address; None if it is invalid.
        now: Returns Unix milliseconds.
    """

    def __init__(self, store: Store, *, identify: Identify | None = None, now: Callable[[], int] | None = None) -> None:
        self._store = store
        self._identify = identify or functools.partial(cluster_tokens.authenticate, store)
        self._now = now or now_ms
        self._links = Links()
        self._hosts: dict[tuple[str, str], MailboxTransport] = {}
        self._has_work = asyncio.Event()
        # Clusters whose mailboxes may have changed, and when all mailboxes are read again (time of the event loop).
        self._touched: set[tuple[str, str]] = set()
        self._full_read_at = 0.0
        # Pending long polls at this replica, by cluster.
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._closing = False
        self._slots = LongPollSlots(AGENTS_SHARE)
        # The change marker at the last complete read; None if messages may still be unread.
        self._last_marker: object = None

    def set_links(self, links: Links) -> None:
        """Keep a link in `links` for each cluster that was added for an agent."""
        self._links = links

    def mailbox_state(self, org: str, cluster: str) -> MailboxState | None:
        """Return the state of a cluster's mailbox."""
        host = self._hosts.get((org, cluster))
        return host.mailbox if host else None

    # --- messages of this replica's links -----------------------------------------------------------------------------

    async def load_mailboxes(self) -> None:
        """Read all mailboxes once, so that each cluster has a link before the first request."""
        self._full_read_at = 0.0
        try:
            await self._read_mailboxes()
        except StoreError as fault:
            log.warning("cannot use the store: %s", fault)

    async def run(self) -> None:
        """Transfer messages between links and mailboxes, until cancelled."""
        notified = asyncio.create_task(self._store.receive_notifications(self._touch))
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
        self._closing = True
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
        await self._store.for_org(org).write(lambda rows: mailbox_rows.publish(rows, cluster, pending, self._now()))
        self._touched.add((org, cluster))

    def _seconds_to_full_read(self) -> float:
        return max(0.0, self._full_read_at - asyncio.get_running_loop().time())

    async def _poll(self) -> None:
        """Read the touched mailboxes. After the poll interval, read all of them if the store has changed."""
        if self._seconds_to_full_read():
            await self._read_mailboxes()
            return
        marker = await self._store.read_change_marker(POLL_INTERVAL_S)
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
            found = await self._store.all_orgs().read(lambda rows: mailbox_rows.read_states(rows, touched))
        else:
            self._full_read_at = asyncio.get_running_loop().time() + POLL_INTERVAL_S
            found = await self._store.all_orgs().read(mailbox_rows.read_all_states)
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
        host = self._hosts[state.org, state.cluster] = MailboxTransport(state, self._now, self._has_work.set)
        self._links.add_link(state.cluster, Link(host, state.org, lambda: host.compile_target, shared=True))
        return host

    def _forget(self, key: tuple[str, str]) -> None:
        del self._hosts[key]
        self._links.remove(*key)
        self._wake(key)

    async def _receive(self, host: MailboxTransport) -> None:
        at = host.mailbox
        found = await self._store.for_org(at.org).read(
            lambda rows: mailbox_rows.read_inbox(rows, at.cluster, host.read)
        )
        for number, body in found:
            host.read = number
            host.receive(body)
        if not found:
            host.read = at.inbox  # the messages belonged to an earlier session and are deleted
        elif host.read < at.inbox:
            self._touch(at.org, at.cluster)

    def _touch(self, org: str, cluster: str) -> None:
        """Schedule a read of a cluster's mailbox."""
        if (org, cluster) not in self._hosts:
            self._full_read_at = 0.0
        self._touched.add((org, cluster))
        self._has_work.set()

    def _wake(self, key: tuple[str, str]) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    # --- endpoints ----------------------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """Return the HTTP routes for agents, and for administrators of a frozen cluster."""
        return [
            serve("/orgs/{org}/clusters/{name}/thaw", GET=self.show_frozen, POST=self.thaw),
            serve("/agent/session", POST=self.open_session),
            serve("/agent/messages", GET=self.fetch_messages, POST=self.receive_messages),
            serve("/agent/births", POST=self.find_startable),
        ]

    async def open_session(self, request: Request) -> Any:
        identity = await self._authenticate(request)
        opening = await _body(request, SessionRequest)
        _refuse_nul((opening.cluster_uid, opening.version, opening.namespaces.get(identity.org, "")))
        if max(map(len, (opening.cluster_uid, opening.digest, *opening.runs))) > MAX_UID_LENGTH:
            raise RequestError(400, f"UIDs and digests have at most {MAX_UID_LENGTH} characters")
        if max(opening.previous, opening.number) > MAX_COUNTER:
            raise RequestError(400, f"numbers of sessions and messages are at most {MAX_COUNTER}")
        if len(opening.runs) > MAX_RUNS:
            opening = msgspec.structs.replace(opening, runs=opening.runs[:MAX_RUNS])
        found = await self._transact(
            identity, lambda rows: mailbox_rows.open_session(rows, identity.cluster, opening, self._now())
        )
        self._touch(identity.org, identity.cluster)
        return found

    async def fetch_messages(self, request: Request) -> Any:
        """Return the messages after the last received one; if there are none, wait for some for `wait` seconds."""
        identity = await self._authenticate(request)
        session, after = read_number(request, "session", 0), read_number(request, "after", 0)
        digest = request.query_params.get("digest", "")[:64]
        seconds = read_wait(request)
        until = asyncio.get_running_loop().time() + seconds

        def fetch(rows: Rows) -> Any:
            return mailbox_rows.fetch(rows, identity.cluster, session, after, digest, self._now())

        with self._slots.acquire(identity.org, identity.cluster, seconds):
            return await self._wait_for_messages(request, identity, fetch, until)

    async def _wait_for_messages(
        self, request: Request, identity: ClusterIdentity, fetch: Callable[[Rows], Any], until: float
    ) -> UnreadMessages:
        key = identity.org, identity.cluster
        while True:
            # Registered before the mailbox is read, so that a message that is published during the read wakes it.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, set()).add(future)
            try:
                found = await self._transact(identity, fetch)
                left = until - asyncio.get_running_loop().time()
                if found or left <= 0 or self._closing:
                    return UnreadMessages(messages=tuple(found))
                await asyncio.wait({future}, timeout=left)
                await self._authenticate(request)  # its token may have been revoked
            finally:
                self._waiting.get(key, set()).discard(future)

    async def receive_messages(self, request: Request) -> Any:
        identity = await self._authenticate(request)
        body = await _body(request, SentMessages)
        if len(body.messages) > MAX_MESSAGES:
            raise RequestError(413, f"send at most {MAX_MESSAGES} messages at once")
        if body.first < 1:
            raise RequestError(400, "the numbers of messages begin with 1")
        _refuse_nul(body.messages)
        received = await self._transact(
            identity,
            lambda rows: mailbox_rows.receive(
                rows, identity.cluster, body.session, body.first, body.messages, self._now()
            ),
        )
        self._touch(identity.org, identity.cluster)
        return ReceivedCount(received=received)

    async def find_startable(self, request: Request) -> Any:
        identity = await self._authenticate(request)
        body = await _body(request, StartRequest)
        _refuse_nul(body.uids)

        def work(rows: Rows) -> list[str]:
            found = mailbox_rows.find_startable(rows, identity.cluster, body.session, body.uids)
            # Expired runs are removed here: a host that was offline and has a slow clock would start them.
            return run_records.read_unexpired(rows, found, self._now())

        return StartRequest(uids=tuple(await self._transact(identity, work)))

    async def show_frozen(self, request: Request) -> Any:
        """Return why a cluster is frozen, the runs that only the host has and those that only this server has."""
        org, cluster = callers.get_caller(request).org, request.path_params["name"]

        def read(rows: Rows) -> dict[str, Any]:
            found = mailbox_rows.read_frozen(rows, cluster)
            if found is None:
                return {"frozen": False}
            ours = {each.uid: each.name for each in run_records.read_entries(rows) if each.cluster == cluster}
            state = {"frozen": True, "why": found.why, "since": rfc3339(found.at), "compared": found.runs is not None}
            if found.runs is None:
                return state
            return state | {
                "onlyInCluster": sorted(set(found.runs) - ours.keys()),
                "onlyHere": sorted(name for uid, name in ours.items() if uid not in found.runs),
            }

        return await self._store.for_org(org).read(read)

    async def thaw(self, request: Request) -> Any:
        """Confirm that the messages of a frozen cluster continue from the numbers of the host."""
        who, name = audit.get_actor(request), request.path_params["name"]

        def work(rows: Rows) -> None:
            if not mailbox_rows.thaw(rows, name):
                is_frozen = mailbox_rows.read_frozen(rows, name) is not None
                text = "the cluster has not reported its runs yet: retry after it has connected" if is_frozen else ""
                raise RequestError(409, text or "it is not frozen")
            audit.append(rows, who, "thaw", f"clusters/{name}")

        await self._store.for_org(who.org).write(work)
        self._touch(who.org, name)
        return {}

    async def _authenticate(self, request: Request) -> ClusterIdentity:
        ip = request.client.host if request.client else ""
        found = await self._identify(request.headers.get(TOKEN_HEADER, ""), ip)
        if found is None:
            raise RequestError(401, f"no valid cluster token: send it as the header {TOKEN_HEADER}")
        if request.headers.get(PROTOCOL_HEADER, "") != str(PROTOCOL):
            text = (
                f"this server supports version {PROTOCOL} of the agent protocol (header {PROTOCOL_HEADER}); install an "
                "operator that supports it, too"
            )
            raise RequestError(400, text)
        return found

    async def _transact(self, identity: ClusterIdentity, work: Callable[[Rows], Any]) -> Any:
        try:
            found = await self._store.for_org(identity.org).write(work)
        except SessionEndedError as fault:
            raise RequestError(409, str(fault), {SESSION_HEADER: str(fault.session)}) from None
        except MailboxError as fault:
            raise RequestError(fault.status, str(fault)) from None
        if isinstance(found, FrozenState):
            raise RequestError(FROZEN_STATUS, f"frozen: {found.why}")
        return found


def _refuse_nul(texts: Iterable[str]) -> None:
    """Refuse NUL characters, which PostgreSQL cannot store: with the error 503 the host would repeat them forever.

    Raises:
        RequestError: 400.
    """
    if any("\0" in each for each in texts):
        raise RequestError(400, "a message contains a NUL character")


async def _body(request: Request, form: Any) -> Any:
    body = await read_body(request, MAX_BODY_BYTES)
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise RequestError(400, f"the body is malformed: {fault}") from None
