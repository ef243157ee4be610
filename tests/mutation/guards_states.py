"""As `guards`, for Terraform states: whose lock it is, who may still write, what opens which state."""

from __future__ import annotations

from mutation.guard import Guard, guard

HEAD, SERVICE = "execute/state/head.py", "execute/state/service.py"
ACCESS, SEAL = "execute/state/access.py", "execute/state/seal.py"
SECRETS, GIVEN = "operator/states/state_secrets.py", "operator/states/state_access.py"
PURE, TWO = "execute/test_states.py::", "execute/test_states.py::TestTwoAttempts::test_"
CLUSTER = "operator/test_states.py::"

STATES: tuple[Guard, ...] = (
    guard(
        "a lock is broken while its holder may live",
        HEAD,
        "    if held is not None and not has_ended(run, held.holder):",
        "    if held is not None and held.holder == who:",
        TWO + "a_lock_is_not_broken_while_its_holder_may_live",
    ),
    guard(
        "an older ledger proves that a holder has ended",
        HEAD,
        "record.attempt > who.attempt or (record.attempt == who.attempt and",
        "record.attempt > who.attempt or (",
        TWO + "a_ledger_that_is_older_than_the_holder_proves_nothing",
    ),
    guard(
        "who knows the name of a lock has it",
        HEAD,
        "held is None or held.holder != who or held.id != name",
        "held is None or held.id != name",
        TWO + "who_knows_the_name_of_anothers_lock_does_not_hold_it",
    ),
    guard(
        "an attempt that ends while its body is on the way still writes",
        SERVICE,
        "            if run is None or not head.runs(run, who.holder):",
        "            if run is None:",
        TWO + "one_that_ends_while_its_body_is_on_the_way_is_too_late",
    ),
    guard(
        "chunks of which a late head may speak are removed",
        SERVICE,
        "        except UncertainError:\n            return BUSY",
        "        except ZeroDivisionError:\n            return BUSY",
        PURE + "test_no_write_of_an_ended_attempt_comes_after_its_successor_has_the_lock",
    ),
    guard(
        "a token of one attempt opens another's state",
        ACCESS,
        "    parts = (who.run, who.resource, who.holder.unit, str(who.holder.attempt))",
        "    parts = (who.run,)",
        PURE + "TestStrangers::test_a_token_is_worth_nothing_for_another",
    ),
    guard(
        "a chunk may stand in another's place",
        SEAL,
        'return "\\0".join(("dayfly state", *place, str(index), str(count))).encode()',
        'return b"dayfly state"',
        PURE + "test_what_is_sealed_is_not_read_nor_altered_without_the_key",
    ),
    guard(
        "a head is written over whatever is there",
        SECRETS,
        '            body["metadata"]["resourceVersion"] = version',
        "            pass",
        CLUSTER + "TestKeeping::test_of_two_who_change_the_head_at_once_one_is_late",
    ),
    guard(
        "a Secret of somebody else's is taken for a token",
        GIVEN,
        "            if not owned(found.metadata, run) or (found.type, found.data) != (TYPE, {_TOKEN: token.encode()}):",
        "            if found is None:",
        CLUSTER + "TestToken::test_anothers_secret_of_that_name_is_neither_taken_nor_removed",
    ),
    guard(
        "an abandoned run's states are collected",
        GIVEN,
        "        if run.ledger.phase is Phase.ABANDONED:",
        "        if run.ledger.phase is Phase.OPEN:",
        CLUSTER + "TestKeeping::test_an_abandoned_run_leaves_what_it_has_and_any_other_does_not",
    ),
    guard(
        "chunks for which no time was left stay, and are counted by nobody",
        SERVICE,
        "        except (Exception, asyncio.CancelledError):",
        "        except Exception:",
        "execute/test_states.py::TestOneAttempt::test_of_chunks_for_which_no_time_was_left_none_stays",
    ),
    guard(
        "chunks of which a head may come late go when the time is over",
        SERVICE,
        "            if not asked:",
        "            if True:",
        "execute/test_states.py::TestOneAttempt::test_where_no_time_is_left_for_its_head_chunks_stay_if_that_may_come_late",
    ),
)
