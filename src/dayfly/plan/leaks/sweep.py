"""One sweep of a check: its stored state, what follows from a complete list, and its report."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.plan.leaks.listing import InventoryItem
from dayfly.plan.leaks.lists import add_list
from dayfly.plan.leaks.verdict import (
    MAX_FINDINGS,
    CheckRules,
    CompleteList,
    Evidence,
    ExpectedResource,
    ItemFinding,
    LeakVerdict,
    are_distant,
    count_deletable,
    find_verdicts,
    plan_digest,
    select_deletions,
    shown_findings,
)
from dayfly.spec.leak_check import DELETE, LeakCheckSpec
from dayfly.spec.leak_report import LeakFinding, LeakReport
from dayfly.spec.lifecycle import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dayfly.spec.lifecycle import Lifecycle

# The result of a plan that was applied.
APPLIED = "done"


class StoredList(msgspec.Struct, frozen=True):
    """A complete list: when it began, its items, and when each was listed for the first time, by name."""

    began_at: int
    items: tuple[InventoryItem, ...]
    first_seen: dict[str, int]


class LeakState(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a check. `lists` has at most three complete lists, see `add_list`.

    While `left` is not 0, the check waits for a plan of a person. The `applied` fields are the result of the latest
    plan. `deletions` has for each plugin of a deletable item the digest of the params and delete steps at the list.
    """

    number: int = 0
    swept_at: int = 0
    error: str = ""
    lists: tuple[StoredList, ...] = ()
    findings: tuple[LeakFinding, ...] = ()
    deletions: dict[str, str] = {}
    left: int = 0
    deleted: tuple[str, ...] = ()
    applied: str = ""
    applied_plan: str = ""
    applied_number: int = 0

    def complete_lists(self) -> list[CompleteList]:
        """Return the stored lists as the verdicts need them."""
        return [CompleteList(each.began_at, each.items, each.first_seen) for each in self.lists]


class LedgerFacts(NamedTuple):
    """Evidence by resource ID, and the expected resources, read from the ledger after a list had ended."""

    evidence: Mapping[str, Evidence]
    expected: Sequence[ExpectedResource]


class DeleteSteps(NamedTuple):
    """The delete steps of each version of the plugin, which is given as `name@version`.

    Attributes:
        find: Returns the document that deletes; None if the check has none.
        find_for_plan: The same for the plan of the sweep, which may bring further documents.
        are_missing: Whether no plan can bring a document, because the steps cannot run without their sandbox.
    """

    find: Callable[[str], Lifecycle | None]
    find_for_plan: Callable[[str], Lifecycle | None]
    are_missing: Callable[[str], bool]


class SweepDecision(NamedTuple):
    """The state after a list, before any deletion, and the resource IDs to delete with their plugins, in order."""

    state: LeakState
    chosen: dict[str, str]


def begin_sweep(state: LeakState, began_at: int, error: str, plan: str) -> LeakState:
    """Return the state after a list that began at `began_at`, before its verdicts. `plan` is the plan to apply."""
    number = state.number + 1
    state = msgspec.structs.replace(state, number=number, swept_at=began_at, error=error, deleted=())
    if not plan:
        return state
    applied = "nothing was deleted: there is no list"
    return msgspec.structs.replace(state, applied=applied, applied_plan=plan, applied_number=number)


def compare_list(
    spec: LeakCheckSpec,
    plugin: str,
    state: LeakState,
    known: Sequence[CompleteList],
    items: tuple[InventoryItem, ...],
    facts: LedgerFacts,
    steps: DeleteSteps,
    now: int,
) -> SweepDecision:
    """Return what follows from a complete list.

    Args:
        spec: The spec of the check.
        plugin: The name of its plugin.
        state: The state after `begin_sweep`. If its latest plan is of this sweep, that plan is applied.
        known: The former lists that prove something.
        items: The list.
        facts: The facts from the ledger, read after the list.
        steps: The delete steps.
        now: The current time.
    """
    lists = add_list(known, state.swept_at, items, spec.grace_ms)
    previous = lists[1] if len(lists) > 1 else None
    rules = CheckRules(plugin, spec.grace_ms)
    findings = find_verdicts(lists[0], previous, facts.evidence, facts.expected, rules, now)
    documents = {each: steps.find(each) for each in {each.plugin for each in findings if each.is_deletable}}
    unknown = {plugin for plugin, document in documents.items() if document is None}
    findings = [_without_steps(each, steps) if each.plugin in unknown else each for each in findings]
    plugins = {each.id: each.plugin for each in findings if each.is_deletable}
    deletions = {each: digest_deletion(spec, documents[each]) for each in set(plugins.values())}
    ids: list[str] = []
    plan = state.applied_plan if state.applied_number == state.number else ""
    applied = _check_plan(plan, plan_digest(findings, deletions), deletions, steps) if plan else state.applied
    left = 0
    if plan and applied == APPLIED:
        ids = list(plugins)
    elif spec.action == DELETE and state.left:  # a person has not decided yet
        left = count_deletable(findings) if are_distant(lists, spec.grace_ms) else state.left
    elif spec.action == DELETE and not plan:
        ids, left = select_deletions([each for each in findings if each.plugin not in unknown], len(items))
    stored = tuple(StoredList(each.began_at, each.items, dict(each.first_seen)) for each in lists)
    after = msgspec.structs.replace(
        state, lists=stored, findings=tuple(map(to_wire, findings)), deletions=deletions, left=left, applied=applied
    )
    return SweepDecision(after, {id_: plugins[id_] for id_ in ids})


def digest_deletion(spec: LeakCheckSpec, document: Lifecycle | None) -> str:
    """Return the digest of the params of a check and of the document with the delete steps."""
    steps = canonical(document) if document is not None else b""
    return hashlib.sha256(repr(sorted(spec.params.items())).encode() + steps).hexdigest()


def record_deletions(state: LeakState, deleted: Collection[str], errors: Mapping[str, str]) -> LeakState:
    """Return the state after deletions. `errors` are the reasons why other resources were not deleted."""
    kept = [_from_wire(each) for each in state.findings if each.id not in deleted]
    findings = tuple(to_wire(_with_error(each, errors.get(each.id, ""))) for each in kept)
    return msgspec.structs.replace(state, findings=findings, deleted=tuple(deleted))


def count_changed(before: LeakState, after: LeakState) -> LeakState:
    """Return the state of a check that was changed during a sweep: only what has become of its plan is kept.

    `before` is the stored state, `after` the state of the sweep.
    """
    counted = msgspec.structs.replace(before, number=before.number + 1)
    if after.applied_number == before.applied_number:
        return counted
    return msgspec.structs.replace(
        counted,
        applied="the check was changed during the deletion; make a new plan",
        applied_plan=after.applied_plan,
        applied_number=counted.number,
    )


def shown_state(state: LeakState) -> LeakState:
    """Return the state without findings that no report shows, but with enough to know that a plan is too long."""
    findings = shown_findings(map(_from_wire, state.findings), MAX_FINDINGS + 1)
    return msgspec.structs.replace(state, findings=tuple(map(to_wire, findings)))


def seconds_until_due(spec: LeakCheckSpec, state: LeakState, now: int) -> float:
    """Return the seconds until the next sweep; at most one interval, whatever the clock does."""
    every = spec.every_ms
    return min(max(state.swept_at + every - now, 0), every) / 1000


def describe_check(name: str, spec: LeakCheckSpec, plugin: str, state: LeakState, *, is_sweeping: bool) -> LeakReport:
    """Return the report about a check."""
    findings = [_from_wire(each) for each in state.findings]
    return make_report(
        name,
        spec,
        plugin,
        findings,
        plan=plan_digest(findings, state.deletions),
        number=state.number,
        is_sweeping=is_sweeping,
        swept_at=state.swept_at,
        listed_at=state.lists[0].began_at if state.lists else 0,
        error=state.error,
        left=state.left,
        deleted=state.deleted,
        applied=state.applied,
        applied_plan=state.applied_plan,
        applied_number=state.applied_number,
    )


def make_report(
    name: str, spec: LeakCheckSpec, plugin: str, findings: Sequence[ItemFinding], **state: Any
) -> LeakReport:
    """Return the report of a check with these findings. `state` are further fields of the report."""
    return LeakReport(
        name=name,
        spec=spec,
        plugin=plugin,
        counts=dict(Counter(each.verdict.value for each in findings)),
        findings=tuple(map(to_wire, shown_findings(findings))),
        **state,
    )


def to_wire(finding: ItemFinding) -> LeakFinding:
    """Return a finding as it is stored and reported."""
    return LeakFinding(
        verdict=finding.verdict.value,
        id=finding.id,
        name=finding.name,
        reason=finding.reason,
        plugin=finding.plugin,
        created=finding.created,
        deletable=finding.is_deletable,
        sandbox_uid=finding.sandbox_uid,
    )


def _check_plan(plan: str, current: str, plugins: Iterable[str], steps: DeleteSteps) -> str:
    """Return the result of a plan: `APPLIED`, or why nothing of it is deleted.

    Args:
        plan: The digest of the plan.
        current: The digest of a plan that would be made now.
        plugins: The plugins of everything that would be deleted.
        steps: The delete steps.
    """
    if plan != current:
        return "nothing was deleted: the orphans, the params or the delete steps have changed since the plan was made"
    if unknown := sorted(each for each in plugins if steps.find_for_plan(each) is None):
        return (
            f"nothing was deleted: the check has no delete steps of {unknown[0]}; apply the check again, and make a "
            "new plan"
        )
    return APPLIED


def _without_steps(finding: ItemFinding, steps: DeleteSteps) -> ItemFinding:
    """Return the finding about an item for whose plugin the check has no delete steps."""
    if not finding.is_deletable:
        return finding
    if steps.are_missing(finding.plugin):
        reason = f"{finding.reason}; no delete steps of {finding.plugin} can run without its sandbox: delete it by hand"
        return finding._replace(is_deletable=False, reason=reason)
    reason = f"{finding.reason}; the check has no delete steps of {finding.plugin}: apply the check again, or a plan"
    return finding._replace(reason=reason)


def _with_error(finding: ItemFinding, error: str) -> ItemFinding:
    return finding._replace(reason=f"{finding.reason}; {error}") if error and finding.is_deletable else finding


def _from_wire(finding: LeakFinding) -> ItemFinding:
    return ItemFinding(
        LeakVerdict(finding.verdict),
        finding.id,
        finding.name,
        finding.reason,
        finding.plugin,
        finding.created,
        is_deletable=finding.deletable,
        sandbox_uid=finding.sandbox_uid,
    )
