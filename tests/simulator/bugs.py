"""Seeded bugs: each removes one guard of the code. The simulator must find every bug.

The old text of an edit must occur exactly once in its file, otherwise the list is stale. Some guards are in two places:
the decision and the table of legal changes. Each of them is seeded twice. If only the decision lacks it, the table must
raise an error. If both lack it, the oracle must find the violation.
"""

from typing import NamedTuple

DECIDE, DEADLINES, DESK = "plan/decide.py", "plan/deadlines.py", "plan/decision.py"
OPENING, CLOSING = "plan/open_run.py", "plan/closed_run.py"
RETRY, SEALED, TABLE = "plan/retry.py", "plan/sealed.py", "plan/transitions.py"
TURN, LEDGER, LIFECYCLE, RUN = "execute/turn.py", "embedded/ledger.py", "spec/lifecycle.py", "spec/run.py"

Edit = tuple[str, str, str]  # file, old text, new text


class Bug(NamedTuple):
    """A bug, and the invariants any of which may find it."""

    name: str
    edits: tuple[Edit, ...]
    found_by: tuple[int, ...]
    host: str = ""  # the first host to search


def _bug(name: str, file: str, old: str, new: str, *found_by: int, host: str = "machine") -> Bug:
    return Bug(name, ((file, old, new),), found_by, host)


TABLE_LETS_CLAIM = (TABLE, "phase is not Phase.OPEN and creates(move.unit)", "phase is None")
TABLE_SKIPS = (TABLE, "if move.attempt != before.attempt + 1:", "if move.attempt <= before.attempt:")
TABLE_FORGETS_SUCCESS = (TABLE, 'before.outcome == "succeeded" and not repeats', "before.attempt < 0")
OPEN_WHILE_CLOSED = (
    DECIDE,
    "if draft.phase is Phase.OPEN:\n        open_run",
    "if world.run.phase is Phase.OPEN:\n        open_run",
)
SKIPPED_ATTEMPT = (DESK, "attempt = self.unit(step.id).attempt + 1", "attempt = self.unit(step.id).attempt + 2")
SUCCESS_IS_NOT_ENOUGH = (
    RETRY,
    'if record.outcome == "succeeded":',
    'if record.outcome == "succeeded" and record.attempt > 1:',
)

BUGS: tuple[Bug, ...] = (
    # --- decide ---
    _bug(
        "unknown attempts are not read",
        DECIDE,
        "if record.state is not State.CLAIMED and record.state is not State.UNKNOWN:",
        "if record.state is not State.CLAIMED:",
        12,
        13,
        host="cluster",
    ),
    _bug(
        "every held attempt is launched",
        DECIDE,
        "case Prepared(ref=ref) if ref == record.ref and (",
        "case Prepared(ref=ref) if (",
        2,
        11,
        host="cluster",
    ),
    _bug(
        "a closed run launches creates",
        DECIDE,
        "if ref == record.ref and (draft.phase is Phase.OPEN or not draft.plan.creates(name)):",
        "if ref == record.ref:",
        3,
        host="cluster",
    ),
    _bug(
        "a dead peer's claim is not finished",
        DECIDE,
        "case Prepared(ref=ref) if ref == record.ref and",
        "case Prepared(ref=ref) if record.attempt < 0 and",
        13,
        host="cluster",
    ),
    _bug("stalled attempts are not fenced", DECIDE, "case Stalled():", "case Stalled() if draft.now < 0:", 13),
    _bug(
        "no start deadline",
        DEADLINES,
        "limit = limits.pull_ms if fact.is_scheduled else limits.schedule_ms\n",
        "limit = 0\n    return\n",
        13,
    ),
    _bug(
        "no run deadline",
        DEADLINES,
        "if limits is None or not limits.run_ms:",
        "if limits is None or limits.run_ms:",
        13,
    ),
    _bug(
        "given up before its deadline",
        DECIDE,
        "if draft.now >= fact.dead_by:",
        "if draft.now > fact.since:",
        1,
        2,
        4,
        5,
        6,
        9,
        host="cluster",
    ),
    _bug(
        "doubt is kept quiet",
        DECIDE,
        "elif record.state is State.CLAIMED:",
        "elif record.attempt < 0:",
        12,
        host="cluster",
    ),
    _bug(
        "abandon does not close", DEADLINES, "request = intent.stop or intent.abandon", "request = intent.stop", 0, 13
    ),
    _bug(
        "time to live is not read",
        DEADLINES,
        "if request is None and 0 < intent.expires_at <= draft.now:",
        "if request is None and 0 < intent.expires_at < 0:",
        13,
    ),
    _bug(
        "lease is not read",
        DEADLINES,
        "if request is None and 0 < intent.lease_until <= draft.now:",
        "if request is None and 0 < intent.lease_until < 0:",
        13,
    ),
    _bug("no clock for the time to live", DEADLINES, "draft.wake_at(intent.expires_at)", "draft.wake_at(0)", 13),
    _bug(
        "given up again and again",
        DEADLINES,
        "intent.abandon is not None and draft.abandon is None:",
        "intent.abandon is not None:",
        8,
        13,
        host="cluster",
    ),
    _bug(
        "abandon is not written",
        DEADLINES,
        "if intent.abandon is not None and",
        "if draft.phase is Phase.OPEN and intent.abandon is not None and",
        0,
        13,
    ),
    _bug(
        "evidence of the living is released",
        DECIDE,
        "if may_have_processes(fact, draft.now):\n            continue",
        "pass",
        6,
    ),
    _bug(
        "an abandoned run goes on",
        DECIDE,
        "if world.run.phase in (Phase.CLEANED, Phase.ABANDONED):",
        "if world.run.phase is Phase.CLEANED:",
        0,
    ),
    _bug("nothing is released", DECIDE, "draft.effects.append(Release(unit=name, attempt=attempt))", "pass", 14),
    # --- decision ---
    _bug("places are not counted", DESK, "self.slots -= uses_slot", "self.slots -= 0", 0),
    _bug("refusals are not read", DESK, "if objection is not None:", "if objection is not None and self.now < 0:", 0),
    _bug(
        "an unclear attempt has ended",
        DESK,
        "return now < fact.dead_by",
        "return now < 0",
        1,
        4,
        5,
        6,
        9,
        host="cluster",
    ),
    _bug(
        "a recorded attempt has ended",
        DESK,
        "return not (fact is None or isinstance(fact, (Ended, NeverRan, Prepared)))",
        "return fact is None",
        1,
        4,
        5,
        6,
        9,
        13,
    ),
    _bug(
        "claimed without a gate",
        DESK,
        "if step.unit.kind in self.world.gated_kinds:",
        "if step.unit.kind in self.world.gated_kinds and self.now < 0:",
        2,
        host="cluster",
    ),
    _bug(
        "taken away before its claim",
        DESK,
        "elif isinstance(fact, NeverRan):",
        "elif isinstance(fact, NeverRan) and self.now < 0:",
        13,
        host="cluster",
    ),
    _bug(
        "no clock for a hung start",
        DESK,
        "self.wake_at(self.now + step.unit.timeouts.schedule_ms + step.unit.timeouts.pull_ms)",
        "self.wake_at(0)",
        13,
    ),
    # --- open run ---
    _bug("a failure stops no other unit", OPENING, "if failed:", "if failed and draft.now < 0:", 5),
    _bug("units do not wait for inputs", OPENING, "elif missing:", "elif missing and draft.now < 0:", 5, 7),
    _bug(
        "doubt stops no other unit", OPENING, "elif doubtful:", "elif doubtful and draft.now < 0:", 12, host="cluster"
    ),
    _bug("no back-off", OPENING, "due = retry_at(step, record, draft.now)", "due = 0", 13),
    _bug(
        "an end ahead of our clock is ignored",
        RETRY,
        "return claimed if claimed <= now + MAX_CLOCK_SKEW_MS else 0",
        "return 0",
        13,
    ),
    _bug(
        "a back-off that was ended once never comes again",
        DESK,
        "return self.world.intent.retry.get(name, 0) == self.unit(name).attempt",
        "return name in self.world.intent.retry",
        13,
    ),
    _bug(
        "a retry beside its last attempt", OPENING, "if draft.may_have_processes(step.id):", "if draft.now < 0:", 1, 9
    ),
    _bug("a fork beside its last self", OPENING, "if draft.may_have_processes(kept.id):", "if draft.now < 0:", 1, 9),
    _bug(
        "forks before preStart is done",
        OPENING,
        "if not _advance_event(draft, LifecycleEvent.PRE_START):",
        "if _advance_event(draft, LifecycleEvent.PRE_START) is None:",
        5,
    ),
    _bug("postStart before the forks answer", OPENING, "    if waiting:\n", "    if waiting and draft.now < 0:\n", 5),
    _bug(
        "a fork's readiness is not read",
        OPENING,
        "return alive and isinstance(fact, Running) and fact.ready",
        "return alive and isinstance(fact, Running)",
        5,
    ),
    _bug(
        "revisions of forks are ignored",
        OPENING,
        "if record.generation != kept.generation:",
        "if not record.generation:",
        0,
        13,
    ),
    _bug(
        "removed forks stay",
        OPENING,
        "if name not in draft.plan.kept]",
        "if not name]",
        0,
        13,
    ),
    _bug(
        "no back-off for forks",
        OPENING,
        "fork_retry_at(record, draft.now) if record.generation == kept.generation else 0",
        "0",
        13,
    ),
    _bug(
        "waiting attempts are not fenced",
        OPENING,
        "case Prepared() | Waiting():",
        "case Prepared() if draft.now < 0:",
        13,
        host="cluster",
    ),
    _bug("a recall has no timeout", OPENING, "return draft.now < due", "return due > 0", 13, host="cluster"),
    _bug("running attempts are not cancelled", OPENING, "case Running():", "case Running() if draft.now < 0:", 13),
    # --- closed run ---
    _bug(
        "cleanup beside live creates",
        CLOSING,
        "if not _end_attempts(draft, creating):",
        "if _end_attempts(draft, creating) is None:",
        5,
    ),
    _bug(
        "cleanup beside recorded creates that linger",
        CLOSING,
        "elif draft.may_have_processes(name):",
        "elif draft.now < 0:",
        4,
        5,
    ),
    _bug(
        "preStop is left out", CLOSING, "if draft.run.has_started and not _run_pre_stop(draft):", "if draft.now < 0:", 5
    ),
    _bug(
        "preStop without a fork",
        CLOSING,
        "if draft.run.has_started and not _run_pre_stop(draft):",
        "if not _run_pre_stop(draft):",
        5,
    ),
    _bug("postStop beside forks", CLOSING, "if not _end_kept(draft):", "if _end_kept(draft) is None:", 4, 5),
    _bug(
        "finished before postStop is", CLOSING, "if _run_post_stop(draft):", "if _run_post_stop(draft) is not None:", 4
    ),
    _bug(
        "readers are not cleaned first",
        CLOSING,
        "            if readers:\n",
        "            if readers and draft.now < 0:\n",
        5,
    ),
    _bug(
        "a failed attempt needs no cleanup",
        RUN,
        "self.attempt > self.voids",
        "self.attempt > self.voids + self.failures",
        4,
    ),
    _bug(
        "no attempt needs a cleanup",
        CLOSING,
        "if needs_post_stop(draft, step)\n",
        "if not needs_post_stop(draft, step)\n",
        4,
        5,
        13,
    ),
    _bug(
        "finished beside a postStop that lingers",
        CLOSING,
        "is not UnitState.SUCCEEDED or draft.may_have_processes(step.id)",
        "is not UnitState.SUCCEEDED",
        4,
        5,
        6,
    ),
    _bug("stop steps do not wait for inputs", CLOSING, "    if missing:\n", "    if missing and draft.now < 0:\n", 5),
    _bug(
        "cleanup waits for a skipped preStop",
        CLOSING,
        "return at is UnitState.FAILED or not draft.run.has_started",
        "return at is UnitState.FAILED and not draft.run.has_started",
        13,
    ),
    _bug(
        "all stop units run although the target lives on",
        CLOSING,
        "return bool(step.unit.undoes) and run.unit(made).may_have_run",
        "return run.seq >= 0",
        5,
    ),
    _bug(
        "begun units are not undone if the target lives on",
        CLOSING,
        "return bool(step.unit.undoes) and run.unit(made).may_have_run",
        "return run.seq < 0",
        4,
    ),
    _bug(
        "units that never ran are undone",
        CLOSING,
        "return bool(step.unit.undoes) and run.unit(made).may_have_run",
        "return bool(step.unit.undoes)",
        5,
    ),
    _bug(
        "preStop runs though the target lives on",
        CLOSING,
        "if (at in ENDED_STATES and not draft.may_have_processes(step.id)) or not applies_to_end(draft.run, step):",
        "if at in ENDED_STATES and not draft.may_have_processes(step.id):",
        5,
    ),
    _bug(
        "cleanup waits for a target that lives on",
        CLOSING,
        "draft.run.stopped_at or target_survives(draft.run):",
        "draft.run.stopped_at:",
        13,
    ),
    _bug(
        "cleanup waits for units that do not run",
        CLOSING,
        "if at is UnitState.SUCCEEDED or not applies_to_end(draft.run, step):",
        "if at is UnitState.SUCCEEDED:",
        13,
    ),
    _bug(
        "abandoned beside what runs",
        CLOSING,
        "if _end_attempts(draft, names):",
        "if _end_attempts(draft, names) is not None:",
        4,
    ),
    _bug("postStop beside the target", CLOSING, "if target.stopped:", "if target.stopped or draft.now > 0:", 4, 5, 8),
    _bug(
        "a target that stopped is not noted",
        CLOSING,
        "        draft.add_move(Stopped(at=draft.now))\n        return True",
        "        return draft.now < 0",
        0,
        13,
    ),
    _bug(
        "a started target needs no postStop",
        CLOSING,
        "return draft.run.started_at > 0 or any(",
        "return any(",
        4,
        5,
    ),
    _bug("a started target needs no preStop", RUN, "self.started_at > 0 or any(", "any(", 5),
    _bug(
        "that the target has started is not noted",
        DECIDE,
        "if target is not None and target.started and not (",
        "if target is not None and target.started and draft.now < 0 and not (",
        4,
        5,
        13,
    ),
    _bug(
        "that the target has started is noted again",
        DECIDE,
        "and not (draft.run.started_at or draft.run.stopped_at):",
        "and not draft.run.stopped_at:",
        0,
        8,
        13,
    ),
    _bug(
        "postStart before the target has started",
        OPENING,
        "if draft.world.target is not None and not draft.run.started_at:",
        "if draft.world.target is not None and draft.now < 0:",
        5,
    ),
    _bug(
        "a fork before what it comes after",
        OPENING,
        "    if missing:\n        message = messages.waits_for_forks",
        "    if draft.now < 0:\n        message = messages.waits_for_forks",
        5,
    ),
    _bug(
        "a fork goes before what comes after it, while others stay",
        OPENING,
        "        if add_wait_for_later(draft, name, dismissed):\n            continue\n",
        "",
        5,
    ),
    _bug(
        "a fork goes before what comes after it, at the end",
        CLOSING,
        "if not add_wait_for_later(draft, name, every)",
        "if draft.now >= 0",
        5,
    ),
    # --- retry ---
    _bug("voids without end", RETRY, "MAX_NEVER_RAN: Final = 3", "MAX_NEVER_RAN: Final = 9", 5, 9),
    _bug("a sixth preStop", LIFECYCLE, "PRE_STOP_TRIES = 5", "PRE_STOP_TRIES = 6", 5, 9),
    _bug("a second create", RETRY, "        return 1\n", "        return 2\n", 1, 9),
    _bug("limits are not read", RETRY, 'return retry.limit or float("inf")', 'return float("inf")', 5, 9),
    _bug("postStop gives up", RETRY, '        return float("inf")\n', "        return PRE_STOP_TRIES\n", 0, 13),
    _bug("the back-off does not grow", RETRY, "min(max(times - 1, 0), most_ms.bit_length())", "0", 13),
    _bug("a hopeless attempt is retried", RETRY, "or record.reason in _PERMANENT_REASONS", "", 5, 9),
    _bug(
        "voids have no limit of the unit's own",
        RETRY,
        "max(MAX_NEVER_RAN, attempt_limit(step))",
        "MAX_NEVER_RAN",
        0,
        13,
    ),
    _bug("a program that cannot be executed is tried again", RETRY, "        Reason.NOT_EXECUTABLE,\n", "", 5, 9),
    _bug(
        "a preStop that never ran is tried without end",
        RETRY,
        "return UnitState.RETRYABLE if record.unsuccessful < attempt_limit(step) else UnitState.FAILED",
        "return UnitState.RETRYABLE",
        5,
        9,
        13,
    ),
    _bug(
        "a preStop does not count attempts that never ran",
        RETRY,
        "spent = record.failures if step.creates else record.unsuccessful",
        "spent = record.failures",
        5,
        9,
    ),
    # --- sealed ---
    _bug(
        "stop steps need nothing",
        SEALED,
        "(where.get(name) in CREATE_EVENTS) == creates",
        "where.get(name) in CREATE_EVENTS and creates",
        5,
    ),
    _bug(
        "readers are not known",
        SEALED,
        "if ref.resource and ref.resource != document.resource:",
        "if ref.resource and not document:",
        5,
    ),
    # --- guards in two places: removed from the decision (the table finds it) and from both (the oracle finds it) ---
    Bug("open while closed", (OPEN_WHILE_CLOSED,), (0, 13), "machine"),
    Bug("open while closed, and the table lets it", (OPEN_WHILE_CLOSED, TABLE_LETS_CLAIM), (0, 3, 13), "machine"),
    Bug("an attempt is left out", (SKIPPED_ATTEMPT,), (0,), "machine"),
    Bug("an attempt is left out, and the table lets it", (SKIPPED_ATTEMPT, TABLE_SKIPS), (8,), "machine"),
    Bug("again after success", (SUCCESS_IS_NOT_ENOUGH,), (0, 5, 13), "machine"),
    Bug(
        "again after success, and the table lets it",
        (SUCCESS_IS_NOT_ENOUGH, TABLE_FORGETS_SUCCESS),
        (1, 5, 9),
        "machine",
    ),
    # --- table ---
    _bug(
        "failures are not counted",
        TABLE,
        'failures=before.failures + (result.outcome == "failed"),',
        "failures=before.failures,",
        8,
    ),
    _bug("a long run of a fork leaves its failures", TABLE, "ran_long(before)", "before.attempt < 0", 8),
    _bug("a long run of a step forgets its failures", TABLE, "bool(move.generation) and ran_long", "ran_long", 8),
    _bug("voids are not counted", TABLE, "voids=before.voids + 1", "voids=before.voids", 8),
    _bug(
        "a failure forgets outputs of earlier attempts",
        TABLE,
        'known = before.outputs if move.result.outcome == "failed" else {}',
        "known: dict[str, OutputRecord] = {}",
        7,
    ),
    _bug("a void attempt forgets outputs", TABLE, "        outputs=before.outputs,\n", "", 7),
    _bug("seq stands still", TABLE, '"seq": run.seq + 1}', '"seq": run.seq}', 8),
    # --- ledger ---
    _bug(
        "no compare in the swap",
        LEDGER,
        "WHERE uid = ? AND seq = ?",
        "WHERE uid = ? AND seq >= ? - 9",
        2,
        8,
        9,
        host="cluster",
    ),
    _bug(
        "values are not kept",
        LEDGER,
        "for (unit, name), value in values.items():",
        "for (unit, name), value in {}.items():",
        7,
    ),
    _bug(
        "a commit that is none",
        LEDGER,
        'yield\n                self._db.execute("COMMIT")',
        'yield\n                self._db.execute("ROLLBACK")',
        8,
        14,
    ),
    _bug(
        "half a commit stays",
        LEDGER,
        'if self._db.in_transaction:\n                    self._db.execute("ROLLBACK")',
        'if self._db.in_transaction:\n                    self._db.execute("COMMIT")',
        7,
        8,
        14,
    ),
    _bug(
        "a broken BEGIN stays open",
        LEDGER,
        '            try:\n                self._db.execute("BEGIN IMMEDIATE")\n',
        '            self._db.execute("BEGIN IMMEDIATE")\n            try:\n',
        13,
    ),
    _bug(
        "abandoned runs are not forgotten",
        LEDGER,
        "AND phase IN ('cleaned', 'abandoned')",
        "AND phase IN ('cleaned')",
        14,
    ),
    # --- turn ---
    _bug(
        "a refused commit is taken for written",
        TURN,
        "not await host.commit(scene, decision.moves):",
        "await host.commit(scene, decision.moves) is None:",
        2,
        5,
        6,
        7,
        host="cluster",
    ),
    _bug(
        "effects before their moves",
        TURN,
        "        if decision.moves and not await host.commit(scene, decision.moves):\n            continue\n        for effect in decision.effects:\n            await host.perform(scene, effect)\n",
        "        for effect in decision.effects:\n            await host.perform(scene, effect)\n        if decision.moves and not await host.commit(scene, decision.moves):\n            continue\n",
        2,
        6,
        7,
    ),
    _bug(
        "a finished run is left lying",
        TURN,
        "if any(isinstance(move, Finish) for move in decision.moves):",
        "if any(move is None for move in decision.moves):",
        13,
    ),
)
