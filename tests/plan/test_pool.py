"""The refill of a pool: what `decide_pool` grants, creates, closes and reports."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.plan.pools.refill import SCALE_DOWN_AFTER_MS, MemberState, PoolDecision, RefillMember, decide_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.pool_ledger import Demand, Grant, PoolLedger, PoolRequest
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

NOW = 1_700_000_000_000
TEMPLATE = "sha256:1"
CREATING, READY, HELD, FAILED = MemberState.CREATING, MemberState.READY, MemberState.HELD, MemberState.FAILED
UNSCHEDULABLE, ENDING = MemberState.UNSCHEDULABLE, MemberState.ENDING
BY = EndRequest(at=NOW, reason="Requested", message="maintenance", by="kim")


def pool(ready: int = 2, max_age: str = "") -> ResourcePoolSpec:
    return ResourcePoolSpec(plugin="db@1.0.0", ready=ready, max_age=max_age)


def member(number: int, state: MemberState = READY, **changes: object) -> RefillMember:
    ready_at = NOW - 60_000 if state in (READY, HELD) else 0
    held_at = NOW - 1_000 if state is HELD else 0
    made = RefillMember(
        number=number,
        uid=f"m{number}",
        template=TEMPLATE,
        state=state,
        born_at=NOW - 90_000,
        ready_at=ready_at,
        held_at=held_at,
    )
    return msgspec.structs.replace(made, **changes)


def granted(*numbers: int, **fields: object) -> PoolLedger:
    grants = tuple(Grant(number=number, at=NOW - 90_000) for number in numbers)
    return PoolLedger(uid="p", next=max(numbers, default=0) + 1, granted=grants, **fields)


def decide(
    ledger: PoolLedger, *members: RefillMember, spec: ResourcePoolSpec | None = None, **more: object
) -> PoolDecision:
    return decide_pool(spec or pool(), TEMPLATE, ledger, members, NOW, **more)


def numbers(ledger: PoolLedger) -> list[int]:
    return [grant.number for grant in ledger.granted]


def test_new_pool_grants_and_creates_its_size():
    made = decide(PoolLedger(uid="p"))
    assert (numbers(made.ledger), made.create, made.ledger.next, made.ledger.seq) == ([1, 2], (1, 2), 3, 1)


def test_full_pool_changes_nothing_at_its_second_decision():
    first = decide(granted(1, 2), member(1), member(2))
    again = decide(first.ledger, member(1), member(2))
    assert (again.changes, again.create, again.close, again.wake_at) == (False, (), (), 0)
    assert again.summary.reason == Reason.POOL_FULL


def test_granted_number_without_member_is_created_again():
    made = decide(granted(1, 2), member(1))
    assert (made.create, numbers(made.ledger)) == ((2,), [1, 2])


def test_held_member_is_replaced_by_the_next_number():
    made = decide(granted(1, 2), member(1, HELD), member(2))
    assert (numbers(made.ledger), made.create, made.close) == ([2, 3], (3,), ())
    assert (made.ledger.demand.hits, made.ledger.demand.last_at) == (1, NOW - 1_000)


@pytest.mark.parametrize(
    ("state", "expected"),
    [(CREATING, [1, 2]), (UNSCHEDULABLE, [1, 2]), (ENDING, [2, 3]), (FAILED, [2, 3]), (HELD, [2, 3])],
)
def test_member_counts_until_it_is_held_or_ends(state, expected):
    assert numbers(decide(granted(1, 2), member(1, state), member(2)).ledger) == expected


def test_unschedulable_member_is_reported_and_kept():
    made = decide(granted(1, 2), member(1, UNSCHEDULABLE), member(2))
    assert (made.close, made.summary.reason, made.summary.unschedulable) == ((), Reason.UNSCHEDULABLE, 1)


def test_failed_member_is_closed_and_its_record_kept():
    made = decide(granted(1, 2), member(1, FAILED), member(2, CREATING))
    assert [(each.number, each.request.reason) for each in made.close] == [(1, Reason.MEMBER_FAILED)]
    assert (made.ledger.failures, made.ledger.needs_record(1), made.ledger.permits(1)) == (1, True, False)


def test_next_failure_frees_the_record_of_the_earlier_one():
    made = decide(granted(2, 3, failures=1, failed=1), member(2, FAILED), member(3))
    assert [made.ledger.needs_record(number) for number in (1, 2)] == [False, True]


def test_three_failures_in_a_row_pause_the_pool():
    made = decide(granted(3, 4, failures=2, failed=2), member(3, FAILED), member(4, CREATING))
    assert made.ledger.pause is not None
    assert made.ledger.pause.reason == Reason.FAILING
    assert (numbers(made.ledger), made.create) == ([4], ())


@pytest.mark.parametrize(("ready", "failures"), [(3, 0), (1, 2)])
def test_only_a_later_success_ends_a_row_of_failures(ready, failures):
    assert (
        decide(granted(ready, 4, failures=2, failed=2), member(ready), member(4, CREATING)).ledger.failures == failures
    )


FAILING = EndRequest(at=NOW - 9, reason=Reason.FAILING)
PAUSED = EndRequest(at=NOW - 9, reason=Reason.PAUSED)
DRAINED = EndRequest(at=NOW - 9, reason=Reason.DRAINED)


@pytest.mark.parametrize(
    ("pause", "change", "is_over"),
    [
        pytest.param(FAILING, {"template": "sha256:0"}, True, id="failing, new template"),
        pytest.param(FAILING, {"spec": "sha256:0"}, True, id="failing, new spec"),
        pytest.param(DRAINED, {"template": "sha256:0"}, False, id="drained, new template"),
        pytest.param(DRAINED, {"spec": "sha256:0"}, True, id="drained, new spec"),
        pytest.param(PAUSED, {"template": "sha256:0"}, False, id="paused, new template"),
        pytest.param(PAUSED, {"spec": "sha256:0"}, False, id="paused, new spec"),
    ],
)
def test_new_spec_or_template_ends_some_pauses(pause, change, is_over):
    ledger = msgspec.structs.replace(decide(granted(failures=3)).ledger, granted=(), pause=pause, **change)
    assert (decide(ledger).ledger.pause is None) == is_over


def test_resume_ends_a_pause_once():
    resume = PoolRequest(action="resume", request=BY)
    resumed = decide(granted(pause=FAILING, failures=3, failed=2), request=resume).ledger
    assert (resumed.pause, resumed.failures, resumed.failed, len(resumed.granted)) == (None, 0, 0, 2)
    again = msgspec.structs.replace(resumed, pause=FAILING)
    assert decide(again, request=resume).ledger.pause == FAILING


def test_pause_keeps_members_and_creates_none():
    made = decide(granted(1, 2), member(1), request=PoolRequest(action="pause", request=BY))
    assert (made.create, made.close, numbers(made.ledger)) == ((), (), [1, 2])
    assert (made.summary.reason, made.summary.message, made.ledger.pause.by) == (Reason.PAUSED, "maintenance", "kim")


def test_drain_closes_unheld_members_only():
    made = decide(granted(1, 2), member(1), member(2, HELD), request=PoolRequest(action="drain", request=BY))
    assert ([each.number for each in made.close], made.create, made.ledger.granted) == ([1], (), ())


def test_frozen_host_creates_nothing():
    made = decide(granted(1), is_frozen=True)
    assert (made.create, numbers(made.ledger)) == ((), [1])


def test_deleted_pool_ends_when_unheld_members_are_gone():
    first = decide(granted(1, 2, 3, failed=1), member(1), member(2, HELD), end=BY)
    assert ([each.number for each in first.close], first.close[0].request, first.has_ended) == ([1], BY, False)
    assert first.ledger.needs_record(1) is False
    assert decide(first.ledger, member(1, ENDING), member(2, HELD), end=BY).has_ended is False
    assert decide(first.ledger, member(2, HELD), end=BY).has_ended is True


def test_unheld_member_without_grant_is_closed():
    made = decide(granted(2, 3), member(1), member(2), member(3))
    assert [(each.number, each.request.reason) for each in made.close] == [(1, Reason.WITHDRAWN)]


def test_new_ledger_uses_no_number_of_members_that_exist():
    assert decide(PoolLedger(uid="p"), member(7, HELD)).create == (8, 9)


@pytest.mark.parametrize(
    ("held_ago", "closed", "wake_in"),
    [(SCALE_DOWN_AFTER_MS - 1, [], 1), (SCALE_DOWN_AFTER_MS, [1], 0)],
)
def test_surplus_members_close_after_time_without_request(held_ago, closed, wake_in):
    ledger = granted(1, 2, 3, demand=Demand(last_at=NOW - held_ago))
    made = decide(ledger, member(1), member(2), member(3))
    assert [each.number for each in made.close] == closed
    assert made.wake_at == (NOW + wake_in if wake_in else 0)


def test_scale_down_prefers_members_that_are_not_ready():
    made = decide(granted(1, 2, 3, 4), member(1), member(2, CREATING), member(3, UNSCHEDULABLE), member(4))
    assert (numbers(made.ledger), {each.request.reason for each in made.close}) == ([1, 4], {Reason.SURPLUS})


def stale(number: int, state: MemberState = READY) -> RefillMember:
    return member(number, state, template="sha256:0")


@pytest.mark.parametrize(
    ("members", "closed", "created"),
    [
        pytest.param([stale(1), stale(2), stale(3), stale(4)], [], (5,), id="surge"),
        pytest.param([stale(1), stale(2), stale(3), stale(4), member(5, CREATING)], [], (), id="new one not ready"),
        pytest.param([stale(1), stale(2), stale(3), stale(4), member(5)], [1], (6,), id="new one ready"),
        pytest.param(
            [stale(1, CREATING), stale(2, UNSCHEDULABLE), stale(3), stale(4)], [1, 2], (5, 6, 7), id="not ready"
        ),
        pytest.param([stale(1, HELD), stale(2), stale(3), stale(4)], [], (5, 6), id="held"),
    ],
)
def test_stale_members_are_replaced_new_before_old(members, closed, created):
    made = decide(granted(*(each.number for each in members)), *members, spec=pool(4))
    assert [each.number for each in made.close] == closed
    assert made.create == created


def test_member_with_changed_image_is_replaced():
    made = decide(granted(1), member(1, stale=True), spec=pool(1))
    assert (made.create, made.close, made.summary.stale) == ((2,), (), 1)


def test_max_age_is_spread_over_a_tenth():
    spec = pool(200, max_age="10h")
    hour = 3_600_000
    members = [member(number, born_at=NOW - hour) for number in range(1, 201)]
    ledger = granted(*range(1, 201))
    first = decide(ledger, *members, spec=spec)
    assert first.close == ()
    assert NOW + 8 * hour <= first.wake_at < NOW + 8 * hour + hour // 10
    outdated = decide_pool(spec, TEMPLATE, ledger, members, NOW + 8 * hour + hour // 2).summary.stale
    assert 50 < outdated < 150
    assert decide_pool(spec, TEMPLATE, ledger, members, NOW + 9 * hour).summary.stale == 200


@pytest.mark.parametrize(("now", "is_stale"), [(NOW + 5 * 60_000 - 1, False), (NOW + 5 * 60_000, True)])
def test_old_member_stays_as_long_as_its_creation_took(now, is_stale):
    """Otherwise a pool whose members take longer to create than maxAge would replace each at once."""
    slow = member(1, born_at=NOW - 5 * 60_000, ready_at=NOW)
    made = decide_pool(pool(1, max_age="1m"), TEMPLATE, granted(1), [slow], now)
    assert (made.summary.stale, bool(made.create)) == (is_stale, is_stale)


def test_refill_time_alone_changes_nothing_in_the_ledger():
    first = decide(granted(1, 2), member(1, CREATING), member(2, CREATING))
    assert decide(first.ledger, member(1), member(2)).changes is False


@pytest.mark.parametrize(
    ("refill_ms", "held_at", "needed_at"),
    [(5_000, NOW - 1_000, NOW - 1_000), (500, NOW - 3_600_000, NOW), (5_000, NOW + 9, NOW)],
    ids=["a moment ago", "before an outage", "by a clock that is ahead"],
)
def test_refill_time_of_a_replacement_counts_from_the_request(refill_ms, held_at, needed_at):
    ledger = granted(1, 2, demand=Demand(refill_ms=refill_ms, refilled_at=NOW))
    made = decide(ledger, member(1, HELD, held_at=held_at), member(2), spec=pool(3))
    assert [grant.at for grant in made.ledger.granted if grant.number > 2] == [needed_at, NOW]


def test_request_that_joined_a_member_being_created_is_a_miss():
    made = decide(granted(1, 2), member(1, HELD, ready_at=0), member(2), misses=2)
    assert (made.ledger.demand.hits, made.ledger.demand.misses, made.ledger.demand.last_at) == (0, 3, NOW)


def test_deleted_pool_decides_again_after_it_withdrew():
    """Its host observes the member until the ledger withdraws it, and nothing else would wake the pool."""
    first = decide(granted(1), member(1, ENDING), end=BY)
    assert (numbers(first.ledger), first.has_ended, first.wake_at) == ([], False, NOW + 1)
    assert decide(first.ledger, member(1, ENDING), end=BY).wake_at == 0


def test_ready_members_of_an_older_template_do_not_fill_the_pool():
    made = decide(granted(1, 2), member(1, template="sha256:old"), member(2))
    assert (made.summary.ready, made.summary.reason) == (1, Reason.FILLING)
