"""The rows between a server and its hosts, one transaction each: numbers, digests, one session for each cluster.

What is sent to a host is a chain: each message's digest covers that of the one before. The host keeps the last number
and digest that it has seen, and says them at each beginning. If this database does not hold that very message it is
not the one that sent it: it was restored, or the host was. Then the cluster is *frozen* until a human has looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from dayfly.link import wire
from dayfly.link.envelope import MOST_MESSAGES, Opening, Sent, Session, chained
from dayfly.server.db.notifications import notify
from dayfly.server.db.tables import agent_inbox, agent_outbox, agents, clusters, route_groups, sandboxes
from dayfly.server.records import confirmations

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows

MOST_BYTES = 1 << 20
# Messages that a host has not fetched. Further ones are dropped, and sent again later.
MOST_UNSEEN = 20_000
# How long messages of a host are kept for replicas. A slower replica requests the inventory.
KEEP_HEARD_MS = 60_000
# How many are kept: each message takes one number for every `HEARD_BYTES` that it has begun.
MOST_HEARD, HEARD_BYTES = 1 << 17, 1 << 10
# How often an idle poll is recorded, which is a write.
NOTED_EVERY_MS = 10_000

# The tables of what has a run.
_LIVING: Final = (sandboxes, route_groups)

RESTORED: Final = (
    "it has seen messages that this server does not know to have sent, as after a restore of the server's database or "
    "of the cluster. Nothing new is begun, stopped or deleted there; what it was told before goes on. Compare both "
    "sides and thaw the cluster"
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
    """0 before the first contact. Another value is that of an earlier cluster of this name."""


class FrozenState(msgspec.Struct, frozen=True, kw_only=True):
    """Why a cluster is frozen, and what its host reported; `runs` come with its next request for a session."""

    why: str
    at: int
    session: int = 0
    number: int = 0
    digest: str = ""
    runs: tuple[str, ...] | None = None


class MailboxError(Exception):
    """A host's request is refused with the HTTP `status`."""

    status = 409


class WrongClusterError(MailboxError):
    """The token belongs to another cluster."""

    status = 403


class ClusterFrozenError(MailboxError):
    """An administrator has to thaw the cluster."""

    status = 423


class SessionEndedError(MailboxError):
    """The session is over, or unknown; `session` is the current one."""

    def __init__(self, text: str, *, session: int) -> None:
        super().__init__(text)
        self.session = session


_encode = msgspec.json.Encoder().encode


def add(rows: Rows, cluster: str, now: int) -> None:
    """Add a mailbox for a cluster, unless it has one."""
    if rows.execute(rows.select(agents.c.org).where(*_mine(cluster))).first() is None:
        rows.insert(agents, {"cluster": cluster, "created_at": now})


def standings(rows: Rows, of: Collection[tuple[str, str]]) -> list[MailboxState]:
    """Return the states of those clusters, by organisation and name, that have a mailbox."""
    mine = sa.tuple_(agents.c.org, agents.c.cluster).in_(list(of))
    return [_standing(row) for row in rows.execute(rows.select(agents).where(mine))]


def roster(rows: Rows) -> list[MailboxState]:
    """Return the states of all clusters that were added for an agent, of all organisations."""
    known = {(row.org, row.cluster): _standing(row) for row in rows.execute(rows.select(agents))}
    added = rows.execute(rows.select(clusters.c.org, clusters.c.name).where(clusters.c.agent))
    nothing = MailboxState(org="", cluster="", session=0, sent=0, inbox=0, seen_at=0)
    return [
        known.get((row.org, row.name)) or msgspec.structs.replace(nothing, org=row.org, cluster=row.name)
        for row in added
    ]


def open_session(rows: Rows, cluster: str, asks: Opening, now: int) -> Session | FrozenState:
    """Begin a session for a host that knows the last one. Of two that begin at once, one is refused.

    Returns `FrozenState` where the two sides do not agree on what was sent; that is written, too.

    Raises:
        MailboxError: it is not to be.
    """
    row = _locked(rows, cluster)
    if row is None:
        add(rows, cluster, now)
        row = _locked(rows, cluster)
        assert row is not None, "just written"
    if row.cluster_uid not in ("", asks.cluster_uid):
        raise WrongClusterError(
            f"this token belongs to another cluster (its kube-system has the UID {row.cluster_uid}): make a token for "
            "this one"
        )
    if asks.previous < row.session and not row.frozen:
        # A late request, or one of an operator that was suspended.
        raise SessionEndedError(f"the last session was {row.session}", session=row.session)
    if row.frozen or asks.previous > row.session or not _agrees(rows, row, asks.number, asks.digest):
        why = _why(row) or RESTORED
        return _freeze(
            rows,
            row,
            FrozenState(why=why, at=now, session=asks.previous, number=asks.number, digest=asks.digest, runs=asks.runs),
        )
    rows.execute(rows.delete(agent_outbox).where(*_of(agent_outbox, row)))
    rows.execute(rows.delete(agent_inbox).where(*_of(agent_inbox, row)))
    confirmations.delete_of_cluster(rows, cluster)
    if row.sent != asks.number:
        # The host continues after this message, and sends its digest until it has fetched another one.
        known = {"number": row.sent, "digest": row.sent_digest, "at": now, "body": ""}
        rows.insert(agent_outbox, {"cluster": cluster, **known})
    _set(
        rows,
        row,
        cluster_uid=asks.cluster_uid,
        session=row.session + 1,
        # Not the number in this answer: if the answer is lost, the host still has the old one.
        acked=asks.number,
        acked_digest=asks.digest,
        heard=0,
        seen_at=now,
        version=asks.version[:128],
        namespace=asks.namespaces.get(rows.org, "")[:63],
    )
    notify(rows.connection, rows.org, cluster)
    met = rows.update(clusters).where(clusters.c.name == cluster)
    rows.execute(met.values(operator_version=asks.version[:64]))
    # From now on its sandboxes may have begun.
    rows.execute(met.where(clusters.c.connected_at.is_(None)).values(connected_at=now))
    found = Session(org=rows.org, cluster=cluster, session=row.session + 1, number=row.sent, digest=row.sent_digest)
    return msgspec.structs.replace(found, check=found.checked())


def publish(rows: Rows, cluster: str, messages: Collection[wire.AnyToHost], now: int) -> list[int]:
    """Number and store messages. Return their numbers; 0 for those that are void by now."""
    row = _locked(rows, cluster)
    if row is None or row.frozen:
        return [0 for _ in messages]
    number, digest, made, numbers = row.sent, row.sent_digest, list[dict[str, Any]](), list[int]()
    room = _room(rows, row, len(messages))
    for message in messages:
        if len(made) >= room or (not isinstance(message, wire.Hello) and message.session != row.session):
            numbers.append(0)
            continue
        number += 1
        body = wire.encode(msgspec.structs.replace(message, number=number)).decode()
        digest = chained(digest, number, now, body)
        made.append({"cluster": cluster, "number": number, "digest": digest, "at": now, "body": body})
        numbers.append(number)
    if made:
        rows.insert(agent_outbox, made)
        _set(rows, row, sent=number, sent_digest=digest)
        notify(rows.connection, rows.org, cluster)
    return numbers


def collect(rows: Rows, cluster: str, session: int, after: int, digest: str, now: int) -> list[Sent] | FrozenState:
    """Return the messages that a host has not received yet; delete those that it has.

    Raises:
        MailboxError: it asks in another session, or belatedly.
    """
    row = _in_session(rows, cluster, session)
    if row.frozen:
        return _frozen(row)
    if after < row.acked:
        raise SessionEndedError("this was asked before, and answered", session=row.session)
    if not _agrees(rows, row, after, digest):
        return _freeze(rows, row, FrozenState(why=RESTORED, at=now, session=session, number=after, digest=digest))
    if after > row.acked:
        rows.execute(rows.delete(agent_outbox).where(*_of(agent_outbox, row), agent_outbox.c.number <= after))
    if after > row.acked or now - row.seen_at >= NOTED_EVERY_MS:
        _set(rows, row, acked=after, acked_digest=digest, seen_at=now)
    found: list[Sent] = []
    size = 0
    query = rows.select(agent_outbox).where(*_of(agent_outbox, row), agent_outbox.c.number > after)
    for each in rows.execute(query.order_by(agent_outbox.c.number).limit(MOST_MESSAGES)):
        size += len(each.body)
        if found and size > MOST_BYTES:
            break
        found.append(Sent(number=each.number, at=each.at, digest=each.digest, body=each.body))
    return found


def hear(rows: Rows, cluster: str, session: int, first: int, bodies: list[str], now: int) -> int:
    """Store messages of a host, from `first` in its session on. Return how many were received in all.

    What was heard before is passed over; where something is missing nothing is taken, and the answer tells from where.

    Raises:
        MailboxError: it speaks in another session.
    """
    row = _in_session(rows, cluster, session)
    if first > row.heard + 1:
        return int(row.heard)
    new, number = bodies[row.heard + 1 - first :], row.inbox
    made: list[dict[str, Any]] = []
    for body in new:
        number += 1 + len(body.encode()) // HEARD_BYTES
        made.append({"cluster": cluster, "number": number, "session": session, "at": now, "body": body})
    if made:
        rows.insert(agent_inbox, made)
        old = sa.or_(agent_inbox.c.at < now - KEEP_HEARD_MS, agent_inbox.c.number <= number - MOST_HEARD)
        rows.execute(rows.delete(agent_inbox).where(*_of(agent_inbox, row), old))
        notify(rows.connection, rows.org, cluster)
    _set(rows, row, heard=row.heard + len(new), inbox=number, seen_at=now)
    return int(row.heard) + len(new)


def heard(rows: Rows, cluster: str, after: int) -> list[tuple[int, str]]:
    """Return the messages of a host after that number: number and body."""
    query = rows.select(agent_inbox).where(agent_inbox.c.cluster == cluster, agent_inbox.c.number > after)
    found = rows.execute(query.order_by(agent_inbox.c.number).limit(MOST_MESSAGES))
    return [(row.number, row.body) for row in found]


def may_begin(rows: Rows, cluster: str, session: int, uids: tuple[str, ...]) -> list[str]:
    """Return which of the sandboxes and route groups may start, for a host that is about to start them.

    Raises:
        MailboxError: it asks in another session.
    """
    row = _in_session(rows, cluster, session)
    if row.frozen:
        raise ClusterFrozenError(_frozen(row).why)
    return [
        each.uid
        for table in _LIVING
        for each in rows.execute(
            rows.select(table.c.uid).where(
                table.c.cluster == cluster,
                table.c.uid.in_(uids[:MOST_MESSAGES]),
                table.c.stop.is_(None),
                table.c.abandon.is_(None),
            )
        )
    ]


def frozen(rows: Rows, cluster: str) -> FrozenState | None:
    """Return why a cluster is frozen; None if it is not."""
    row = rows.execute(rows.select(agents).where(*_mine(cluster))).one_or_none()
    return _frozen(row) if row is not None and row.frozen else None


def thaw(rows: Rows, cluster: str) -> bool:
    """Continue from the host's numbers; false if it is not frozen, or has not reported its runs yet.

    Whatever this database held then may have run there already, and its end be forgotten: it counts as taken over, so
    that a host which does not know it says so instead of beginning it.
    """
    row = _locked(rows, cluster)
    if row is None or not row.frozen or (known := _frozen(row)).runs is None:
        return False
    for table in _LIVING:
        mine = table.c.cluster == cluster, table.c.created_at <= known.at
        rows.execute(rows.update(table).where(*mine).values(taken_over=True))
    rows.execute(rows.delete(agent_outbox).where(*_of(agent_outbox, row)))
    number = max(row.sent, known.number)
    _set(
        rows,
        row,
        frozen="",
        session=max(row.session, known.session),
        sent=number,
        # Messages in between are unknown; the next session gives the host this number.
        sent_digest=known.digest if number == known.number else row.sent_digest,
        acked=known.number,
        acked_digest=known.digest,
    )
    return True


def _agrees(rows: Rows, row: Row[Any], number: int, digest: str) -> bool:
    """Return whether this database has sent that very message, and the host has forgotten none."""
    if number == row.acked:
        return bool(digest == row.acked_digest)
    if number == row.sent:
        return bool(digest == row.sent_digest)
    if not row.acked < number <= row.sent:
        return False
    query = rows.select(agent_outbox.c.digest).where(*_of(agent_outbox, row), agent_outbox.c.number == number)
    return rows.execute(query).scalar() == digest


def _room(rows: Rows, row: Row[Any], wanted: int) -> int:
    """Return how many messages may be added; they are counted only if there may be too many."""
    room = MOST_UNSEEN - int(row.sent - row.acked)
    if room < wanted:
        # A new session continues after numbers that were never fetched and are deleted.
        query = rows.select(sa.func.count(agent_outbox.c.number)).where(*_of(agent_outbox, row))
        room = MOST_UNSEEN - int(rows.execute(query).scalar_one())
    return room


def _in_session(rows: Rows, cluster: str, session: int) -> Row[Any]:
    row = _locked(rows, cluster)
    if row is None or row.session != session or not session:
        there = row.session if row is not None else 0
        raise SessionEndedError(f"session {session} is not the one there is, {there}", session=there)
    return row


def _freeze(rows: Rows, row: Row[Any], why: FrozenState) -> FrozenState:
    if row.frozen:
        why = msgspec.structs.replace(why, at=_frozen(row).at)
    _set(rows, row, frozen=_encode(why).decode(), seen_at=why.at)
    return why


def _frozen(row: Row[Any]) -> FrozenState:
    return msgspec.json.decode(row.frozen, type=FrozenState)


def _why(row: Row[Any]) -> str:
    return _frozen(row).why if row.frozen else ""


def _locked(rows: Rows, cluster: str) -> Row[Any] | None:
    return rows.execute(rows.select(agents).where(*_mine(cluster)).with_for_update()).one_or_none()


def _mine(cluster: str) -> tuple[Any, ...]:
    return (agents.c.cluster == cluster,)


def _of(table: sa.Table, row: Row[Any]) -> tuple[Any, ...]:
    return (table.c.cluster == row.cluster,)


def _set(rows: Rows, row: Row[Any], **values: Any) -> None:
    rows.execute(rows.update(agents).where(*_mine(row.cluster)).values(**values))


def _standing(row: Row[Any]) -> MailboxState:
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
