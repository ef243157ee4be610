"""Mutants of the protocol: each lacks one guard. The search must find each mutant, otherwise the guard or the model is
useless.

A guard of the operator is a bit of the search (`Mutation` in search.h). A guard of the core is an edit of a module. Its
old text must occur exactly once, otherwise this list is stale.
"""

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from tests.model.cases import Case

from dayfly.plan import closed_run, decide, open_run, retry

PLAIN = Case("one", 2, ())
# A Run that was created again finds the objects of the former one first. The ignored violations follow from that.
REBORN = Case("one", 2, (), uids=2, ignored=("VANISHED", "LEDGER_LOST", "AFTER_END", "ORDER"))
DELETED = Case("one", 2, ("DELETE_PODS",))
UNKNOWN = Case("one", 2, ("LOSE_STATUS", "FAIL_CREATE"))
STRIPPED = Case("one", 2, ("STRIP",), uids=2)
RETRIED = Case("chain", 2, ("FAIL_CREATE",))
FORKED = Case("drain", 2, ("STRIP",), uids=2)
LACKING = Case("one", 2, ("LACK_IMAGES",))
SPARELESS = Case("one", 2, ("LACK_IMAGES", "LACK_SPARE"))
DRAINED, PAIR = Case("drain", 2, ()), Case("pair", 2, ())
WATCHED = Case("watched", 2, ("LIVES",))
LOOSE = Case("claim", 2, ("DELETE_PODS",), uids=2)
JOB, CLAIM = Case("job", 2, ("STILL", "CRASH")), Case("claim", 2, ("CRASH",))


class Mutant(NamedTuple):
    """A mutant: the missing guard, the case to search, and the expected violation."""

    name: str
    case: Case
    found: frozenset[str]
    edit: tuple[ModuleType, str, str] | None = None


def _operator(name: str, mutation: str, case: Case, *found: str) -> Mutant:
    return Mutant(name, case._replace(mutations=(mutation,)), frozenset(found))


def _core(name: str, module: ModuleType, old: str, new: str, case: Case, *found: str) -> Mutant:
    return Mutant(name, case, frozenset(found), (module, old, new))


MUTANTS = (
    _operator("pods are created without a gate", "NO_GATE", PLAIN, "NO_CLAIM"),
    _operator("claims are written without compare-and-swap", "NO_CAS", PLAIN, "NOT_CLOSED"),
    _operator("a pod that is missing never ran", "MISSING_IS_VOID", STRIPPED, "LEAK"),
    _operator("the gate is taken off by name", "LAUNCH_BY_NAME", STRIPPED, "NO_CLAIM"),
    _operator("a fork is scaled by name", "LAUNCH_BY_NAME", FORKED, "NO_CLAIM"),
    _operator("pods have no finalizer", "NO_FINALIZER", DELETED, "VANISHED"),
    _operator("the target is not fenced at birth", "NO_FENCE", REBORN, "TWICE"),
    _operator("a fence is remembered by the target's UID", "FENCE_BY_TARGET", REBORN, "TWICE"),
    _operator("effects come before the ledger's write", "EFFECTS_FIRST", PLAIN, "NO_CLAIM"),
    _operator("a recorded pod without a cache entry is gone", "CACHED_ENDS", PLAIN, "VANISHED"),
    _operator("a reported Pending is proof", "PENDING_IS_VOID", DELETED, "LEAK"),
    _operator("an unknown end is proof that it never began", "UNKNOWN_IS_VOID", UNKNOWN, "LEAK", "TWICE"),
    _operator("the start marker is off", "NO_MARKER", PLAIN, "TWO_STARTS"),
    _operator("an unclear attempt is dead", "DEADLINE_UNREAD", STRIPPED, "ORDER"),
    _operator("an empty Run goes although its target is fenced", "UNBORN_WHILE_HELD", PLAIN, "STUCK"),
    _operator("an empty Run that goes is not looked at again", "UNBORN_BLINDLY", STRIPPED, "LEDGER_LOST"),
    _operator("the Run goes before the target's finalizer", "RUN_FIRST", REBORN, "TWICE"),
    _operator("nothing sweeps up", "NO_SWEEP", PLAIN, "STUCK"),
    _operator("a receipt in the log is the end", "SEALED_IS_ENDED", PLAIN, "ORDER"),
    _operator("a target outlives its run", "TARGET_LEFT", REBORN._replace(faults=("EXPIRE",)), "TWICE"),
    _operator("a recalled pod never ran", "RECALL_IS_VOID", LACKING, "LEAK"),
    _operator("a recall that could not look for the marker is proof", "REFUSED_IS_VOID", LACKING, "LEAK"),
    _operator("a recall does not look at the marker", "MARKER_UNREAD", LACKING, "LEAK"),
    _operator("a recall starts the step in its own image", "RECALL_UNTOLD", LACKING, "WRONG_IMAGE"),
    _operator("an object is made without a look at the ledger", "MAKE_BLINDLY", CLAIM, "AFTER_END", "TWICE"),
    _operator("an object created too late stays", "LOOK_ONCE", Case("claim", 2, ("STILL",)), "STUCK"),
    _operator("an object that a peer has seen is deleted", "SEEN_IS_ANOTHERS", JOB, "ORDER"),
    _operator("an object is born without our finalizer", "OBJECT_LOOSE", LOOSE, "TWICE"),
    _operator("no object is born at rest", "BORN_AT_WORK", JOB, "NO_CLAIM"),
    _operator("an object is deleted at any version", "ANY_VERSION_ENDS", JOB._replace(faults=("LATE",)), "ORDER"),
    _operator("a missing object is never created", "CLOSING_IS_CLOSED", CLAIM, "AFTER_END", "LEAK"),
    _operator("our finalizer stays on what is left of an object", "OBJECT_HELD", CLAIM, "STUCK"),
    _core(
        "a recall has no timeout",
        open_run,
        "return draft.now < due",
        "return due > 0",
        SPARELESS,
        "STUCK",
    ),
    _core(
        "an unclear attempt has no deadline",
        decide,
        "if draft.now >= fact.dead_by:",
        "if draft.now >= fact.since:",
        STRIPPED,
        "ORDER",
    ),
    _core(
        "cleanup does not wait for the end of create units",
        closed_run,
        "if not _end_attempts(draft, creating):",
        "if _end_attempts(draft, creating) is None:",
        PLAIN,
        "ORDER",
    ),
    _core(
        "cleanup takes a receipt for the end",
        closed_run,
        "elif draft.may_have_processes(name):",
        "elif False:",
        PLAIN,
        "ORDER",
    ),
    _core(
        "forks go before preStop has run",
        closed_run,
        "if draft.run.has_started and not _run_pre_stop(draft):",
        "if False:",
        DRAINED,
        "ORDER",
    ),
    _core("a fork begins before its predecessor", open_run, "    if missing:", "    if False:", PAIR, "ORDER"),
    _core(
        "a fork ends before its successor",
        closed_run,
        "if not add_wait_for_later(draft, name, every)",
        "if draft.now >= 0",
        PAIR,
        "ORDER",
    ),
    _core(
        "postStop does not wait for the target to stop",
        closed_run,
        "if target.stopped:",
        "if True:",
        WATCHED,
        "LEAK",
    ),
    _core(
        "a target that started by itself needs no preStop",
        closed_run,
        "if draft.run.has_started and",
        "if draft.run.kept_units and",
        WATCHED,
        "ORDER",
    ),
    _core(
        "a target that started by itself needs no postStop",
        closed_run,
        "return draft.run.started_at > 0 or any(",
        "return any(",
        Case("tidied", 2, ("LIVES",)),
        "LEAK",
    ),
    _core(
        "cleanup is forgotten", closed_run, "if step.resource and own:", "if True:\n        return False", PLAIN, "LEAK"
    ),
    _core(
        "the ledger ends on the last receipt",
        closed_run,
        "is not UnitState.SUCCEEDED or draft.may_have_processes(step.id)",
        "is not UnitState.SUCCEEDED",
        PLAIN,
        "LEAK",
    ),
    _core(
        "every create unit is retried",
        retry,
        "return 1\n",
        "return 2\n",
        Case("one", 2, ("FAIL_CREATE",)),
        "TWICE",
    ),
    _core(
        "a retry takes a receipt for the end",
        open_run,
        "if draft.may_have_processes(step.id):",
        "if False:",
        RETRIED,
        "TWO_ALIVE",
    ),
    _core("units do not wait for inputs", open_run, "elif missing:", "elif False:", RETRIED, "ORDER"),
    _core(
        "a run that has just closed counts as open",
        decide,
        "if draft.phase is Phase.OPEN:\n        open_run",
        "if world.run.phase is Phase.OPEN:\n        open_run",
        PLAIN,
        "ILLEGAL",
    ),
)


def _functions(source: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the functions of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, ast.get_source_segment(source, node) or ""


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The product with the mutant's edit, in every module of `plan` that knows the function."""
    if mutant.edit is None:
        yield
        return
    module, old, new = mutant.edit
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{mutant.name}: {old!r} occurs {source.count(old)} times"
    name, text = next(each for each in _functions(source) if old in each[1])
    function = getattr(module, name)
    scope: dict[str, Any] = {}
    exec(text.replace(old, new), vars(module), scope)
    edited = scope[name]
    places = [
        (module, name)
        for key, module in sys.modules.items()
        if key.startswith("dayfly.plan")
        for name, value in vars(module).items()
        if value is function
    ]
    for module, name in places:
        setattr(module, name, edited)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, function)
