"""When a request is sent again, and after how long. Pure.

Sent again is what cannot do harm: a request that never reached a server; one that the server put off (429, and 503
where it says for how long); and, of those whose answer was lost, reads and the PUTs and DELETEs that mean the same when
they come twice. Nothing else: where nobody knows whether it was carried out, the caller is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.client.errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from dayfly.client.errors import DayflyError

_TOO_MANY = 429
_UNAVAILABLE = 503


class Retry(NamedTuple):
    """How patient a client is.

    Attributes:
        patience: For how many seconds after the first failure a request is sent again; 0 for never.
        first: The first pause, in seconds; each is twice as long as the one before, and shortened by chance.
        longest: The longest pause, but for what the server asks for.
    """

    patience: float = 20.0
    first: float = 0.1
    longest: float = 2.0

    def pause(self, fault: DayflyError, *, idempotent: bool, before: int, chance: float) -> float | None:
        """After how many seconds the request goes out again; None for never.

        Args:
            fault: What came of it.
            idempotent: Whether the request means the same when it comes twice.
            before: How many times it has been sent again already.
            chance: From 0 to 1.
        """
        if isinstance(fault, UnreachableError) and not fault.strange and (idempotent or not fault.sent):
            return self._backoff(before, chance)
        if not isinstance(fault, RefusedError):
            return None
        if fault.status == _TOO_MANY or (fault.status == _UNAVAILABLE and idempotent and fault.again_in is not None):
            return fault.again_in or self._backoff(before, chance)  # at once would be again and again
        return None

    def _backoff(self, before: int, chance: float) -> float:
        return min(self.longest, self.first * 2.0 ** min(before, 30)) * (0.5 + chance / 2)


def after(header: str | None) -> float | None:
    """`Retry-After` in seconds; None where it is not there, or a date."""
    return float(header) if header and header.isascii() and header.isdigit() and len(header) < 9 else None
