"""Seeded bugs of shared parents: each removes one guard. The search of `sharing` must find every bug."""

from tests.simulator.bugs import Bug

PARENTS, TABLE, CLOSING = "plan/parents.py", "plan/transitions.py", "plan/closed_run.py"
MEMBERS = "execute/acquire/members.py"

_CLOSES_WITH_HOLDERS = (PARENTS, "elif not draft.run.holders:", "elif draft.run.units or not draft.run.holders:")


def _bug(name: str, *edits: tuple[str, str, str]) -> Bug:
    return Bug(name, edits, ())


BUGS: tuple[Bug, ...] = (
    _bug("the decision closes a parent with holders", _CLOSES_WITH_HOLDERS),
    _bug(
        "a parent with holders may be closed",
        _CLOSES_WITH_HOLDERS,
        (TABLE, "if run.holders and not (run.is_parent and _has_failed(run, creates)):", "if run.seq < 0:"),
    ),
    _bug(
        "a failed parent waits for its holders",
        (PARENTS, "    if failed:\n", "    if failed and not draft.run.holders:\n"),
    ),
    _bug("a failed parent cannot be closed", (TABLE, "_has_failed(run, creates)):", "run.seq < 0):")),
    _bug("a parent that is not used stays", (PARENTS, "if draft.now >= due:", "if draft.now > due:")),
    _bug("no holder leaves a failed parent", (TABLE, "    (Phase.CLOSED, Leave): Phase.CLOSED,", "    # Leave:")),
    _bug(
        "a holder leaves a parent that has ended",
        (MEMBERS, "if member.phase in (Phase.CLEANED, Phase.ABANDONED):", "if member.seq < 0:"),
    ),
    _bug(
        "a full parent accepts a holder", (MEMBERS, "len(parent.holders) < capacity", "len(parent.holders) <= capacity")
    ),
    _bug("a closed parent accepts a holder", (MEMBERS, "parent.phase is Phase.OPEN and len", "len")),
    _bug(
        "a child without a create step is deleted",
        (CLOSING, "if each.unit.acquire is None or not each.unit.acquire.parent) or own", ")"),
    ),
    _bug(
        "the release waits for delete steps that never run",
        (CLOSING, "return not needs_post_stop(draft, step)", "return False"),
    ),
)
