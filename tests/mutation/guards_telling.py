"""Guards of what is told elsewhere: by CloudEvents, and by traces."""

from __future__ import annotations

from mutation.guard import Guard, guard

DELIVERY, EVENTS, TRACE = "work/delivery.py", "operator/status/sandbox_events.py", "plan/trace.py"
SERVER, OPERATOR = "control/test_telling.py::test_", "operator/test_sandbox_events.py::test_"
TRACES, TRACING = "plan/test_trace.py::test_", "execute/test_tracing.py::test_"

TELLING: tuple[Guard, ...] = (
    guard(
        "of several servers each sends",
        "control/event_rows.py",
        "if row.holder != holder and row.until > now:",
        "if False:",
        SERVER + "of_several_servers_one_sends_and_another_one_when_it_is_gone",
    ),
    guard(
        "one whose events are not taken holds up the others",
        DELIVERY,
        "if owner not in self.tasks:",
        "if not self.tasks:",
        SERVER + "an_event_that_nobody_takes_holds_up_its_own_organisation_alone",
    ),
    guard(
        "events wait without number",
        "control/telling.py",
        "return not full",
        "return True",
        SERVER + "no_more_wait_than_may_and_what_is_still_so_is_told_when_there_is_room",
    ),
    guard(
        "one event that nobody takes stands before all others for ever",
        DELIVERY,
        "return now - since > GIVE_UP_S",
        "return False",
        SERVER + "what_no_receiver_takes_is_given_up_in_the_end",
    ),
    guard(
        "a slow cluster is waited for before another one is looked at",
        "control/telling.py",
        'self._looks[key] = asyncio.create_task(self._look(key, changed[key]), name="events look")',
        "await self._look(key, changed[key])",
        SERVER + "a_cluster_that_does_not_answer_holds_up_no_other",
    ),
    guard(
        "what was to be sent is forgotten with the process",
        "control/telling.py",
        "for org in await self._store.everywhere().read(event_rows.waiting):",
        "for org in ():",
        SERVER + "what_was_not_answered_is_sent_by_the_next_process_under_the_same_id",
    ),
    guard(
        "an operator tells of a control plane's sandboxes",
        EVENTS,
        "if is_served(meta):",
        "if False:",
        OPERATOR + "no_more_wait_than_may_and_of_a_control_planes_sandboxes_nothing_is_told",
    ),
    guard(
        "a deletion is told as a new form that is ready",
        EVENTS,
        ' or (meta.deletion_timestamp and kind != "stuck")',
        "",
        OPERATOR + "what_one_namespace_cannot_get_rid_of_holds_up_no_other_and_the_next_leader_tells_it",
    ),
    guard(
        "a step says in a trace what it likes",
        TRACE,
        'return reason if not reason or _WORD.fullmatch(reason) else "Other"',
        "return reason",
        TRACES + "a_reason_that_is_no_word_is_not_told[key=s3cr3t]",
    ),
    guard(
        "a cleanup that fails for weeks makes a trace without end",
        TRACE,
        "for each in tries[-MOST_ATTEMPTS:]",
        "for each in tries",
        TRACES + "an_end_is_a_trace_of_its_own_that_leads_to_the_beginning",
    ),
    guard(
        "traces wait for a collector without number",
        "execute/tracing.py",
        "queue.Queue(MOST_WAITING)",
        "queue.Queue()",
        TRACING + "nobody_waits_for_a_collector_and_what_is_dropped_is_said",
    ),
    guard(
        "whoever asks for no traces loads their library",
        "execute/tracing.py",
        "    if not wanted(environment):\n        return None\n",
        "    otlp(environment)\n    if not wanted(environment):\n        return None\n",
        TRACING + "who_asks_for_none_does_not_import_the_library",
    ),
)
