"""The certificate that a server shows, and how it is renewed without a restart: its issuer replaces the files."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

# An issuer renews days before the end, so a minute is soon.
LOOK_S = 60.0


class Certificate(NamedTuple):
    """The files of a certificate, with those that lead to its root, and of its key."""

    chain: str
    key: str


def context(certificate: Certificate) -> ssl.SSLContext:
    """Return the context of a server with that certificate.

    Raises:
        OSError: a file is missing, or they do not match; `ssl.SSLError`, which is one, states why.
    """
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate.chain, certificate.key)
    return made


class Renewal:
    """Has a context show what the files hold now; connections that are open keep what they were shown."""

    def __init__(self, context: ssl.SSLContext, certificate: Certificate) -> None:
        self._context = context
        self._certificate = certificate
        self._seen = self._digest()

    async def run(self) -> None:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Take new files up. Those that do not go together, half written perhaps, are looked at again the next time."""
        digest = self._digest()
        if digest in (self._seen, b""):
            return
        try:
            context(self._certificate)  # a context that fails to load has lost what it had
            self._context.load_cert_chain(self._certificate.chain, self._certificate.key)
        except OSError as fault:
            _log.warning(
                "the new certificate in %s is of no use, the old one stays: %s", self._certificate.chain, fault
            )
            return
        self._seen = digest
        _log.warning("shows the new certificate in %s", self._certificate.chain)

    def _digest(self) -> bytes:
        """Of both files; empty while one is not there."""
        found = hashlib.sha256()
        try:
            for path in self._certificate:
                found.update(Path(path).read_bytes() + b"\0")
        except OSError:
            return b""
        return found.digest()
