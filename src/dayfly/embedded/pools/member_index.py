"""The living pool members and shared parents in memory, by UID and by the digest of their template."""

import collections
import logging
import statistics
from collections.abc import Callable, Iterator

import msgspec

from dayfly.embedded.ledger import SqliteLedger, StoredRun
from dayfly.embedded.pool_tables import MemberRow
from dayfly.embedded.pools.secret_digests import SecretDigests
from dayfly.execute.acquire.acquisition import template_of
from dayfly.execute.acquire.members import AcquireProgress, is_free, progress
from dayfly.plan.sealed import Plan
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.run import Run

log = logging.getLogger(__name__)

# Number of members from whose creation the usual time is taken.
DURATIONS = 20


class PoolMember(msgspec.Struct, frozen=True, kw_only=True):
    """A living member: its ledger, its pool (empty for none), and whether its end was requested.

    `secrets` is the digest of the secrets that it reads, as of its birth.
    """

    run: Run
    plan: Plan
    pool: str
    number: int
    secrets: str
    is_stopping: bool
    progress: AcquireProgress

    @property
    def pool_name(self) -> str:
        """The name of its pool, from its own name; empty if it belongs to none."""
        return self.run.target.name.rpartition("-")[0] if self.pool else ""

    @property
    def is_available(self) -> bool:
        """Return whether a holder may join it: it is open, was never held, and is not to end."""
        return (
            not self.is_stopping
            and self.progress in (AcquireProgress.CREATING, AcquireProgress.READY)
            and is_free(self.run)
        )


class MemberIndex:
    """The living members and parents. The ledger is the truth: a member that is out of date here is not joined.

    `secrets` reads the digests of the secrets that members read.
    """

    def __init__(self, secrets: SecretDigests) -> None:
        self.secrets = secrets
        self._members: dict[str, PoolMember] = {}
        # By digest and progress, the members that a holder may join, in the order in which they became that.
        self._available: dict[tuple[str, AcquireProgress], dict[str, None]] = {}
        self._plans: dict[str, Plan] = {}
        self._by_holder: dict[str, set[str]] = {}
        # The time that the last members of a template took to become ready, in milliseconds.
        self._durations: dict[str, collections.deque[int]] = {}
        self._unreadable: dict[str, MemberRow] = {}
        self.on_change: Callable[[str], None] = lambda _pool: None  # called with the UID of a pool
        # UIDs of all members that this process has known: their reports are not sent to the server.
        self._known: set[str] = set()

    def load(self, reader: SqliteLedger) -> None:
        """Read all members. Members that cannot be read, or are lost, get no holder."""
        for lost in reader.pools.lost_members():
            log.warning("the record of pool member %s is lost", lost.uid)
            self._unreadable[lost.uid] = lost
        for row in reader.pools.living_members():
            self._known.add(row.uid)
            try:
                self.read(reader, row.uid)
            except RunDamagedError as error:
                log.warning("pool member %s is not used: %s", row.uid, error)

    def add(self, stored: StoredRun, row: MemberRow) -> None:
        """Add a member."""
        plan = self._plans.get(stored.run.plan)
        if plan is None:
            plan = self._plans[stored.run.plan] = template_of(stored.documents).plan
        self._known.add(stored.run.uid)
        self._put(
            PoolMember(
                run=stored.run,
                plan=plan,
                pool=row.pool,
                number=row.number,
                secrets=row.secrets,
                is_stopping=_is_stopping(stored),
                progress=progress(plan, stored.run),
            )
        )

    def replace(self, run: Run) -> None:
        """Replace the ledger of a member, unless it is older than the known one."""
        found = self._members.get(run.uid)
        if found is not None and run.seq >= found.run.seq:
            self._put(msgspec.structs.replace(found, run=run, progress=progress(found.plan, run)))

    def read(self, reader: SqliteLedger, uid: str) -> PoolMember | None:
        """Read a member from the ledger again; return None if it is not there. If it is damaged, it gets no holder.

        Raises:
            RunDamagedError: it cannot be read.
        """
        row = reader.pools.member(uid)
        if row is None:
            return None
        try:
            stored = reader.load(uid)
        except RunDamagedError:
            self.drop(uid)
            self._unreadable[uid] = row
            raise
        self._unreadable.pop(uid, None)
        if stored is None:
            return None
        self.add(stored, row)
        return self._members[uid]

    def drop(self, uid: str) -> None:
        """Remove a member that has ended."""
        if (unreadable := self._unreadable.pop(uid, None)) is not None:
            self.on_change(unreadable.pool)
        found = self._members.pop(uid, None)
        if found is not None:
            self._make_unavailable(found)
            self._drop_holders(found)
            self.on_change(found.pool)

    def find(self, uid: str) -> PoolMember | None:
        """Return a living member; None if there is none."""
        return self._members.get(uid)

    def all(self) -> list[PoolMember]:
        """Return all living members."""
        return list(self._members.values())

    def was_known(self, uid: str) -> bool:
        """Return whether the run is, or was, a member."""
        return uid in self._known

    def available(self, digest: str) -> Iterator[PoolMember]:
        """Yield the members of a template that a holder may join: ready ones, then those that are being created."""
        for state in (AcquireProgress.READY, AcquireProgress.CREATING):
            for uid in self._available.get((digest, state), ()):
                yield self._members[uid]

    def is_expected_soon(self, member: PoolMember, now: int) -> bool:
        """Return whether a member that is being created is younger than the usual time until a member is ready."""
        known = self._durations.get(member.run.plan)
        return not known or now - member.run.born_at < statistics.median(known)

    def held_by(self, holder: str) -> list[PoolMember]:
        """Return the members that a run holds."""
        return [self._members[uid] for uid in self._by_holder.get(holder, ())]

    def unreadable_of(self, pool: str) -> list[MemberRow]:
        """Return the members of a pool whose runs cannot be read or are lost."""
        return [row for row in self._unreadable.values() if row.pool == pool]

    def of_pool(self, pool: str) -> list[PoolMember]:
        """Return the members of a pool, in the order of their numbers."""
        return sorted((each for each in self._members.values() if each.pool == pool), key=lambda each: each.number)

    def _put(self, member: PoolMember) -> None:
        uid, before = member.run.uid, self._members.get(member.run.uid)
        if before is not None:
            if before.progress is AcquireProgress.CREATING and member.progress is AcquireProgress.READY:
                self._add_duration(member.run)
            if not (member.is_available and before.progress is member.progress):
                self._make_unavailable(before)
            self._drop_holders(before)
        self._members[uid] = member
        for holder in member.run.holders:
            self._by_holder.setdefault(holder.run, set()).add(uid)
        if member.is_available:
            self._available.setdefault((member.run.plan, member.progress), {}).setdefault(uid)
        self.on_change(member.pool)

    def _add_duration(self, run: Run) -> None:
        known = self._durations.setdefault(run.plan, collections.deque(maxlen=DURATIONS))
        known.append(max((record.ended_at for record in run.units.values()), default=run.born_at) - run.born_at)

    def _make_unavailable(self, member: PoolMember) -> None:
        self._available.get((member.run.plan, member.progress), {}).pop(member.run.uid, None)

    def _drop_holders(self, member: PoolMember) -> None:
        for holder in member.run.holders:
            held = self._by_holder.get(holder.run, set())
            held.discard(member.run.uid)
            if not held:
                self._by_holder.pop(holder.run, None)


def _is_stopping(stored: StoredRun) -> bool:
    return stored.intent.stop is not None or stored.intent.abandon is not None
