"""Sends what waits to one receiver, until it is taken: of each owner one after the other, of different ones at once.

Owners do not wait for each other. What one of them has that the receiver does not take puts off his own alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from dayfly.lib.tasks import cancel

MOST_AT_ONCE = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
# After trouble with what waits itself.
AGAIN_S = 10.0
# What is not taken for so long is given up: it may be the one that no receiver takes.
GIVE_UP_S = 86_400.0
# What a receiver may answer for a while: it is too busy, or too early.
_LATER = frozenset({408, 425, 429})

log = logging.getLogger(__name__)


class DeliveryResult(NamedTuple):
    """What a receiver made of it: no problem, or why it was not taken; `again` whether it may be later."""

    problem: str = ""
    again: bool = False


Post: TypeAlias = Callable[[bytes], Awaitable[DeliveryResult]]
"""Sends one, and waits no longer than for some seconds."""


class PendingDelivery(NamedTuple):
    """One that waits for the receiver."""

    id: str
    body: bytes


class Outbox(Protocol):
    """What waits, by owner."""

    async def oldest(self, owner: str, /) -> PendingDelivery | None:
        """The next one of an owner."""

    async def settle(self, owner: str, id_: str, /) -> None:
        """That one is not sent any more."""


def answered(status: int) -> DeliveryResult:
    """What an HTTP status says of what was sent. A redirection is a refusal: nobody is followed elsewhere."""
    if status >= 500 or status in _LATER:
        return DeliveryResult(f"it answers {status}", again=True)
    return DeliveryResult(f"it answers {status}" if status >= 300 else "")


class Delivery:
    """Of one outbox to one receiver, which the log calls `name`; `passing` is trouble that the outbox may have."""

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
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._more: set[str] = set()
        # Owners whose next one the receiver does not take now, and whether it refuses: each is said once.
        self._away: set[str] = set()
        self._refusing = False
        # By owner: which one is tried, and since when.
        self._tried: dict[str, tuple[str, float]] = {}

    def wake(self, owner: str) -> None:
        """Something of that owner waits."""
        self._more.add(owner)
        if owner not in self.tasks:
            self.tasks[owner] = asyncio.create_task(self._send(owner), name="delivery")

    async def stop(self) -> None:
        """Send nothing more."""
        await cancel(*self.tasks.values())
        self.tasks.clear()
        self._more.clear()
        self._away.clear()
        self._tried.clear()

    async def _send(self, owner: str) -> None:
        failures = 0
        while owner in self._more:
            self._more.discard(owner)
            try:
                while await self._next(owner, failures):
                    failures = failures + 1 if owner in self._away else 0
                continue
            except self._passing as fault:
                log.warning("what is to be sent to %s cannot be read now: %s", self._name, fault)
            except Exception:
                log.exception("what waits for %s could not be sent", self._name)
            self._more.add(owner)
            await self._pause(AGAIN_S)
        del self.tasks[owner]  # nothing is awaited since it was seen that there is no more

    async def _next(self, owner: str, failures: int) -> bool:
        """Send an owner's next one; false if there is none."""
        found = await self._outbox.oldest(owner)
        if found is None:
            return False
        async with self._slots:
            answer = await self._post(found.body)
        if answer.again and not self._is_hopeless(owner, found.id):
            if not self._away:
                log.warning("events for %s are sent again later: %s", self._name, answer.problem)
            self._away.add(owner)
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
            await self._pause(pause * (0.5 + random.random() / 2))  # noqa: S311 # no secret
            return True
        if answer.again:
            log.warning("%s has not taken the event %s for a day: it is given up", self._name, found.id)
        else:
            self._away.discard(owner)
            self._say_refused(found.id, answer)
        self._tried.pop(owner, None)
        await self._outbox.settle(owner, found.id)
        return True

    def _is_hopeless(self, owner: str, id_: str) -> bool:
        now = asyncio.get_running_loop().time()
        tried, since = self._tried.get(owner, ("", now))
        if tried != id_:
            self._tried[owner] = id_, now
            return False
        return now - since > GIVE_UP_S

    def _say_refused(self, id_: str, answer: DeliveryResult) -> None:
        if answer.problem and not self._refusing:
            text = "%s refuses the event %s: %s; nothing is said of further ones until it takes one"
            log.warning(text, self._name, id_, answer.problem)
        self._refusing = bool(answer.problem)
