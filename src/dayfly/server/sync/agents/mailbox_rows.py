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
from dayfly.server.db.tables import agent_inbox, agent_outbox
from dayfly.server.sync.agents.sessions import (
    RESTORED,
    FrozenState,
    SessionEndedError,
    decode_frozen,
    freeze_cluster,
    is_known_message,
    lock_mailbox,
    lock_session,
    messages_of,
    update_mailbox,
)

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
