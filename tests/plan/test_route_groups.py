"""Members, precedence and reports of route groups. Incremental updates equal a full computation."""

import random

import pytest

from dayfly.plan.route_groups import (
    GroupMember,
    GroupSelector,
    MembershipIndex,
    conflicts,
    group_state,
    routes_by_sandbox,
)
from dayfly.spec.report import RunReport
from dayfly.spec.routing.label_match import parse
from dayfly.spec.run import Phase


def member(name, born=1, scope="c", baselines=(), **labels):
    return GroupMember(name, scope, labels, tuple(baselines), born)


def group(value="a*", scope=""):
    return GroupSelector(scope, parse({"label": {"key": "team", "value": value}}))


def several(how, *labels):
    """Return a group that matches any or all of these."""
    terms = [{"label": {"key": key, "value": value}} for key, value in labels]
    return GroupSelector("", parse({how: terms}))


def report(**more):
    said = {"ready": True, "reason": "AllDesiredWorkloadsReady", "message": "m", "phase": Phase.OPEN, **more}
    return RunReport(uid="u", done=0, total=0, units=(), **said)


def test_sandbox_joins_and_leaves_by_its_labels():
    crowd = MembershipIndex()
    crowd.put_group("g", group())
    assert crowd.put("1", member("one", team="abc")) == ["g"]
    assert list(crowd.sandboxes_of("g").values()) == [member("one", team="abc")]
    assert crowd.put("1", member("one", team="abc")) == []
    assert crowd.put("1", member("one", team="b")) == ["g"]
    assert crowd.sandboxes_of("g") == {}
    assert crowd.put("1", member("one", team="ab")) == ["g"]
    assert crowd.drop("1") == ["g"]
    assert (crowd.sandboxes_of("g"), crowd.drop("1")) == ({}, [])


def test_group_selects_only_sandboxes_of_its_scope():
    crowd = MembershipIndex()
    crowd.put("1", member("here", scope="c", team="a"))
    crowd.put("2", member("there", scope="d", team="a"))
    crowd.put_group("of c", group(scope="c"))
    crowd.put_group("of all", group())
    assert [each.name for each in crowd.sandboxes_of("of c").values()] == ["here"]
    assert sorted(each.name for each in crowd.sandboxes_of("of all").values()) == ["here", "there"]


def test_a_group_may_ask_for_any_or_all_of_several_labels():
    crowd = MembershipIndex()
    crowd.put("1", member("both", team="a", tier="web"))
    crowd.put("2", member("one", team="a", tier="db"))
    crowd.put("3", member("other", team="b", tier="web"))
    crowd.put("4", member("none", team="c"))
    asked = (("team", "a"), ("tier", "w*"))
    crowd.put_group("any", several("any", *asked))
    crowd.put_group("all", several("all", *asked))
    assert sorted(each.name for each in crowd.sandboxes_of("any").values()) == ["both", "one", "other"]
    assert [each.name for each in crowd.sandboxes_of("all").values()] == ["both"]


def test_membership_equals_a_new_computation_after_any_changes():
    chance = random.Random(7)
    crowd, sandboxes, groups = MembershipIndex(), {}, {}
    for _ in range(3_000):
        uid = str(chance.randrange(12))
        match chance.randrange(5):
            case 0 | 1:
                sandboxes[uid] = member(uid, scope=chance.choice("cd"), team=chance.choice(["a", "ab", "b"]))
                crowd.put(uid, sandboxes[uid])
            case 2:
                sandboxes.pop(uid, None)
                crowd.drop(uid)
            case 3:
                groups[uid] = group(chance.choice(["a", "a*", "?", "[^a]*"]), chance.choice(["", "c"]))
                crowd.put_group(uid, groups[uid])
            case 4:
                groups.pop(uid, None)
                crowd.drop_group(uid)
        for of, wants in groups.items():
            assert set(crowd.sandboxes_of(of)) == {each for each, found in sandboxes.items() if wants.matches(found)}


def test_the_oldest_goes_first_whatever_the_order():
    old, young = member("z", 1, baselines=["shop/web", "shop/db"]), member("a", 2, baselines=["shop/web"])
    twin = member("b", 1, baselines=["shop/db"])
    for order in ([old, young, twin], [twin, young, old], [young, twin, old]):
        found = conflicts(order)
        assert [(each.baseline, each.sandbox, each.others) for each in found] == [
            ("shop/db", "b", ("z",)),
            ("shop/web", "z", ("a",)),
        ]


def test_forks_of_the_same_name_in_two_clusters_are_no_conflict():
    assert conflicts([member("a", scope="c", baselines=["s/w"]), member("b", scope="d", baselines=["s/w"])]) == ()


def test_group_status_describes_its_members():
    one, two = member("one", 1, baselines=["shop/web"]), member("two", 2, baselines=["shop/web"])
    said = group_state(report(), [], [])
    assert (said.ready, said.reason, said.message) == (True, "NoMatchedSandboxes", "No live sandbox matches.")
    assert group_state(report(), [one], []).message == "1 sandbox matches: one."
    said = group_state(report(), [one, two], ["two"])
    assert said.message == (
        "2 sandboxes match: one and two; not ready: two. shop/web is forked by several sandboxes: one takes precedence over two."
    )
    assert (said.ready, said.matched, said.reason) == (True, ("one", "two"), "AllDesiredWorkloadsReady")


def test_many_conflicts_are_partly_named_and_counted():
    names = [f"shop/w{number}" for number in range(10)]
    said = group_state(report(), [member(name, 1, baselines=names) for name in ("one", "two")], [])
    assert said.message.count("one takes precedence over two") == 8
    assert said.message.endswith(
        "shop/w7 is forked by several sandboxes: one takes precedence over two; and so are 2 more."
    )


@pytest.mark.parametrize(("phase", "matched"), [(Phase.OPEN, ("one",)), (Phase.CLOSED, ())])
def test_unready_group_gives_its_reason_and_ending_one_is_empty(phase, matched):
    said = group_state(report(ready=False, reason="HooksPending", message="a: runs", phase=phase), [member("one")], [])
    assert (said.ready, said.reason, said.message, said.matched) == (False, "HooksPending", "a: runs", matched)


def test_unready_members_do_not_make_a_group_unready():
    """Anyone who can set a label can make a sandbox join."""
    assert group_state(report(), [member(str(n)) for n in range(50)], [str(n) for n in range(50)]).ready


def test_the_key_of_a_group_leads_to_one_fork_of_each_baseline():
    old = GroupMember("old", "c", {}, ("shop/web",), 1)
    young = GroupMember("young", "c", {}, ("shop/web", "shop/pay"), 2)
    elsewhere = GroupMember("far", "d", {}, ("shop/web",), 3)
    members = {"y": young, "o": old, "f": elsewhere}
    assert routes_by_sandbox([("k1", members), ("k2", {"y": young})]) == {
        "o": {"shop/web": ("k1",)},
        "y": {"shop/pay": ("k1", "k2"), "shop/web": ("k2",)},
        "f": {"shop/web": ("k1",)},
    }
    # The sentence if two sandboxes are in conflict.
    (clash,) = conflicts(members.values())
    assert (clash.baseline, clash.sandbox) == ("shop/web", "old")
