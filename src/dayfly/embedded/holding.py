"""Launchers that wait at the gates of attempts while their claims are being written.

To write a claim takes the disk's time, and to make a step ready the kernel's: neither need wait for the other. A
launcher passes the gate only when it is told to, which is done once the claim is durable; one that is never told, since
the claim was refused or this process has ended, ends and has begun nothing.
"""

import asyncio
import contextlib
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from dayfly.embedded.reaper import Leaving, opened
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.resident import Held, UnansweredError
from dayfly.execute.process.run import Folder
from dayfly.spec.lifecycle import Unit

K = TypeVar("K", bound=Hashable)
# What it made ready shows the machine as it was then: where writing takes long it is made anew.
HELD_MOST_S = 0.25


class _Since(NamedTuple):
    held: Held
    at: float


class Holding(Generic[K]):
    """Holds them, each by what it is to run, lets them go, and drops them."""

    def __init__(self, starter: Starter, leaving: Leaving) -> None:
        self._starter = starter
        self._leaving = leaving
        self._loop = asyncio.get_running_loop()
        self._held: dict[K, _Since] = {}

    def hold(self, key: K, folder: Folder, unit: Unit, order: bytes) -> bool:
        """Have one made ready; false if that cannot be done now, and then something of it may lie in the folder.

        Raises:
            FileExistsError: an order lies there already; it is not ours.
        """
        try:
            folder.write_order(order)
            held = self._starter.hold(folder, unit)
        except FileExistsError:
            raise
        except OSError:
            return False
        self._held[key] = _Since(held, self._loop.time())
        return True

    def has(self, key: K) -> bool:
        """Whether one is held."""
        return key in self._held

    def keys(self) -> list[K]:
        """Of the attempts for which one is held."""
        return list(self._held)

    async def let_go(self, key: K) -> int | None:
        """Have it pass the gate; returns our child's process id. None, and it is dropped, if it should not any more.

        Raises:
            UnansweredError: it is dropped, and nobody knows whether it was forked.
        """
        held, at = self._held.pop(key)
        with held, contextlib.suppress(OSError):
            child = await held.child
            if self._loop.time() - at < HELD_MOST_S:
                # One that cannot be told to go is dropped as well.
                with contextlib.suppress(OSError):
                    held.go()
                    return child
            self._leaving.add(key, child, opened(child))
        return None

    async def drop(self, key: K) -> None:
        """Let it end. It is reaped when its folder is swept."""
        held, _ = self._held.pop(key)
        held.drop()
        with contextlib.suppress(OSError, UnansweredError):
            child = await held.child
            self._leaving.add(key, child, opened(child))
