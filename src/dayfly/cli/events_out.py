"""CloudEvents to one address: that a sandbox is ready, has failed, is stuck, or is about to expire.

Nothing is remembered: what is so is told, under an id that stays the same, and after a restart it is told again. So a
receiver hears of everything that lasts at least once, and drops by the id what it has heard. What was so for less than
a moment may go untold.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import random
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dayfly.cli.exits import CliError, Exit
from dayfly.client import AsyncClient, DayflyError, Retry
from dayfly.client.address import Address, place
from dayfly.client.connection import Connection, Request
from dayfly.client.loop_io import LoopIo
from dayfly.client.waiting import HOPELESS
from dayfly.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.client import Sandbox
    from dayfly.client.connection import Io

TYPE = "dev.dayfly.sandbox."
MOST_WAITING = 1000
LOOK_S = 30.0
_TIMEOUT_S = 10.0
_AGAIN = Retry(patience=float("inf"), first=0.5, longest=60.0)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LATER = (408, 425, 429)

log = logging.getLogger(__name__)


class Receiver(NamedTuple):
    """Where events go."""

    address: Address
    target: str


def receiver(url: str, allowed: frozenset[str]) -> Receiver:
    """Where events go, as `--events-to` says it.

    Raises:
        CliError: it is no address, has a password in it, or would be spoken to without TLS.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise CliError(Exit.USAGE, "--events-to has a name or password in it", "let the receiver know us otherwise")
    address = Address(f"{parts.scheme}://{parts.netloc}", "")
    where = place(address)
    if not where.tls and where.name not in _LOOPBACK and f"{where.name}:{where.port}" not in allowed:
        advice = f"write https://, or allow it with --allow-webhook {where.name}:{where.port}"
        raise CliError(Exit.USAGE, f"--events-to {url}: not without TLS", advice)
    return Receiver(address, f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}")


def kinds(sandbox: Sandbox) -> Iterator[str]:
    """What of it is worth an event, as it stands now."""
    status = sandbox.status
    if status.ready:
        yield "ready"
    if status.reason in HOPELESS:
        yield "failed"
    if status.reason == Reason.CLEANUP_STUCK:
        yield "stuck"
    if any(each.type == "ExpiresSoon" and each.status == "True" for each in status.conditions):
        yield "expiring"


def cloud_event(sandbox: Sandbox, kind: str, source: str) -> dict[str, Any]:
    """One event. Its id is the same whenever the same is told of the same form of the same sandbox."""
    end = sandbox.status.scheduled_delete_time
    born, form = (moment.isoformat(timespec="milliseconds") for moment in (sandbox.created_at, sandbox.updated_at))
    until = f"/{end.isoformat(timespec='seconds')}" if end and kind == "expiring" else ""
    return {
        "specversion": "1.0",
        "id": f"{sandbox.name}/{born}/{form}/{kind}{until}",
        "source": source,
        "type": f"{TYPE}{kind}",
        "subject": sandbox.name,
        "datacontenttype": "application/json",
        "data": {
            "name": sandbox.name,
            "cluster": sandbox.spec.get("cluster", ""),
            "labels": sandbox.spec.get("labels") or {},
            "reason": sandbox.status.reason,
            "message": sandbox.status.message,
            "endpoints": {each.name: each.url for each in sandbox.endpoints if each.url},
            "scheduledDeleteTime": end.isoformat() if end else None,
        },
    }


class Teller:
    """Sends events in their order, each until somebody has taken it."""

    def __init__(self, to: Receiver, source: str, io: Io | None = None) -> None:
        self._io = io or LoopIo()
        self._to, self._source = to, source
        self._waiting: collections.deque[dict[str, Any]] = collections.deque(maxlen=MOST_WAITING)
        self._told: dict[str, set[str]] = {}
        self._news = asyncio.Event()

    def note(self, sandbox: Sandbox) -> None:
        """Have told what is so and was not told yet."""
        for kind in kinds(sandbox):
            event = cloud_event(sandbox, kind, self._source)
            told = self._told.setdefault(sandbox.name, set())
            if event["id"] in told:
                continue
            told.add(event["id"])
            if len(self._waiting) == MOST_WAITING:
                log.warning("%d events wait for %s: the oldest is dropped", MOST_WAITING, self._to.address.url)
            self._waiting.append(event)
            self._news.set()

    def forget(self, name: str) -> None:
        """It is gone."""
        self._told.pop(name, None)

    async def send(self) -> None:
        """Send what there is, for ever."""
        connection = Connection(self._to.address, self._io, _TIMEOUT_S)
        failures = 0
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            event = self._waiting[0]
            problem = await self._taken(connection, event)
            if problem:
                if not failures:
                    log.warning("an event for %s is sent again later: %s", self._to.address.url, problem)
                pause = min(_AGAIN.longest, _AGAIN.first * 2 ** min(failures, 10)) * (0.5 + random.random() / 2)  # noqa: S311 # no secret
                failures += 1
                await self._io.pause(pause)
            else:
                failures = 0
                with contextlib.suppress(IndexError):  # it was dropped meanwhile, as the oldest
                    if self._waiting[0] is event:
                        self._waiting.popleft()

    async def _taken(self, connection: Connection, event: dict[str, Any]) -> str:
        """Why it is to be sent again; empty if it was taken, or is refused for good."""
        headers = {"Content-Type": "application/cloudevents+json"}
        request = Request("POST", self._to.target, headers, json.dumps(event).encode())
        try:
            answer = await connection.exchange(request)
        except DayflyError as fault:
            return fault.message
        if answer.status >= 500 or answer.status in _LATER:
            return f"it answers {answer.status}"
        if answer.status >= 300:
            log.warning("%s refuses the event %s: %d", self._to.address.url, event["id"], answer.status)
        return ""


async def tell(server: Address, to: Receiver, source: str) -> None:
    """Tell of the sandboxes of a server, for ever."""
    teller = Teller(to, source)
    async with AsyncClient(server.url, server.key, retries=Retry(patience=float("inf"))) as client:

        async def listen() -> None:
            async for change in client.sandboxes.follow():
                if change.now is not None:
                    teller.note(change.now)
                elif change.kind == "deleted":
                    teller.forget(change.name)

        async def look() -> None:
            while True:  # that an end is near comes with time alone
                await asyncio.sleep(LOOK_S)
                for sandbox in await client.sandboxes.list():
                    teller.note(sandbox)

        try:
            await asyncio.gather(listen(), look(), teller.send())
        except Exception:
            log.exception("events are told no more; start the server again, and report this")
            raise
