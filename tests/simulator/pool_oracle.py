"""The rules of pools and shared parents, checked against the ledger after each of its writes and at each start.

The rules use the ledgers of all runs and the things that steps have made, not the product's decisions.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tests.simulator.oracle import Violation

from dayfly.spec.run import Phase, Run, State, decode

if TYPE_CHECKING:
    import sqlite3

    from dayfly.spec.lifecycle import Lifecycle

# The numbers of the rules, in the list of seeded bugs.
ONE_HOLDER, HELD, CLAIMED, ONCE, HELD_CLEANUP, CAPACITY, EARLY_END, NOT_OVER, LEFT, DEFECT = range(101, 111)


class Start(NamedTuple):
    """The start of a step: its run, its unit, and whether it creates something."""

    run: str
    unit: str
    creates: bool


class PoolOracle:
    """The truth about all runs: their stored ledgers, and the things that their steps have made."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[bytes, Run]] = {}
        self._starts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.things: set[tuple[str, str]] = set()
        """Things that create steps have made: the run, and the resource of its step."""

    def runs(self) -> dict[str, Run]:
        """Return the stored ledgers of all runs that have not ended."""
        stored = self._connection.execute("SELECT uid, ledger FROM run ORDER BY uid").fetchall()
        known, self._known = self._known, {}
        for uid, raw in stored:
            before = known.get(uid)
            self._known[uid] = before if before is not None and before[0] == raw else (raw, decode(raw))
        return {uid: run for uid, (_, run) in self._known.items()}

    def _known_runs(self) -> dict[str, Run]:
        """Return the ledgers as of the last read."""
        return {uid: run for uid, (_, run) in self._known.items()}

    def ended(self) -> dict[str, Phase]:
        """Return how each run has ended."""
        stored = self._connection.execute("SELECT uid, ledger FROM ended").fetchall()
        return {uid: decode(raw).phase for uid, raw in stored}

    # --- after each write -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the rules that hold after every write.

        Raises:
            Violation: One does not.
        """
        before, runs = self._known_runs(), self.runs()
        for uid in before.keys() - runs.keys():
            self._check_end(before[uid], runs)
        claimants: dict[str, tuple[str, str]] = {}
        for uid, run in runs.items():
            for resource, ref in _refs(run).items():
                self._check_claim(runs, (uid, resource), ref, claimants)
            if run.is_member and (run.joins > 1 or len(run.holders) > 1):
                raise Violation(ONE_HOLDER, f"{uid} had {run.joins} holders")
            if run.is_member and run.holders and run.phase is not Phase.OPEN:
                raise Violation(HELD, f"{uid} is {run.phase} while {run.holders[0].run} holds it")
            for entry in run.holders:
                if entry.run not in runs and run.phase in (Phase.OPEN, Phase.CLOSED):
                    raise Violation(CLAIMED, f"{entry.run} is gone and still holds {uid}")
        self._check_parents(runs)

    def _check_end(self, run: Run, runs: dict[str, Run]) -> None:
        """Check that a run with a complete cleanup ends after its members."""
        left = [ref for ref in _refs(run).values() if ref in runs and runs[ref].is_member]
        if left and self.ended().get(run.uid) is Phase.CLEANED:
            raise Violation(EARLY_END, f"{run.uid} has ended before its members {left}")

    def _check_claim(
        self, runs: dict[str, Run], holder: tuple[str, str], ref: str, claimants: dict[str, tuple[str, str]]
    ) -> None:
        """Check that a member has one claimant, and that a ready claimant is in its ledger."""
        uid, resource = holder
        member, run = runs.get(ref), runs[uid]
        if member is not None and member.is_member and claimants.setdefault(ref, holder) != holder:
            raise Violation(ONE_HOLDER, f"{holder} and {claimants[ref]} claim {ref}")
        stand_ins = [each for name, each in run.units.items() if name.startswith(f"{resource}/") and each.ref == ref]
        is_ready = all(each.state is State.DONE and each.outcome == "succeeded" for each in stand_ins)
        if run.phase is not Phase.OPEN or not is_ready:
            return
        if member is None or holder not in [each.key for each in member.holders]:
            raise Violation(HELD, f"{holder} uses {ref}, which has {member and member.holders}")

    @staticmethod
    def _check_parents(runs: dict[str, Run]) -> None:
        parents: collections.Counter[str] = collections.Counter()
        for uid, run in runs.items():
            if not run.is_parent:
                continue
            if len(run.holders) > PARENT_CAPACITY:
                raise Violation(CAPACITY, f"{uid} has {len(run.holders)} holders")
            parents[run.plan] += 1
        if any(count > MAX_PARENTS for count in parents.values()):
            raise Violation(CAPACITY, f"there are {parents.most_common(1)} equal parents")

    def are_parents_full(self) -> bool:
        """Return whether no parent has room, and no other one may be created."""
        parents = [run for run in self.runs().values() if run.is_parent]
        full = [run for run in parents if run.phase is Phase.OPEN and len(run.holders) == PARENT_CAPACITY]
        return len(full) == len(parents) == MAX_PARENTS

    # --- steps ------------------------------------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """Check the start of a step.

        Raises:
            Violation: It runs a second time, or cleans up what is in use.
        """
        uid, unit, creates = start
        run = self.runs().get(uid)
        if run is None:
            raise Violation(ONCE, f"{unit} starts, and there is no run {uid}")
        self._starts[uid, unit] += creates
        if self._starts[uid, unit] > 1:
            raise Violation(ONCE, f"{unit} of {uid} starts again")
        failed = any(each.outcome == "failed" for each in run.units.values())
        if not creates and run.holders and not (run.is_parent and failed):
            raise Violation(HELD_CLEANUP, f"{unit} of {uid} starts while it has the holders {run.holders}")

    def ended_step(self, start: Start, *, succeeded: bool) -> None:
        """Record what a step has made or removed."""
        resource = start.unit.partition("/")[0]
        if start.creates:
            self.things.add((start.run, resource))  # a failed step may have made something
        elif succeeded and start.unit.rpartition("/")[2] in LAST_STEPS:
            self.things.discard((start.run, resource))

    # --- the end ----------------------------------------------------------------------------------------------------

    def leftovers(self) -> Iterator[str]:
        """Yield what is left although its run was not abandoned."""
        ended = self.ended()
        yield from (f"the run {uid} ({run.phase})" for uid, run in sorted(self.runs().items()))
        yield from (
            f"the {resource} of {uid}"
            for uid, resource in sorted(self.things)
            if ended.get(uid, Phase.OPEN) is not Phase.ABANDONED
        )


PARENT_CAPACITY, MAX_PARENTS = 2, 2
# The delete steps that remove what the create steps of their resource have made.
LAST_STEPS = frozenset({"drop", "stop", "revoke"})


def creating_units(documents: tuple[Lifecycle, ...]) -> set[str]:
    """Return the names of the create steps of documents."""
    return {unit.name for document in documents for unit in document.pre_start}


def _refs(run: Run) -> dict[str, str]:
    """Return the member or parent that a ledger claims for each resource."""
    return {
        name.partition("/")[0]: record.ref
        for name, record in run.units.items()
        if record.kind == "acquire" and record.ref
    }
