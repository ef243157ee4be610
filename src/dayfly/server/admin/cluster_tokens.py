"""Cluster tokens, with which an agent authenticates as a cluster of an organisation.

A token is `ORG@ID.SECRET`; only the digest of the secret is stored. It gives no access to the endpoints for keys.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.db.tables import cluster_tokens, clusters
from dayfly.server.http.request_data import rfc3339

if TYPE_CHECKING:
    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

HEADER = "signadot-cluster-token"
RECORD_USE_INTERVAL_MS = 60_000


class ClusterCaller(NamedTuple):
    """An agent: the cluster of its token."""

    org: str
    cluster: str
    token_id: str


async def authenticate(store: Store, token: str, ip: str) -> ClusterCaller | None:
    """Return the agent of a token and record the connection; None if the token is unknown or revoked.

    Raises:
        StoreError: the store cannot be read.
    """
    org, _, rest = token.rpartition("@")
    id_, _, secret = rest.partition(".")
    if not (org and id_ and secret and token.isascii()):
        return None
    org_store = store.for_org(org)
    row = await org_store.read(lambda rows: find(rows, id_))
    # `org` comes from the client, so it is compared with the token's organisation.
    if row is None or row.org != org or not hmac.compare_digest(callers.digest(secret).hex(), row.digest):
        return None
    now = now_ms()
    if (
        row.last_connected_at is None
        or row.last_connected_at <= now - RECORD_USE_INTERVAL_MS
        or row.last_connected_ip != ip
    ):
        # A full disk must not reject the agent. The first session also records that the cluster has connected.
        with contextlib.suppress(StoreError, WriteConflictError):
            await org_store.write(lambda rows: _record_connection(rows, id_, now, ip))
    return ClusterCaller(row.org, row.cluster, row.id)


def find(rows: Rows, id_: str) -> Row[Any] | None:
    """Return a token's row."""
    return rows.find(cluster_tokens, id=id_)


def list_for(rows: Rows, cluster: str) -> list[Row[Any]]:
    """Return the rows of a cluster's tokens, the oldest first."""
    query = rows.select(cluster_tokens).where(cluster_tokens.c.cluster == cluster)
    return list(rows.execute(query.order_by(cluster_tokens.c.created_at, cluster_tokens.c.id)))


def create(rows: Rows, cluster: str) -> tuple[str, Row[Any]]:
    """Create a token; return it and its row. The token itself is not stored."""
    id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    row = {
        "id": id_,
        "cluster": cluster,
        "digest": callers.digest(secret).hex(),
        "masked": f"{rows.org}@{id_}.***",
        "created_at": now_ms(),
    }
    rows.insert(cluster_tokens, row)
    found = find(rows, id_)
    assert found is not None, "it was inserted above"
    return f"{rows.org}@{id_}.{secret}", found


def delete(rows: Rows, cluster: str, id_: str) -> bool:
    """Revoke a token; return whether it existed."""
    this = rows.delete(cluster_tokens).where(cluster_tokens.c.cluster == cluster, cluster_tokens.c.id == id_)
    return bool(rows.execute(this).rowcount)


def describe(row: Row[Any]) -> dict[str, Any]:
    """Return a token's API object, without its secret."""
    status: dict[str, Any] = {}
    if row.last_connected_at is not None:
        status = {"lastConnectedAt": rfc3339(row.last_connected_at), "lastConnectedIp": row.last_connected_ip}
    return {"id": row.id, "maskedValue": row.masked, "createdAt": rfc3339(row.created_at), "status": status}


def _record_connection(rows: Rows, id_: str, now: int, ip: str) -> None:
    token = find(rows, id_)
    if token is None:
        return
    first = rows.update(clusters).where(clusters.c.name == token.cluster, clusters.c.connected_at.is_(None))
    rows.execute(first.values(connected_at=now))
    seen = rows.update(cluster_tokens).where(cluster_tokens.c.id == id_)
    rows.execute(seen.values(last_connected_at=now, last_connected_ip=ip[:64]))
