"""Sees to it that hosts whose forks derive from what is declared here know each baseline in its newest form."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dayfly.control import baselines
from dayfly.link.server_end import HostFailedError
from dayfly.link.wire import Baseline
from dayfly.spec.host_errors import HostUnavailableError, RefusedError
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.control.store import Store
    from dayfly.link.server_end import Link, Links

log = logging.getLogger(__name__)


class BaselineSync:
    """One for each server."""

    def __init__(self, store: Store, links: Links) -> None:
        self._store = store
        self._links = links
        # For each host the session that was told of all, and the namespace and name of those that it is owed since.
        self._owed: WeakKeyDictionary[Link, tuple[int, set[tuple[str, str]]]] = WeakKeyDictionary()
        self._paying = asyncio.Lock()

    def owe(self, org: str, namespace: str, name: str) -> None:
        """That baseline has another form, or is gone."""
        for link in self._links.each(org):
            self._of(link)[1].add((namespace, name))

    async def pay(self) -> None:
        """Give the hosts those baselines that they are owed: all in a new session.

        Raises:
            StoreError: the store cannot be read; they stay owed.
        """
        async with self._paying:
            for link in self._links.each():
                if link.wants_baselines:
                    await self._pay(link)

    def _of(self, link: Link) -> tuple[int, set[tuple[str, str]]]:
        return self._owed.setdefault(link, (0, set()))

    async def _pay(self, link: Link) -> None:
        told, owed = self._of(link)
        session = link.session
        if told == session and not owed:
            return
        # Taken before the store is read: whoever adds one later has committed what this reading may have missed.
        self._owed[link] = (told, set())
        unpaid = owed
        try:
            known = await self._store.of(link.org).read(baselines.known)
            unpaid = owed if told == session else set(known)
            told = session
            for key in sorted(unpaid):
                if (order := _order(known, *key)) is None or await _hand_over(link, order):
                    unpaid.discard(key)
        finally:
            self._owed[link] = (told, unpaid | self._owed[link][1])


def _order(known: Mapping[tuple[str, str], Workload | None], namespace: str, name: str) -> Baseline | None:
    """How it is now; that it is gone if nobody declares it any more. Of what cannot be read nothing is told."""
    if (namespace, name) in known:
        if (workload := known[namespace, name]) is not None:
            return Baseline(workload=workload)
        log.warning("baseline %s/%s cannot be read by this release: apply it again", namespace, name)
        return None
    return Baseline(workload=Workload(namespace=namespace, name=name, command=()), gone=True)


async def _hand_over(link: Link, order: Baseline) -> bool:
    name = f"{order.workload.namespace}/{order.workload.name}"
    try:
        await link.order(order)
    except HostUnavailableError as fault:
        log.warning("baseline %s cannot be handed over now: %s", name, fault)
        return False
    except (HostFailedError, RefusedError) as fault:
        # Trying again would not help; sandboxes must not wait for it. A failure is a defect, a refusal is none.
        level = logging.ERROR if isinstance(fault, HostFailedError) else logging.WARNING
        log.log(level, "baseline %s failed; apply it again: %s", name, fault)
    return True
