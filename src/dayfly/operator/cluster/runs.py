"""The ledger in a cluster: Run objects, each changed only by compare-and-swap on its resource version."""

import collections
from collections.abc import Callable

import msgspec

from dayfly.kube import errors
from dayfly.kube.cache import Cache, ObjectChange, is_newer
from dayfly.kube.client import KubeClient
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.plan import transitions
from dayfly.plan.actions import Move
from dayfly.plan.sealed import Plan
from dayfly.spec.run import Run

# Number of ended runs whose UIDs are remembered, because the watch may still report old states of them.
_MAX_GONE = 4096


class RunStore:
    """The Run objects. Reads return the newest known state, which may be old; writes are compare-and-swap."""

    def __init__(self, client: KubeClient, cache: Cache[RunObject]) -> None:
        self._client = client
        self.on_commit: Callable[[RunObject, tuple[Move, ...]], None] = lambda _run, _moves: None
        """Called after each commit, with the new run and its moves."""
        self._cache = cache
        # Objects in the API server's answers, each with the number of the newest list that the cache had begun by then.
        self._written: dict[str, tuple[RunObject, int]] = {}
        # By name: the UID of the last Run of that name that is gone. Later events of the watch about it are ignored.
        self._gone: collections.OrderedDict[str, str] = collections.OrderedDict()
        # By name and sequence number: our commits that the watch has not reported yet.
        self._committed: dict[str, dict[int, Run]] = {}
        cache.listen(self._handle_change)

    def is_own(self, change: ObjectChange[RunObject]) -> bool:
        """Return whether the change is exactly one of our commits: the turn that made it has already handled it."""
        old, new = change.old, change.new
        if old is None or new is None:
            return False
        committed = self._committed.get(change.key.name, {}).pop(new.ledger.seq, None)
        marks = {"resource_version": new.metadata.resource_version, "generation": new.metadata.generation}
        before = msgspec.structs.replace(old.metadata, **marks)
        return (committed, old.spec, before) == (new.ledger, new.spec, new.metadata)

    def get(self, name: str) -> RunObject | None:
        """Return the newest known state of the run, which may be out of date."""
        cached, noted = self._cached(name), self._written.get(name)
        if noted is None:
            return cached
        written, listing = noted
        if cached is None and self._cache.listed > listing:
            self._mark_gone(written)  # a later list lacks it
            return None
        if cached is None or cached.metadata.uid != written.metadata.uid:
            return cached or written
        if not is_newer(written, cached):
            del self._written[name]
            return cached
        return written

    async def read_current(self, name: str) -> RunObject | None:
        """Return the run by a quorum read; None if it is gone.

        Raises:
            errors.ApiError: the read failed.
        """
        known = self.get(name)
        gone = self._gone.get(name)
        found = await self._client.find(RUNS, name)
        if found is None:
            if known is not None:
                self._mark_gone(known)
            return None
        if found.metadata.uid == gone:  # it was wrongly considered gone
            self._gone.pop(name, None)
        return self._store_answer(found)

    def _cached(self, name: str) -> RunObject | None:
        found = self._cache.get(name)
        return None if found is None or found.metadata.uid == self._gone.get(name) else found

    def _store_answer(self, found: RunObject) -> RunObject | None:
        """Store an answer of the API server; return None if the watch has reported the end of that run by now."""
        meta = found.metadata
        if meta.uid == self._gone.get(meta.name):
            return None
        self._written[meta.name] = found, self._cache.begun
        return found

    def _handle_change(self, change: ObjectChange[RunObject]) -> None:
        if (gone := change.deleted) is not None:
            self._mark_gone(gone)

    def _mark_gone(self, run: RunObject) -> None:
        """Record that this Run is gone; its UID never comes back."""
        name, uid = run.metadata.name, run.metadata.uid
        self._committed.pop(name, None)
        self._gone[name] = uid
        self._gone.move_to_end(name)
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)
        if name in self._written and self._written[name][0].metadata.uid == uid:
            del self._written[name]

    async def create(self, body: RunObject) -> RunObject:
        """Create the Run, open and without claims, or return the existing one."""
        try:
            made = await self._client.create(RUNS, body)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            made = await self._client.get(RUNS, body.metadata.name)
        self._store_answer(made)
        return made

    async def commit(self, run: RunObject, plan: Plan, moves: tuple[Move, ...]) -> bool:
        """Apply the moves if the ledger is still in the state of `run`. Return whether they were applied.

        Raises:
            IllegalMoveError: the transition table does not allow a move; nothing is sent.
            errors.ApiError: the write failed; nothing was changed.
        """
        after = transitions.apply(run.ledger, moves, plan.creates)
        moved = msgspec.structs.replace(run, ledger=after)
        # Before the request: the watch may report the commit before the request returns.
        self._committed.setdefault(run.metadata.name, {})[after.seq] = after
        if not await self.replace(run, moved):
            if self.get(run.metadata.name) is None:  # the watch will not report its end again
                self._committed.pop(run.metadata.name, None)
            return False
        self.on_commit(moved, moves)
        return True

    async def replace(self, before: RunObject, after: RunObject) -> bool:
        """Replace the run if it is still in the state of `before`. Return whether it was replaced.

        Raises:
            errors.ApiError: the write failed or was refused.
        """
        name = before.metadata.name
        try:
            self._store_answer(await self._client.update(RUNS, after, name))
        except (errors.Conflict, errors.NotFound):
            self._written.pop(name, None)
            await self.read_current(name)
            return False
        except errors.OutcomeUnknown:
            # The write may have succeeded, so read the object. If it is unchanged, there was no conflict either: raise,
            # because an immediate retry would add load to an API server that is in trouble.
            found = await self.read_current(name)
            if found is not None and found.metadata.resource_version == before.metadata.resource_version:
                raise
            return found is not None and (found.ledger, found.spec) == (after.ledger, after.spec)
        return True

    def forget(self, name: str) -> None:
        """Drop what is stored of a run that is gone."""
        self._written.pop(name, None)
        self._committed.pop(name, None)
