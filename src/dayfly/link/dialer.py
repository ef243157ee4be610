"""A host's connection to a server: one session after the other, while this operator leads.

Messages from the server have numbers and digests that form a chain. The last number is stored (`Cursor`) before a
message is carried out. A query changes nothing and a client waits for its answer, so it is answered before that.
Messages to the server are numbered within a session, and resent until they are received. Nothing else is stored: the
server resends orders, and the next inventory has the state of all runs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from dayfly import __version__
from dayfly.kube import errors
from dayfly.lib.tasks import run_until_first
from dayfly.link import wire
from dayfly.link.envelope import (
    FROZEN_STATUS,
    MAX_BODY_BYTES,
    MAX_MESSAGES,
    SESSION_HEADER,
    NumberedMessage,
    ReceivedCount,
    ResourcesAnswer,
    ResourcesRequest,
    SentMessages,
    Session,
    SessionRequest,
    StartRequest,
    UnreadMessages,
    chain_digest,
    has_room,
)
from dayfly.link.http import HttpResponse, ServerConnection, TransportError
from dayfly.spec.resource_token import ResourceToken
from dayfly.spec.scalars.numbers import MAX_INTEGER, parse_whole

LONG_POLL_S = 25
REQUEST_TIMEOUT_S = 40.0
# Pauses between tries: after a refusal, and while the server does not answer.
MAX_REFUSED_PAUSE_S, MAX_UNREACHABLE_PAUSE_S = 60.0, 10.0
# In a session the first failed try is not reported: a proxy may end a long poll.
REPORT_AFTER_FAILURES = 2
# Messages that were not received. If there are more, they are dropped and another session begins.
MAX_UNSENT, MAX_UNSENT_BYTES = 20_000, 32 << 20
MAX_BATCH_BYTES = 1 << 20
# Answers that cannot be read, for example because of their depth. They must not end the operator.
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T", bound=msgspec.Struct)

log = logging.getLogger(__name__)


class LastSeen(NamedTuple):
    """The last message that was received: its session, number and digest."""

    session: int = 0
    number: int = 0
    digest: str = ""


class Cursor(Protocol):
    """The stored position in the messages of the server."""

    seen: LastSeen

    async def load(self) -> None:
        """Read it.

        Raises:
            errors.ApiError: it cannot be read.
        """

    async def save(self, seen: LastSeen) -> None:
        """Record it; durable when this returns.

        Raises:
            errors.Conflict: another operator has recorded something since it was loaded.
            errors.NotFound: the record was deleted since.
            errors.ApiError: it may not be written.
        """


class LinkEnd(Protocol):
    """The host's end of the link (`host_end`)."""

    def attach(self, receive: Callable[[wire.AnyToServer], None]) -> None: ...

    def send(self, message: wire.AnyToHost | wire.Unreadable) -> None: ...


class ServerUnavailableError(Exception):
    """The server cannot be used now."""


class AccessDeniedError(ServerUnavailableError):
    """The server refuses this host."""


class ServerFrozenError(ServerUnavailableError):
    """The cluster is frozen until an administrator thaws it."""


class NewSessionError(ServerUnavailableError):
    """Another session has begun. `session` is its number, 0 if it is unknown."""

    def __init__(self, session: int = 0) -> None:
        super().__init__()
        self.session = session


class Dialer:
    """The connection of one operator to one server.

    Args:
        connection: The HTTP connection.
        cursor: The stored position in the messages of the server.
        session_request: Returns the request that begins each session.
        end: Executes the received messages.
        on_session: Called with each session before its first message.
        seed: The seed of the jitter, for tests.
    """

    def __init__(
        self,
        connection: ServerConnection,
        cursor: Cursor,
        session_request: Callable[[], SessionRequest],
        end: LinkEnd,
        on_session: Callable[[Session], None],
        *,
        seed: int | None = None,
    ) -> None:
        self._connection = connection
        self._cursor = cursor
        self._session_request = session_request
        self._end = end
        self._on_session = on_session
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self.session: Session | None = None
        self.refusals = 0
        self.trouble = ""
        """Why there is no session, or why its requests fail now; empty if the connection works."""
        self.is_frozen = False
        self._unsent: deque[str] = deque()
        self._unsent_bytes = 0
        # The number of the first message that was not received. A session resets both.
        self._first = 1
        self._has_unsent = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether there is a session and its requests succeed."""
        return self.session is not None and not self.trouble

    async def run(self) -> None:
        """Keep a session, until cancelled."""
        failures = 0
        try:
            while True:
                max_pause = MAX_REFUSED_PAUSE_S
                try:
                    await self._open_session()
                    failures = 0
                    await run_until_first(self._listen(), self._send_queued())
                except NewSessionError:
                    self.session = None
                except ServerUnavailableError as fault:
                    self._close(str(fault))
                    self.refusals += isinstance(fault, AccessDeniedError)
                    self.is_frozen = isinstance(fault, ServerFrozenError)
                except (TransportError, errors.ApiError) as fault:
                    self._close(_describe_fault(fault))
                    max_pause = MAX_UNREACHABLE_PAUSE_S
                failures += 1
                await self._pause(failures, max_pause)
        finally:
            self.session, self.is_frozen = None, False
            self._clear_queue()

    async def query_startable(self, uids: tuple[str, ...]) -> frozenset[str] | None:
        """Return which of the sandboxes may start; None if the server cannot be reached now."""
        session = self.session
        if session is None:
            return None
        body = msgspec.json.encode(StartRequest(session=session.session, uids=uids))
        try:
            found = frozenset((await self._request("POST", "births", StartRequest, body=body)).uids)
        except (ServerUnavailableError, TransportError):
            return None
        return found if found <= set(uids) else None

    async def query_resources(self, tokens: tuple[ResourceToken, ...]) -> dict[str, str] | None:
        """Return the states of resources that hosts of the organisation have made, by ID; None without an answer."""
        if self.session is None:
            return None
        body = msgspec.json.encode(ResourcesRequest(tokens=tokens))
        try:
            return (await self._request("POST", "resources", ResourcesAnswer, body=body)).states
        except (ServerUnavailableError, TransportError):
            return None

    def reset_session(self) -> None:
        """End the session, if there is one, so that the server sends everything again."""
        if self.session is not None:
            log.warning("this cluster has fewer objects than before, as after a restore: the server resends everything")
            self._end_session()

    # --- a session ----------------------------------------------------------------------------------------------------

    async def _open_session(self) -> None:
        await self._cursor.load()
        seen = self._cursor.seen
        request = msgspec.structs.replace(
            self._session_request(), previous=seen.session, number=seen.number, digest=seen.digest, version=__version__
        )
        try:
            found = await self._request("POST", "session", Session, body=msgspec.json.encode(request))
        except NewSessionError as fault:
            if fault.session < seen.session:
                raise
            # The answer that began a later session was lost.
            request = msgspec.structs.replace(request, previous=fault.session)
            found = await self._request("POST", "session", Session, body=msgspec.json.encode(request))
        is_intact = found.token_key is None or found.token_key.check == found.token_key.compute_check()
        if not is_intact or found.check != found.compute_check() or found.session != request.previous + 1:
            raise TransportError("its response was altered in transit")
        await self._cursor.save(LastSeen(found.session, found.number, found.digest))
        self._clear_queue()
        self.session, self.is_frozen = found, False
        if not self.trouble:
            log.info("connected to the server as cluster %s of %s", found.cluster, found.org)
        self._report_trouble("")
        self._on_session(found)
        self._end.attach(self._queue)

    def _close(self, why: str) -> None:
        self.session = None
        self._report_trouble(why)

    def _report_trouble(self, why: str) -> None:
        """Log a problem once, however often it recurs, and its end (an empty text) once."""
        if why and why != self.trouble:
            log.warning("the server: %s. Received orders continue; the connection is retried", why)
        elif self.trouble and not why:
            log.info("the server is reachable again")
        self.trouble = why

    def _end_session(self) -> None:
        """End this session at once."""
        self._clear_queue()
        self.session = None
        self._has_unsent.set()

    def _clear_queue(self) -> None:
        self._unsent.clear()
        self._unsent_bytes, self._first = 0, 1

    async def _listen(self) -> None:
        """Receive messages and carry them out."""
        failures = 0
        while True:
            session, seen = self._current_session(), self._cursor.seen
            query = {
                "session": str(session.session),
                "after": str(seen.number),
                "digest": seen.digest,
                "wait": str(LONG_POLL_S),
            }
            try:
                found = (await self._request("GET", "messages", UnreadMessages, query)).messages
                last = _verify_chain(seen, found)
                orders = self._deliver_queries(found)
                if last != seen:
                    await self._cursor.save(last)
            except (errors.Conflict, errors.NotFound, errors.OutcomeUnknown) as fault:
                raise NewSessionError from fault  # another operator is connected, or the stored position is lost
            except (TransportError, errors.ApiError) as fault:
                failures += 1
                log.debug("no message was received: %s", fault)
                if failures >= REPORT_AFTER_FAILURES:
                    self._report_trouble(_describe_fault(fault))
                await self._pause(failures)
                continue
            failures = 0
            self._report_trouble("")
            for order in orders:
                self._end.send(order)

    def _deliver_queries(self, found: tuple[NumberedMessage, ...]) -> list[wire.AnyToHost | wire.Unreadable]:
        """Deliver queries; return everything else in its order."""
        others: list[wire.AnyToHost | wire.Unreadable] = []
        for each in found:
            try:
                message = wire.decode_to_host(each.body.encode())
            except _DECODE_ERRORS as fault:
                log.warning("message %d of the server cannot be read: %s", each.number, fault)
                continue
            if isinstance(message, wire.Query):
                self._end.send(message)
            else:
                others.append(message)
        return others

    def _queue(self, message: wire.AnyToServer) -> None:
        """Queue a message to the server."""
        if self.session is None:
            return
        text = wire.encode(message).decode()
        if not has_room(text, MAX_BODY_BYTES):
            log.warning("%s has %d characters, more than a server accepts", type(message).__name__, len(text))
            text = wire.encode(_shorten(message)).decode()
        if len(self._unsent) >= MAX_UNSENT or self._unsent_bytes > MAX_UNSENT_BYTES:
            log.warning("%d messages were not received: starting a new session", len(self._unsent))
            self._end_session()
            return
        self._unsent.append(text)
        self._unsent_bytes += len(text)
        self._has_unsent.set()

    async def _send_queued(self) -> None:
        """Send queued messages until they are received."""
        failures = 0
        while True:
            await self._has_unsent.wait()
            session, batch, size = self._current_session(), list[str](), 0
            for text in self._unsent:
                size += len(text)
                if batch and (len(batch) == MAX_MESSAGES or size > MAX_BATCH_BYTES):
                    break
                batch.append(text)
            if not batch:
                self._has_unsent.clear()
                continue
            body = msgspec.json.encode(SentMessages(session=session.session, first=self._first, messages=batch))
            try:
                received = (await self._request("POST", "messages", ReceivedCount, body=body)).received
            except TransportError as fault:
                log.debug("no message was delivered: %s", fault)
                received = self._first - 1
            self._current_session()  # a session that has ended since does not count
            failures = 0 if self._drop_received(received) else failures + 1
            if failures:
                await self._pause(failures)

    def _drop_received(self, received: int) -> bool:
        """Drop the messages that were received; return whether there were any."""
        before = self._first
        if not self._first - 1 <= received < self._first + len(self._unsent):
            raise ServerUnavailableError(f"it claims to have received {received} messages, which is impossible")
        while self._first <= received:
            self._unsent_bytes -= len(self._unsent.popleft())
            self._first += 1
        return self._first > before

    def _current_session(self) -> Session:
        if self.session is None:
            raise NewSessionError
        return self.session

    async def _request(
        self, method: str, path: str, form: type[T], query: dict[str, str] | None = None, body: bytes = b""
    ) -> T:
        answer = await self._connection.request(method, path, query, body, seconds=REQUEST_TIMEOUT_S)
        if answer.status == 200:
            try:
                return msgspec.json.decode(answer.body, type=form)
            except _DECODE_ERRORS as fault:
                raise TransportError(f"its response cannot be read: {fault}") from fault
        text = _error_text(answer)
        match answer.status:
            case 401 | 403 | 400:
                raise AccessDeniedError(text)
            case 409 if SESSION_HEADER.lower() in answer.headers:
                there = answer.headers[SESSION_HEADER.lower()]
                raise NewSessionError(parse_whole(there, MAX_INTEGER) or 0)
            case status if status == FROZEN_STATUS:
                raise ServerFrozenError(text)
        raise TransportError(f"it returned status {answer.status}: {text}")

    async def _pause(self, failures: int, max_pause: float = MAX_UNREACHABLE_PAUSE_S) -> None:
        longest = min(max_pause, 2.0 ** min(failures - 1, 6))
        await asyncio.sleep(longest * (0.5 + self._random.random() / 2))


def _describe_fault(fault: TransportError | errors.ApiError) -> str:
    """Return why the session cannot go on, and which side the fault is on."""
    if isinstance(fault, TransportError):
        return f"it cannot be reached: {fault}"
    return f"a message cannot be recorded in this cluster: {fault}"


def _verify_chain(seen: LastSeen, found: tuple[NumberedMessage, ...]) -> LastSeen:
    """Return the end of the chain after these messages."""
    for message in found:
        digest = chain_digest(seen.digest, message.number, message.at, message.body)
        if message.number != seen.number + 1 or digest != message.digest:
            raise TransportError(
                f"message {message.number} does not follow number {seen.number}: it was altered in transit"
            )
        seen = LastSeen(seen.session, message.number, digest)
    return seen


def _shorten(message: wire.AnyToServer) -> wire.AnyToServer:
    """Return a short form of a message that is too long: a run without its report, or a refusal."""
    if isinstance(message, wire.RunChanged | wire.RunEnded):
        return msgspec.structs.replace(message, run=wire.RunStatus(uid=message.run.uid, seq=message.run.seq))
    if isinstance(message, wire.Answer):
        text = "the answer is longer than a server accepts"
        return wire.Reply(session=message.session, number=message.number, verdict=wire.Verdict.REFUSED, message=text)
    return message


def _error_text(answer: HttpResponse) -> str:
    """Return the text of a refusal as one short line."""
    try:
        body: Any = msgspec.json.decode(answer.body)
        text = str(body["error"])
    except (*_DECODE_ERRORS, KeyError, TypeError):
        text = f"status {answer.status}"
    return "".join(char for char in text if char.isprintable())[:300]
