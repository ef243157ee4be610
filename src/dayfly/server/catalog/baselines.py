"""Declared baselines, from which forks on local hosts derive: how they are stored, and how hosts receive them."""

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
    """Return a stored baseline; None if it is corrupt or a newer Dayfly wrote it."""
    try:
        return _decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_all(rows: Rows) -> dict[tuple[str, str], Workload | None]:
    """Return all baselines by namespace and name; None for a baseline that cannot be read."""
    return {(row.namespace, row.name): decode(row.document) for row in rows.execute(rows.select(workloads))}


def read_readable(rows: Rows) -> dict[tuple[str, str], Workload]:
    """Return the baselines that can be read, by namespace and name."""
    return {key: workload for key, workload in read_all(rows).items() if workload is not None}


class BaselineHost(Protocol):
    """A host in this process that keeps baselines in memory and derives forks from them."""

    async def baseline(self, workload: Workload) -> None:
        """Add or replace a baseline, and update its forks."""

    async def forget_baseline(self, workload: Workload) -> None:
        """Remove the baseline with this name."""


class LocalBaselines:
    """Sends stored baselines to the local hosts."""

    def __init__(self, store: Store, org: str, hosts: Collection[BaselineHost]) -> None:
        self._store = store
        self._org = org
        self._hosts = hosts
        self._sending = asyncio.Lock()
        self._is_behind = asyncio.Event()
        if hosts:
            self._is_behind.set()

    async def update(self, org: str, namespace: str, name: str) -> None:
        """Send one baseline as it is stored, or its deletion."""
        if self._hosts and org == self._org:
            try:
                await self._send((namespace, name))
            except StoreError as fault:
                log.warning("cannot read the store, so hosts will receive the baseline later: %s", fault)
                self._is_behind.set()

    async def catch_up(self) -> None:
        """Send all baselines if the hosts may lack some.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._is_behind.is_set():
            await self._send(None)
            self._is_behind.clear()

    async def run(self) -> None:
        """Retry failed transfers, until cancelled."""
        while True:
            await self._is_behind.wait()
            try:
                await self.catch_up()
            except StoreError as fault:
                log.debug("still cannot read the store: %s", fault)
                await asyncio.sleep(RETRY_S)

    async def _send(self, one: tuple[str, str] | None) -> None:
        async with self._sending:  # hosts receive states in the sequence in which they were read
            found = await self._store.for_org(self._org).read(read_all)
            for key in found if one is None else [one]:
                if key in found and found[key] is None:
                    log.warning("baseline %s/%s cannot be read by this release: apply it again", *key)
                    continue
                for host in self._hosts:
                    await _send_to(host, key, found.get(key))


async def _send_to(host: BaselineHost, key: tuple[str, str], workload: Workload | None) -> None:
    try:
        if workload is not None:
            await host.baseline(workload)
        else:
            await host.forget_baseline(Workload(namespace=key[0], name=key[1], command=()))
    except Exception:
        # A defect must not fail the request or block other baselines.
        log.exception("baseline %s/%s failed; apply it again", *key)
