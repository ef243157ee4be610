"""What was seen last of a server, in a Secret: the session, and the number and digest of its last message.

It is written before what it speaks of is carried out. So a server that was restored is noticed also by an
operator that has begun since; and what was seen and not carried out is owed anew, since a session begins then.
"""

from __future__ import annotations

import base64

from dayfly.execute.pod import names
from dayfly.kube.client import Client
from dayfly.kube.objects import SECRETS, AnnotatedMeta
from dayfly.link.dial import LastSeen
from dayfly.spec.scalars.numbers import MAX_INTEGER, whole

NAME = "dayfly-agent"


class SecretCursor:
    """In the operator's own namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._meta: AnnotatedMeta | None = None
        self.seen = LastSeen()

    async def load(self) -> None:
        """As it is now, by a quorum read.

        Raises:
            errors.ApiError: it cannot be read.
        """
        found = await self._client.find(SECRETS, NAME, self._namespace)
        data = (found.data if found else None) or {}
        # Whoever may write there may have spoiled it.
        session, number, digest = (
            data.get(name, b"").decode(errors="replace") for name in ("session", "number", "digest")
        )
        self._meta = found.metadata if found else None
        self.seen = LastSeen(whole(session, MAX_INTEGER) or 0, whole(number, MAX_INTEGER) or 0, digest)

    async def save(self, seen: LastSeen) -> None:
        """Durable when it returns.

        Raises:
            errors.Conflict: another operator has noted something since it was loaded.
            errors.NotFound: somebody has deleted the Secret since.
            errors.ApiError: it may not be written.
        """
        if seen == self.seen:
            return
        data = {"session": str(seen.session), "number": str(seen.number), "digest": seen.digest}
        coded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        if self._meta is None:
            meta = {"name": NAME, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": f"{names.GROUP}/agent"}
            made = await self._client.create(SECRETS, {**body, "data": coded}, self._namespace)
        else:
            very = {"uid": self._meta.uid, "resourceVersion": self._meta.resource_version}
            made = await self._client.patch(SECRETS, {"metadata": very, "data": coded}, NAME, self._namespace)
        self._meta, self.seen = made.metadata, seen
