"""Whose certificates a client trusts a server's to be made by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


class Trust:
    """What makes TLS connections: the context that was `given`, else one for each set of authorities."""

    def __init__(self, given: ssl.SSLContext | None) -> None:
        self._given = given
        self._made: dict[str, ssl.SSLContext] = {}

    def context(self, ca: str) -> ssl.SSLContext:
        """The one for these authorities (PEM; empty: the machine's): a server that moves may have others."""
        import ssl

        if self._given is None and ca not in self._made:
            self._made[ca] = ssl.create_default_context(cadata=ca or None)
        return self._given or self._made[ca]
