"""Reports: the most important of several problems, the most useful of several units, and the state of each unit."""

import msgspec
import pytest
from tests.plan.builders import (
    after,
    born,
    claim,
    close,
    document,
    done,
    doubt,
    failed,
    fork,
    plan_of,
    record,
    succeeded,
    unit,
    void,
    world,
)

from dayfly.plan import messages
from dayfly.plan.actions import Finish
from dayfly.plan.decide import decide
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.phases import has_trouble, phase, resource_progress
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal, sensitive_inputs
from dayfly.plan.status import describe, unit_sentence, with_current_clocks, with_unsupported
from dayfly.plan.world import Ended, Running, TargetIntent, UnitRefusal, Waiting
from dayfly.spec.lifecycle import Exec, Ref, UnitInput, UnitOutput
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import OutputRecord, Phase, Result

APP = "fork:shop/app"
NOW = 1000
PLAN = plan_of(
    document(
        pre_start=(unit("a"), unit("b")),
        post_start=(unit("c"), unit("d")),
        pre_stop=(unit("y"),),
        post_stop=(unit("z"),),
    )
)
FORKED = plan_of(PLAN.documents[0], forks=(fork(),))
GENERATION = FORKED.kept[APP].generation


def told(run, plan=PLAN, now=NOW, **fields) -> RunReport:
    """Return the report at that time."""
    where = world(run, **fields)
    return describe(plan, where, decide(plan, where, now), now)


@pytest.mark.parametrize(("script", "alike"), [("#!/bin/bash\nrm it", True), ("#!/bin/sh\nrm it", False)])
def test_delete_step_with_the_same_broken_program_is_named(script, alike):
    def has(name, script):
        return msgspec.structs.replace(unit(name), exec=Exec(script=script, image="busybox"))

    plan = plan_of(document(pre_start=(has("make", "#!/bin/bash\nmake it"),), post_stop=(has("drop", script),)))
    ended = msgspec.structs.replace(void("db/make"), reason="NotExecutable")
    message = one(told(after(plan, born(plan), claim("db/make"), ended), plan), "db/make").message
    assert ("db/drop would fail in the same way: fix the plugin for both" in message) is alike


def made(plan=PLAN, *names):
    return done(plan, born(plan), *(f"db/{name}" for name in names))


def one(report: RunReport, name: str) -> UnitReport:
    [found] = [unit for unit in report.units if unit.id == name]
    return found


def states(report: RunReport) -> dict[str, str]:
    return {unit.name: unit.state for unit in report.units}


def with_fork(*moves):
    run = made(FORKED, "a", "b")
    return after(FORKED, run, claim(APP, at=5, generation=GENERATION), *moves)


class TestOpen:
    def test_unit_before_the_forks_is_reported_first(self):
        report = told(after(PLAN, born(PLAN), claim("db/b")))
        assert (report.reason, report.about, report.others) == (Reason.RESOURCES_PENDING, "db/b", 1)
        assert (report.done, report.total) == (0, 4)

    def test_finished_unit_after_the_forks_is_not_reported(self):
        run = made(PLAN, "a", "b", "c")
        report = told(run)
        assert (report.reason, report.about, report.others) == (Reason.HOOKS_PENDING, "db/d", 0)
        assert (report.done, report.total) == (3, 4)

    def test_all_that_is_done_is_ready(self):
        report = told(made(PLAN, "a", "b", "c", "d"))
        assert (report.ready, report.reason, report.about) == (True, Reason.READY, "")
        assert (report.done, report.total) == (4, 4)
        assert states(report) == {**dict.fromkeys("abcd", "succeeded"), "y": "waiting", "z": "waiting"}

    def test_steps_without_a_resource_are_hooks(self):
        plan = plan_of(document("", pre_start=(unit("a"),)))
        assert told(born(plan), plan).reason is Reason.HOOKS_PENDING

    @pytest.mark.parametrize(
        ("names", "at", "reason"),
        [
            ((), "db/a", Reason.RESOURCE_FAILED),
            (("a", "b"), "db/c", Reason.HOOK_FAILED),
        ],
    )
    def test_a_failure_is_the_runs_own(self, names, at, reason):
        report = told(after(PLAN, made(PLAN, *names), claim(at), record(at, failed(at=5))))
        assert (report.reason, report.about, report.others) == (reason, at, 0)

    @pytest.mark.parametrize("claimed", [False, True], ids=["new", "running"])
    def test_fork_refused_for_good_fails_the_run(self, claimed):
        run = with_fork() if claimed else made(FORKED, "a", "b")
        held = {"objections": {APP: UnitRefusal(reason=Reason.BAD_PATCH, message="m")}}
        if claimed:
            held = {"facts": {(APP, 1): Waiting(since=5, reason=Reason.BAD_PATCH, message="m")}}
        report = told(run, FORKED, **held)
        assert report.reason is Reason.FORK_FAILED
        assert "BadPatch" in report.message
        assert one(report, APP).state == "failed"
        assert phase(begun=True, closed=False, ready=report.ready, reason=report.reason) == "Failed"

    def test_fork_without_its_baseline_is_pending(self):
        held = {APP: UnitRefusal(reason=Reason.BASELINE_MISSING, message="m")}
        assert told(made(FORKED, "a", "b"), FORKED, objections=held).reason is Reason.FORKS_PENDING

    def test_refused_fork_does_not_fail_a_run_that_is_closed(self):
        held = {APP: UnitRefusal(reason=Reason.BAD_PATCH, message="m")}
        report = told(after(FORKED, with_fork(), close()), FORKED, objections=held)
        assert report.reason is Reason.DELETING

    def test_a_failure_before_the_forks_comes_before_a_doubt(self):
        run = after(PLAN, born(PLAN), claim("db/a"), doubt("db/a"), claim("db/b"))
        assert told(run).reason is Reason.OUTCOME_UNKNOWN
        assert told(after(PLAN, run, record("db/b", failed()))).reason is Reason.RESOURCE_FAILED

    def test_running_unit_is_reported_before_a_waiting_one(self):
        run = after(PLAN, made(PLAN, "a", "b"), claim("db/d"))
        assert told(run).about == "db/d"

    def test_retrying_unit_is_reported_before_a_running_one(self):
        run = after(PLAN, born(PLAN), claim("db/a"), claim("db/b"), void("db/b", at=NOW))
        assert told(run).about == "db/b"

    def test_nothing_is_to_come_of_a_step_that_is_done(self):
        found = one(told(made(PLAN, "a")), "db/a")
        assert (found.state, found.until, found.waits_on) == ("succeeded", 0, ())


class TestForks:
    @pytest.mark.parametrize(
        ("fact", "state", "ready"),
        [
            (Running(since=7), "running", False),
            (Running(since=7, ready=False), "waiting", False),
            (None, "waiting", False),
        ],
    )
    def test_fork_is_running_once_it_answers(self, fact, state, ready):
        report = told(with_fork(), FORKED, facts={(APP, 1): fact} if fact else {})
        found = one(report, APP)
        assert (found.state, report.ready) == (state, ready)
        assert report.reason is (Reason.HOOKS_PENDING if state == "running" else Reason.FORKS_PENDING)
        assert found.started_at == (7 if fact else 0)
        assert found.since == (7 if fact and state == "waiting" else 5)
        assert (found.kind, found.event, found.name) == ("fork", "start", "app")
        assert (report.done, report.total) == (2 + (state == "running"), 5)

    def test_nothing_is_to_come_of_one_that_runs(self):
        found = one(told(with_fork(), FORKED, facts={(APP, 1): Running(since=7)}), APP)
        assert (found.since, found.until, found.waits_on, found.reason) == (5, 0, (), "")

    def test_fork_of_an_old_revision_does_not_count_as_running(self):
        run = after(FORKED, made(FORKED, "a", "b"), claim(APP, generation="old"))
        assert one(told(run, FORKED, facts={(APP, 1): Running(since=7)}), APP).state == "waiting"

    def test_fork_with_an_unknown_end_is_unknown(self):
        assert one(told(with_fork(doubt(APP)), FORKED), APP).state == "unknown"

    @pytest.mark.parametrize("end", [record(APP, failed(at=NOW)), void(APP, at=NOW)], ids=["ended", "void"])
    def test_ended_fork_is_retried_and_stops_with_the_run(self, end):
        run = with_fork(end)
        found = one(told(run, FORKED), APP)
        assert found.state == "retrying"
        assert found.until > NOW
        assert one(told(after(FORKED, run, close()), FORKED), APP).state == "stopped"

    def test_ended_fork_still_running_is_stopping(self):
        run = with_fork(record(APP, failed(at=NOW)))
        found = one(told(run, FORKED, facts={(APP, 1): Running(since=7)}), APP)
        assert found.reason == Reason.STOPPING


class TestClosed:
    def test_unstarted_unit_of_a_closed_run_is_skipped(self):
        run = after(PLAN, made(PLAN, "a"), close())
        report = told(run)
        assert states(report) == {"a": "succeeded", **dict.fromkeys("bcd", "skipped"), "y": "skipped", "z": "waiting"}
        assert (report.done, report.total, report.reason) == (0, 1, Reason.DELETING)
        assert report.about == "db/z"

    def test_waiting_step_names_the_steps_before_it(self):
        run = after(PLAN, made(PLAN, "a"), claim("db/b"), close())
        found = one(told(run, facts={("db/b", 1): Running(since=7)}), "db/z")
        assert (found.reason, found.message) == (Reason.WAITING_FOR_EARLIER, "starts after db/b")
        assert found.waits_on == ("db/b",)

    @pytest.mark.parametrize("reason", [Reason.KIND_NOT_SERVED, Reason.OBJECT_TERMINATING, "Quota"])
    def test_attempt_that_cannot_end_gives_the_reason(self, reason):
        run = after(PLAN, made(PLAN, "a"), claim("db/b"), close())
        found = one(told(run, facts={("db/b", 1): Running(since=7, reason=reason, message="m")}), "db/b")
        assert (found.reason, found.message) == (reason, "asked to end: deleted by ada; m")

    def test_skipped_units_are_not_counted(self):
        report = told(after(PLAN, born(PLAN), close(), Finish(at=NOW)))
        assert set(states(report).values()) == {"skipped"}
        assert (report.done, report.total, report.reason) == (0, 0, Reason.CLEANED)

    def test_closed_run_reports_the_running_unit(self):
        run = after(PLAN, made(PLAN, "a"), close(), claim("db/z"))
        report = told(run)
        assert (report.about, report.others) == ("db/z", 0)

    def test_closed_run_reports_the_waiting_unit_if_none_runs(self):
        run = done(PLAN, after(PLAN, made(PLAN, "a"), close()), "db/y")
        report = told(run)
        assert (report.about, report.others, report.done) == ("db/z", 0, 1)

    def test_a_create_step_that_was_to_be_tried_again_stops(self):
        run = after(PLAN, born(PLAN), claim("db/a"), void("db/a"))
        assert states(told(run))["a"] == "retrying"
        assert states(told(after(PLAN, run, close())))["a"] == "stopped"

    def test_internal_webhook_record_is_not_an_output(self):
        told_by = {name: OutputRecord(digest="sha256:00", size=1) for name in ("location", "definite-answer")}
        over = msgspec.structs.replace(failed(), outputs=told_by)
        run = after(PLAN, born(PLAN), claim("db/a"), record("db/a", over))
        assert one(told(run), "db/a").outputs == ("location",)

    def test_cancelled_unit_has_stopped_and_failed_one_failed(self):
        run = after(PLAN, born(PLAN), claim("db/a"), claim("db/b"))
        cancelled = Result(outcome="failed", reason=Reason.CANCELLED)
        run = after(PLAN, run, record("db/a", cancelled), record("db/b", failed()))
        assert states(told(run))["a"] == "failed"
        found = states(told(after(PLAN, run, close())))
        assert (found["a"], found["b"]) == ("stopped", "failed")

    def test_failed_unit_gives_its_reason_while_processes_end(self):
        run = after(PLAN, born(PLAN), claim("db/a"), record("db/a", failed()), close())
        found = one(told(run, facts={("db/a", 1): Running(since=7)}), "db/a")
        assert (found.state, found.reason, found.message) == ("failed", "ExitCode", "exit code 1")

    def test_unknown_outcome_is_reported_first(self):
        run = after(PLAN, born(PLAN), claim("db/a"), doubt("db/a"), close())
        assert told(run).reason is Reason.OUTCOME_UNKNOWN
        forked = after(FORKED, with_fork(doubt(APP)), close())
        assert told(forked, FORKED).reason is Reason.OUTCOME_UNKNOWN

    @pytest.mark.parametrize(("tries", "reason"), [(4, Reason.DELETING), (5, Reason.CLEANUP_STUCK)])
    def test_a_cleanup_is_stuck_after_five_tries(self, tries, reason):
        run = done(PLAN, after(PLAN, made(PLAN, "a"), close()), "db/y")
        for number in range(1, tries + 1):
            run = after(PLAN, run, claim("db/z", number), record("db/z", failed(at=NOW), number))
        assert told(run).reason is reason

    def test_nothing_left_to_say_is_that_it_ends(self):
        empty = plan_of(document(pre_start=(unit("a"),)))
        run = after(empty, born(empty), close())
        assert told(run, empty).message == "is being cleaned up: deleted by ada"


class TestBeside:
    def test_earlier_report_is_updated_with_its_clocks(self):
        run = after(PLAN, born(PLAN), claim("db/a"), claim("db/b"), record("db/b", succeeded()))
        report = told(run, facts={("db/a", 1): Running(since=NOW)})
        later = with_current_clocks(report, NOW + 8_000)
        assert one(report, "db/a").message == "attempt 1 has been running for 0 ms"
        assert one(later, "db/a").message == "attempt 1 has been running for 8 s"
        assert later.message == "db/a: attempt 1 has been running for 8 s"
        assert one(later, "db/b") == one(report, "db/b")
        ready = told(made(PLAN, "a", "b", "c", "d"))
        assert with_current_clocks(ready, NOW + 8_000) == ready
        assert (ready.about, ready.others) == ("", 0)

    def test_unit_without_a_message_is_described_by_its_state(self):
        quiet = UnitReport(id="db/a", name="a", event="preStart", kind="exec", state="waiting")
        assert unit_sentence(quiet, "", 2) == "db/a: waiting (and 2 more)"

    def test_unsupported_field_is_reported_for_an_open_ready_run(self):
        ready = told(made(PLAN, "a", "b", "c", "d"))
        assert with_unsupported(ready, ()) is ready
        found = with_unsupported(ready, ("virtual",))
        assert found.message.endswith("available. Not supported here: virtual.")
        assert found.unsupported == ("virtual",)
        pending = told(born(PLAN))
        assert with_unsupported(pending, ("virtual",)).message == pending.message
        closed = told(after(PLAN, made(PLAN, "a"), close()))
        assert with_unsupported(closed, ("virtual",)) is closed

    def test_resource_counts_only_its_own_units(self):
        report = told(after(PLAN, made(PLAN, "a"), close()))
        assert resource_progress(report.units, "db", closed=True)[:3] == ("Deleting", 0, 1)
        assert resource_progress(report.units, "db", closed=False)[:3] == ("Ready", 1, 1)
        other = resource_progress(report.units, "other", closed=True)
        assert (other[:3], other.worst, other.has_trouble) == (("Deleting", 0, 0), None, False)

    def test_a_resource_fails_by_its_worst_step(self):
        run = after(PLAN, born(PLAN), claim("db/a"), claim("db/b"), record("db/b", failed()))
        found = resource_progress(told(run).units, "db", closed=False)
        assert (found.phase, found.done, found.total, found.worst.id, found.has_trouble) == (
            "Failed",
            0,
            4,
            "db/b",
            True,
        )
        fresh = resource_progress(told(born(PLAN)).units, "db", closed=False)
        assert (fresh.phase, fresh.has_trouble) == ("Creating", False)

    @pytest.mark.parametrize(
        ("closed", "ready", "reason", "begun", "word"),
        [
            (True, True, "", True, "Deleting"),
            (False, True, "", True, "Ready"),
            (False, False, Reason.RESOURCE_FAILED, True, "Failed"),
            (False, False, Reason.RESOURCES_PENDING, True, "Creating"),
            (False, False, Reason.RESOURCES_PENDING, False, "Pending"),
        ],
    )
    def test_phase_of_a_sandbox(self, closed, ready, reason, begun, word):
        assert phase(begun=begun, closed=closed, ready=ready, reason=reason) == word

    @pytest.mark.parametrize(
        ("state", "reason", "said"),
        [
            ("failed", "", True),
            ("unknown", "", True),
            ("retrying", "", True),
            ("waiting", Reason.WAITING_FOR_INPUT, False),
            ("waiting", Reason.NAME_CONFLICT, True),
            ("running", Reason.RUNNING, False),
            ("succeeded", Reason.NAME_CONFLICT, False),
        ],
    )
    def test_state_or_reason_in_the_way_counts_as_trouble(self, state, reason, said):
        found = UnitReport(id="a", name="a", event="preStart", kind="exec", state=state, reason=reason)
        assert has_trouble([found]) is said


class TestWords:
    @pytest.mark.parametrize(
        ("milliseconds", "said"),
        [
            (-5, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (86_400_000, "1 d"),
            (86_399_000, "23 h 59 min"),
            (90_061_000, "1 d 1 h"),
            (200_000, "3 min 20 s"),
        ],
    )
    def test_a_span_has_its_two_largest_units(self, milliseconds, said):
        assert messages.format_duration(milliseconds) == said

    @pytest.mark.parametrize(
        ("units", "said"),
        [
            ((), "nothing"),
            (("a",), "a"),
            (("a", "b"), "a and b"),
            (("a", "b", "c", "d"), "a, b, c and d"),
            (("a", "b", "c", "d", "e", "f"), "a, b, c, d and 2 more"),
        ],
    )
    def test_names_are_listed_and_their_tail_is_counted(self, units, said):
        assert messages.join_names(units) == said


class TestSealed:
    def test_reading_its_own_resource_makes_no_dependency(self):
        own = UnitInput(name="a", from_=Ref(unit="a", output="out", resource="db"))
        reads = msgspec.structs.replace(unit("b"), inputs=(own,))
        plan = seal((document(pre_start=(unit("a"), reads)),))
        assert plan.readers == {"db": frozenset()}
        assert plan.steps["db/b"].reads == ("db/a",)

    def test_a_reader_of_another_resource_is_one(self):
        documents = (document("db", pre_start=(unit("a"),)), document("app", pre_start=(unit("b", "db/a"),)))
        assert seal(documents).readers == {"db": frozenset({"app"}), "app": frozenset()}

    @pytest.mark.parametrize(
        ("ref", "found"),
        [
            (Ref(unit="a", output="key", resource="db"), {"in"}),
            (Ref(unit="a", output="key"), {"in"}),
            (Ref(unit="a", output="url", resource="db"), set()),
            (Ref(unit="a", output="key", resource="other"), set()),
            (None, set()),
        ],
    )
    def test_sensitive_output_is_sensitive_for_its_reader(self, ref, found):
        outputs = (UnitOutput(name="key", path="/k", sensitive=True), UnitOutput(name="url", path="/u"))
        plan = seal(
            (
                document("db", pre_start=(unit("a", outputs=outputs),)),
                document("other", pre_start=(unit("a", outputs=outputs[1:]),)),
            )
        )
        reads = msgspec.structs.replace(unit("b"), inputs=(UnitInput(name="in", from_=ref),))
        assert sensitive_inputs(plan, reads, "db") == found


@pytest.mark.parametrize("wish", [TargetIntent(expires_at=1), TargetIntent(lease_until=1)])
def test_a_time_that_was_over_long_ago_is_over(wish):
    found = decide(PLAN, world(born(PLAN), intent=wish), NOW)
    assert found.moves[0].request.reason in (Reason.EXPIRED, Reason.LEASE_EXPIRED)


def test_observed_end_counts_only_once_recorded():
    ended = Ended(result=succeeded(9))
    report = told(after(PLAN, born(PLAN), claim("db/a")), facts={("db/a", 1): ended})
    assert report.phase is Phase.OPEN
    assert states(report)["a"] == "running", "the report is of the ledger"


def test_only_an_attempt_that_ran_can_linger():
    """A unit that never ran needs no cleanup, whatever fact exists for it."""
    facts = {("db/a", 1): Running(since=1)}
    ran = after(PLAN, born(PLAN), claim("db/a"), record("db/a", failed()))
    never = after(PLAN, born(PLAN), claim("db/a"), void("db/a"))
    assert DecisionDraft(PLAN, world(ran, facts=facts), NOW).may_have_processes("db/a")
    assert not DecisionDraft(PLAN, world(never, facts=facts), NOW).may_have_processes("db/a")
