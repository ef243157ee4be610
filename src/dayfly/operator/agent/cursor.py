"""The session with the server, and the number and digest of the last received message, stored in a Secret.

The Secret is written before a message is carried out. So a restarted operator still notices that a server was restored
from a backup. A message that was stored and not carried out is sent again, because a restart begins a new session.
"""

from __future__ import annotations

import base64

from dayfly.execute.pod import names
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, AnnotatedMeta
from dayfly.link.dialer import LastSeen
from dayfly.spec.scalars.numbers import MAX_INTEGER, parse_whole

NAME = "dayfly-agent"


class SecretCursor:
    """The cursor (`link.dialer.Cursor`) in a Secret of the operator's own namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._meta: AnnotatedMeta | None = None
        self.seen = LastSeen()

    async def load(self) -> None:
        """Read the Secret by a quorum read.

        Raises:
            errors.ApiError: it cannot be read.
        """
        found = await self._client.find(SECRETS, NAME, self._namespace)
        data = (found.data if found else None) or {}
        # Other users may write in this namespace, so the content can be invalid.
        session, number, digest = (
            data.get(name, b"").decode(errors="replace") for name in ("session", "number", "digest")
        )
        self._meta = found.metadata if found else None
        self.seen = LastSeen(parse_whole(session, MAX_INTEGER) or 0, parse_whole(number, MAX_INTEGER) or 0, digest)

    async def save(self, seen: LastSeen) -> None:
        """Write the Secret. When this returns, the write is durable.

        Raises:
            errors.Conflict: another operator has written it since it was loaded.
            errors.NotFound: it was deleted since it was loaded.
            errors.ApiError: it cannot be written.
        """
        if seen == self.seen:
            return
        data = {"session": str(seen.session), "number": str(seen.number), "digest": seen.digest}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        if self._meta is None:
            meta = {"name": NAME, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": f"{names.GROUP}/agent"}
            made = await self._client.create(SECRETS, {**body, "data": encoded}, self._namespace)
        else:
            version = {"uid": self._meta.uid, "resourceVersion": self._meta.resource_version}
            made = await self._client.patch(SECRETS, {"metadata": version, "data": encoded}, NAME, self._namespace)
        self._meta, self.seen = made.metadata, seen
