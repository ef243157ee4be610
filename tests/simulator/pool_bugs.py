"""Seeded bugs of holds on the embedded host: each removes one guard. The schedules of pools must find every bug."""

from tests.simulator.bugs import Bug, Edit
from tests.simulator.pool_oracle import (
    CAPACITY,
    CLAIMED,
    DEFECT,
    EARLY_END,
    HELD,
    HELD_CLEANUP,
    LEFT,
    NOT_OVER,
    ONE_HOLDER,
)

ACQUIRE, KEEPER = "embedded/pools/acquire_executor.py", "embedded/pools/pool_keeper.py"
LEDGER, ENGINE = "embedded/ledger.py", "embedded/engine.py"
TABLE, DEADLINES, PARENTS, DESK = "plan/transitions.py", "plan/deadlines.py", "plan/parents.py", "plan/decision.py"
FACTS, MEMBERS = "execute/acquire/facts.py", "execute/acquire/members.py"

TABLE_CLOSES_HELD: Edit = (
    TABLE,
    "if run.holders and not (run.is_parent and _has_failed(run, creates)):",
    "if run.seq < 0:",
)
TABLE_JOINS_AGAIN: Edit = (TABLE, "if is_holder or (run.is_member and run.joins):", "if is_holder:")
USED_IS_FREE: Edit = (
    MEMBERS,
    "return run.phase is Phase.OPEN and not run.joins",
    "return run.phase is Phase.OPEN",
)
ENDS_WHILE_HELD: Edit = (
    DEADLINES,
    "if request is not None and draft.run.holders:",
    "if request is not None and draft.now < 0:",
)


def _bug(name: str, *edits: Edit, found_by: tuple[int, ...]) -> Bug:
    return Bug(name, edits, found_by, "pools")


BUGS: tuple[Bug, ...] = (
    # --- the hold ---
    _bug(
        "the claim of a holder joins no member",
        (ACQUIRE, "if refs and refs[0] != former:", "if refs and not refs:"),
        found_by=(ONE_HOLDER, HELD, DEFECT),
    ),
    _bug("held members are free", USED_IS_FREE, found_by=(DEFECT,)),
    _bug("held members are free and accept a second holder", USED_IS_FREE, TABLE_JOINS_AGAIN, found_by=(ONE_HOLDER,)),
    _bug(
        "a commit does not compare the members that it changes",
        (LEDGER, "if not all(map(self._is_current, others)) or not self._replace", "if not self._replace"),
        found_by=(HELD, ONE_HOLDER, DEFECT),
    ),
    _bug(
        "a hold uses a slot of its host",
        (
            DESK,
            "uses_slot = not is_kept and step.unit.kind not in self.world.slotless_kinds",
            "uses_slot = not is_kept",
        ),
        (ENGINE, "and move.kind not in SLOTLESS_KINDS", ""),
        found_by=(NOT_OVER,),
    ),
    _bug(
        "the progress of a member does not wake its holder",
        (ACQUIRE, "return {each.run for each in run.holders} | self._waiting.get(run.uid, set())", "return set()"),
        found_by=(NOT_OVER,),
    ),
    # --- the end of a hold ---
    _bug(
        "a member is not left with its release",
        (ACQUIRE, "            if released:\n", "            if released and not released:\n"),
        found_by=(NOT_OVER,),
    ),
    _bug(
        "a holder ends before its member",
        (FACTS, "if member.uid and not member.has_ended:", "if member.uid and member.run is None:"),
        found_by=(EARLY_END,),
    ),
    _bug(
        "the end of a member does not wake its holder",
        (ACQUIRE, "return self._waiting.pop(uid, set()) | queued", "return queued"),
        found_by=(NOT_OVER,),
    ),
    _bug(
        "a reset keeps the former member",
        (ACQUIRE, "self._leave_with(changes, former, live.run, acquisition.resource)", "pass"),
        found_by=(CLAIMED, EARLY_END, NOT_OVER),
    ),
    _bug(
        "an abandoned run keeps its members",
        (ACQUIRE, "            await self._leave(uid, run)\n            self._waiting", "            self._waiting"),
        found_by=(CLAIMED, NOT_OVER),
    ),
    _bug(
        "a member stays open after its holder",
        (
            TABLE,
            '    if run.is_member:\n        return {"holders": others, "phase"',
            '    if run.seq < 0:\n        return {"holders": others, "phase"',
        ),
        found_by=(NOT_OVER, DEFECT),
    ),
    _bug("a held run closes for its owner", ENDS_WHILE_HELD, found_by=(DEFECT,)),
    _bug(
        "a held run closes for its owner in the ledger",
        ENDS_WHILE_HELD,
        TABLE_CLOSES_HELD,
        found_by=(HELD, HELD_CLEANUP),
    ),
    # --- parents ---
    _bug(
        "a parent accepts too many holders",
        (MEMBERS, "len(parent.holders) < capacity", "len(parent.holders) <= capacity"),
        found_by=(CAPACITY,),
    ),
    _bug(
        "a parent ends while it has holders",
        (PARENTS, "elif not draft.run.holders:", "else:"),
        found_by=(DEFECT,),
    ),
    _bug(
        "runs that wait for a parent are not woken",
        (ACQUIRE, "return self.parents.follow(change)", "return {each.run for each in run.holders}"),
        found_by=(NOT_OVER,),
    ),
    # --- the pool ---
    _bug(
        "a surplus member is not closed",
        (
            KEEPER,
            "            _request_end(ledger, each.uid, each.request)\n        if",
            "            pass\n        if",
        ),
        found_by=(NOT_OVER, LEFT),
    ),
)
