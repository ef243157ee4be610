"""Stores states in Secrets: a head that is changed by compare-and-swap, and immutable chunks that are written before
it.

The Run owns these Secrets. Functions here take the name of the Run object as the run.
"""

from typing import Any, Final, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.names import GROUP
from dayfly.execute.pod.read import parse_time
from dayfly.execute.state.head import DamagedError, Head, Version, decode
from dayfly.execute.state.service import FullError, StateOwner, StoredHead, UncertainError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, Key, Secret
from dayfly.operator.cluster.objects import RUNS, RunObject, owned_secret
from dayfly.spec.run import Run

TYPE: Final = names.STATE_TYPE
HEAD_LABEL: Final = f"{GROUP}/state"
"""Label of heads and chunks. Its value is `head`, or the version to which a chunk belongs."""
NAMESPACE_LABEL: Final = f"{GROUP}/state-of"
STORED: Final = f"{GROUP}/state-bytes"
RUN_UID: Final = f"{GROUP}/state-run-uid"
MAX_STATES, MAX_BYTES = 100, 64 << 20
"""Limits for the sandboxes of one namespace."""

_HEAD = "head"


class StateSecrets:
    """Implements `execute.state.service.Store` for this host."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def find(self, place: StateOwner) -> StoredHead:
        found = await self._client.find(SECRETS, head_name(place), self._namespace)
        return StoredHead(Head()) if found is None else StoredHead(head_of(found), found.metadata.resource_version)

    async def read_ledger(self, run: str) -> Run | None:
        found = await self._client.find(RUNS, run)
        return None if found is None else found.ledger

    async def swap(self, place: StateOwner, before: StoredHead, after: Head) -> bool:
        run = await self._client.find(RUNS, place.run)
        if run is None:
            return False
        body = self._head(run, place, after, before.tag)
        try:
            if before.tag:
                await self._client.update(SECRETS, body, head_name(place), self._namespace)
            else:
                await self._client.create(SECRETS, body, self._namespace)
        except (errors.Conflict, errors.NotFound, errors.AlreadyExists):
            return False
        except errors.OutcomeUnknown:
            raise UncertainError from None
        return True

    async def write_chunks(self, place: StateOwner, run: Run, blob: str, chunks: list[bytes]) -> None:
        await self._check_room(run.target.namespace, sum(map(len, chunks)))
        found = await self._client.find(RUNS, place.run)
        if found is None:
            return  # no head will refer to the chunks
        for index, chunk in enumerate(chunks):
            body = self._secret(found, chunk_name(place, blob, index), {HEAD_LABEL: blob}, {"chunk": chunk})
            try:
                await self._client.create(SECRETS, {**body, "immutable": True}, self._namespace)
            except errors.OutcomeUnknown:
                raise UncertainError from None

    async def read_chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        return await chunks(self._client, self._namespace, place, version)

    async def delete_chunks(self, place: StateOwner, blob: str, count: int) -> None:
        for index in range(count):
            await self._remove(chunk_name(place, blob, index))

    async def disown(self, run: RunObject) -> None:
        """Keep the states of an abandoned run when its Run is deleted."""
        labels = f"{names.RUN_LABEL}={run.metadata.name},{HEAD_LABEL}"
        for each in (await self._client.list_all(SECRETS.metadata_only(), self._namespace, labels=labels)).items:
            patch = {"metadata": {"uid": each.metadata.uid, "ownerReferences": None}}
            await self._client.patch(SECRETS.metadata_only(), patch, each.metadata.name, self._namespace)

    async def _remove(self, name: str) -> None:
        fields = f"metadata.name={name}"
        for each in (await self._client.list_all(SECRETS.metadata_only(), self._namespace, fields=fields)).items:
            try:
                await self._client.delete(SECRETS, name, self._namespace, uid=each.metadata.uid)
            except (errors.NotFound, errors.Conflict):
                pass  # it is deleted already
            except errors.OutcomeUnknown:
                pass  # otherwise it is deleted with the Run

    async def _check_room(self, namespace: str, more: int) -> None:
        """Raise `FullError` if a limit is reached. It may be exceeded slightly by concurrent writes."""
        labels = f"{HEAD_LABEL}={_HEAD},{NAMESPACE_LABEL}={namespace}"
        heads = (await self._client.list_all(SECRETS.metadata_only(), self._namespace, labels=labels)).items
        stored = sum(int((each.metadata.annotations or {}).get(STORED, "0")) for each in heads)
        if len(heads) > MAX_STATES or stored + more > MAX_BYTES:
            raise FullError(
                f"the sandboxes of namespace {namespace} have {len(heads)} states with {stored} bytes; the limit is "
                f"{MAX_STATES} states with {MAX_BYTES} bytes: delete sandboxes that are not needed"
            )

    def _head(self, run: RunObject, place: StateOwner, head: Head, version: str) -> dict[str, Any]:
        labels = {HEAD_LABEL: _HEAD, NAMESPACE_LABEL: run.ledger.target.namespace}
        body = self._secret(run, head_name(place), labels, {_HEAD: msgspec.json.encode(head)})
        body["metadata"]["annotations"] = {STORED: str(head.stored), RUN_UID: run.ledger.uid}
        if version:
            body["metadata"]["resourceVersion"] = version
        return body

    def _secret(self, run: RunObject, name: str, labels: dict[str, str], data: dict[str, bytes]) -> dict[str, Any]:
        return owned_secret(run, Key(self._namespace, name), TYPE, data, labels)


class StoredState(NamedTuple):
    """A state in a cluster.

    Attributes:
        run: The name of its Run.
        uid: The UID of the run; empty if the Secret lacks it.
        secret: The name of the Secret with its head.
        created_at: When that Secret was created, in Unix milliseconds.
        head: Its head, or why that cannot be read.
    """

    run: str
    uid: str
    secret: str
    created_at: int
    head: Head | DamagedError


async def list_states(client: KubeClient, namespace: str) -> list[StoredState]:
    """Return all states of a cluster, also of abandoned runs."""
    found = []
    for each in (await client.list_all(SECRETS, namespace, labels=f"{HEAD_LABEL}={_HEAD}")).items:
        meta = each.metadata
        head: Head | DamagedError
        try:
            head = head_of(each)
        except DamagedError as error:
            head = error
        run, uid = (meta.labels or {}).get(names.RUN_LABEL, ""), (meta.annotations or {}).get(RUN_UID, "")
        found.append(StoredState(run, uid, meta.name, parse_time(meta.creation_timestamp), head))
    return found


async def heads(client: KubeClient, namespace: str) -> dict[StateOwner, Head | DamagedError]:
    """Return all states of a cluster, also of abandoned runs.

    For an unreadable one, return its error by its Secret's name.
    """
    found = await list_states(client, namespace)
    return {StateOwner(each.run, getattr(each.head, "resource", each.secret)): each.head for each in found}


async def chunks(client: KubeClient, namespace: str, place: StateOwner, version: Version) -> list[bytes]:
    """Return the existing chunks of a version."""
    found = []
    for index in range(version.chunks):
        secret = await client.find(SECRETS, chunk_name(place, version.blob, index), namespace)
        if secret is not None:
            found.append((secret.data or {}).get("chunk", b""))
    return found


def head_of(secret: Secret) -> Head:
    """Return the head in a Secret.

    Raises:
        DamagedError: the Secret contains no valid head.
    """
    data = (secret.data or {}).get(_HEAD, b"")
    return decode(data, f"Secret {secret.metadata.namespace}/{secret.metadata.name}")


def head_name(place: StateOwner) -> str:
    """Return the name of the Secret with the head of a state."""
    return names.derive_name("s", place.resource, "state", *place)


def chunk_name(place: StateOwner, blob: str, index: int) -> str:
    """Return the name of the Secret with a chunk of a version."""
    return f"{head_name(place)}-{blob}-{index}"
