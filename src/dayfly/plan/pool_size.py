"""The wanted number of ready members of a pool."""

from __future__ import annotations

from typing import NamedTuple

from dayfly.spec.pool_ledger import Demand
from dayfly.spec.resource_pool import ResourcePoolSpec


class PoolSize(NamedTuple):
    """A number of ready members, and the time at which it may change without an event (0: never)."""

    target: int
    wake_at: int = 0


def pool_size(spec: ResourcePoolSpec, demand: Demand, now: int) -> PoolSize:  # noqa: ARG001 - `auto` follows
    """Return the wanted number of ready members at `now`, in unix milliseconds."""
    return PoolSize(spec.ready if spec.ready is not None else spec.auto.min if spec.auto else 0)
