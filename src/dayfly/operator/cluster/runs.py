"""The ledger in a cluster: Run objects, each changed only by compare-and-swap on its resource version."""

import collections
from collections.abc import Callable

import msgspec

from dayfly.kube import errors
from dayfly.kube.cache import Cache, Change, is_newer
from dayfly.kube.client import Client
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.plan import transitions
from dayfly.plan.actions import Move
from dayfly.plan.sealed import Plan
from dayfly.spec.run import Run

# Runs whose end is remembered, against late news of them.
_REMEMBERED = 4096


class RunStore:
    """Reads suggest (the newest of what the cache and our own writes have shown), writes decide."""

    def __init__(self, client: Client, cache: Cache[RunObject]) -> None:
        self._client = client
        self.written: Callable[[RunObject, tuple[Move, ...]], None] = lambda _run, _moves: None
        """Told of the moves that a run has taken."""
        self._cache = cache
        # What the server answered to us, each with the newest of the cache's lists that had begun by then.
        self._written: dict[str, tuple[RunObject, int]] = {}
        # By name: the UID of the last Run of that name that is gone for certain, whatever is heard of it afterwards.
        self._gone: collections.OrderedDict[str, str] = collections.OrderedDict()
        # By name and number: our commits of which the watch has not told yet.
        self._committed: dict[str, dict[int, Run]] = {}
        cache.listen(self._heard)

    def is_own(self, change: Change[RunObject]) -> bool:
        """Whether this is one of our commits and no more: the turn that made it has seen to what follows from it."""
        old, new = change.old, change.new
        if old is None or new is None:
            return False
        committed = self._committed.get(change.key.name, {}).pop(new.ledger.seq, None)
        marks = {"resource_version": new.metadata.resource_version, "generation": new.metadata.generation}
        before = msgspec.structs.replace(old.metadata, **marks)
        return (committed, old.spec, before) == (new.ledger, new.spec, new.metadata)

    def get(self, name: str) -> RunObject | None:
        """The newest form we have seen; it may be old already."""
        cached, noted = self._cached(name), self._written.get(name)
        if noted is None:
            return cached
        written, listing = noted
        if cached is None and self._cache.listed > listing:
            self._lost(written)  # a later list does not have it
            return None
        if cached is None or cached.metadata.uid != written.metadata.uid:
            return cached or written
        if not is_newer(written, cached):
            del self._written[name]
            return cached
        return written

    async def fresh(self, name: str) -> RunObject | None:
        """As it is now, by a quorum read.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        known = self.get(name)
        gone = self._gone.get(name)
        found = await self._client.find(RUNS, name)
        if found is None:
            if known is not None:
                self._lost(known)
            return None
        if found.metadata.uid == gone:  # whoever said so was wrong
            self._gone.pop(name, None)
        return self._note(found)

    def _cached(self, name: str) -> RunObject | None:
        found = self._cache.get(name)
        return None if found is None or found.metadata.uid == self._gone.get(name) else found

    def _note(self, found: RunObject) -> RunObject | None:
        """Keep what the server has just answered; None if its end was heard of meanwhile."""
        meta = found.metadata
        if meta.uid == self._gone.get(meta.name):
            return None
        self._written[meta.name] = found, self._cache.begun
        return found

    def _heard(self, change: Change[RunObject]) -> None:
        if (gone := change.gone) is not None:
            self._lost(gone)

    def _lost(self, run: RunObject) -> None:
        """That very Run is gone: a UID never comes back."""
        name, uid = run.metadata.name, run.metadata.uid
        self._committed.pop(name, None)
        self._gone[name] = uid
        self._gone.move_to_end(name)
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        if name in self._written and self._written[name][0].metadata.uid == uid:
            del self._written[name]

    async def birth(self, body: RunObject) -> RunObject:
        """Make the Run, open and without claims, or find the one that is there."""
        try:
            made = await self._client.create(RUNS, body)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            made = await self._client.get(RUNS, body.metadata.name)
        self._note(made)
        return made

    async def commit(self, run: RunObject, plan: Plan, moves: tuple[Move, ...]) -> bool:
        """Apply the moves if the ledger still stands where `run` saw it.

        Raises:
            IllegalMoveError: a move that the table does not hold; nothing is sent.
            errors.ApiError: the server cannot be asked, or says no; nothing was changed.
        """
        after = transitions.apply(run.ledger, moves, plan.creates)
        moved = msgspec.structs.replace(run, ledger=after)
        # Before it is sent: the watch may be faster than the answer.
        self._committed.setdefault(run.metadata.name, {})[after.seq] = after
        if not await self.replace(run, moved):
            if self.get(run.metadata.name) is None:  # nobody will tell of its end again
                self._committed.pop(run.metadata.name, None)
            return False
        self.written(moved, moves)
        return True

    async def replace(self, before: RunObject, after: RunObject) -> bool:
        """Put a new form in the place of the one seen; false if somebody else was first.

        Raises:
            errors.ApiError: the server says no, or did not write it for reasons of its own.
        """
        name = before.metadata.name
        try:
            self._note(await self._client.update(RUNS, after, name))
        except (errors.Conflict, errors.NotFound):
            self._written.pop(name, None)
            await self.fresh(name)
            return False
        except errors.OutcomeUnknown:
            # It may have been written: only what lies there now can tell. Where nothing was, nobody was faster either,
            # and to try again at once would add to whatever troubles the server.
            found = await self.fresh(name)
            if found is not None and found.metadata.resource_version == before.metadata.resource_version:
                raise
            return found is not None and (found.ledger, found.spec) == (after.ledger, after.spec)
        return True

    def forget(self, name: str) -> None:
        """It is gone."""
        self._written.pop(name, None)
        self._committed.pop(name, None)
