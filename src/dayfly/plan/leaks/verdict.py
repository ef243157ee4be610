"""The verdict about each listed item, and about resources that a list lacks. In doubt, nothing is an orphan.

A check lists first and reads the ledgers afterwards. So a resource that is created in between has a run, although its
item may not be in the list. All times are Unix milliseconds.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from dayfly.plan.leaks.listing import InventoryItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_DELETIONS: Final = 10
# A report has no more findings, and a plan no more items: a person must have seen everything that a plan deletes.
MAX_FINDINGS: Final = 1_000
_DELETED_SHARE: Final = 10
_DIGEST_LENGTH: Final = 26
# Two lists that begin sooner after each other may come from the same cache. A shorter grace period shortens this.
MIN_LIST_DISTANCE_MS: Final = 60_000


class LeakVerdict(enum.StrEnum):
    """The verdict about an item, or about a resource without one."""

    HELD = "held"
    ENDING = "ending"
    ORPHAN = "orphan"
    MISSING = "missing"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


LEAKS: Final = (LeakVerdict.ORPHAN, LeakVerdict.MISSING)
"""The verdicts that need a person or a deletion."""


class ResourceRunState(enum.StrEnum):
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
        has_token: Whether the token of the item was made with our key for this resource ID.
        sandbox_uid: The UID of its sandbox at a server, which differs from that of its run; empty if it is not known.
    """

    run: ResourceRunState
    plugin: str = ""
    ended_at: int = 0
    has_token: bool = False
    sandbox_uid: str = ""


class CompleteList(NamedTuple):
    """A complete list, when it began, and when each of its items was listed for the first time, by name."""

    began_at: int
    items: tuple[InventoryItem, ...]
    first_seen: Mapping[str, int] = {}


class ItemFinding(NamedTuple):
    """A verdict.

    Attributes:
        verdict: The verdict.
        id: The resource ID; empty if the item has none.
        name: The name of the item, or of the resource that is missing.
        reason: Why, in a phrase.
        plugin: The recorded plugin as `name@version`; empty if it is not known.
        created: When the item was created or first listed.
        is_deletable: Whether the delete steps of the plugin may run for the ID.
        sandbox_uid: As in `Evidence`.
    """

    verdict: LeakVerdict
    id: str
    name: str
    reason: str
    plugin: str = ""
    created: int = 0
    is_deletable: bool = False
    sandbox_uid: str = ""


class ExpectedResource(NamedTuple):
    """A resource of an open run with the plugin and params of the check.

    Attributes:
        id: Its resource ID.
        name: The run and its resource, for people.
        plugin: Its plugin as `name@version`.
        made_at: When all its create steps had succeeded; 0 if they have not.
        sandbox_uid: As in `Evidence`.
    """

    id: str
    name: str
    plugin: str
    made_at: int
    sandbox_uid: str = ""


class CheckRules(NamedTuple):
    """The rules of one check: the name of its plugin and the grace period in milliseconds."""

    plugin: str
    grace_ms: int


def find_verdicts(
    current: CompleteList,
    previous: CompleteList | None,
    evidence: Mapping[str, Evidence],
    expected: Iterable[ExpectedResource],
    rules: CheckRules,
    now: int,
) -> list[ItemFinding]:
    """Return the verdicts about all items of a list, in its order, and after them those about missing resources.

    Args:
        current: The newest complete list.
        previous: The complete list before it; None if there is none.
        evidence: The evidence for each resource ID in the list. It was read after the list had ended.
        expected: The resources that the list should have. They were read after the list had ended.
        rules: The rules of the check.
        now: The current time.
    """
    names = Counter(item.name for item in current.items)
    lists = [current] if previous is None else [current, previous]
    listed_before = {(item.name, item.id) for item in previous.items} if previous is not None else set()
    found = [
        ItemFinding(LeakVerdict.UNKNOWN, item.id, item.name, "the list has this name twice")
        if names[item.name] > 1
        else _finding(
            item,
            lists,
            evidence.get(item.id, Evidence(ResourceRunState.UNANSWERED)),
            rules,
            now,
            was_listed=(item.name, item.id) in listed_before,
        )
        for item in current.items
    ]
    copied = {finding.id for finding, item in zip(found, current.items, strict=True) if not item.is_named_by_id}
    doubtful = {each.id for each in found if each.verdict is not LeakVerdict.ORPHAN}
    orphans = [_protect_copies(finding, copied, doubtful) for finding in found]
    return [*orphans, *_missing(lists, expected)]


def _finding(
    item: InventoryItem,
    lists: Sequence[CompleteList],
    known: Evidence,
    rules: CheckRules,
    now: int,
    *,
    was_listed: bool,
) -> ItemFinding:
    created = item.created or lists[0].first_seen.get(item.name, 0)
    verdict, reason = _verdict(item, created, known, rules, now)
    if verdict is LeakVerdict.ORPHAN and not (was_listed and _prove_together(lists, known.ended_at, rules)):
        verdict, reason = LeakVerdict.UNKNOWN, "it is not yet in two complete lists after the end of its run"
    is_deletable = verdict is LeakVerdict.ORPHAN and bool(known.plugin)  # other delete steps may remove other items
    return ItemFinding(
        verdict, item.id, item.name, reason, known.plugin, created, is_deletable, sandbox_uid=known.sandbox_uid
    )


def _verdict(
    item: InventoryItem, created: int, known: Evidence, rules: CheckRules, now: int
) -> tuple[LeakVerdict, str]:
    """Return the verdict, and `ORPHAN` also if it is not in two lists yet."""
    if not item.id:
        return LeakVerdict.FOREIGN, "it has no resource id"
    match known.run:
        case ResourceRunState.OPEN:
            return LeakVerdict.HELD, "its run is open"
        case ResourceRunState.CLOSED:
            return LeakVerdict.ENDING, "its run is being deleted"
        case ResourceRunState.UNANSWERED:
            return LeakVerdict.UNKNOWN, "its ledger has not answered"
    if not known.plugin and not known.has_token:
        return (
            LeakVerdict.FOREIGN,
            "its token is from another installation"
            if item.token
            else "nothing proves that this installation created it",
        )
    if known.plugin and known.plugin.partition("@")[0] != rules.plugin:
        return LeakVerdict.FOREIGN, f"it belongs to the plugin {known.plugin}"
    if created > now or known.ended_at > now:
        return LeakVerdict.UNKNOWN, "its time is in the future"
    if created <= 0 or now - created <= rules.grace_ms:
        return LeakVerdict.UNKNOWN, "it is not older than the grace period"
    by_hand = "its token is from this installation, but no record names its plugin: delete it by hand"
    return LeakVerdict.ORPHAN, "its run has ended" if known.plugin else by_hand


def _prove_together(lists: Sequence[CompleteList], ended_at: int, rules: CheckRules) -> bool:
    """Return whether there are two lists that began after the end of a run and differ in time."""
    return are_distant(lists, rules.grace_ms) and all(each.began_at > ended_at for each in lists)


def are_distant(lists: Sequence[CompleteList], grace_ms: int) -> bool:
    """Return whether there are two lists that prove something together."""
    return len(lists) > 1 and lists[0].began_at - lists[1].began_at >= list_distance_ms(grace_ms)


def list_distance_ms(grace_ms: int) -> int:
    """Return the least time between the begins of two lists that prove something together."""
    return min(grace_ms, MIN_LIST_DISTANCE_MS)


def _protect_copies(finding: ItemFinding, copied: set[str], doubtful: set[str]) -> ItemFinding:
    """Return the finding; it is deletable only if all items with its ID are orphans and have the ID in their names.

    A restored snapshot has the tags of its original, and delete steps may select by tag.
    """
    if finding.is_deletable and finding.id in copied:
        return finding._replace(is_deletable=False, reason=f"{finding.reason}; an item with its id may be a copy")
    if finding.is_deletable and finding.id in doubtful:
        return finding._replace(is_deletable=False, reason=f"{finding.reason}; an item with its id is not an orphan")
    return finding


def _missing(lists: Sequence[CompleteList], expected: Iterable[ExpectedResource]) -> list[ItemFinding]:
    if len(lists) < 2:
        return []
    listed = {item.id for each in lists for item in each.items}
    first = min(each.began_at for each in lists)
    return [
        ItemFinding(
            LeakVerdict.MISSING,
            each.id,
            each.name,
            "two complete lists lack it",
            each.plugin,
            sandbox_uid=each.sandbox_uid,
        )
        for each in expected
        if 0 < each.made_at < first and each.id not in listed
    ]


def shown_findings(findings: Iterable[ItemFinding], limit: int = MAX_FINDINGS) -> list[ItemFinding]:
    """Return the findings for a report: deletable items, other orphans, missing resources, the rest."""
    ranks = {LeakVerdict.ORPHAN: 1, LeakVerdict.MISSING: 2}
    shown = [each for each in findings if each.verdict is not LeakVerdict.HELD]
    return sorted(shown, key=lambda each: 0 if each.is_deletable else ranks.get(each.verdict, 3))[:limit]


def plan_digest(findings: Sequence[ItemFinding], deletions: Mapping[str, str]) -> str:
    """Return the digest of everything that may be deleted; empty if there is nothing, or more than a report shows.

    A plan that a person has read is only carried out if the digest is still the same.

    Args:
        findings: The findings.
        deletions: For each plugin, the digest of the params and delete steps that a deletion runs.
    """
    items = sorted(
        (each.id, each.name, each.plugin, deletions.get(each.plugin, "")) for each in findings if each.is_deletable
    )
    if not 0 < len(items) <= MAX_FINDINGS:
        return ""
    return hashlib.sha256(repr(items).encode()).hexdigest()[:_DIGEST_LENGTH]


def select_deletions(findings: Sequence[ItemFinding], inventory_size: int) -> tuple[list[str], int]:
    """Return the resource IDs that a sweep may delete, and how many deletable IDs are left for a person.

    A sweep deletes at most 10 items, and at most a tenth of the inventory but at least one. All items of an ID are
    deleted together. So the first ID may have more items than a tenth, but not more than 10.
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


def count_deletable(findings: Iterable[ItemFinding]) -> int:
    """Return the number of resource IDs that may be deleted."""
    return len({each.id for each in findings if each.is_deletable})
