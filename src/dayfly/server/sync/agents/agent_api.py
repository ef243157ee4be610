"""Endpoints for agents, which authenticate with cluster tokens, and for administrators of a frozen cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from dayfly.link.envelope import (
    FROZEN_STATUS,
    MAX_BODY_BYTES,
    MAX_MESSAGES,
    MAX_TOKENS,
    PROTOCOL_HEADER,
    SESSION_HEADER,
    TOKEN_HEADER,
    ReceivedCount,
    ResourcesAnswer,
    ResourcesRequest,
    SentMessages,
    SessionRequest,
    StartRequest,
    UnreadMessages,
)
from dayfly.link.wire import PROTOCOL
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_body, read_number, read_wait, rfc3339
from dayfly.server.http.shared_slots import AGENTS_SHARE, LongPollSlots
from dayfly.server.records import run_records
from dayfly.server.sync.agents import mailbox_rows, sessions
from dayfly.server.sync.agents.sessions import FrozenState, MailboxError, SessionEndedError

if TYPE_CHECKING:
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.sync.agents.agent_service import AgentService, ClusterIdentity

MAX_RUNS = 20_000
# The length of the column. UUIDs have 36 characters, and digests 64.
MAX_UID_LENGTH = 64
# The maximum of session and message numbers. A thaw adopts the numbers of the cluster and continues from them.
MAX_COUNTER = 1 << 53


class AgentApi:
    """The endpoints below `/agent`, and the thaw of a cluster."""

    def __init__(self, agents: AgentService) -> None:
        self._agents = agents
        self._slots = LongPollSlots(AGENTS_SHARE)
        self._asking: set[tuple[str, str]] = set()

    def routes(self) -> list[Route]:
        """Return the HTTP routes for agents, and for administrators of a frozen cluster."""
        return [
            serve("/orgs/{org}/clusters/{name}/thaw", GET=self.show_frozen, POST=self.thaw),
            serve("/agent/session", POST=self.open_session),
            serve("/agent/messages", GET=self.fetch_messages, POST=self.receive_messages),
            serve("/agent/births", POST=self.find_startable),
            serve("/agent/resources", POST=self.find_resources),
        ]

    async def open_session(self, request: Request) -> Any:
        identity = await self._authenticate(request)
        opening = await _body(request, SessionRequest)
        _refuse_nul(
            (opening.cluster_uid, opening.version, opening.namespaces.get(identity.org, ""), *opening.token_hosts)
        )
        if max(map(len, (opening.cluster_uid, opening.digest, *opening.runs, *opening.token_hosts))) > MAX_UID_LENGTH:
            raise RequestError(400, f"UIDs, digests and names in tokens have at most {MAX_UID_LENGTH} characters")
        if max(opening.previous, opening.number) > MAX_COUNTER:
            raise RequestError(400, f"numbers of sessions and messages are at most {MAX_COUNTER}")
        if len(opening.runs) > MAX_RUNS:
            opening = msgspec.structs.replace(opening, runs=opening.runs[:MAX_RUNS])
        found = await self._transact(
            identity, lambda rows: sessions.open_session(rows, identity.cluster, opening, self._agents.now())
        )
        self._agents.touch(identity.org, identity.cluster)
        return found

    async def fetch_messages(self, request: Request) -> Any:
        """Return the messages after the last received one; if there are none, wait for some for `wait` seconds."""
        identity = await self._authenticate(request)
        session, after = read_number(request, "session", 0), read_number(request, "after", 0)
        digest = request.query_params.get("digest", "")[:64]
        seconds = read_wait(request)
        until = asyncio.get_running_loop().time() + seconds

        def fetch(rows: Rows) -> Any:
            return mailbox_rows.fetch(rows, identity.cluster, session, after, digest, self._agents.now())

        with self._slots.acquire(identity.org, identity.cluster, seconds):
            return await self._wait_for_messages(request, identity, fetch, until)

    async def _wait_for_messages(
        self, request: Request, identity: ClusterIdentity, fetch: Callable[[Rows], Any], until: float
    ) -> UnreadMessages:
        while True:
            # Registered before the mailbox is read, so that a message that is published during the read wakes it.
            with self._agents.wait_for_change(identity.org, identity.cluster) as change:
                found = await self._transact(identity, fetch)
                left = until - asyncio.get_running_loop().time()
                if found or left <= 0 or self._agents.is_closing:
                    return UnreadMessages(messages=tuple(found))
                await asyncio.wait({change}, timeout=left)
                await self._authenticate(request)  # its token may have been revoked

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
                rows, identity.cluster, body.session, body.first, body.messages, self._agents.now()
            ),
        )
        self._agents.touch(identity.org, identity.cluster)
        return ReceivedCount(received=received)

    async def find_startable(self, request: Request) -> Any:
        identity = await self._authenticate(request)
        body = await _body(request, StartRequest)
        _refuse_nul(body.uids)

        def work(rows: Rows) -> list[str]:
            found = sessions.find_startable(rows, identity.cluster, body.session, body.uids)
            # Expired runs are removed here: a host that was offline and has a slow clock would start them.
            return run_records.read_unexpired(rows, found, self._agents.now())

        return StartRequest(uids=tuple(await self._transact(identity, work)))

    async def find_resources(self, request: Request) -> Any:
        """Return which resources belong to other clusters of the organisation, for a leak check of one cluster."""
        identity = await self._authenticate(request)
        body = await _body(request, ResourcesRequest)
        if len(body.tokens) > MAX_TOKENS:
            raise RequestError(413, f"send at most {MAX_TOKENS} tokens at once")
        asking = identity.org, identity.cluster
        if asking in self._asking:
            raise RequestError(429, "send one such request at a time")
        self._asking.add(asking)
        try:
            found = await self._agents.find_resources(identity, body.tokens)
        finally:
            self._asking.discard(asking)
        return ResourcesAnswer(states=found)

    async def show_frozen(self, request: Request) -> Any:
        """Return why a cluster is frozen, the runs that only the host has and those that only this server has."""
        org, cluster = callers.get_caller(request).org, request.path_params["name"]

        def read(rows: Rows) -> dict[str, Any]:
            found = sessions.read_frozen(rows, cluster)
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

        return await self._agents.store.for_org(org).read(read)

    async def thaw(self, request: Request) -> Any:
        """Confirm that the messages of a frozen cluster continue from the numbers of the host."""
        who, name = audit.get_actor(request), request.path_params["name"]

        def work(rows: Rows) -> None:
            if not sessions.thaw(rows, name):
                is_frozen = sessions.read_frozen(rows, name) is not None
                text = "the cluster has not reported its runs yet: retry after it has connected" if is_frozen else ""
                raise RequestError(409, text or "it is not frozen")
            audit.append(rows, who, "thaw", f"clusters/{name}")

        await self._agents.store.for_org(who.org).write(work)
        self._agents.touch(who.org, name)
        return {}

    async def _authenticate(self, request: Request) -> ClusterIdentity:
        ip = request.client.host if request.client else ""
        found = await self._agents.identify(request.headers.get(TOKEN_HEADER, ""), ip)
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
            found = await self._agents.store.for_org(identity.org).write(work)
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
