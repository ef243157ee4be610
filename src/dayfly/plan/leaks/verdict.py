"""The verdict about each listed thing, and about resources that a list lacks. In doubt, nothing is an orphan.

A check lists first and reads the ledgers afterwards. So a resource that is created in between has a run, although its
thing may not be in the list. All times are Unix milliseconds.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from dayfly.plan.leaks.listing import Thing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_DELETIONS: Final = 10
# A report has no more findings, and a plan no more things: a person must have seen everything that a plan deletes.
MAX_FINDINGS: Final = 1_000
_DELETED_SHARE: Final = 10
_DIGEST_LENGTH: Final = 26
# Two lists that begin sooner after each other may come from the same cache. A shorter grace period shortens this.
MIN_LIST_DISTANCE_MS: Final = 60_000


class Verdict(enum.StrEnum):
    """The verdict about a thing, or about a resource without one."""

    HELD = "held"
    ENDING = "ending"
    ORPHAN = "orphan"
    MISSING = "missing"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class RunState(enum.StrEnum):
    """The state of the run of a resource, as its host has answered."""

    OPEN = "open"
    CLOSED = "closed"
    NONE = "none"
    UNANSWERED = "unanswered"


class Evidence(NamedTuple):
    """The evidence about a resource ID, except the lists of inventories.

    Attributes:
        run: The state of its run.
        plugin: The recorded plugin as `name@version`; empty without a record, and if its steps were inline.
        ended_at: The recorded end of its run; 0 without a record.
        has_token: Whether the token of the thing was made with our key for this resource ID.
    """

    run: RunState
    plugin: str = ""
    ended_at: int = 0
    has_token: bool = False


class CompleteList(NamedTuple):
    """A complete list, when it began, and when each of its things was listed for the first time, by name."""

    began_at: int
    things: tuple[Thing, ...]
    first_seen: Mapping[str, int] = {}


class Finding(NamedTuple):
    """A verdict.

    Attributes:
        verdict: The verdict.
        id: The resource ID; empty if the thing has none.
        name: The name of the thing, or of the resource that is missing.
        reason: Why, in a phrase.
        plugin: The recorded plugin as `name@version`; empty if it is not known.
        created: When the thing was created or first listed.
        is_deletable: Whether the delete steps of the plugin may run for the ID.
    """

    verdict: Verdict
    id: str
    name: str
    reason: str
    plugin: str = ""
    created: int = 0
    is_deletable: bool = False


class ExpectedResource(NamedTuple):
    """A resource of an open run with the plugin and params of the check.

    Attributes:
        id: Its resource ID.
        name: The run and its resource, for people.
        plugin: Its plugin as `name@version`.
        made_at: When all its create steps had succeeded; 0 if they have not.
    """

    id: str
    name: str
    plugin: str
    made_at: int


class CheckRules(NamedTuple):
    """The rules of one check: the name of its plugin and the grace period in milliseconds."""

    plugin: str
    grace_ms: int


def judge(
    current: CompleteList,
    previous: CompleteList | None,
    evidence: Mapping[str, Evidence],
    expected: Iterable[ExpectedResource],
    rules: CheckRules,
    now: int,
) -> list[Finding]:
    """Return the verdicts about all things of a list, in its order, and after them those about missing resources.

    Args:
        current: The newest complete list.
        previous: The complete list before it; None if there is none.
        evidence: The evidence for each resource ID in the list. It was read after the list had ended.
        expected: The resources that the list should have. They were read after the list had ended.
        rules: The rules of the check.
        now: The current time.
    """
    names = Counter(thing.name for thing in current.things)
    lists = [current] if previous is None else [current, previous]
    found = [
        Finding(Verdict.UNKNOWN, thing.id, thing.name, "the list has this name twice")
        if names[thing.name] > 1
        else _judge(thing, lists, evidence.get(thing.id, Evidence(RunState.UNANSWERED)), rules, now)
        for thing in current.things
    ]
    copied = {finding.id for finding, thing in zip(found, current.things, strict=True) if not thing.is_named_by_id}
    doubtful = {each.id for each in found if each.verdict is not Verdict.ORPHAN}
    orphans = [_protect_copies(finding, copied, doubtful) for finding in found]
    return [*orphans, *_missing(lists, expected)]


def _judge(thing: Thing, lists: Sequence[CompleteList], known: Evidence, rules: CheckRules, now: int) -> Finding:
    created = thing.created or lists[0].first_seen.get(thing.name, 0)
    verdict, reason = _verdict(thing, created, lists, known, rules, now)
    is_deletable = verdict is Verdict.ORPHAN and bool(known.plugin)  # other delete steps may remove other things
    return Finding(verdict, thing.id, thing.name, reason, known.plugin, created, is_deletable)


def _verdict(
    thing: Thing, created: int, lists: Sequence[CompleteList], known: Evidence, rules: CheckRules, now: int
) -> tuple[Verdict, str]:
    if not thing.id:
        return Verdict.FOREIGN, "it has no resource id"
    match known.run:
        case RunState.OPEN:
            return Verdict.HELD, "its run is open"
        case RunState.CLOSED:
            return Verdict.ENDING, "its run is being deleted"
        case RunState.UNANSWERED:
            return Verdict.UNKNOWN, "its host has not answered"
    if not known.plugin and not known.has_token:
        return (
            Verdict.FOREIGN,
            "its token is from another home" if thing.token else "nothing proves that this home created it",
        )
    if known.plugin and known.plugin.partition("@")[0] != rules.plugin:
        return Verdict.FOREIGN, f"it belongs to the plugin {known.plugin}"
    if created > now or known.ended_at > now:
        return Verdict.UNKNOWN, "its time is in the future"
    if created <= 0 or now - created <= rules.grace_ms:
        return Verdict.UNKNOWN, "it is not older than the grace period"
    if not _is_in_two_lists(thing, lists, known.ended_at, rules):
        return Verdict.UNKNOWN, "it is not yet in two complete lists after the end of its run"
    by_hand = "its token is from this home, but no record names its plugin: delete it by hand"
    return Verdict.ORPHAN, "its run has ended" if known.plugin else by_hand


def _is_in_two_lists(thing: Thing, lists: Sequence[CompleteList], ended_at: int, rules: CheckRules) -> bool:
    """Return whether two lists have the thing with the same ID, began after the end of its run, and differ in time."""
    return are_distant(lists, rules.grace_ms) and all(
        each.began_at > ended_at and any((other.name, other.id) == (thing.name, thing.id) for other in each.things)
        for each in lists
    )


def are_distant(lists: Sequence[CompleteList], grace_ms: int) -> bool:
    """Return whether there are two lists that prove something together."""
    return len(lists) > 1 and lists[0].began_at - lists[1].began_at >= list_distance_ms(grace_ms)


def list_distance_ms(grace_ms: int) -> int:
    """Return the least time between the begins of two lists that prove something together."""
    return min(grace_ms, MIN_LIST_DISTANCE_MS)


def _protect_copies(finding: Finding, copied: set[str], doubtful: set[str]) -> Finding:
    """Return the finding; it is deletable only if all things with its ID are orphans and have the ID in their names.

    A restored snapshot has the tags of its original, and delete steps may select by tag.
    """
    if finding.is_deletable and finding.id in copied:
        return finding._replace(is_deletable=False, reason=f"{finding.reason}; a thing with its id may be a copy")
    if finding.is_deletable and finding.id in doubtful:
        return finding._replace(is_deletable=False, reason=f"{finding.reason}; a thing with its id is not an orphan")
    return finding


def _missing(lists: Sequence[CompleteList], expected: Iterable[ExpectedResource]) -> list[Finding]:
    if len(lists) < 2:
        return []
    listed = {thing.id for each in lists for thing in each.things}
    first = min(each.began_at for each in lists)
    return [
        Finding(Verdict.MISSING, each.id, each.name, "two complete lists lack it", each.plugin)
        for each in expected
        if 0 < each.made_at < first and each.id not in listed
    ]


def shown_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings for a report, at most 1,000: deletable things, other orphans, missing resources, the rest."""
    ranks = {Verdict.ORPHAN: 1, Verdict.MISSING: 2}
    shown = [each for each in findings if each.verdict is not Verdict.HELD]
    return sorted(shown, key=lambda each: 0 if each.is_deletable else ranks.get(each.verdict, 3))[:MAX_FINDINGS]


def world_digest(findings: Sequence[Finding]) -> str:
    """Return the digest of everything that may be deleted; empty if there is nothing, or more than a report shows.

    A plan that a person has read is only carried out in the same world.
    """
    things = sorted((each.id, each.name, each.plugin) for each in findings if each.is_deletable)
    if not 0 < len(things) <= MAX_FINDINGS:
        return ""
    return hashlib.sha256(repr(things).encode()).hexdigest()[:_DIGEST_LENGTH]


def select_deletions(findings: Sequence[Finding], inventory_size: int) -> tuple[list[str], int]:
    """Return the resource IDs that a sweep may delete, and how many deletable IDs are left for a person.

    A sweep deletes at most 10 things, and at most a tenth of the inventory but at least one. All things of an ID are
    deleted together. So the first ID may have more things than a tenth, but not more than 10.
    """
    sizes = Counter(each.id for each in findings if each.is_deletable)
    limit = min(MAX_DELETIONS, max(1, inventory_size // _DELETED_SHARE))
    chosen: list[str] = []
    total = 0
    for id_, size in sizes.items():
        total += size
        if total > (limit if chosen else MAX_DELETIONS):
            break
        chosen.append(id_)
    return chosen, len(sizes) - len(chosen)


def count_deletable(findings: Iterable[Finding]) -> int:
    """Return the number of resource IDs that may be deleted."""
    return len({each.id for each in findings if each.is_deletable})
