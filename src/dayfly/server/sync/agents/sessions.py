"""Sessions of hosts with an agent, and frozen clusters. A cluster has one session, in the row of its mailbox.

Each function is one transaction. The host keeps number and digest of the last message that it has received, and sends
them when it connects. If this database has no such message, the database or the host was restored from a backup. Then
the cluster is *frozen* until an administrator confirms that messages may continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from dayfly.link.envelope import MAX_MESSAGES, Session, SessionRequest, TokenKey
from dayfly.server.db.notifications import notify
from dayfly.server.db.tables import agent_inbox, agent_outbox, agents, clusters, resource_pools, route_groups, sandboxes
from dayfly.server.records import confirmations, organisation_keys
from dayfly.spec.resource_token import derive_identity

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows

# An operator keeps fewer keys.
MAX_TOKEN_HOSTS: Final = 20
# The tables whose records have runs.
_RUN_TABLES: Final = (sandboxes, route_groups, resource_pools)

RESTORED: Final = (
    "it has seen messages that this server does not know, as after a restore of the server's database or of the "
    "cluster. The server starts, stops and deletes nothing there; earlier orders continue. Compare both sides and thaw "
    "the cluster"
)


class MailboxState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one cluster's mailbox."""

    org: str
    cluster: str
    session: int
    sent: int
    inbox: int
    seen_at: int
    namespace: str = ""
    version: str = ""
    frozen: str = ""
    created_at: int = 0
    """Identifies the cluster if another one gets its name later; 0 before the first connection."""


class FrozenState(msgspec.Struct, frozen=True, kw_only=True):
    """Why a cluster is frozen, and the host's numbers; the host reports `runs` when it opens a session."""

    why: str
    at: int
    session: int = 0
    number: int = 0
    digest: str = ""
    runs: tuple[str, ...] | None = None


class MailboxError(Exception):
    """A request of a host is refused with this HTTP status."""

    status = 409


class WrongClusterError(MailboxError):
    """The token belongs to another cluster."""

    status = 403


class ClusterFrozenError(MailboxError):
    """The cluster is frozen until an administrator thaws it."""

    status = 423


class SessionEndedError(MailboxError):
    """The session has ended or is unknown; `session` is the current one."""

    def __init__(self, text: str, *, session: int) -> None:
        super().__init__(text)
        self.session = session


_encode = msgspec.json.Encoder().encode


def add_mailbox(rows: Rows, cluster: str, now: int) -> None:
    """Add a mailbox for a cluster, unless it has one."""
    if rows.execute(rows.select(agents.c.org).where(*_of_cluster(cluster))).first() is None:
        rows.insert(agents, {"cluster": cluster, "created_at": now})


def read_states(rows: Rows, keys: Collection[tuple[str, str]]) -> list[MailboxState]:
    """Return the mailboxes of these clusters, given by organisation and name."""
    selected = sa.tuple_(agents.c.org, agents.c.cluster).in_(list(keys))
    return [_decode_state(row) for row in rows.execute(rows.select(agents).where(selected))]


def read_all_states(rows: Rows) -> list[MailboxState]:
    """Return the mailboxes of all clusters that were added for an agent, also those that have never connected."""
    known = {(row.org, row.cluster): _decode_state(row) for row in rows.execute(rows.select(agents))}
    added = rows.execute(rows.select(clusters.c.org, clusters.c.name).where(clusters.c.agent))
    empty = MailboxState(org="", cluster="", session=0, sent=0, inbox=0, seen_at=0)
    return [
        known.get((row.org, row.name)) or msgspec.structs.replace(empty, org=row.org, cluster=row.name) for row in added
    ]


def open_session(rows: Rows, cluster: str, opening: SessionRequest, now: int) -> Session | FrozenState:
    """Start a session for a host that knows the previous one. If two hosts start one at the same time, one is refused.

    Return and store `FrozenState` if both sides do not agree on the sent messages.

    Raises:
        MailboxError: the token belongs to another cluster, or the host does not know the previous session.
    """
    row = lock_mailbox(rows, cluster)
    if row is None:
        add_mailbox(rows, cluster, now)
        row = lock_mailbox(rows, cluster)
        assert row is not None, "just written"
    _check_opening(row, opening)
    if row.frozen or opening.previous > row.session or not is_known_message(rows, row, opening.number, opening.digest):
        why = _why(row) or RESTORED
        return freeze_cluster(
            rows,
            row,
            FrozenState(
                why=why,
                at=now,
                session=opening.previous,
                number=opening.number,
                digest=opening.digest,
                runs=opening.runs,
            ),
        )
    _delete_messages(rows, row, opening, now)
    update_mailbox(
        rows,
        row,
        cluster_uid=opening.cluster_uid,
        session=row.session + 1,
        # The number of the request and not of the answer: if the answer is lost, the host still has the old number.
        acknowledged=opening.number,
        acknowledged_digest=opening.digest,
        received=0,
        seen_at=now,
        version=opening.version[:128],
        namespace=opening.namespaces.get(rows.org, "")[:63],
        token_hosts=_encode(opening.token_hosts[:MAX_TOKEN_HOSTS]).decode() if opening.token_hosts else "",
    )
    notify(rows.connection, rows.org, cluster)
    update = rows.update(clusters).where(clusters.c.name == cluster)
    rows.execute(update.values(operator_version=opening.version[:64]))
    # From now on its runs may have started.
    rows.execute(update.where(clusters.c.connected_at.is_(None)).values(connected_at=now))
    found = Session(
        org=rows.org,
        cluster=cluster,
        session=row.session + 1,
        number=row.sent,
        digest=row.sent_digest,
        token_key=_derive_key(rows, opening.cluster_uid, now) if opening.token_hosts else None,
    )
    return msgspec.structs.replace(found, check=found.compute_check())


def _delete_messages(rows: Rows, row: Row[Any], opening: SessionRequest, now: int) -> None:
    """Delete the messages and confirmations of earlier sessions. The last sent message stays known without its body."""
    rows.execute(rows.delete(agent_outbox).where(*messages_of(agent_outbox, row)))
    rows.execute(rows.delete(agent_inbox).where(*messages_of(agent_inbox, row)))
    confirmations.delete_of_cluster(rows, row.cluster)
    if row.sent != opening.number:
        # The host continues after this message, and sends its digest until it has fetched the next message.
        known = {"number": row.sent, "digest": row.sent_digest, "at": now, "body": ""}
        rows.insert(agent_outbox, {"cluster": row.cluster, **known})


def _derive_key(rows: Rows, cluster_uid: str, now: int) -> TokenKey:
    """Return the key of a cluster for resource tokens. No cluster gets the key of another one."""
    host, key = derive_identity(organisation_keys.find_or_create(rows, now), cluster_uid)
    given = TokenKey(host=host, key=key)
    return msgspec.structs.replace(given, check=given.compute_check())


def _check_opening(row: Any, opening: SessionRequest) -> None:
    if row.cluster_uid not in ("", opening.cluster_uid):
        raise WrongClusterError(
            f"this token belongs to another cluster (its kube-system has the UID {row.cluster_uid}): create a token "
            "for this one"
        )
    if opening.previous < row.session and not row.frozen:
        # A late request, or a request of an operator that was suspended.
        raise SessionEndedError(f"the last session was {row.session}", session=row.session)


def find_startable(rows: Rows, cluster: str, session: int, uids: tuple[str, ...]) -> list[str]:
    """Return which of the runs may start, for a host that is about to start them.

    Raises:
        MailboxError: the cluster is frozen, or the request belongs to another session.
    """
    row = lock_session(rows, cluster, session)
    if row.frozen:
        raise ClusterFrozenError(decode_frozen(row).why)
    return [
        each.uid
        for table in _RUN_TABLES
        for each in rows.execute(
            rows.select(table.c.uid).where(
                table.c.cluster == cluster,
                table.c.uid.in_(uids[:MAX_MESSAGES]),
                table.c.stop.is_(None),
                table.c.abandon.is_(None),
            )
        )
    ]


def read_frozen(rows: Rows, cluster: str) -> FrozenState | None:
    """Return why a cluster is frozen; None if it is not."""
    row = rows.execute(rows.select(agents).where(*_of_cluster(cluster))).one_or_none()
    return decode_frozen(row) if row is not None and row.frozen else None


def thaw(rows: Rows, cluster: str) -> bool:
    """Continue from the host's numbers; return False if it is not frozen or has not reported its runs yet.

    Runs that this database knows may have started and even ended on the host. Therefore they are marked as sealed:
    a host that does not know such a run reports that, instead of starting it again.
    """
    row = lock_mailbox(rows, cluster)
    if row is None or not row.frozen or (known := decode_frozen(row)).runs is None:
        return False
    for table in _RUN_TABLES:
        older = table.c.cluster == cluster, table.c.created_at <= known.at
        rows.execute(rows.update(table).where(*older).values(sealed=True))
    rows.execute(rows.delete(agent_outbox).where(*messages_of(agent_outbox, row)))
    number = max(row.sent, known.number)
    update_mailbox(
        rows,
        row,
        frozen="",
        session=max(row.session, known.session),
        sent=number,
        # Messages in between are unknown; the host receives this number with the next session.
        sent_digest=known.digest if number == known.number else row.sent_digest,
        acknowledged=known.number,
        acknowledged_digest=known.digest,
    )
    return True


def is_known_message(rows: Rows, row: Row[Any], number: int, digest: str) -> bool:
    """Return whether this database has sent that message, and the host has not gone back behind a confirmed one."""
    if number == row.acknowledged:
        return bool(digest == row.acknowledged_digest)
    if number == row.sent:
        return bool(digest == row.sent_digest)
    if not row.acknowledged < number <= row.sent:
        return False
    query = rows.select(agent_outbox.c.digest).where(*messages_of(agent_outbox, row), agent_outbox.c.number == number)
    return rows.execute(query).scalar() == digest


def lock_session(rows: Rows, cluster: str, session: int) -> Row[Any]:
    row = lock_mailbox(rows, cluster)
    if row is None or row.session != session or not session:
        current = row.session if row is not None else 0
        raise SessionEndedError(f"session {session} is not the current session {current}", session=current)
    return row


def freeze_cluster(rows: Rows, row: Row[Any], why: FrozenState) -> FrozenState:
    if row.frozen:
        why = msgspec.structs.replace(why, at=decode_frozen(row).at)
    update_mailbox(rows, row, frozen=_encode(why).decode(), seen_at=why.at)
    return why


def decode_frozen(row: Row[Any]) -> FrozenState:
    return msgspec.json.decode(row.frozen, type=FrozenState)


def _why(row: Row[Any]) -> str:
    return decode_frozen(row).why if row.frozen else ""


def lock_mailbox(rows: Rows, cluster: str) -> Row[Any] | None:
    return rows.execute(rows.select(agents).where(*_of_cluster(cluster)).with_for_update()).one_or_none()


def _of_cluster(cluster: str) -> tuple[Any, ...]:
    return (agents.c.cluster == cluster,)


def messages_of(table: sa.Table, row: Row[Any]) -> tuple[Any, ...]:
    return (table.c.cluster == row.cluster,)


def update_mailbox(rows: Rows, row: Row[Any], **values: Any) -> None:
    rows.execute(rows.update(agents).where(*_of_cluster(row.cluster)).values(**values))


def _decode_state(row: Row[Any]) -> MailboxState:
    return MailboxState(
        org=row.org,
        cluster=row.cluster,
        session=row.session,
        sent=row.sent,
        inbox=row.inbox,
        seen_at=row.seen_at,
        namespace=row.namespace,
        version=row.version,
        frozen=_why(row),
        created_at=row.created_at,
    )
