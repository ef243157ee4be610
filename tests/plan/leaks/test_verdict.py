"""The verdict about a listed item: an exhaustive table, and the cases that could delete something of another owner."""

import itertools

import msgspec
import pytest

from dayfly.plan.leaks.listing import InventoryItem
from dayfly.plan.leaks.sweep import digest_deletion
from dayfly.plan.leaks.verdict import (
    MAX_FINDINGS,
    CheckRules,
    CompleteList,
    Evidence,
    ExpectedResource,
    ItemFinding,
    LeakVerdict,
    ResourceRunState,
    find_verdicts,
    plan_digest,
    select_deletions,
    shown_findings,
)
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.lifecycle import LEAK_CHECK_TARGET, Lifecycle

ID, OTHER = "0123456789abcdef0123456789", "0123456789abcdef0123456780"
HOUR = 3_600_000
NOW, GRACE = 1_000 * HOUR, HOUR
RULES = CheckRules("bucket", GRACE)
CHECK = {"name": "c", "spec": {"cluster": "local", "plugin": "bucket", "params": {"mode": "one"}}}
OLD, ENDED, FIRST, SECOND = NOW - 100 * HOUR, NOW - 50 * HOUR, NOW - 2 * HOUR, NOW - HOUR // 2
RECORDED = Evidence(ResourceRunState.NONE, "bucket@1.0.0", ENDED)
MARKED = Evidence(ResourceRunState.NONE, has_token=True)
ORPHAN = InventoryItem(ID, f"dayfly-{ID}", OLD)


def listed(began_at: int, *items: InventoryItem, **first_seen: int) -> CompleteList:
    return CompleteList(began_at, items, first_seen)


def verdict_of(
    item: InventoryItem = ORPHAN,
    known: Evidence = RECORDED,
    *,
    before: InventoryItem | None = ORPHAN,
    first: int = FIRST,
    second: int = SECOND,
    now: int = NOW,
    rules: CheckRules = RULES,
) -> ItemFinding:
    previous = None if before is None else listed(first, before)
    (finding,) = find_verdicts(listed(second, item), previous, {item.id: known}, (), rules, now)
    return finding


RUNS = tuple(ResourceRunState)
PLUGINS = ("", "bucket@0.9.0", "queue@1.0.0")
TOKENS = (False, True)
AGES = {"old": OLD, "young": NOW - GRACE, "unknown": 0, "future": NOW + 1}
PREVIOUS = {
    "none": None,
    "same": ORPHAN,
    "other id": InventoryItem(OTHER, ORPHAN.name, OLD),
    "other name": InventoryItem(ID, "x", OLD),
}
ENDS = {"before": ENDED, "between": FIRST + 1, "in the second": SECOND, "future": NOW + 1}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("has_token", TOKENS)
def test_verdict_for_each_combination(run: ResourceRunState, plugin: str, has_token: bool):
    for age, before, end, id_ in itertools.product(AGES, PREVIOUS, ENDS, (ID, "")):
        ended_at = ENDS[end] if plugin else 0
        known = Evidence(run, plugin, ended_at, has_token)
        found = verdict_of(InventoryItem(id_, ORPHAN.name, AGES[age]), known, before=PREVIOUS[before])
        is_ours = bool(plugin) or has_token
        is_proven = age == "old" and before == "same" and (not plugin or end == "before")
        if not id_:
            expected = LeakVerdict.FOREIGN
        elif run is ResourceRunState.OPEN:
            expected = LeakVerdict.HELD
        elif run is ResourceRunState.CLOSED:
            expected = LeakVerdict.ENDING
        elif run is ResourceRunState.UNANSWERED:
            expected = LeakVerdict.UNKNOWN
        elif not is_ours or plugin.startswith("queue"):
            expected = LeakVerdict.FOREIGN
        else:
            expected = LeakVerdict.ORPHAN if is_proven else LeakVerdict.UNKNOWN
        assert found.verdict is expected, (age, before, end, id_)
        assert found.is_deletable is (expected is LeakVerdict.ORPHAN and bool(plugin))


def test_item_without_evidence_is_unknown():
    (finding,) = find_verdicts(listed(SECOND, ORPHAN), listed(FIRST, ORPHAN), {}, (), RULES, NOW)
    assert finding.verdict is LeakVerdict.UNKNOWN


def test_name_that_appears_twice_is_unknown():
    items = (ORPHAN, ORPHAN._replace(id=OTHER))
    known = dict.fromkeys((ID, OTHER), RECORDED)
    found = find_verdicts(listed(SECOND, *items), listed(FIRST, *items), known, (), RULES, NOW)
    assert [each.verdict for each in found] == [LeakVerdict.UNKNOWN, LeakVerdict.UNKNOWN]


@pytest.mark.parametrize(
    "name", ["snapshot-of-orders", f"dayfly-{ID}0", f"dayfly-{ID[:-1]}8", f"dayfly-{ID[:-1]}", f"dayfly-{ID}x"]
)
def test_item_without_its_id_in_its_name_is_never_deleted(name: str):
    copy = InventoryItem(ID, name, OLD, "our.token")
    found = verdict_of(copy, MARKED, before=copy)
    assert (found.verdict, found.is_deletable) == (LeakVerdict.ORPHAN, False)


def test_original_is_not_deleted_while_a_copy_of_its_tags_exists():
    items = (ORPHAN, InventoryItem(ID, "restored-orders", OLD))
    found = find_verdicts(listed(SECOND, *items), listed(FIRST, *items), {ID: RECORDED}, (), RULES, NOW)
    assert [(each.verdict, each.is_deletable) for each in found] == [(LeakVerdict.ORPHAN, False)] * 2


RESCUED = InventoryItem(ID, f"dayfly-{ID}-rescue", OLD)


@pytest.mark.parametrize(
    ("now_listed", "before"),
    [
        ((ORPHAN, RESCUED._replace(created=NOW - GRACE)), (ORPHAN, RESCUED)),
        ((ORPHAN, RESCUED._replace(created=NOW + 1)), (ORPHAN, RESCUED)),
        ((ORPHAN, RESCUED), (ORPHAN,)),
        ((ORPHAN, RESCUED, RESCUED), (ORPHAN, RESCUED, RESCUED)),
    ],
    ids=["young", "from the future", "in one list", "named twice"],
)
def test_orphan_stays_if_an_item_with_its_id_is_no_orphan(
    now_listed: tuple[InventoryItem, ...], before: tuple[InventoryItem, ...]
):
    """A person restores an item under a name with the same ID, and with its tags."""
    found = find_verdicts(listed(SECOND, *now_listed), listed(FIRST, *before), {ID: RECORDED}, (), RULES, NOW)
    assert {each.verdict for each in found} == {LeakVerdict.ORPHAN, LeakVerdict.UNKNOWN}
    assert not any(each.is_deletable for each in found)


def test_lists_that_may_come_from_one_cache_prove_nothing():
    assert verdict_of(first=SECOND - 59_999).verdict is LeakVerdict.UNKNOWN
    assert verdict_of(first=SECOND - 60_000).verdict is LeakVerdict.ORPHAN
    assert verdict_of(first=SECOND, rules=CheckRules("bucket", 0)).verdict is LeakVerdict.ORPHAN


def test_age_counts_from_the_first_list_without_a_creation_time():
    timeless = ORPHAN._replace(created=0)
    for seen, expected in ((NOW - GRACE, LeakVerdict.UNKNOWN), (NOW - GRACE - 1, LeakVerdict.ORPHAN)):
        current = listed(SECOND, timeless)._replace(first_seen={timeless.name: seen})
        (found,) = find_verdicts(current, listed(FIRST, timeless), {ID: RECORDED}, (), RULES, NOW)
        assert found.verdict is expected


def test_clock_that_jumped_back_makes_no_orphan():
    assert verdict_of(now=OLD - 1).verdict is LeakVerdict.UNKNOWN
    assert verdict_of(first=ENDED - 2, second=ENDED - 1).verdict is LeakVerdict.UNKNOWN


EXPECTED = ExpectedResource(ID, "box/files", "bucket@1.0.0", made_at=FIRST - 1)


@pytest.mark.parametrize(
    ("current", "previous", "expected", "is_missing"),
    [
        ((), (), EXPECTED, True),
        ((ORPHAN,), (), EXPECTED, False),
        ((), (ORPHAN,), EXPECTED, False),
        ((), None, EXPECTED, False),
        ((), (), EXPECTED._replace(made_at=FIRST), False),
        ((), (), EXPECTED._replace(made_at=0), False),
    ],
)
def test_resource_is_missing_only_if_two_later_lists_lack_it(
    current: tuple[InventoryItem, ...],
    previous: tuple[InventoryItem, ...] | None,
    expected: ExpectedResource,
    is_missing: bool,
):
    before = None if previous is None else listed(FIRST, *previous)
    found = find_verdicts(
        listed(SECOND, *current), before, {ID: Evidence(ResourceRunState.OPEN)}, [expected], RULES, NOW
    )
    assert [each.name for each in found if each.verdict is LeakVerdict.MISSING] == ["box/files"] * is_missing


def deletable(count: int) -> list[ItemFinding]:
    return [ItemFinding(LeakVerdict.ORPHAN, str(number), "x", "", is_deletable=True) for number in range(count)]


def test_report_shows_leaks_first():
    foreign = [ItemFinding(LeakVerdict.FOREIGN, "", str(number), "") for number in range(MAX_FINDINGS)]
    missing, copy, orphan = (
        ItemFinding(LeakVerdict.MISSING, ID, "m", ""),
        ItemFinding(LeakVerdict.ORPHAN, ID, "c", ""),
        *deletable(1),
    )
    held = ItemFinding(LeakVerdict.HELD, OTHER, "h", "")
    shown = shown_findings([held, *foreign, missing, copy, orphan])
    assert shown[:4] == [orphan, copy, missing, foreign[0]]
    assert len(shown) == MAX_FINDINGS


def test_world_with_more_than_a_report_shows_has_no_plan():
    assert plan_digest(deletable(MAX_FINDINGS), {})
    assert plan_digest(deletable(MAX_FINDINGS + 1), {}) == ""


def test_plan_differs_for_other_params_or_delete_steps():
    check, item = documents.from_wire(CHECK, "LeakCheck", name="c"), deletable(1)[0]._replace(plugin="bucket@1.0.0")
    assert isinstance(check, LeakCheck)
    steps, other = (Lifecycle(target=LEAK_CHECK_TARGET, resource=name) for name in ("a", "b"))
    changed = msgspec.structs.replace(check.spec, params={"mode": "all"})
    deletions = [(check.spec, steps), (check.spec, other), (check.spec, None), (changed, steps), (changed, None)]
    plans = {plan_digest([item], {item.plugin: digest_deletion(*each)}) for each in deletions}
    assert len(plans) == len(deletions)
    assert plan_digest([item], {item.plugin: digest_deletion(check.spec, steps)}) in plans


@pytest.mark.parametrize(
    ("orphans", "inventory", "deleted"), [(0, 100, 0), (1, 1, 1), (5, 9, 1), (5, 30, 3), (50, 99, 9), (50, 1_000, 10)]
)
def test_sweep_deletes_at_most_ten_and_a_tenth(orphans: int, inventory: int, deleted: int):
    chosen, left = select_deletions(deletable(orphans), inventory)
    assert (len(chosen), left) == (deleted, orphans - deleted)


def orphans_with(*sizes: int) -> list[ItemFinding]:
    """Return deletable items: for each size, an ID with this number of items."""
    return [
        ItemFinding(LeakVerdict.ORPHAN, str(number), f"{number}-{name}", "", is_deletable=True)
        for number, size in enumerate(sizes)
        for name in range(size)
    ]


@pytest.mark.parametrize(
    ("sizes", "inventory", "deleted"),
    [
        ((2,), 3, 1),
        ((2, 1), 3, 1),
        ((10,), 10, 1),
        ((11,), 1_000, 0),
        ((11, 1), 1_000, 0),
        ((1, 11, 1), 1_000, 1),
        ((3, 3, 3, 3), 1_000, 3),
        ((5, 5, 1), 1_000, 2),
        ((2, 2, 1), 40, 2),
    ],
)
def test_limit_of_a_sweep_counts_all_items_of_a_resource(sizes: tuple[int, ...], inventory: int, deleted: int):
    chosen, left = select_deletions(orphans_with(*sizes), inventory)
    assert (chosen, left) == ([str(number) for number in range(deleted)], len(sizes) - deleted)


def test_item_that_is_held_is_not_deleted_with_others():
    assert select_deletions([*orphans_with(2), ItemFinding(LeakVerdict.HELD, OTHER, "x", "")], 3) == (["0"], 0)
