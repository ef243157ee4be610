"""The secrets that members of a pool read, as a digest: if it changes, the members are stale.

A member reads only secrets in headers of webhooks, which are environment variables of the server. The digest has a key
of the home, because a plain hash of a short secret can be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.embedded.states import write_file
from dayfly.execute.webhook.render import secret_variables
from dayfly.spec.lifecycle import LifecycleEvent, digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dayfly.spec.lifecycle import Lifecycle

KEY_FILE: Final = "pools.key"
KEY_BYTES: Final = 32


class SecretDigests:
    """The digests of the secrets that templates read, for the environment of one server."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._path = home / KEY_FILE
        self._environment = environment
        self._known: dict[str, str] = {}  # by the digest of a template

    def read(self, documents: tuple[Lifecycle, ...]) -> str:
        """Return the digest of the secrets that members of this template read; empty if they read none."""
        template = digest(documents)
        if template not in self._known:
            units = [unit for document in documents for event in LifecycleEvent for unit in document.units(event)]
            variables = sorted({variable for unit in units for variable in secret_variables(unit)})
            values = [(variable, self._environment.get(variable)) for variable in variables]
            self._known[template] = self._sign(msgspec.json.encode(values)) if values else ""
        return self._known[template]

    def _sign(self, data: bytes) -> str:
        return hmac.new(self._key(), data, hashlib.sha256).hexdigest()

    def _key(self) -> bytes:
        """Return the key of the home; created at the first call."""
        if not self._path.exists():
            write_file(self._path, secrets.token_bytes(KEY_BYTES))
        return self._path.read_bytes()
