"""The sandboxes of each route group, the precedence among forks of the same baseline, and the state of the group.

Membership is updated incrementally: a changed sandbox is compared with each group, and a changed group with the label
index. No operation compares all sandboxes with all groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec.routing.label_match import AllOf, AnyOf, HasLabel
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.spec.report import RunReport
    from dayfly.spec.routing.label_match import Match

CONFLICT_CONDITION, EXPIRES_SOON_CONDITION = "ForkConflict", "ExpiresSoon"
"""Condition types."""
# The maximum number of conflicts in a sentence.
_MAX_SHOWN_CONFLICTS = 8


class GroupMember(NamedTuple):
    """The data of a live sandbox that route groups need.

    `scope` is its namespace in the operator, and its cluster in the server. Groups of other scopes ignore it.
    """

    name: str
    scope: str
    labels: Mapping[str, str]
    baselines: tuple[str, ...]
    born_at: int


class GroupSelector(NamedTuple):
    """The selector of a route group: the sandboxes of its `scope` (empty: all scopes) with matching labels."""

    scope: str
    match: Match

    def matches(self, member: GroupMember) -> bool:
        """Return whether the group selects this member."""
        return self.scope in ("", member.scope) and self.match.matches(member.labels)


class BaselineConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline that several sandboxes of a group fork. Requests reach the fork of `sandbox`, not of `others`."""

    baseline: str
    sandbox: str
    others: tuple[str, ...]


class GroupState(NamedTuple):
    """The reported state of a group."""

    ready: bool
    reason: str
    message: str
    matched: tuple[str, ...]
    conflicts: tuple[BaselineConflict, ...]


class MembershipIndex:
    """The live sandboxes and the route groups by UID, and the sandboxes of each group.

    `put` and `drop` return the groups that a change affects.
    """

    def __init__(self) -> None:
        self._sandboxes: dict[str, GroupMember] = {}
        self._groups: dict[str, GroupSelector] = {}
        self._matched: dict[str, set[str]] = {}
        self._index = _LabelIndex()

    def put(self, uid: str, member: GroupMember) -> list[str]:
        """Add or change a sandbox. Return the groups that this affects."""
        before, self._sandboxes[uid] = self._sandboxes.get(uid), member
        if before == member:
            return []
        self._index.replace(uid, before, member)
        changed = []
        for group, wants in self._groups.items():
            found, had = self._matched[group], uid in self._matched[group]
            if wants.matches(member):
                found.add(uid)
            elif had:
                found.discard(uid)
            else:
                continue
            changed.append(group)
        return changed

    def drop(self, uid: str) -> list[str]:
        """Remove a sandbox that has ended or is being deleted. Return the groups that it leaves."""
        before = self._sandboxes.pop(uid, None)
        if before is None:
            return []
        self._index.replace(uid, before, None)
        left = [group for group, found in self._matched.items() if uid in found]
        for group in left:
            self._matched[group].discard(uid)
        return left

    def put_group(self, uid: str, group: GroupSelector) -> None:
        """Add or change a group."""
        if self._groups.get(uid) != group:
            self._groups[uid] = group
            found = self._index.select(group.match)
            here = group.scope
            self._matched[uid] = {each for each in found if here in ("", self._sandboxes[each].scope)}

    def drop_group(self, uid: str) -> None:
        self._groups.pop(uid, None)
        self._matched.pop(uid, None)

    def sandboxes_of(self, uid: str) -> dict[str, GroupMember]:
        """Return the sandboxes of a group by uid, in order of precedence."""
        found = ((each, self._sandboxes[each]) for each in self._matched.get(uid, ()))
        return dict(sorted(found, key=lambda pair: precedence(pair[1])))

    def has_any(self, uid: str) -> bool:
        """Return whether a group has a sandbox."""
        return bool(self._matched.get(uid))

    def groups_of(self, uid: str) -> list[str]:
        """Return the groups that have a sandbox."""
        return [group for group, found in self._matched.items() if uid in found]

    def groups(self) -> set[str]:
        """Return all known groups."""
        return set(self._groups)

    def sandboxes(self) -> set[str]:
        """Return all known sandboxes."""
        return set(self._sandboxes)


class _LabelIndex:
    """Sandboxes by label, so that a new group visits each label value once instead of each sandbox."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, set[str]]] = {}
        self._cached_terms: dict[HasLabel, frozenset[str]] = {}
        """Cached results by term, since many groups have the same terms. A change of labels clears them."""

    def replace(self, uid: str, before: GroupMember | None, after: GroupMember | None) -> None:
        """Update the index after a sandbox was added, changed or removed."""
        old, new = before.labels if before else {}, after.labels if after else {}
        if old == new:
            return
        self._cached_terms.clear()
        for key, value in old.items():
            held = self._values[key]
            held[value].discard(uid)
            if not held[value]:
                del held[value]
                if not held:
                    del self._values[key]
        for key, value in new.items():
            self._values.setdefault(key, {}).setdefault(value, set()).add(uid)

    def select(self, match: Match) -> frozenset[str]:
        """Return the sandboxes that a match selects."""
        match match:
            case AnyOf(terms):
                return frozenset().union(*map(self.select, terms))
            case AllOf(terms):
                first, *rest = map(self.select, terms)
                return first.intersection(*rest)
        found = self._cached_terms.get(match)
        if found is None:
            held, glob = self._values.get(match.key, {}), match.value
            if glob.literal:
                found = frozenset(held.get(glob.prefix, ()))
            else:
                found = frozenset().union(*(uids for value, uids in held.items() if glob.matches(value)))
            self._cached_terms[match] = found
        return found


def precedence(member: GroupMember) -> tuple[int, str, str]:
    """Return the sort key of precedence. The oldest comes first, so a new sandbox never takes over requests."""
    return member.born_at, member.name, member.scope


def conflicts(members: Iterable[GroupMember]) -> tuple[BaselineConflict, ...]:
    """Return the baselines that several of these members fork, each with the sandbox whose fork answers."""
    by_baseline: dict[tuple[str, str], list[GroupMember]] = {}
    for member in sorted(members, key=precedence):
        for baseline in member.baselines:
            by_baseline.setdefault((member.scope, baseline), []).append(member)
    return tuple(
        BaselineConflict(baseline=baseline, sandbox=first.name, others=tuple(other.name for other in others))
        for (_, baseline), (first, *others) in sorted(by_baseline.items())
        if others
    )


def routes_by_sandbox(groups: Iterable[tuple[str, Mapping[str, GroupMember]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the routing keys of the groups whose requests a sandbox's fork receives, by sandbox UID and baseline.

    Args:
        groups: For each group its routing key, and its sandboxes by uid.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for key, members in groups:
        taken: set[tuple[str, str]] = set()
        for uid, member in sorted(members.items(), key=lambda pair: precedence(pair[1])):
            for baseline in member.baselines:
                if (member.scope, baseline) not in taken:
                    taken.add((member.scope, baseline))
                    found.setdefault(uid, {}).setdefault(baseline, set()).add(key)
    return {uid: {name: tuple(sorted(keys)) for name, keys in own.items()} for uid, own in found.items()}


def group_state(report: RunReport, members: Iterable[GroupMember], waiting: Iterable[str]) -> GroupState:
    """Return the state of a group from the report of its run.

    Only the group's own hooks decide whether it is ready. If its sandboxes counted, any user who may label a sandbox
    could make the group unready.

    Args:
        report: The report of the group's run.
        members: The group's current sandboxes.
        waiting: The names of the sandboxes that are not ready.
    """
    active = tuple(members) if report.phase is Phase.OPEN else ()
    names, clashes = tuple(member.name for member in active), conflicts(active)
    if not report.ready:
        return GroupState(False, report.reason, report.message, names, clashes)
    if not names:
        return GroupState(True, Reason.NO_MATCHED_SANDBOXES, messages.no_matched_sandboxes(), (), ())
    message = messages.matched_sandboxes(names, tuple(sorted(waiting)))
    if clashes:
        message = f"{message} {conflict_message(clashes)}"
    return GroupState(True, Reason.READY, message, names, clashes)


def conflict_reason(found: tuple[BaselineConflict, ...]) -> str:
    """Return the reason of the condition for conflicts."""
    return Reason.FORK_CONFLICT if found else Reason.NO_FORK_CONFLICT


def conflict_message(found: tuple[BaselineConflict, ...]) -> str:
    """Return one sentence about all conflicts; empty for none."""
    shown = ((each.baseline, each.sandbox, each.others) for each in found[:_MAX_SHOWN_CONFLICTS])
    return messages.conflicts(shown, max(len(found) - _MAX_SHOWN_CONFLICTS, 0))


def expires_soon(until: str) -> tuple[str, str]:
    """Return the reason and message of the warning condition. `until` is a formatted time."""
    return Reason.EXPIRES_SOON, messages.expires_soon(until)
