"""The stored states of leak checks: one Secret in the operator's namespace for each, changed by compare-and-swap.

The Secret belongs to the check, so the cluster's garbage collector deletes both. The names in a list are of all users,
so the operator's namespace keeps them. The Secret of a server's check also has the server's order.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.link.wire import PutLeakCheck
from dayfly.operator.cluster.objects import LEAK_CHECKS
from dayfly.plan.leaks.listing import InventoryItem
from dayfly.plan.leaks.sweep import LeakState, StoredList, shown_state
from dayfly.spec.leak_report import LeakDeletion
from dayfly.spec.lifecycle import Lifecycle

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import AnnotatedMeta

TYPE = f"{names.GROUP}/leak-check"
# The API server refuses Secrets of more than 1 MiB.
MAX_BYTES = 900 * 1024
# Part of these bytes that lists must leave free, for the errors of a sweep's 1,000 deletions, the latest deletions and
# the latest request.
RESERVED_BYTES = 250 * 1024
# Part of these bytes that the order of a server may have in compressed form.
MAX_ORDER_BYTES = 250 * 1024
# The generation in the record of a check with a new order, whose spec its object does not have yet.
ORDERED = -1
_DATA, _ORDER = "state", "order"


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep under way.

    Attributes:
        began_at: When its list began.
        generation: The generation of the check's spec.
        run: The UID of its current run, which lists or deletes. No other run of the check may start.
        is_listing: Whether that run lists.
        plan: The digest of the plan to apply; empty for none.
        waiting: The resources to delete, with their plugins. The first one is being deleted.
        ended: The names of the Run objects that these resources had.
        deleted: The resource IDs that are deleted.
        errors: Why other resources were not deleted.
    """

    began_at: int
    generation: int
    run: str
    is_listing: bool = True
    plan: str = ""
    waiting: dict[str, str] = {}
    ended: dict[str, str] = {}
    deleted: tuple[str, ...] = ()
    errors: dict[str, str] = {}


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a check.

    Attributes:
        state: The findings of its sweeps. Findings that no report shows are only counted in `hidden`.
        hidden: Number of these findings by verdict.
        inventory: Digest of the document that lists.
        generation: The generation of the latest sweep.
        request: The latest request in the check's annotation.
        sweep: The sweep under way.
        deletions: The latest deletions, the oldest first. The last one is the current one of the sweep.
    """

    state: LeakState = LeakState()
    hidden: dict[str, int] = {}
    inventory: str = ""
    generation: int = 0
    request: str = ""
    sweep: Sweep | None = None
    deletions: tuple[LeakDeletion, ...] = ()


class ServedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a server that has made a check.

    Attributes:
        org: The organisation at the server.
        put: The order: the spec, and the documents that list and delete.
        plan: The digest of the latest plan that the server has requested; empty for none.
        plan_deletes: Further documents that delete, for this plan only, by `name@version` of the plugin.
        is_dropped: Whether the server has deleted the check, so that it begins nothing more.
    """

    org: str
    put: PutLeakCheck
    plan: str = ""
    plan_deletes: dict[str, Lifecycle] = {}
    is_dropped: bool = False


class StoredCheck(NamedTuple):
    """A record and the Secret that has it.

    Attributes:
        secret: The metadata of the Secret; None if there is none yet.
        record: The record.
        order: The stored form of the server's order; empty for a check of this cluster.
    """

    secret: AnnotatedMeta | None
    record: CheckRecord
    order: bytes = b""

    def served(self) -> ServedCheck | None:
        """Return the server's order; None for a check of this cluster.

        Raises:
            BrokenOrderError: another program has changed it.
        """
        if not self.order:
            return None
        try:
            return msgspec.json.decode(zlib.decompress(self.order), type=ServedCheck)
        except (msgspec.DecodeError, zlib.error, RecursionError) as fault:
            raise BrokenOrderError from fault


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """An item: its name and ID, and for each list when it was first listed, or -1 if that list lacks it."""

    name: str
    id: str
    seen: list[int]


class _Stored(msgspec.Struct, frozen=True):
    record: CheckRecord
    began_at: list[int]
    rows: list[_Row]


class CheckTooLargeError(Exception):
    """A list or an order is too long to be stored."""


class BrokenOrderError(Exception):
    """The order of a server cannot be read, because another program has changed it."""

    def __init__(self) -> None:
        super().__init__("the stored order of the server cannot be read: apply the check at the server again")


class CheckStore:
    """The Secrets of all checks. Reads are quorum reads."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def load(self, check: AnnotatedMeta) -> StoredCheck:
        """Return the record of a check, empty if there is none or another program has changed it.

        Raises:
            errors.ApiError: it could not be read.
        """
        found = await self._client.find(SECRETS, _name(check.uid), self._namespace)
        if found is None:
            return StoredCheck(None, CheckRecord())
        order = (found.data or {}).get(_ORDER, b"")
        try:
            return StoredCheck(found.metadata, _unpack((found.data or {}).get(_DATA, b"")), order)
        except (msgspec.DecodeError, zlib.error, IndexError):
            return StoredCheck(found.metadata, CheckRecord(), order)

    async def save(
        self,
        check: AnnotatedMeta,
        before: StoredCheck,
        record: CheckRecord,
        reserved: int = 0,
        served: ServedCheck | None = None,
    ) -> bool:
        """Store a record if the stored one is still `before`. Return whether it is stored.

        Args:
            check: The metadata of the check.
            before: The stored record that it replaces.
            record: The new record.
            reserved: Number of bytes that must be free afterwards.
            served: The new order of the server; None if it is unchanged.

        Raises:
            CheckTooLargeError: the lists or the order are too long; nothing is stored.
            errors.ApiError: it may not be stored.
        """
        data, order = _pack(record), before.order if served is None else _pack_order(served)
        limit = MAX_BYTES - reserved - len(order)
        if len(data) > limit:
            raise CheckTooLargeError(
                f"the list is too long for a cluster: it has {len(data) >> 10} KiB in compressed form, at most "
                f"{limit >> 10} KiB are possible; write several checks with params that select parts"
            )
        owner = {"apiVersion": LEAK_CHECKS.api_version, "kind": LEAK_CHECKS.kind, "name": check.name, "uid": check.uid}
        meta: dict[str, Any] = {"name": _name(check.uid), "namespace": self._namespace, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": meta}
        parts = {_DATA: data, **({_ORDER: order} if order else {})}
        body["data"] = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        try:
            if before.secret is None:
                await self._client.create(SECRETS, body, self._namespace)
            else:
                meta |= {"uid": before.secret.uid, "resourceVersion": before.secret.resource_version}
                await self._client.update(SECRETS, body, meta["name"], self._namespace)
        except (errors.Conflict, errors.NotFound, errors.AlreadyExists, errors.OutcomeUnknown):
            return False  # the next turn reads what is stored now
        return True


def with_findings(record: CheckRecord, state: LeakState) -> CheckRecord:
    """Return the record with a new state. Findings that no report shows are only counted."""
    shown = shown_state(state)
    hidden = Counter(each.verdict for each in state.findings)
    hidden.subtract(Counter(each.verdict for each in shown.findings))
    return msgspec.structs.replace(record, state=shown, hidden={key: count for key, count in hidden.items() if count})


def _pack_order(served: ServedCheck) -> bytes:
    """Return the stored form of an order.

    Raises:
        CheckTooLargeError: it is too long.
    """
    order = zlib.compress(msgspec.json.encode(served))
    if len(order) > MAX_ORDER_BYTES:
        raise CheckTooLargeError(
            f"the scripts of the plugin have {len(order) >> 10} KiB in compressed form, at most "
            f"{MAX_ORDER_BYTES >> 10} KiB are possible in a cluster; move long texts into images, or remove versions "
            "of the plugin"
        )
    return order


def _pack(record: CheckRecord) -> bytes:
    lists = record.state.lists
    seen: dict[tuple[str, str], list[int]] = {}
    for index, each in enumerate(lists):
        for item in each.items:
            row = seen.setdefault((item.name, item.id), [-1] * len(lists))
            row[index] = each.first_seen.get(item.name, each.began_at)
    bare = msgspec.structs.replace(record, state=msgspec.structs.replace(record.state, lists=()))
    rows = [_Row(name, id_, times) for (name, id_), times in seen.items()]
    return zlib.compress(msgspec.msgpack.encode(_Stored(bare, [each.began_at for each in lists], rows)))


def _unpack(data: bytes) -> CheckRecord:
    stored = msgspec.msgpack.decode(zlib.decompress(data), type=_Stored)
    lists = []
    for index, began_at in enumerate(stored.began_at):
        rows = [row for row in stored.rows if row.seen[index] >= 0]
        items = tuple(InventoryItem(row.id, row.name) for row in rows)
        lists.append(StoredList(began_at, items, {row.name: row.seen[index] for row in rows}))
    state = msgspec.structs.replace(stored.record.state, lists=tuple(lists))
    return msgspec.structs.replace(stored.record, state=state)


def _name(uid: str) -> str:
    return f"dayfly-leaks-{uid}"
