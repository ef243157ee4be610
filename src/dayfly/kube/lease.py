"""Leader election by a Lease: one process works, the others are on standby with current caches.

A Lease does not fence: a paused leader believes in its lease until it checks the time again. Two processes may work at
once, so their writes must be safe anyway. The lease only saves work.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import LEASES, LeaseObject
from dayfly.lib.clock import utc_now

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Times in seconds. `renew_within` < `duration`, so that a disconnected leader stops before another one starts."""

    duration: int = 15
    renew_within: float = 10.0
    every: float = 2.0

    @classmethod
    def for_duration(cls, seconds: int) -> LeaseTerms:
        """Return proportional terms for another duration."""
        usual = cls()
        part = seconds / usual.duration
        return cls(seconds, usual.renew_within * part, usual.every * part)


class Elector:
    """A candidate of a leader election. `run` it; `is_leading` is its state, and `wait_leading` waits for a change."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        namespace: str,
        identity: str,
        terms: LeaseTerms | None = None,
        *,
        now: Callable[[], dt.datetime] = utc_now,
        seed: int | None = None,
    ) -> None:
        """`identity` must be unique to this process; `now` is only written to the Lease for users."""
        self._client = client
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self._terms = terms or LeaseTerms()
        self._now = now
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._seen_version = ""
        self._seen_at = 0.0
        self._renewed_at = float("-inf")
        self._changed = asyncio.Condition()
        self._leading = False

    @property
    def is_leading(self) -> bool:
        """Whether this process is the leader; false if the lease was not renewed in time."""
        return self._leading and asyncio.get_running_loop().time() - self._renewed_at < self._terms.renew_within

    async def wait_leading(self, value: bool = True) -> None:
        """Wait until this process is the leader or, with False, no longer is."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._leading is value)

    async def run(self) -> None:
        """Run until cancelled. Then release the lease, so that another process takes over at once."""
        try:
            while True:
                await self._step()
                await asyncio.sleep(self._terms.every * self._random.uniform(0.8, 1.2))
        finally:
            with contextlib.suppress(errors.ApiError, TimeoutError):
                await self._release()

    async def _step(self) -> None:
        """Try once to renew or to acquire the lease."""
        started = asyncio.get_running_loop().time()
        held = False
        try:
            async with asyncio.timeout(self._terms.renew_within / 2):
                held = await self._try()
        except errors.NotFound:
            log.warning("the namespace %s of the lease does not exist", self._namespace)
        except (errors.Conflict, errors.AlreadyExists):
            held = False  # another process was faster
        except (errors.ApiError, TimeoutError) as fault:
            log.warning("lease %s/%s: %s", self._namespace, self._name, str(fault) or "no answer in time")
            held = (
                self.is_leading
            )  # it is unknown whether the renewal succeeded: the earlier one is valid until its end
            started = self._renewed_at
        if held:
            self._renewed_at = started  # the time before the write: other processes count from after it
        await self._set(held)

    async def _try(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except errors.NotFound:
            await self._client.create(LEASES, self._body(None), self._namespace)
            return True
        now = asyncio.get_running_loop().time()
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version, self._seen_at = lease.metadata.resource_version, now
        holder = lease.spec.holder_identity
        # Expiry depends on how long this process has seen no renewal: clocks of machines are not compared.
        expired = now - self._seen_at > (lease.spec.lease_duration_seconds or self._terms.duration)
        if holder and holder != self.identity and not expired:
            return False
        await self._client.update(LEASES, self._body(lease), self._name, self._namespace)
        return True

    def _body(self, lease: LeaseObject | None, *, holder: str | None = None) -> dict[str, Any]:
        now = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        ours = lease is not None and lease.spec.holder_identity == self.identity
        metadata = {"name": self._name, "namespace": self._namespace}
        if lease:
            metadata |= {"resourceVersion": lease.metadata.resource_version}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity if holder is None else holder,
                "leaseDurationSeconds": self._terms.duration if holder is None else 1,
                "acquireTime": lease.spec.acquire_time if lease and ours else now,
                "renewTime": now,
                "leaseTransitions": lease.spec.lease_transitions + (not ours) if lease else 0,
            },
        }

    async def _release(self) -> None:
        if not self._leading:
            return
        self._leading = False
        async with asyncio.timeout(self._terms.every):
            lease = await self._client.get(LEASES, self._name, self._namespace)
            if lease.spec.holder_identity == self.identity:
                await self._client.update(LEASES, self._body(lease, holder=""), self._name, self._namespace)

    async def _set(self, leading: bool) -> None:
        if self._leading is not leading:
            log.info("%s %s lease %s/%s", self.identity, "holds" if leading else "lost", self._namespace, self._name)
            async with self._changed:
                self._leading = leading
                self._changed.notify_all()


@contextlib.asynccontextmanager
async def run_election(elector: Elector) -> AsyncIterator[Elector]:
    """Run an election while the block runs, then release the lease."""
    task = asyncio.create_task(elector.run(), name=f"lease of {elector.identity}")
    try:
        yield elector
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
