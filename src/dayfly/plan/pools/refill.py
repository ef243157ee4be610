"""The refill of a resource pool: which members are created, closed and kept, from its ledger and observed members.

`decide_pool` is pure and total. A host commits the ledger of a decision by compare-and-swap and only then creates and
closes members. Both may be lost or repeated: the next decision repeats them. A member starts only while the ledger
grants its number or it has a holder, so a decision from old observations can only be too careful.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from dayfly.plan.pools import messages
from dayfly.plan.pools.demand import add_refill, add_request
from dayfly.plan.pools.size import PoolSize, allowed_misses, pool_size
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import digest
from dayfly.spec.pool_ledger import Grant, PoolLedger, PoolRequest
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest
from dayfly.spec.scalars.duration import milliseconds

MAX_FAILURES: Final = 3
"""The number of failed members in a row after which a pool pauses."""
SCALE_DOWN_AFTER_MS: Final = 5 * 60_000
"""The time without a request after which surplus members are closed."""
SURGE_DIVISOR: Final = 4
"""A replacement makes at most this part of the target more, rounded up."""
MIN_SLOW: Final = 3
"""The number of members that must be late before a longer refill time is believed."""
AGE_SPREAD_DIVISOR: Final = 10
"""Members are replaced up to this part of `maxAge` earlier, so that they are not replaced all at once."""


class MemberState(enum.StrEnum):
    """The observed state of a member. A member that was not created is not observed."""

    CREATING = "creating"
    UNSCHEDULABLE = "unschedulable"
    READY = "ready"
    HELD = "held"
    ENDING = "ending"
    FAILED = "failed"


CLOSABLE: Final = (MemberState.CREATING, MemberState.UNSCHEDULABLE, MemberState.READY, MemberState.FAILED)


class RefillMember(msgspec.Struct, frozen=True, kw_only=True):
    """An observed member. `stale` means that an image or Secret has changed since its creation.

    `HELD` applies to each member that has or had a holder and is open, ready or not. Times are unix milliseconds, 0 if
    it has not happened.
    """

    number: int
    uid: str
    template: str
    state: MemberState
    born_at: int
    ready_at: int = 0
    held_at: int = 0
    stale: bool = False


class CloseMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member to close, if it has no holder."""

    number: int
    uid: str
    request: EndRequest


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool for people: counts of its members, and the reason why it is not full."""

    target: int
    ready: int
    creating: int
    unschedulable: int
    stale: int
    reason: str
    message: str


class PoolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one turn.

    `ledger` must be committed first if it `changes`. Then the members of `create` are created if they do not exist, and
    those of `close` closed. `wake_at` is when the decision changes without an event (0: never). `has_ended` means that
    a deleted pool has no member left.
    """

    ledger: PoolLedger
    changes: bool
    create: tuple[int, ...]
    close: tuple[CloseMember, ...]
    wake_at: int
    summary: PoolSummary
    has_ended: bool = False


def decide_pool(
    spec: ResourcePoolSpec,
    template: str,
    ledger: PoolLedger,
    members: Iterable[RefillMember],
    now: int,
    *,
    misses: int = 0,
    request: PoolRequest | None = None,
    end: EndRequest | None = None,
    is_frozen: bool = False,
) -> PoolDecision:
    """Decide on the members of a pool.

    Args:
        spec: The pool's spec.
        template: The digest of the documents from which members are made now.
        ledger: The pool's ledger.
        members: All members of this pool that the host knows, in any order.
        now: Unix milliseconds.
        misses: The number of requests without a ready member that no committed ledger has counted yet.
        request: The latest request of a person. A request that was applied before has no effect.
        end: The request that deletes the pool.
        is_frozen: Whether the host must not create members now.
    """
    draft = _Draft(spec, template, ledger, members, now)
    draft.measure_refill()
    draft.settle(misses)
    # After that, so that a resumed pool does not pause again because of members that failed before.
    draft.apply_inputs(request)
    if end is not None:
        draft.withdraw_all(end, is_end=True)
    elif draft.is_drained:
        draft.withdraw_all(draft.end_request(Reason.DRAINED))
    else:
        draft.replace_stale()
        draft.scale_down()
        draft.grant(is_blocked=is_frozen or draft.pause is not None)
    creates = end is None and not is_frozen and draft.pause is None
    return draft.decision(creates=creates, is_ending=end is not None)


class _Draft:
    """The ledger after the moves so far. `decide_pool` creates, fills and discards it."""

    def __init__(
        self, spec: ResourcePoolSpec, template: str, ledger: PoolLedger, members: Iterable[RefillMember], now: int
    ) -> None:
        self.spec = spec
        self.template = template
        self.before = ledger
        self.now = now
        self.members = {member.number: member for member in members}
        self.granted = {grant.number: grant.at for grant in sorted(ledger.granted, key=lambda grant: grant.number)}
        # A ledger that was lost begins behind the members that exist.
        self.next = max(ledger.next, 1 + max(self.members, default=0))
        self.failures, self.failed, self.pause = ledger.failures, ledger.failed, ledger.pause
        self.request, self.demand = ledger.request, ledger.demand
        self.closing: dict[int, EndRequest] = {}
        self.used: list[int] = []  # times of the requests that took a member since the last commit
        self.wakes: list[int] = []
        self.stale = {member.number for member in self.members.values() if self._is_stale(member)}
        self.size = 0

    @property
    def is_drained(self) -> bool:
        return self.pause is not None and self.pause.reason == Reason.DRAINED

    def end_request(self, reason: Reason) -> EndRequest:
        return EndRequest(at=self.now, reason=reason, message=messages.why_member_ends(reason))

    def state(self, number: int) -> MemberState | None:
        """Return the observed state of a member, None if it was not created."""
        member = self.members.get(number)
        return member.state if member else None

    # --- what has happened -------------------------------------------------------------------------------------------

    def apply_inputs(self, request: PoolRequest | None) -> None:
        """Apply a new request of a person, and end a pause that a new spec or template ends."""
        has_new_spec = bool(self.before.spec) and self.before.spec != digest(self.spec)
        has_new_template = bool(self.before.template) and self.before.template != self.template
        reason = self.pause.reason if self.pause else ""
        if has_new_spec or has_new_template:
            self.failures = 0
        if (has_new_spec and reason in (Reason.DRAINED, Reason.FAILING)) or (
            has_new_template and reason == Reason.FAILING
        ):
            self._resume()
        if request is None or request == self.request:
            return
        self.request = request
        if request.action == "resume":
            self._resume()
        else:
            reason = Reason.DRAINED if request.action == "drain" else Reason.PAUSED
            self.pause = msgspec.structs.replace(request.request, reason=reason)

    def _resume(self) -> None:
        self.pause, self.failures, self.failed = None, 0, 0

    def settle(self, misses: int) -> None:
        """Withdraw the numbers of members that were held, failed or ended, each of which is counted once."""
        requests = [(self.now, True)] * misses
        for number in list(self.granted):
            member = self.members.get(number)
            if member is None:
                continue
            if member.held_at:
                requests.append((member.held_at, not 0 < member.ready_at <= member.held_at))
                self.used.append(member.held_at)
            self._count_end(member)
            if member.state in (MemberState.HELD, MemberState.ENDING, MemberState.FAILED):
                del self.granted[number]
        allowed = allowed_misses(self.spec.auto)
        for at, is_miss in sorted(requests):
            self.demand = add_request(self.demand, at, is_miss=is_miss, allowed_misses=allowed)
        if self.failures >= MAX_FAILURES and self.pause is None:
            message = messages.pool_fails(self.failures)
            self.pause = EndRequest(at=self.now, reason=Reason.FAILING, message=message)

    def _count_end(self, member: RefillMember) -> None:
        """Count the end of a member's creation: a failure, or a success after the last failure."""
        if member.state is MemberState.FAILED:
            self.failures, self.failed = self.failures + 1, member.number
            self.closing[member.number] = self.end_request(Reason.MEMBER_FAILED)
        elif member.ready_at and member.number > self.failed:
            self.failures = 0

    def measure_refill(self) -> None:
        """Count the refill times of members that have become ready since the last measured one."""
        ready = [each for each in self.members.values() if each.ready_at > self.before.demand.refilled_at]
        for member in sorted(ready, key=lambda each: each.ready_at):
            if begun := self.granted.get(member.number):
                self.demand = add_refill(self.demand, max(member.ready_at - begun, 0), member.ready_at)

    # --- what follows ------------------------------------------------------------------------------------------------

    def withdraw_all(self, request: EndRequest, *, is_end: bool = False) -> None:
        """Withdraw every number, so that all unheld members close. At the pool's end, no record is kept either."""
        if is_end:
            self.failed = 0
        for number in list(self.granted):
            self._withdraw(number, request)

    def replace_stale(self) -> None:
        """Withdraw stale members that are not ready, and ready ones as soon as new members have replaced them."""
        self.size, wake_at = self._target()
        self.wakes.append(wake_at)
        for number in [number for number in self.granted if number in self.stale]:
            if self.state(number) is not MemberState.READY:
                self._withdraw(number, self.end_request(Reason.OUTDATED))
        ready = [number for number in self.granted if self.state(number) is MemberState.READY]
        stale = [number for number in ready if number in self.stale]
        for number in stale[: max(len(ready) - self.size, 0)]:
            self._withdraw(number, self.end_request(Reason.OUTDATED))

    def scale_down(self) -> None:
        """Withdraw surplus members after some time without a request: first members that are not ready."""
        fresh = [number for number in self.granted if number not in self.stale]
        surplus = len(fresh) - self.size
        if surplus <= 0:
            return
        due = self.demand.last_at + SCALE_DOWN_AFTER_MS
        if self.demand.last_at and self.now < due:
            self.wakes.append(due)
            return
        order = (None, MemberState.UNSCHEDULABLE, MemberState.CREATING, MemberState.READY)
        for number in sorted(fresh, key=lambda number: (order.index(self.state(number)), number))[:surplus]:
            self._withdraw(number, self.end_request(Reason.SURPLUS))

    def grant(self, *, is_blocked: bool) -> None:
        """Grant new numbers up to the target. Stale members are replaced within the surge.

        The refill time of a replacement counts from the request that took a member, because the pool lacks it from then
        on. After an outage, that request may be too old to say anything about the refill time.
        """
        if is_blocked:
            return
        fresh = sum(number not in self.stale for number in self.granted)
        room = self.size + surge(self.size) - len(self.granted)
        used, earliest = iter(sorted(self.used)), self.now - self.demand.refill_ms
        for _ in range(min(self.size - fresh, room)):
            at = next(used, self.now)
            self.granted[self.next] = at if earliest <= at <= self.now else self.now
            self.next += 1

    def _has_template(self, number: int) -> bool:
        return self.members[number].template == self.template

    def _is_stale(self, member: RefillMember) -> bool:
        """Return whether a member must be replaced. Record when that changes. Only ready members have an age."""
        due = replace_at(self.spec, member) if member.state is MemberState.READY else 0
        if member.number in self.granted:
            self.wakes.append(due)
        return member.stale or member.template != self.template or 0 < due <= self.now

    def _target(self) -> PoolSize:
        """Return the wanted size. If creation has become much slower, it counts before the slow members are ready."""
        ages = sorted(
            (self.now - at for number, at in self.granted.items() if self.state(number) is MemberState.CREATING),
            reverse=True,
        )
        usual = self.demand.refill_ms
        slow = next(iter(ages[MIN_SLOW - 1 : MIN_SLOW]), 0)
        demand = msgspec.structs.replace(self.demand, refill_ms=slow) if slow > 2 * usual > 0 else self.demand
        return pool_size(self.spec, demand, self.now)

    def _withdraw(self, number: int, request: EndRequest) -> None:
        del self.granted[number]
        self.closing[number] = request

    # --- the result --------------------------------------------------------------------------------------------------

    def decision(self, *, creates: bool, is_ending: bool) -> PoolDecision:
        ledger = self._ledger()
        # A refill time alone is not worth a write: it is measured again at the next decision.
        unmeasured = msgspec.structs.replace(
            ledger.demand, refill_ms=self.before.demand.refill_ms, refilled_at=self.before.demand.refilled_at
        )
        if changes := msgspec.structs.replace(ledger, demand=unmeasured) != self.before:
            ledger = msgspec.structs.replace(ledger, seq=ledger.seq + 1)
        else:
            ledger = self.before
        unheld = [member for member in self.members.values() if member.state in CLOSABLE]
        default = self.end_request(Reason.WITHDRAWN)
        close = tuple(
            CloseMember(number=each.number, uid=each.uid, request=self.closing.get(each.number, default))
            for each in sorted(unheld, key=lambda each: each.number)
            if each.number not in self.granted
        )
        has_ended = is_ending and not any(each.state is not MemberState.HELD for each in self.members.values())
        if is_ending and changes:
            # A granted member that has ended is observed until the ledger withdraws it, and no event follows.
            self.wakes.append(self.now + 1)
        return PoolDecision(
            ledger=ledger,
            changes=changes,
            create=tuple(number for number in self.granted if number not in self.members) if creates else (),
            close=close,
            wake_at=min((at for at in self.wakes if at > self.now), default=0),
            summary=self._summary(is_ending=is_ending),
            has_ended=has_ended,
        )

    def _ledger(self) -> PoolLedger:
        return msgspec.structs.replace(
            self.before,
            next=self.next,
            granted=tuple(Grant(number=number, at=at) for number, at in self.granted.items()),
            failures=self.failures,
            failed=self.failed,
            pause=self.pause,
            request=self.request,
            spec=digest(self.spec),
            template=self.template,
            demand=self.demand,
        )

    def _summary(self, *, is_ending: bool) -> PoolSummary:
        # Sandboxes that are compiled now cannot use members of another template.
        usable = [each for each in self.granted if each not in self.members or self._has_template(each)]
        states = [self.state(number) for number in usable]
        ready, unschedulable = states.count(MemberState.READY), states.count(MemberState.UNSCHEDULABLE)
        if is_ending:
            reason, message = Reason.DELETING, messages.pool_ends()
        elif self.pause is not None:
            reason, message = Reason(self.pause.reason), self.pause.message
        elif ready >= self.size:
            reason, message = Reason.POOL_FULL, messages.pool_is_full(self.size)
        elif unschedulable:
            reason, message = Reason.UNSCHEDULABLE, messages.pool_is_unschedulable(ready, self.size, unschedulable)
        else:
            reason, message = Reason.FILLING, messages.pool_fills(ready, self.size)
        return PoolSummary(
            target=self.size,
            ready=ready,
            creating=len(states) - ready - unschedulable,
            unschedulable=unschedulable,
            stale=sum(number in self.stale for number in self.granted),
            reason=reason,
            message=message,
        )


def surge(target: int) -> int:
    """Return how many members a pool may have beyond its target while it replaces stale members."""
    return -(-target // SURGE_DIVISOR)


def replace_at(spec: ResourcePoolSpec, member: RefillMember) -> int:
    """Return when the member is replaced because of `maxAge`; 0 for never. The UID determines the spread.

    A ready member stays at least as long as its creation took. Otherwise, a pool whose members take longer to create
    than `maxAge` would only replace them.
    """
    if not spec.max_age:
        return 0
    age = milliseconds(spec.max_age)
    share = int.from_bytes(hashlib.sha256(member.uid.encode()).digest()[:4]) / (1 << 32)
    creation = max(member.ready_at - member.born_at, 0)
    return max(member.born_at + age - int(age // AGE_SPREAD_DIVISOR * share), member.ready_at + creation)
