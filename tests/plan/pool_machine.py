"""Two controllers of one pool, with stale observations, crashes and lost actions: a state machine for Hypothesis.

The world has the true ledger and members. A controller observes members, decides, commits by compare-and-swap, and then
acts; other rules may run between these steps. A crash loses everything that the controller has not done yet.
"""

from __future__ import annotations

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dayfly.plan.pools.refill import MAX_FAILURES, MemberState, PoolDecision, RefillMember, decide_pool, surge
from dayfly.plan.reasons import Reason
from dayfly.spec.pool_ledger import PoolLedger, PoolRequest
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

CREATING, UNSCHEDULABLE, READY = MemberState.CREATING, MemberState.UNSCHEDULABLE, MemberState.READY
HELD, ENDING, FAILED = MemberState.HELD, MemberState.ENDING, MemberState.FAILED
UNHELD = (CREATING, UNSCHEDULABLE, READY, FAILED)
SECOND, MINUTE = 1_000, 60_000
MAX_ROUNDS = 60
PEOPLE = st.sampled_from(["pause", "resume", "drain"])
SMALL = st.integers(0, 1 << 16)


class Controller:
    """A replica: what it has observed, and the decision that it has not carried out yet."""

    def __init__(self, ledger: PoolLedger) -> None:
        self.ledger = ledger
        self.members: dict[int, RefillMember] = {}
        self.decision: PoolDecision | None = None
        self.create: list[int] = []
        self.close: list[int] = []

    def forget(self) -> None:
        """Lose everything that is not done yet."""
        self.decision, self.create, self.close = None, [], []


class PoolMachine(RuleBasedStateMachine):
    """The pool, its members, two controllers, people, sandboxes and time."""

    @initialize(ready=st.integers(0, 3))
    def begin(self, ready: int) -> None:
        self.now = 1_700_000_000_000
        self.spec = ResourcePoolSpec(plugin="db@1.0.0", ready=ready, max_age="1h")
        self.template = "t0"
        self.ledger = PoolLedger(uid="pool")
        self.members: dict[int, RefillMember] = {}
        self.created: set[int] = set()
        self.request: PoolRequest | None = None
        self.failed: set[int] = set()
        self.succeeded = 0
        self.controllers = [Controller(self.ledger), Controller(self.ledger)]

    # --- controllers -------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1))
    def observe(self, who: int) -> None:
        self.controllers[who].members = dict(self.members)

    @rule(who=st.integers(0, 1))
    def decide(self, who: int) -> None:
        controller = self.controllers[who]
        controller.forget()
        controller.ledger = self.ledger
        members = controller.members.values()
        decision = decide_pool(self.spec, self.template, self.ledger, members, self.now, request=self.request)
        self._check_decision(controller, decision)
        controller.decision = decision

    @precondition(lambda self: any(each.decision for each in self.controllers))
    @rule(who=st.integers(0, 1))
    def commit(self, who: int) -> None:
        controller = self.controllers[who]
        decision, controller.decision = controller.decision, None
        if decision is None or (decision.changes and controller.ledger.seq != self.ledger.seq):
            return
        if decision.changes:
            assert decision.ledger.seq == self.ledger.seq + 1
            self._count_failures(decision.ledger)
            self.ledger = decision.ledger
        controller.create = list(decision.create)
        controller.close = [each.number for each in decision.close]

    @precondition(lambda self: any(each.create or each.close for each in self.controllers))
    @rule(who=st.integers(0, 1), count=st.integers(1, 3))
    def act(self, who: int, count: int) -> None:
        controller = self.controllers[who]
        for _ in range(count):
            if controller.create:
                self._create(controller.create.pop(0))
            elif controller.close:
                self._close(controller.close.pop(0))

    @rule(who=st.integers(0, 1))
    def turn(self, who: int) -> None:
        """Take a whole turn without interruption."""
        self.observe(who)
        self.decide(who)
        self.commit(who)
        self.act(who, len(self.members) + MAX_ROUNDS)

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.controllers[who].forget()

    def _create(self, number: int) -> None:
        """Create a member. An existing record makes that a no-op, as a name does in a cluster.

        A controller that was paused after its decision may create a member whose record is gone by now. Such a member
        is never permitted to run its create steps, and the next turn ends it.
        """
        if number in self.members:
            return
        if number in self.created:
            assert not self.ledger.permits(number), f"number {number} may run its create steps a second time"
        self.created.add(number)
        self._put(
            RefillMember(number=number, uid=f"m{number}", template=self.template, state=CREATING, born_at=self.now)
        )

    def _close(self, number: int) -> None:
        member = self.members.get(number)
        if member is not None and member.state in UNHELD:
            self._put(msgspec.structs.replace(member, state=ENDING))

    def _put(self, member: RefillMember) -> None:
        self.members[member.number] = member

    # --- members and sandboxes ---------------------------------------------------------------------------------------

    @rule(pick=SMALL, outcome=st.sampled_from([READY, READY, FAILED, UNSCHEDULABLE, CREATING]))
    def progress(self, pick: int, outcome: MemberState) -> None:
        """Run a member's create steps, which start only while the ledger grants its number."""
        if member := self._pick(pick, CREATING, UNSCHEDULABLE):
            if not self.ledger.permits(member.number):
                return
            ready_at = self.now if outcome is READY else 0
            self._put(msgspec.structs.replace(member, state=outcome, ready_at=ready_at))
            self.succeeded = max(self.succeeded, member.number if ready_at else 0)

    @rule(outcome=st.sampled_from([READY, FAILED]))
    def progress_all(self, outcome: MemberState) -> None:
        """Run the create steps of all members, which all fail if the plugin is broken."""
        for _ in self.members:
            self.progress(0, outcome)

    @rule(pick=SMALL)
    def hold(self, pick: int) -> None:
        if member := self._pick(pick, READY, CREATING):
            self._put(msgspec.structs.replace(member, state=HELD, held_at=self.now))

    @rule(pick=SMALL)
    def release(self, pick: int) -> None:
        if member := self._pick(pick, HELD):
            self._put(msgspec.structs.replace(member, state=ENDING))

    @rule(pick=SMALL)
    def forget_ended(self, pick: int) -> None:
        """Remove the record of an ended member, as soon as the ledger does not need it."""
        if (member := self._pick(pick, ENDING)) and not self.ledger.needs_record(member.number):
            del self.members[member.number]

    def _pick(self, pick: int, *states: MemberState) -> RefillMember | None:
        found = [member for _, member in sorted(self.members.items()) if member.state in states]
        return found[pick % len(found)] if found else None

    # --- people and time ---------------------------------------------------------------------------------------------

    @rule(ready=st.integers(0, 4))
    def resize(self, ready: int) -> None:
        self.spec = msgspec.structs.replace(self.spec, ready=ready)

    @rule(number=st.integers(0, 3))
    def publish(self, number: int) -> None:
        self.template = f"t{number}"

    @rule(action=PEOPLE)
    def ask(self, action: str) -> None:
        self.request = PoolRequest(action=action, request=EndRequest(at=self.now, reason="Requested"))

    @rule(passed=st.sampled_from([SECOND, MINUTE, 6 * MINUTE, 61 * MINUTE]))
    def wait(self, passed: int) -> None:
        self.now += passed

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check_decision(self, controller: Controller, decision: PoolDecision) -> None:
        before, after, size = controller.ledger, decision.ledger, decision.summary.target
        states = {number: member.state for number, member in controller.members.items()}
        new = after.numbers - before.numbers
        assert after.next >= before.next
        assert all(before.next <= number < after.next for number in new), "a number was granted again"
        assert not new or len(after.granted) <= size + surge(size), "more members than the target and its surge"
        assert not new or after.pause is None, "a paused pool grants members"
        assert set(decision.create) <= after.numbers
        assert not decision.create or after.pause is None, "a paused pool creates members"
        for each in decision.close:
            assert states[each.number] in UNHELD, f"member {each.number} is {states[each.number]}"
            assert each.number not in after.numbers
            if each.request.reason == Reason.OUTDATED and states[each.number] is READY:
                ready = sum(states.get(number) is READY for number in after.numbers)
                assert ready >= size, "an old member closed before the new ones were ready"
            if each.request.reason == Reason.SURPLUS:
                last = max((each.held_at for each in controller.members.values()), default=0)
                assert self.now - last >= 5 * MINUTE, "scaled down shortly after a request"
        again = decide_pool(
            self.spec, self.template, after, controller.members.values(), self.now, request=self.request
        )
        assert not again.changes, "the second decision differs from the first"

    def _count_failures(self, after: PoolLedger) -> None:
        """Count the members that failed after the last success and the last intervention of a person."""
        before = self.ledger
        for number in (before.numbers - after.numbers) & self.members.keys():
            if self.members[number].state is FAILED:
                self.failed.add(number)
        has_resumed = after.request != before.request and after.request and after.request.action == "resume"
        if has_resumed or (before.spec, before.template) != (after.spec, after.template):
            self.failed.clear()
        in_a_row = [number for number in self.failed if number > self.succeeded]
        assert len(in_a_row) < MAX_FAILURES or after.pause is not None, "failures do not pause the pool"

    @invariant()
    def logs_of_last_failed_member_are_kept(self) -> None:
        if failed := self.ledger.failed if hasattr(self, "ledger") else 0:
            assert failed in self.members, "the record of the last failed member is gone"

    def teardown(self) -> None:
        """Without faults, the pool reaches its size: fresh, ready, with nothing else that is unheld."""
        if not hasattr(self, "ledger"):
            return
        self.request = PoolRequest(action="resume", request=EndRequest(at=self.now + 1, reason="Requested"))
        self.now += 6 * MINUTE
        for _ in range(MAX_ROUNDS):
            self.now += SECOND
            for number in list(self.members):
                if self.members[number].state is ENDING and not self.ledger.needs_record(number):
                    del self.members[number]
                elif self.members[number].state in (CREATING, UNSCHEDULABLE):
                    self.progress(0, READY)
            self.turn(0)
        unheld = [each for each in self.members.values() if each.state in UNHELD]
        fresh = [
            each
            for each in unheld
            if each.state is READY and each.template == self.template and self.now < _expires_at(each)
        ]
        assert self.ledger.pause is None
        assert len(fresh) == len(unheld) == self.spec.ready, f"{len(fresh)} of {self.spec.ready}, {len(unheld)} unheld"


def _expires_at(member: RefillMember) -> int:
    """Return when the member is certainly too old: after its age, but not before it was used as long as created."""
    return max(member.born_at + 60 * MINUTE, 2 * member.ready_at - member.born_at)


def run(count: int) -> None:
    """Run the state machine without reducing what it finds."""
    settings = hypothesis.settings(
        max_examples=count,
        stateful_step_count=50,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(PoolMachine, settings=settings)


if __name__ == "__main__":
    run(2_400)
