"""The server's TLS certificate. When its files are replaced, the server loads them without a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 60.0


class Certificate(NamedTuple):
    """The files of a certificate chain and of its private key."""

    chain: str
    key: str


def create_context(certificate: Certificate) -> ssl.SSLContext:
    """Return the context of a server with that certificate.

    Raises:
        OSError: a file is missing, or the files do not match (`ssl.SSLError`, a subclass).
    """
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate.chain, certificate.key)
    return made


class CertificateReloader:
    """Reloads the certificate of a context when its files change. Open connections keep the old one."""

    def __init__(self, context: ssl.SSLContext, certificate: Certificate) -> None:
        self._context = context
        self._certificate = certificate
        self._loaded = self._digest()

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Load changed files. Files that do not match, such as half-written ones, are checked again the next time."""
        digest = self._digest()
        if digest in (self._loaded, b""):
            return
        try:
            create_context(self._certificate)  # tried first, because a failed load would remove the old certificate
            self._context.load_cert_chain(self._certificate.chain, self._certificate.key)
        except OSError as fault:
            _log.warning(
                "cannot load the new certificate in %s, so the old one stays: %s", self._certificate.chain, fault
            )
            return
        self._loaded = digest
        _log.warning("loaded the new certificate in %s", self._certificate.chain)

    def _digest(self) -> bytes:
        """Return the digest of both files; empty while one is missing."""
        found = hashlib.sha256()
        try:
            for path in self._certificate:
                found.update(Path(path).read_bytes() + b"\0")
        except OSError:
            return b""
        return found.digest()
