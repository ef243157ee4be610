"""The logs of a run, with those of the pool members that it uses or consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.plan.world import Running
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import PARENT_PREFIX, Kind
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dayfly.embedded.attempts import Attempts
    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.embedded.pools.member_index import MemberIndex
    from dayfly.embedded.step_logs import StepLogFiles
    from dayfly.spec.log_times import TimeEntry
    from dayfly.spec.run import Run


class _MemberLogs(NamedTuple):
    """A member's logs in another run: its unit `postgres/make` has the name PREFIX/make there.

    For a parent, that name is PREFIX/parent.make.
    """

    prefix: str
    uid: str
    is_parent: bool = False

    def rename(self, unit: str) -> str:
        return f"{self.prefix}/{PARENT_PREFIX * self.is_parent}{unit.rpartition('/')[2]}"


class RunLogs:
    """The logs of runs and pools.

    The steps of a member are among the logs of its holder, under the names that they have without a pool. The logs of a
    pool are those of its members, under the member's name.
    """

    def __init__(self, files: StepLogFiles, reader: SqliteLedger, attempts: Attempts, members: MemberIndex) -> None:
        self._files = files
        self._reader = reader
        self._attempts = attempts
        self._members = members

    def list_logs(self, uid: str) -> tuple[LogInfo, ...]:
        """Return the logs of a run by unit and attempt, also after its end, and those of its members and parents."""
        own = self._own_logs(uid)
        names = {info.unit for info in own}
        others = [
            msgspec.structs.replace(info, unit=member.rename(info.unit))
            for member in self._sources(uid)
            for info in self.list_logs(member.uid)
            if member.rename(info.unit) not in names
        ]
        return (*own, *others)

    def read(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Return bytes of one log from `offset`; None if there is no such log."""
        return self._files.read(*self._locate(uid, unit, attempt), attempt, offset=offset, limit=limit)

    def times(self, uid: str, unit: str, attempt: int) -> Sequence[TimeEntry]:
        """Return the times of the lines of one log."""
        return self._files.times(*self._locate(uid, unit, attempt), attempt)

    def _own_logs(self, uid: str) -> tuple[LogInfo, ...]:
        """Return the logs of a run without those of its units of kind acquire, which print nothing themselves."""
        facts, run = self._attempts.facts(uid), self._run(uid)
        found = self._files.list_logs(uid, {key for key, fact in facts.items() if isinstance(fact, Running)})
        return tuple(info for info in found if run is None or run.kind(info.unit) != Kind.ACQUIRE)

    def _locate(self, uid: str, unit: str, attempt: int) -> tuple[str, str]:
        """Return the run and the unit whose log it is."""
        sources = list(self._sources(uid))
        if sources and not any((info.unit, info.attempt) == (unit, attempt) for info in self._own_logs(uid)):
            for member in sources:
                for info in self.list_logs(member.uid):
                    if member.rename(info.unit) == unit:
                        return self._locate(member.uid, info.unit, attempt)
        return uid, unit

    def _sources(self, uid: str) -> Iterator[_MemberLogs]:
        run = self._run(uid)
        if run is None:
            yield from self._members_of_pool(uid)
            return
        found = {
            (name.rpartition("/")[0], record.ref): None
            for name, record in run.units.items()
            if run.kind(name) == Kind.ACQUIRE and record.ref
        }
        for resource, ref in found:
            source = self._run(ref)
            yield _MemberLogs(resource, ref, source is not None and source.is_parent)

    def _members_of_pool(self, uid: str) -> Iterator[_MemberLogs]:
        yield from (_MemberLogs(each.run.target.name, each.run.uid) for each in self._members.of_pool(uid))
        pool = self._reader.pools.load(uid)
        if pool is not None and pool.ledger.failed:
            number = pool.ledger.failed
            failed = member_id(uid, str(number))
            if self._members.find(failed) is None:
                yield _MemberLogs(f"{pool.target.name}-{number}", failed)

    def _run(self, uid: str) -> Run | None:
        stored = self._reader.load(uid)
        return stored.run if stored is not None else self._reader.ended_run(uid)
