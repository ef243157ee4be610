"""Decides whether and when a request is sent again. Pure.

A retry must not do harm. Dayfly retries requests that never reached a server, requests that the server postponed (429,
or 503 with `Retry-After`) and, if the response was lost, idempotent methods (GET, PUT, DELETE). For other requests
without a response, the caller gets an error, as they may have been executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.client.errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from dayfly.client.errors import DayflyError

_TOO_MANY = 429
_UNAVAILABLE = 503


class RetryPolicy(NamedTuple):
    """When requests are sent again.

    Attributes:
        patience: Seconds after the first failure during which a request is retried; 0 for no retry.
        first: The first delay in seconds. Each further one is twice as long, with random jitter.
        longest: The longest delay in seconds; a longer `Retry-After` of the server is respected.
    """

    patience: float = 20.0
    first: float = 0.1
    longest: float = 2.0

    def pause(self, fault: DayflyError, *, idempotent: bool, before: int, chance: float) -> float | None:
        """Return the delay in seconds before the next try; None for no retry.

        Args:
            fault: The failure of the last try.
            idempotent: Whether the request may be executed twice.
            before: The number of earlier retries.
            chance: A random number from 0 to 1.
        """
        if isinstance(fault, UnreachableError) and not fault.is_not_dayfly and (idempotent or not fault.sent):
            return self._backoff(before, chance)
        if not isinstance(fault, RefusedError):
            return None
        if fault.status == _TOO_MANY or (
            fault.status == _UNAVAILABLE and idempotent and fault.retry_after_s is not None
        ):
            return fault.retry_after_s or self._backoff(before, chance)  # a delay of 0 would cause a busy loop
        return None

    def _backoff(self, before: int, chance: float) -> float:
        return min(self.longest, self.first * 2.0 ** min(before, 30)) * (0.5 + chance / 2)


def parse_retry_after(header: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header; None if it is missing or a date."""
    return float(header) if header and header.isascii() and header.isdigit() and len(header) < 9 else None
