"""Delivers messages to one receiver until it accepts them: one after the other per owner, owners concurrently.

Owners do not wait for each other. A message that the receiver does not accept only delays its owner.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from dayfly.lib.tasks import cancel_and_wait

MAX_CONCURRENT = 8
MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0
# After an error of the outbox.
OUTBOX_RETRY_S = 10.0
# A message that was not accepted for this long is dropped, as no receiver may ever accept it.
DROP_AFTER_S = 86_400.0
# Statuses of a receiver that is busy or not ready: the message is retried.
_RETRY_STATUSES = frozenset({408, 425, 429})

log = logging.getLogger(__name__)


class DeliveryResult(NamedTuple):
    """The result of one delivery: an empty `problem` if it was accepted, and whether it may be tried again."""

    problem: str = ""
    may_retry: bool = False


Post: TypeAlias = Callable[[bytes], Awaitable[DeliveryResult]]
"""Sends one message, with a timeout of a few seconds."""


class PendingDelivery(NamedTuple):
    """A message that waits for the receiver."""

    id: str
    body: bytes


class Outbox(Protocol):
    """The waiting messages by owner."""

    async def oldest(self, owner: str, /) -> PendingDelivery | None:
        """Return the next message of an owner; None if there is none."""

    async def settle(self, owner: str, id_: str, /) -> None:
        """Remove a message that is accepted or dropped."""


def result_of_status(status: int) -> DeliveryResult:
    """Return the result for an HTTP status. Redirects are not followed and count as refusals."""
    if status >= 500 or status in _RETRY_STATUSES:
        return DeliveryResult(f"status {status}", may_retry=True)
    return DeliveryResult(f"status {status}" if status >= 300 else "")


class Delivery:
    """Delivers the messages of an outbox to a receiver: `name` in the log. `passing` are errors of the outbox."""

    def __init__(
        self,
        outbox: Outbox,
        post: Post,
        name: str,
        *,
        passing: type[Exception] = OSError,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._outbox, self._post, self._name, self._passing, self._pause = outbox, post, name, passing, pause
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._more: set[str] = set()
        # Owners whose next message the receiver does not accept now, and whether it refuses: each is logged once.
        self._retrying: set[str] = set()
        self._refusing = False
        # The message that is tried, by owner, and the time of the first try.
        self._tried: dict[str, tuple[str, float]] = {}

    def wake(self, owner: str) -> None:
        """Deliver a new message of an owner."""
        self._more.add(owner)
        if owner not in self.tasks:
            self.tasks[owner] = asyncio.create_task(self._send(owner), name="delivery")

    async def stop(self) -> None:
        """Stop all deliveries."""
        await cancel_and_wait(*self.tasks.values())
        self.tasks.clear()
        self._more.clear()
        self._retrying.clear()
        self._tried.clear()

    async def _send(self, owner: str) -> None:
        failures = 0
        while owner in self._more:
            self._more.discard(owner)
            try:
                while await self._next(owner, failures):
                    failures = failures + 1 if owner in self._retrying else 0
                continue
            except self._passing as fault:
                log.warning("messages for %s cannot be read now: %s", self._name, fault)
            except Exception:
                log.exception("messages for %s cannot be sent", self._name)
            self._more.add(owner)
            await self._pause(OUTBOX_RETRY_S)
        del self.tasks[owner]  # there is no await since the check, so no message is missed

    async def _next(self, owner: str, failures: int) -> bool:
        """Send the next message of an owner; return False if there is none."""
        found = await self._outbox.oldest(owner)
        if found is None:
            return False
        async with self._slots:
            answer = await self._post(found.body)
        if answer.may_retry and not self._is_expired(owner, found.id):
            if not self._retrying:
                log.warning("events for %s are retried: %s", self._name, answer.problem)
            self._retrying.add(owner)
            pause = min(MAX_PAUSE_S, MIN_PAUSE_S * 2 ** min(failures, 10))
            await self._pause(pause * (0.5 + random.random() / 2))  # noqa: S311 # no secret
            return True
        if answer.may_retry:
            log.warning("%s has not accepted the event %s for a day: the event is dropped", self._name, found.id)
        else:
            self._retrying.discard(owner)
            self._log_refusal(found.id, answer)
        self._tried.pop(owner, None)
        await self._outbox.settle(owner, found.id)
        return True

    def _is_expired(self, owner: str, id_: str) -> bool:
        now = asyncio.get_running_loop().time()
        tried, since = self._tried.get(owner, ("", now))
        if tried != id_:
            self._tried[owner] = id_, now
            return False
        return now - since > DROP_AFTER_S

    def _log_refusal(self, id_: str, answer: DeliveryResult) -> None:
        if answer.problem and not self._refusing:
            text = "%s refuses the event %s: %s; further refusals are not logged until it accepts an event"
            log.warning(text, self._name, id_, answer.problem)
        self._refusing = bool(answer.problem)
