"""The ledger of a resource pool on one host: the members that may be created, failures, the pause and the demand.

Times are unix milliseconds. The members themselves have ledgers of their own (`Run`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MILLISECONDS, doc, list_of
from dayfly.spec.resource_pool import MAX_READY
from dayfly.spec.run import EndRequest

MAX_GRANTS: Final = MAX_READY + MAX_READY // 4
"""The maximum number of granted members: the greatest size and its surge."""


class Grant(WireStruct, frozen=True, kw_only=True):
    """The permission to create one member."""

    number: Annotated[int, doc("Number of the member, which no other member of the pool ever has.", minimum=1)]
    at: Annotated[int, doc("When the member was needed: its grant, or the request that it replaces; " + MILLISECONDS)]


class Demand(WireStruct, frozen=True, kw_only=True):
    """The measured requests and refill time of a pool. `plan.pools.demand` has the meaning of its counts."""

    hits: Annotated[int, doc("Number of requests that found a ready member.", minimum=0)] = 0
    misses: Annotated[int, doc("Number of requests that found no ready member.", minimum=0)] = 0
    first_at: Annotated[int, doc("Time of the first request, " + MILLISECONDS)] = 0
    last_at: Annotated[int, doc("Time of the latest request, " + MILLISECONDS)] = 0
    counts: Annotated[tuple[float, ...], list_of("Requests, each count with its own rate of decay.", 16)] = ()
    together: Annotated[float, doc("Requests shortly before the latest one.")] = 0.0
    excess: Annotated[float, doc("Mean number of requests that arrive together, beyond chance.")] = 0.0
    load: Annotated[float, doc("Mean number of requests in one refill time, as seen by requests.")] = 0.0
    correction: Annotated[float, doc("Logarithm by which the weight of misses is corrected.")] = 0.0
    refill_ms: Annotated[int, doc("Mean time from a grant to a ready member, in milliseconds.", minimum=0)] = 0
    refill_spread: Annotated[float, doc("Mean square of the relative deviation from the mean refill time.")] = 0.0
    refilled_at: Annotated[int, doc("Time at which the latest measured member became ready, " + MILLISECONDS)] = 0


class PoolRequest(WireStruct, frozen=True, kw_only=True):
    """A request of a person to the pool. `request.reason` has no meaning: the action determines it."""

    action: Annotated[Literal["pause", "resume", "drain"], doc("What the pool does from now on.")]
    request: Annotated[EndRequest, doc("Author, time and reason.")]


class PoolLedger(WireStruct, frozen=True, kw_only=True):
    """The ledger of a pool. It changes only by compare-and-swap on `seq`, which increases by one with each commit."""

    uid: Annotated[str, doc("Identity of the ledger: the pool's UID.")]
    seq: Annotated[int, doc("Number of commits.", minimum=0)] = 0
    next: Annotated[int, doc("Number of the next member. Numbers are never reused.", minimum=1)] = 1
    granted: Annotated[tuple[Grant, ...], list_of("Members that may be created or started.", MAX_GRANTS)] = ()
    failures: Annotated[int, doc("Number of members that failed in a row.", minimum=0)] = 0
    failed: Annotated[int, doc("Number of the member that failed last; 0 for none. Its logs are kept.", minimum=0)] = 0
    pause: Annotated[EndRequest | None, doc("Why no member is created. The reason is Paused, Failing or Drained.")] = (
        None
    )
    request: Annotated[PoolRequest | None, doc("The latest request that was applied.")] = None
    spec: Annotated[str, doc("Digest of the spec at the latest commit.")] = ""
    template: Annotated[str, doc("Digest of the template at the latest commit.")] = ""
    demand: Annotated[Demand, doc("The measured requests and refill time.")] = Demand()

    @property
    def numbers(self) -> frozenset[int]:
        """The granted numbers."""
        return frozenset(grant.number for grant in self.granted)

    def permits(self, number: int) -> bool:
        """Return whether the pool permits a member without a holder to start.

        A host that finds an unheld member without this permission closes it.
        """
        return any(grant.number == number for grant in self.granted)

    def needs_record(self, number: int) -> bool:
        """Return whether the host must keep the member's record (target object, run and logs) after its end.

        Before the number is withdrawn, a host could create the member a second time. A number that was withdrawn is
        never granted again, so a cached ledger is sufficient.
        """
        return number == self.failed or self.permits(number)


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(PoolLedger).decode
