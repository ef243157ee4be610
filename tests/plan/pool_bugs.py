"""Seeded bugs of pools: each removes one guard of `decide_pool`. The state machine must find every bug."""

from tests.simulator.bugs import Bug

POOL, LEDGER = "plan/pools/refill.py", "spec/pool_ledger.py"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(name, ((file, old, new),), ())


BUGS: tuple[Bug, ...] = (
    _bug("numbers are used again", POOL, "            self.next += 1\n", "            self.next += 0\n"),
    _bug(
        "records are removed while their number is granted",
        LEDGER,
        "return number == self.failed or self.permits(number)",
        "return number == self.failed",
    ),
    _bug(
        "the record of the last failed member is removed",
        LEDGER,
        "return number == self.failed or self.permits(number)",
        "return self.permits(number)",
    ),
    _bug(
        "a granted member is not created again",
        POOL,
        "if number not in self.members)",
        "if number not in self.before.numbers)",
    ),
    _bug(
        "held members stay granted",
        POOL,
        "(MemberState.HELD, MemberState.ENDING, MemberState.FAILED)",
        "(MemberState.ENDING, MemberState.FAILED)",
    ),
    _bug(
        "ended members stay granted",
        POOL,
        "(MemberState.HELD, MemberState.ENDING, MemberState.FAILED)",
        "(MemberState.HELD, MemberState.FAILED)",
    ),
    _bug(
        "failed members stay granted",
        POOL,
        "(MemberState.HELD, MemberState.ENDING, MemberState.FAILED)",
        "(MemberState.HELD, MemberState.ENDING)",
    ),
    _bug(
        "held members are closed",
        POOL,
        "for member in self.members.values() if member.state in CLOSABLE]",
        "for member in self.members.values() if member.state is not MemberState.ENDING]",
    ),
    _bug(
        "granted members are closed",
        POOL,
        "            if each.number not in self.granted\n",
        "            if each.number in self.granted or each.number not in self.granted\n",
    ),
    _bug(
        "withdrawn members are not closed",
        POOL,
        "            if each.number not in self.granted\n",
        "            if each.number in self.closing\n",
    ),
    _bug(
        "failures do not pause the pool",
        POOL,
        "if self.failures >= MAX_FAILURES and self.pause is None:",
        "if self.failures < 0:",
    ),
    _bug(
        "each ready member ends a row of failures",
        POOL,
        "elif member.ready_at and member.number > self.failed:",
        "elif member.ready_at:",
    ),
    _bug(
        "a paused pool grants members", POOL, "is_blocked=is_frozen or draft.pause is not None", "is_blocked=is_frozen"
    ),
    _bug(
        "a paused pool creates members",
        POOL,
        "creates = end is None and not is_frozen and draft.pause is None",
        "creates = end is None and not is_frozen",
    ),
    _bug("a request is applied again", POOL, "if request is None or request == self.request:", "if request is None:"),
    _bug(
        "members that are not ready do not count",
        POOL,
        "min(self.size - fresh, room)",
        "self.size - sum(self.state(number) is MemberState.READY for number in self.granted)",
    ),
    _bug("replacements have no limit", POOL, "min(self.size - fresh, room)", "self.size - fresh"),
    _bug("old members close before new ones are ready", POOL, "stale[: max(len(ready) - self.size, 0)]", "stale"),
    _bug("stale members are not replaced", POOL, "stale[: max(len(ready) - self.size, 0)]", "stale[:0]"),
    _bug("the age of members is ignored", POOL, "or 0 < due <= self.now", "or due < 0"),
    _bug("scaled down at once", POOL, "if self.demand.last_at and self.now < due:", "if self.now < 0:"),
    _bug("not scaled down", POOL, "        if surplus <= 0:\n", "        if surplus <= self.now:\n"),
)
