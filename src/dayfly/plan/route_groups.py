"""Which sandboxes a route group has now, whose fork answers where two of them fork the same, and what is said of it.

What depends on a whole crowd is kept up piece by piece: a sandbox that changes is held against each group, and a group
that changes against each sandbox, so that nobody ever holds all against all.
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

CONFLICT, EXPIRES = "ForkConflict", "ExpiresSoon"
"""The types of the conditions that tell of it."""
# Of each kind: in a sentence, and in a list of conflicts.
_SHOWN = 8


class Member(NamedTuple):
    """A living sandbox, as far as groups are concerned. `scope` is where it lives: groups of other places leave it."""

    name: str
    scope: str
    labels: Mapping[str, str]
    baselines: tuple[str, ...]
    born_at: int


class Group(NamedTuple):
    """Which members a group wants: those of its `scope` (empty: of all) that its match takes."""

    scope: str
    match: Match

    def takes(self, member: Member) -> bool:
        """Whether it wants this one."""
        return self.scope in ("", member.scope) and self.match.takes(member.labels)


class BaselineConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline that several sandboxes of a group fork: requests go to the fork of `sandbox`, not of the `others`."""

    baseline: str
    sandbox: str
    others: tuple[str, ...]


class GroupState(NamedTuple):
    """What is said of a group."""

    ready: bool
    reason: str
    message: str
    matched: tuple[str, ...]
    conflicts: tuple[BaselineConflict, ...]


class Members:
    """Who belongs to which group, by their identities. Those that change hear of it by what the methods return."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, Member] = {}
        self._groups: dict[str, Group] = {}
        self._found: dict[str, set[str]] = {}
        self._index = _LabelIndex()

    def put(self, uid: str, member: Member) -> list[str]:
        """A sandbox has come or changed; the groups to which that is news."""
        before, self._sandboxes[uid] = self._sandboxes.get(uid), member
        if before == member:
            return []
        self._index.replace(uid, before, member)
        changed = []
        for group, wants in self._groups.items():
            found, had = self._found[group], uid in self._found[group]
            if wants.takes(member):
                found.add(uid)
            elif had:
                found.discard(uid)
            else:
                continue
            changed.append(group)
        return changed

    def drop(self, uid: str) -> list[str]:
        """A sandbox is gone, or on its way; the groups that it leaves."""
        before = self._sandboxes.pop(uid, None)
        if before is None:
            return []
        self._index.replace(uid, before, None)
        left = [group for group, found in self._found.items() if uid in found]
        for group in left:
            self._found[group].discard(uid)
        return left

    def put_group(self, uid: str, group: Group) -> None:
        """A group has come or changed."""
        if self._groups.get(uid) != group:
            self._groups[uid] = group
            found = self._index.taken(group.match)
            here = group.scope
            self._found[uid] = {of for of in found if here in ("", self._sandboxes[of].scope)}

    def drop_group(self, uid: str) -> None:
        """A group is gone."""
        self._groups.pop(uid, None)
        self._found.pop(uid, None)

    def of(self, uid: str) -> dict[str, Member]:
        """The sandboxes of a group by their identities, the one whose forks go first at the head."""
        found = ((each, self._sandboxes[each]) for each in self._found.get(uid, ()))
        return dict(sorted(found, key=lambda pair: precedence(pair[1])))

    def has_any(self, uid: str) -> bool:
        """Whether a group has a sandbox."""
        return bool(self._found.get(uid))

    def groups_of(self, uid: str) -> list[str]:
        """The groups that have a sandbox."""
        return [group for group, found in self._found.items() if uid in found]

    def groups(self) -> set[str]:
        """The groups that are known."""
        return set(self._groups)

    def sandboxes(self) -> set[str]:
        """The sandboxes that are known."""
        return set(self._sandboxes)


class _LabelIndex:
    """The sandboxes by their labels, so that a new group looks at each value once, and not at each sandbox."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, set[str]]] = {}
        self._known: dict[HasLabel, frozenset[str]] = {}
        """What was found since a sandbox last changed: many groups ask the same."""

    def replace(self, uid: str, before: Member | None, after: Member | None) -> None:
        """A sandbox has come, changed or gone."""
        old, new = before.labels if before else {}, after.labels if after else {}
        if old == new:
            return
        self._known.clear()
        for key, value in old.items():
            held = self._values[key]
            held[value].discard(uid)
            if not held[value]:
                del held[value]
                if not held:
                    del self._values[key]
        for key, value in new.items():
            self._values.setdefault(key, {}).setdefault(value, set()).add(uid)

    def taken(self, match: Match) -> frozenset[str]:
        """Those that a match takes."""
        match match:
            case AnyOf(terms):
                return frozenset().union(*map(self.taken, terms))
            case AllOf(terms):
                first, *rest = map(self.taken, terms)
                return first.intersection(*rest)
        found = self._known.get(match)
        if found is None:
            held, glob = self._values.get(match.key, {}), match.value
            if glob.literal:
                found = frozenset(held.get(glob.prefix, ()))
            else:
                found = frozenset().union(*(uids for value, uids in held.items() if glob.takes(value)))
            self._known[match] = found
        return found


def precedence(member: Member) -> tuple[int, str, str]:
    """The rule where two fork the same: the older one first. So nobody takes over what another answers for already."""
    return member.born_at, member.name, member.scope


def conflicts(members: Iterable[Member]) -> tuple[BaselineConflict, ...]:
    """The baselines that several of these fork, each with whose fork it is to be."""
    by_baseline: dict[tuple[str, str], list[Member]] = {}
    for member in sorted(members, key=precedence):
        for baseline in member.baselines:
            by_baseline.setdefault((member.scope, baseline), []).append(member)
    return tuple(
        BaselineConflict(baseline=baseline, sandbox=first.name, others=tuple(other.name for other in others))
        for (_, baseline), (first, *others) in sorted(by_baseline.items())
        if others
    )


def routed(groups: Iterable[tuple[str, Mapping[str, Member]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """By the identity of a sandbox, and by baseline, the keys of the groups whose requests go to its fork.

    Args:
        groups: Of each its routing key, and its sandboxes by their identities.
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


def standing(report: RunReport, members: Iterable[Member], waiting: Iterable[str]) -> GroupState:
    """How a group stands whose run stands so.

    Whether it is ready depends on its own hooks alone: else whoever labels a sandbox could make it unready.

    Args:
        report: Of its run.
        members: The sandboxes that it has now.
        waiting: Those of them, by name, that are not ready themselves.
    """
    there = tuple(members) if report.phase is Phase.OPEN else ()
    names, clashes = tuple(member.name for member in there), conflicts(there)
    if not report.ready:
        return GroupState(False, report.reason, report.message, names, clashes)
    if not names:
        return GroupState(True, Reason.NO_MATCHED_SANDBOXES, messages.no_members(), (), ())
    message = messages.members(names, tuple(sorted(waiting)))
    if clashes:
        message = f"{message} {conflict_message(clashes)}"
    return GroupState(True, Reason.READY, message, names, clashes)


def conflict_reason(found: tuple[BaselineConflict, ...]) -> str:
    """The reason of the condition that tells of conflicts."""
    return Reason.FORK_CONFLICT if found else Reason.NO_FORK_CONFLICT


def conflict_message(found: tuple[BaselineConflict, ...]) -> str:
    """One sentence on all conflicts; empty for none."""
    shown = ((each.baseline, each.sandbox, each.others) for each in found[:_SHOWN])
    return messages.conflicts(shown, max(len(found) - _SHOWN, 0))


def expires_soon(until: str) -> tuple[str, str]:
    """Reason and message of the condition that warns; `until` is the moment as people read it."""
    return Reason.EXPIRES_SOON, messages.expires_soon(until)
