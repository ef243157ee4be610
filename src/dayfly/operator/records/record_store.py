"""Records of resources whose runs have ended, in Secrets with many records each.

A thousand records have at most 57 KB. So a thousand resources a day need 23 MB in 400 Secrets. While a run lives, its
Run object is the record. Records are only added, so a repeated or concurrent write is harmless.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import zlib
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.execute.pod.names import GROUP
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS, Secret
from dayfly.plan.leaks.records import KEEP_RECORDS_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from dayfly.kube.client import KubeClient

TYPE = f"{GROUP}/resource-records"
LABEL = f"{GROUP}/resource-records"
# Each new record rewrites the Secret that has the latest ones.
MAX_RECORDS = 1_000
_DATA = "records"
_MAX_TRIES = 5

log = logging.getLogger(__name__)


class EndedResource(NamedTuple):
    """A resource whose run has ended.

    Attributes:
        id: Its resource ID.
        publisher: The publisher of its plugin.
        plugin: Its plugin as `name@version`.
        ended_at: The end of the run, in Unix milliseconds.
        run: The name of the Run object, by which a quorum read finds it if a backup was restored.
        sandbox_uid: The UID of the sandbox at its server; empty if no server has created the resource.
    """

    id: str
    publisher: str
    plugin: str
    ended_at: int
    run: str
    sandbox_uid: str = ""


class _Segment(msgspec.Struct, array_like=True, frozen=True):
    """The content of one Secret. A row has the ID as bytes, the index of publisher and plugin, the end, and the Run.

    `sandbox_uids` has an entry for each row; those of an earlier operator have none.
    """

    plugins: tuple[tuple[str, str], ...]
    rows: tuple[tuple[bytes, int, int, str], ...]
    sandbox_uids: tuple[str, ...] = ()

    @classmethod
    def pack(cls, records: Iterable[EndedResource]) -> _Segment:
        plugins: dict[tuple[str, str], int] = {}
        rows, sandbox_uids = [], []
        for each in records:
            index = plugins.setdefault((each.publisher, each.plugin), len(plugins))
            rows.append((bytes.fromhex(each.id), index, each.ended_at, each.run))
            sandbox_uids.append(each.sandbox_uid)
        return cls(tuple(plugins), tuple(rows), tuple(sandbox_uids))

    def unpack(self) -> dict[str, EndedResource]:
        rows = zip(self.rows, chain(self.sandbox_uids, repeat("")), strict=False)
        found = (EndedResource(id_.hex(), *self.plugins[index], at, run, uid) for (id_, index, at, run), uid in rows)
        return {each.id: each for each in found}


class RecordStore:
    """The records of one installation. Records that wait at the same time share one write."""

    def __init__(self, client: KubeClient, namespace: str, now: Callable[[], int]) -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._lock = asyncio.Lock()
        self._waiting: dict[str, EndedResource] = {}
        self._open: Secret | None = None  # the Secret that gets the next records

    async def add(self, records: Iterable[EndedResource]) -> None:
        """Store records. When this returns, they are durable.

        Raises:
            errors.ApiError: they may not be stored.
        """
        new = {each.id: each for each in records}
        self._waiting |= new
        async with self._lock:
            if not self._waiting.keys() & new.keys():
                return  # another call has stored them
            batch, self._waiting = self._waiting, {}
            try:
                await self._append(batch)
            except BaseException:
                self._waiting |= batch
                raise

    async def find(self, ids: Collection[str]) -> dict[str, EndedResource]:
        """Return the records with these resource IDs, by quorum reads.

        Raises:
            errors.ApiError: they could not be read.
        """
        found: dict[str, EndedResource] = {}
        if ids:
            for _, records in await self._segments():
                found |= {id_: records[id_] for id_ in records.keys() & ids}
        return found

    async def _append(self, batch: dict[str, EndedResource]) -> None:
        for tries in range(1, _MAX_TRIES + 1):
            current = self._open if self._open is not None else await self._find_open()
            records = self._living(_unpack(current) or {}) if current is not None else {}
            is_full = current is None or len(records.keys() | batch.keys()) > MAX_RECORDS
            try:
                self._open = await self._write(None if is_full else current, batch if is_full else records | batch)
            except (errors.Conflict, errors.NotFound, errors.AlreadyExists, errors.OutcomeUnknown):
                self._open = None  # read again: another replica has written, or our own write has succeeded
                if tries == _MAX_TRIES:
                    raise
            else:
                return

    async def _write(self, current: Secret | None, records: Mapping[str, EndedResource]) -> Secret:
        data = zlib.compress(msgspec.msgpack.encode(_Segment.pack(records.values())), 1)
        name = current.metadata.name if current is not None else f"dayfly-resources-{min(records)}"
        meta: dict[str, Any] = {"name": name, "namespace": self._namespace, "labels": {LABEL: "true"}}
        body = {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": meta}
        body["data"] = {_DATA: base64.b64encode(data).decode()}
        if current is None:
            return await self._client.create(SECRETS, body, self._namespace)
        meta |= {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version}
        return await self._client.update(SECRETS, body, name, self._namespace)

    async def _find_open(self) -> Secret | None:
        """Return the Secret with the fewest records if it has room, and delete those with only expired records."""
        kept: dict[str, tuple[int, Secret]] = {}
        for secret, records in await self._segments():
            meta = secret.metadata
            if self._living(records):
                kept[meta.name] = len(records), secret
                continue
            with contextlib.suppress(errors.NotFound, errors.Conflict):  # another replica has added or deleted
                version = meta.resource_version
                await self._client.delete(SECRETS, meta.name, meta.namespace, uid=meta.uid, resource_version=version)
        if not kept:
            return None
        size, secret = kept[min(kept, key=lambda name: (kept[name][0], name))]
        return secret if size < MAX_RECORDS else None

    def _living(self, records: Mapping[str, EndedResource]) -> dict[str, EndedResource]:
        oldest = self._now() - KEEP_RECORDS_MS
        return {id_: each for id_, each in records.items() if each.ended_at >= oldest}

    async def _segments(self) -> list[tuple[Secret, dict[str, EndedResource]]]:
        listing = await self._client.list_all(SECRETS, self._namespace, labels=LABEL, limit=50)
        found = ((each, _unpack(each)) for each in listing.items if each.type == TYPE)
        return [(secret, records) for secret, records in found if records is not None]


def _unpack(secret: Secret) -> dict[str, EndedResource] | None:
    """Return the records of a Secret; None if another program has written it."""
    try:
        data = zlib.decompress((secret.data or {}).get(_DATA, b""))
        return msgspec.msgpack.decode(data, type=_Segment).unpack()
    except (msgspec.DecodeError, zlib.error, IndexError):
        log.warning("Secret %s/%s has no valid records; delete it", secret.metadata.namespace, secret.metadata.name)
        return None
