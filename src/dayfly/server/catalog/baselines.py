"""The baselines that forks of this machine derive from: how they are stored, and how local hosts receive them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from dayfly.server.db.store import StoreError
from dayfly.server.db.tables import workloads
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Collection

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

RETRY_S = 2.0

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(Workload).decode


def decode(document: str | bytes) -> Workload | None:
    """A stored one; None if it cannot be read, as what a newer release has written or a disk has lost."""
    try:
        return _decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def known(rows: Rows) -> dict[tuple[str, str], Workload | None]:
    """All baselines by namespace and name; None for what cannot be read, which holds up none of the others."""
    return {(row.namespace, row.name): decode(row.document) for row in rows.execute(rows.select(workloads))}


def readable(rows: Rows) -> dict[tuple[str, str], Workload]:
    """Those of them that can be read."""
    return {place: workload for place, workload in known(rows).items() if workload is not None}


class BaselineHost(Protocol):
    """A host in this process whose forks derive from these baselines. It keeps them in memory."""

    async def baseline(self, workload: Workload) -> None:
        """Add a baseline, or replace its form; forks of it follow."""

    async def forget_baseline(self, workload: Workload) -> None:
        """Remove a baseline. Only its name counts."""


class LocalBaselines:
    """The baselines of the local hosts, which follow those that are stored."""

    def __init__(self, store: Store, org: str, hosts: Collection[BaselineHost]) -> None:
        self._store = store
        self._org = org
        self._hosts = hosts
        self._turn = asyncio.Lock()
        self._is_behind = asyncio.Event()
        if hosts:
            self._is_behind.set()

    async def update(self, org: str, namespace: str, name: str) -> None:
        """Hand over the stored form of one baseline, or that it is gone."""
        if self._hosts and org == self._org:
            try:
                await self._hand_over((namespace, name))
            except StoreError as fault:
                log.warning("the store cannot be read now, so baselines are handed over later: %s", fault)
                self._is_behind.set()

    async def catch_up(self) -> None:
        """Hand over all baselines, unless the hosts have them.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._is_behind.is_set():
            await self._hand_over(None)
            self._is_behind.clear()

    async def run(self) -> None:
        """Hand over what was not handed over before, until cancelled."""
        while True:
            await self._is_behind.wait()
            try:
                await self.catch_up()
            except StoreError as fault:
                log.debug("the store still cannot be read: %s", fault)
                await asyncio.sleep(RETRY_S)

    async def _hand_over(self, one: tuple[str, str] | None) -> None:
        async with self._turn:  # what is read later is handed over later
            found = await self._store.for_org(self._org).read(known)
            for place in found if one is None else [one]:
                if place in found and found[place] is None:
                    log.warning("baseline %s/%s cannot be read by this release: apply it again", *place)
                    continue
                for host in self._hosts:
                    await _give(host, place, found.get(place))


async def _give(host: BaselineHost, place: tuple[str, str], workload: Workload | None) -> None:
    try:
        if workload is not None:
            await host.baseline(workload)
        else:
            await host.forget_baseline(Workload(namespace=place[0], name=place[1], command=()))
    except Exception:
        # A defect must not keep the request from ending, nor other baselines from being known.
        log.exception("baseline %s/%s failed; apply it again", *place)
