"""The messages between a server and its hosts as rows, with numbers and digests.

Each function is one transaction. The messages to a host are a hash chain: the digest of each covers the previous
digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from dayfly.link import wire
from dayfly.link.envelope import MAX_MESSAGES, NumberedMessage, chain_digest
from dayfly.server.db.notifications import notify
from dayfly.server.db.tables import agent_inbox, agent_outbox, agents, clusters, resource_pools, route_groups, sandboxes
from dayfly.server.records import confirmations

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows

MAX_ANSWER_BYTES = 1 << 20
# The maximum of messages that a host has not fetched. Further messages are dropped, and their senders repeat them.
MAX_UNSEEN = 20_000
# How long messages of a host are kept for replicas. A slower replica requests the inventory.
INBOX_RETENTION_MS = 60_000
# The maximum of these messages, in numbers. A message takes one number for each started `INBOX_UNIT_BYTES`.
MAX_INBOX, INBOX_UNIT_BYTES = 1 << 17, 1 << 10
# Interval at which idle polls are recorded, because each record is a write.
RECORD_POLL_INTERVAL_MS = 10_000

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


def add(rows: Rows, cluster: str, now: int) -> None:
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
    row = _lock(rows, cluster)
    if row is None:
        add(rows, cluster, now)
        row = _lock(rows, cluster)
        assert row is not None, "just written"
    _check_opening(row, opening)
    if row.frozen or opening.previous > row.session or not _is_known_message(rows, row, opening.number, opening.digest):
        why = _why(row) or RESTORED
        return _freeze(
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
    rows.execute(rows.delete(agent_outbox).where(*_rows_of(agent_outbox, row)))
    rows.execute(rows.delete(agent_inbox).where(*_rows_of(agent_inbox, row)))
    confirmations.delete_of_cluster(rows, cluster)
    if row.sent != opening.number:
        # The host continues after this message, and sends its digest until it has fetched the next message.
        known = {"number": row.sent, "digest": row.sent_digest, "at": now, "body": ""}
        rows.insert(agent_outbox, {"cluster": cluster, **known})
    _update(
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
    )
    notify(rows.connection, rows.org, cluster)
    update = rows.update(clusters).where(clusters.c.name == cluster)
    rows.execute(update.values(operator_version=opening.version[:64]))
    # From now on its runs may have started.
    rows.execute(update.where(clusters.c.connected_at.is_(None)).values(connected_at=now))
    found = Session(org=rows.org, cluster=cluster, session=row.session + 1, number=row.sent, digest=row.sent_digest)
    return msgspec.structs.replace(found, check=found.compute_check())


def _check_opening(row: Any, opening: SessionRequest) -> None:
    if row.cluster_uid not in ("", opening.cluster_uid):
        raise WrongClusterError(
            f"this token belongs to another cluster (its kube-system has the UID {row.cluster_uid}): create a token "
            "for this one"
        )
    if opening.previous < row.session and not row.frozen:
        # A late request, or a request of an operator that was suspended.
        raise SessionEndedError(f"the last session was {row.session}", session=row.session)


def publish(rows: Rows, cluster: str, messages: Collection[wire.AnyToHost], now: int) -> list[int]:
    """Store messages with numbers; return the numbers, or 0 for a message of another session or without room."""
    row = lock_mailbox(rows, cluster)
    if row is None or row.frozen:
        return [0 for _ in messages]
    number, digest, made, numbers = row.sent, row.sent_digest, list[dict[str, Any]](), list[int]()
    room = _count_room(rows, row, len(messages))
    for message in messages:
        if len(made) >= room or (not isinstance(message, wire.Hello) and message.session != row.session):
            numbers.append(0)
            continue
        number += 1
        body = wire.encode(msgspec.structs.replace(message, number=number)).decode()
        digest = chain_digest(digest, number, now, body)
        made.append({"cluster": cluster, "number": number, "digest": digest, "at": now, "body": body})
        numbers.append(number)
    if made:
        rows.insert(agent_outbox, made)
        update_mailbox(rows, row, sent=number, sent_digest=digest)
        notify(rows.connection, rows.org, cluster)
    return numbers


def fetch(
    rows: Rows, cluster: str, session: int, after: int, digest: str, now: int
) -> list[NumberedMessage] | FrozenState:
    """Return the messages that a host has not received yet; delete the received ones.

    Raises:
        MailboxError: the request belongs to another session or is out of date.
    """
    row = lock_session(rows, cluster, session)
    if row.frozen:
        return decode_frozen(row)
    if after < row.acknowledged:
        raise SessionEndedError("a later request has been answered", session=row.session)
    if not is_known_message(rows, row, after, digest):
        return freeze_cluster(
            rows, row, FrozenState(why=RESTORED, at=now, session=session, number=after, digest=digest)
        )
    if after > row.acknowledged:
        rows.execute(rows.delete(agent_outbox).where(*messages_of(agent_outbox, row), agent_outbox.c.number <= after))
    if after > row.acknowledged or now - row.seen_at >= RECORD_POLL_INTERVAL_MS:
        update_mailbox(rows, row, acknowledged=after, acknowledged_digest=digest, seen_at=now)
    found: list[NumberedMessage] = []
    size = 0
    query = rows.select(agent_outbox).where(*messages_of(agent_outbox, row), agent_outbox.c.number > after)
    for each in rows.execute(query.order_by(agent_outbox.c.number).limit(MAX_MESSAGES)):
        size += len(each.body)
        if found and size > MAX_ANSWER_BYTES:
            break
        found.append(NumberedMessage(number=each.number, at=each.at, digest=each.digest, body=each.body))
    return found


def receive(rows: Rows, cluster: str, session: int, first: int, bodies: list[str], now: int) -> int:
    """Store messages of a host; return the number of the last message received in the session.

    Repeated messages are ignored. If messages before `first` are missing, none is stored, and the host resends from
    the returned number on.

    Raises:
        MailboxError: the request belongs to another session.
    """
    row = lock_session(rows, cluster, session)
    if first > row.received + 1:
        return int(row.received)
    new, number = bodies[row.received + 1 - first :], row.inbox
    made: list[dict[str, Any]] = []
    for body in new:
        number += 1 + len(body.encode()) // INBOX_UNIT_BYTES
        made.append({"cluster": cluster, "number": number, "session": session, "at": now, "body": body})
    if made:
        rows.insert(agent_inbox, made)
        old = sa.or_(agent_inbox.c.at < now - INBOX_RETENTION_MS, agent_inbox.c.number <= number - MAX_INBOX)
        rows.execute(rows.delete(agent_inbox).where(*messages_of(agent_inbox, row), old))
        notify(rows.connection, rows.org, cluster)
    update_mailbox(rows, row, received=row.received + len(new), inbox=number, seen_at=now)
    return int(row.received) + len(new)


def read_inbox(rows: Rows, cluster: str, after: int) -> list[tuple[int, str]]:
    """Return number and body of the messages of a host after a number."""
    query = rows.select(agent_inbox).where(agent_inbox.c.cluster == cluster, agent_inbox.c.number > after)
    found = rows.execute(query.order_by(agent_inbox.c.number).limit(MAX_MESSAGES))
    return [(row.number, row.body) for row in found]


def _count_room(rows: Rows, row: Row[Any], wanted: int) -> int:
    """Return how many messages may be added. The stored ones are counted only if the limit may be reached."""
    room = MAX_UNSEEN - int(row.sent - row.acknowledged)
    if room < wanted:
        # A new session continues after numbers that were never fetched and are deleted.
        query = rows.select(sa.func.count(agent_outbox.c.number)).where(*messages_of(agent_outbox, row))
        room = MAX_UNSEEN - int(rows.execute(query).scalar_one())
    return room
