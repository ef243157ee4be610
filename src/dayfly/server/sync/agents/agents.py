"""Carry messages between mailboxes, this replica's links, and hosts, whose addresses it serves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from starlette.requests import Request

from dayfly.link.envelope import (
    FROZEN_STATUS,
    MOST_BODY,
    MOST_MESSAGES,
    PROTOCOL_HEADER,
    SESSION_HEADER,
    TOKEN_HEADER,
    Asked,
    Heard,
    Letters,
    Opening,
    Said,
)
from dayfly.link.server_end import Link, Links
from dayfly.link.wire import PROTOCOL
from dayfly.server.access import callers
from dayfly.server.admin import audit, cluster_tokens
from dayfly.server.db.store import StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import read_body, rfc3339, serve, wait_seconds, whole_number
from dayfly.server.http.long_poll_slots import AGENTS_SHARE, LongPollSlots
from dayfly.server.records import run_records
from dayfly.server.sync.agents import mailbox
from dayfly.server.sync.agents.mailbox import FrozenState, MailboxError, SessionEndedError
from dayfly.server.sync.agents.mailbox_transport import MailboxTransport

if TYPE_CHECKING:
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.sync.agents.mailbox import MailboxState

LOOK_S = 0.5
# The poll interval while no cluster has an agent.
LONELY_S = 5.0
MOST_RUNS = 20_000
# The size of the column. UUIDs have 36 characters, and digests 64.
LONGEST_UID = 64
# Numbers of sessions and messages. A thaw adopts those of the cluster, and counts on from them.
MOST_COUNTED = 1 << 53

log = logging.getLogger(__name__)


class ClusterIdentity(Protocol):
    """The cluster of a token."""

    @property
    def org(self) -> str: ...
    @property
    def cluster(self) -> str: ...


Identify = Callable[[str, str], Awaitable[ClusterIdentity | None]]


class Agents:
    """The mailboxes as one replica uses them.

    Args:
        store: Where the mailboxes are.
        identify: Whose a token is that comes from some address; None for one that is no good.
        now: Unix milliseconds.
    """

    def __init__(self, store: Store, *, identify: Identify | None = None, now: Callable[[], int] | None = None) -> None:
        self._store = store
        self._identify = identify or functools.partial(cluster_tokens.caller, store)
        self._now = now or (lambda: time.time_ns() // 1_000_000)
        self._links = Links()
        self._hosts: dict[tuple[str, str], MailboxTransport] = {}
        self._news = asyncio.Event()
        # Clusters with new messages since the last look, and when the mailboxes of all are read again.
        self._touched: set[tuple[str, str]] = set()
        self._all_at = 0.0
        # Long polls of hosts at this replica, by cluster.
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._closing = False
        self._slots = LongPollSlots(AGENTS_SHARE)
        # The store's mark at the last look, if that left nothing unread.
        self._looked: object = None

    def join(self, links: Links) -> None:
        """Keep a link in `links` for each cluster that was added for an agent."""
        self._links = links

    def standing(self, org: str, cluster: str) -> MailboxState | None:
        """Return the state of a cluster's mailbox."""
        host = self._hosts.get((org, cluster))
        return host.standing if host else None

    # --- messages of this replica's links -----------------------------------------------------------------------------

    async def begin(self) -> None:
        """Read which clusters exist, before the first request needs one."""
        self._all_at = 0.0
        try:
            await self._look()
        except StoreError as fault:
            log.warning("the store cannot be used now: %s", fault)

    async def run(self) -> None:
        """Carry messages between links and mailboxes, until cancelled."""
        notified = asyncio.create_task(self._store.receive_notifications(self._touch))
        try:
            while True:
                self._news.clear()
                try:
                    await self._publish()
                    await self._look_for_news()
                except StoreError as fault:
                    log.warning("the store cannot be used now: %s", fault)
                except Exception:
                    log.exception("messages of hosts could not be carried")
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`, which may lose a cancellation.
                    async with asyncio.timeout(self._until_all() if self._hosts else LONELY_S):
                        await self._news.wait()
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
        """Store the messages of the links: of each host in their order, of several hosts at once."""
        ended = await asyncio.gather(
            *(self._publish_to(host) for host in list(self._hosts.values()) if host.pending), return_exceptions=True
        )
        for fault in ended:
            if fault is not None:
                raise fault

    async def _publish_to(self, host: MailboxTransport) -> None:
        (org, cluster), (pending, host.pending) = (host.standing.org, host.standing.cluster), (host.pending, [])
        # A message that cannot be stored is lost, as any may be; its sender repeats it.
        await self._store.for_org(org).write(lambda rows: mailbox.publish(rows, cluster, pending, self._now()))
        self._touched.add((org, cluster))

    def _until_all(self) -> float:
        return max(0.0, self._all_at - asyncio.get_running_loop().time())

    async def _look_for_news(self) -> None:
        """Read new messages; periodically those of all clusters, unless the store's mark shows that there are none."""
        if self._until_all():
            await self._look()
            return
        mark = await self._store.read_change_marker(LOOK_S)
        if mark == self._looked and not self._touched:
            self._all_at = asyncio.get_running_loop().time() + LOOK_S
            return
        self._looked = None
        await self._look()
        self._looked = None if self._news.is_set() else mark

    async def _look(self) -> None:
        """Read the mailboxes with new messages, and periodically all of them."""
        touched, self._touched = self._touched, set()
        if self._until_all():
            touched &= self._hosts.keys()
            if not touched:
                return
            found = await self._store.all_orgs().read(lambda rows: mailbox.standings(rows, touched))
        else:
            self._all_at = asyncio.get_running_loop().time() + LOOK_S
            found = await self._store.all_orgs().read(mailbox.roster)
            for gone in self._hosts.keys() - {(each.org, each.cluster) for each in found}:
                self._forget(gone)
        for standing in found:
            await self._heed(standing)

    async def _heed(self, standing: MailboxState) -> None:
        key = standing.org, standing.cluster
        host = self._hosts.get(key)
        if host is not None and host.standing.created_at not in (0, standing.created_at):
            # The cluster was removed and added again since the last look.
            self._forget(key)
            host = None
        if host is None:
            host = self._meet(standing)
        before, host.standing = host.standing, standing
        if standing.sent != before.sent or standing.frozen != before.frozen or standing.session != before.session:
            self._wake(key)
        if standing.inbox > host.read:
            await self._hear(host)

    def _meet(self, standing: MailboxState) -> MailboxTransport:
        host = self._hosts[standing.org, standing.cluster] = MailboxTransport(standing, self._now, self._news.set)
        self._links.put(standing.cluster, Link(host, standing.org, lambda: host.place, shared=True))
        return host

    def _forget(self, key: tuple[str, str]) -> None:
        del self._hosts[key]
        self._links.remove(*key)
        self._wake(key)

    async def _hear(self, host: MailboxTransport) -> None:
        at = host.standing
        found = await self._store.for_org(at.org).read(lambda rows: mailbox.heard(rows, at.cluster, host.read))
        for number, body in found:
            host.read = number
            host.heard(body)
        if not found:
            host.read = at.inbox  # of a session that is over
        elif host.read < at.inbox:
            self._touch(at.org, at.cluster)

    def _touch(self, org: str, cluster: str) -> None:
        """Read the mailbox of that cluster soon."""
        if (org, cluster) not in self._hosts:
            self._all_at = 0.0
        self._touched.add((org, cluster))
        self._news.set()

    def _wake(self, key: tuple[str, str]) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    # --- what hosts dial ----------------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """The addresses for hosts, and for administrators of a frozen cluster."""
        return [
            serve("/orgs/{org}/clusters/{name}/thaw", GET=self.show_frozen, POST=self.thaw_it),
            serve("/agent/session", POST=self.open),
            serve("/agent/messages", GET=self.collect, POST=self.hear),
            serve("/agent/births", POST=self.births),
        ]

    async def open(self, request: Request) -> Any:
        who = await self._who(request)
        asks = await _body(request, Opening)
        _refuse_nul((asks.cluster_uid, asks.version, asks.namespaces.get(who.org, "")))
        if max(map(len, (asks.cluster_uid, asks.digest, *asks.runs))) > LONGEST_UID:
            raise RequestError(400, f"UIDs and digests have at most {LONGEST_UID} characters")
        if max(asks.previous, asks.number) > MOST_COUNTED:
            raise RequestError(400, "nobody has begun so many sessions, nor sent so many messages")
        if len(asks.runs) > MOST_RUNS:
            asks = msgspec.structs.replace(asks, runs=asks.runs[:MOST_RUNS])
        found = await self._ask(who, lambda rows: mailbox.open_session(rows, who.cluster, asks, self._now()))
        self._touch(who.org, who.cluster)
        return found

    async def collect(self, request: Request) -> Any:
        """Messages after the last received one; if there are none, those that come within `wait` seconds."""
        who = await self._who(request)
        session, after = whole_number(request, "session", 0), whole_number(request, "after", 0)
        digest = request.query_params.get("digest", "")[:64]
        seconds = wait_seconds(request)
        until = asyncio.get_running_loop().time() + seconds

        def look(rows: Rows) -> Any:
            return mailbox.collect(rows, who.cluster, session, after, digest, self._now())

        with self._slots.one(who.org, who.cluster, seconds):
            return await self._collected(request, who, look, until)

    async def _collected(
        self, request: Request, who: ClusterIdentity, look: Callable[[Rows], Any], until: float
    ) -> Letters:
        key = who.org, who.cluster
        while True:
            # Before the mailbox is read, so that a message published since wakes it.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, set()).add(future)
            try:
                found = await self._ask(who, look)
                left = until - asyncio.get_running_loop().time()
                if found or left <= 0 or self._closing:
                    return Letters(messages=tuple(found))
                await asyncio.wait({future}, timeout=left)
                await self._who(request)  # its token may have been revoked since
            finally:
                self._waiting.get(key, set()).discard(future)

    async def hear(self, request: Request) -> Any:
        who = await self._who(request)
        said = await _body(request, Said)
        if len(said.messages) > MOST_MESSAGES or said.first < 1:
            raise RequestError(413, f"at most {MOST_MESSAGES} messages at once, numbered from 1")
        _refuse_nul(said.messages)
        heard = await self._ask(
            who, lambda rows: mailbox.hear(rows, who.cluster, said.session, said.first, said.messages, self._now())
        )
        self._touch(who.org, who.cluster)
        return Heard(heard=heard)

    async def births(self, request: Request) -> Any:
        who = await self._who(request)
        asked = await _body(request, Asked)
        _refuse_nul(asked.uids)

        def work(rows: Rows) -> list[str]:
            found = mailbox.may_begin(rows, who.cluster, asked.session, asked.uids)
            # It may have been offered long ago to a host that was away and whose clock is behind.
            return run_records.read_unexpired(rows, found, self._now())

        return Asked(uids=tuple(await self._ask(who, work)))

    async def show_frozen(self, request: Request) -> Any:
        """Compare a frozen cluster: sandboxes that only the host has, and those that only this server has."""
        org, cluster = callers.caller(request).org, request.path_params["name"]

        def read(rows: Rows) -> dict[str, Any]:
            found = mailbox.frozen(rows, cluster)
            if found is None:
                return {"frozen": False}
            ours = {each.uid: each.name for each in run_records.read_entries(rows) if each.cluster == cluster}
            told = {"frozen": True, "why": found.why, "since": rfc3339(found.at), "compared": found.runs is not None}
            if found.runs is None:
                return told
            return told | {
                "onlyInCluster": sorted(set(found.runs) - ours.keys()),
                "onlyHere": sorted(name for uid, name in ours.items() if uid not in found.runs),
            }

        return await self._store.for_org(org).read(read)

    async def thaw_it(self, request: Request) -> Any:
        """Thaw a frozen cluster."""
        who, name = audit.who(request), request.path_params["name"]

        def work(rows: Rows) -> None:
            if not mailbox.thaw(rows, name):
                unseen = mailbox.frozen(rows, name) is not None
                raise RequestError(
                    409,
                    "it has not said yet what it has, and will when it connects: ask again"
                    if unseen
                    else "it is not frozen",
                )
            audit.note(rows, who, "thaw", f"clusters/{name}")

        await self._store.for_org(who.org).write(work)
        self._touch(who.org, name)
        return {}

    async def _who(self, request: Request) -> ClusterIdentity:
        ip = request.client.host if request.client else ""
        found = await self._identify(request.headers.get(TOKEN_HEADER, ""), ip)
        if found is None:
            raise RequestError(401, f"no valid cluster token: send it as the header {TOKEN_HEADER}")
        if request.headers.get(PROTOCOL_HEADER, "") != str(PROTOCOL):
            raise RequestError(400, f"this server speaks {PROTOCOL_HEADER} {PROTOCOL}; use a Dayfly that does, too")
        return found

    async def _ask(self, who: ClusterIdentity, work: Callable[[Rows], Any]) -> Any:
        try:
            found = await self._store.for_org(who.org).write(work)
        except SessionEndedError as fault:
            raise RequestError(409, str(fault), {SESSION_HEADER: str(fault.session)}) from None
        except MailboxError as fault:
            raise RequestError(fault.status, str(fault)) from None
        if isinstance(found, FrozenState):
            raise RequestError(FROZEN_STATUS, f"frozen: {found.why}")
        return found


def _refuse_nul(said: Iterable[str]) -> None:
    """PostgreSQL has no such character: the host would be told that the store cannot be used, and come again for ever.

    Raises:
        ApiError: one of them has it.
    """
    if any("\0" in each for each in said):
        raise RequestError(400, "nothing that a cluster says has a NUL in it")


async def _body(request: Request, form: Any) -> Any:
    body = await read_body(request, MOST_BODY)
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise RequestError(400, f"the body is not what is asked for: {fault}") from None
