"""The ledger in a cluster: Run objects, each changed only by compare-and-swap on its resource version."""

import msgspec

from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import Client
from dayfly.operator import journal
from dayfly.operator.objects import RUNS, RunObject
from dayfly.plan import table
from dayfly.plan.actions import Move
from dayfly.plan.sealed import Plan


class Runs:
    """Reads suggest (the newest of what the cache and our own writes have shown), writes decide."""

    def __init__(self, client: Client, cache: Cache[RunObject]) -> None:
        self._client = client
        self._cache = cache
        self._written: dict[str, RunObject] = {}
        # By name: the UID of a Run that is gone for certain, as long as the cache has not heard of it.
        self._gone: dict[str, str] = {}

    def get(self, name: str) -> RunObject | None:
        """The newest form we have seen; it may be old already."""
        cached, written = self._cached(name), self._written.get(name)
        if cached is None or written is None or written.metadata.uid != cached.metadata.uid:
            return cached or written
        if cached.ledger.seq >= written.ledger.seq:
            del self._written[name]
            return cached
        return written

    async def fresh(self, name: str) -> RunObject | None:
        """As it is now, by a quorum read."""
        before = self._cached(name)
        try:
            found = await self._client.get(RUNS, name)
        except errors.NotFound:
            self._written.pop(name, None)
            if before is not None:
                self._gone[name] = before.metadata.uid  # a UID never comes back
            return None
        self._written[name] = found
        return found

    def _cached(self, name: str) -> RunObject | None:
        found = self._cache.get(name)
        if found is not None and found.metadata.uid == self._gone.get(name):
            return None
        self._gone.pop(name, None)
        return found

    async def birth(self, body: RunObject) -> RunObject:
        """Make the Run, open and without claims, or find the one that is there."""
        try:
            made = await self._client.create(RUNS, body)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            made = await self._client.get(RUNS, body.metadata.name)
        self._written[made.metadata.name] = made
        return made

    async def commit(self, run: RunObject, plan: Plan, moves: tuple[Move, ...]) -> bool:
        """Apply the moves if the ledger still stands where `run` saw it.

        Raises:
            IllegalMoveError: a move that the table does not hold; nothing is sent.
            errors.ApiError: the server cannot be asked, or says no; nothing was changed.
        """
        after = table.apply(run.ledger, moves, lambda unit: unit not in plan.steps or plan.steps[unit].creates)
        moved = msgspec.structs.replace(run, ledger=after)
        if not await self.replace(run, moved):
            return False
        journal.moved(moved, moves)
        return True

    async def replace(self, before: RunObject, after: RunObject) -> bool:
        """Put a new form in the place of the one seen; false if somebody else was first."""
        name = before.metadata.name
        try:
            self._written[name] = await self._client.update(RUNS, after, name)
        except (errors.Conflict, errors.NotFound):
            self._written.pop(name, None)
            await self.fresh(name)
            return False
        except errors.OutcomeUnknown:
            # It may have been written: only what lies there now can tell.
            found = await self.fresh(name)
            return found is not None and (found.ledger, found.spec) == (after.ledger, after.spec)
        return True

    def forget(self, name: str) -> None:
        """It is gone."""
        self._written.pop(name, None)
