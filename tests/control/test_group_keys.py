"""Whoever joins a route group, or leaves it, has the keys of its forks told anew."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from control.fake_host import FakeHost
from dayfly.control import group_keys
from dayfly.control.crowd import Crowd, _Seen
from dayfly.control.group_keys import GroupKeys
from dayfly.control.link import Links
from dayfly.plan.route_groups import Group, Member
from dayfly.spec.glob import Glob
from dayfly.spec.label_match import HasLabel
from dayfly.spec.wire import Inventory, Standing


@pytest.fixture
def keys(monkeypatch):
    """One that tells a list; a group has the sandboxes that its record names."""
    monkeypatch.setattr(
        group_keys, "routed", lambda members: {uid: {"shop/web": (key,)} for key, found in members for uid in found}
    )
    crowd = SimpleNamespace(of=lambda group: {uid: SimpleNamespace(name=f"box-{uid}") for uid in group.has})
    found = GroupKeys(SimpleNamespace(), SimpleNamespace(), lambda _org: crowd)
    found.told = []

    async def tell(org, uid, name):
        found.told.append((org, uid, name))

    found._tell = tell
    return found


def group(key: str, *has: str) -> SimpleNamespace:
    return SimpleNamespace(routing_key=key, has=has)


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ([group("k", "a", "b")], []),
        ([group("k", "a")], ["b"]),
        ([], ["a", "b"]),
        ([group("k", "a", "b", "c")], ["c"]),
        ([group("l", "a", "b")], ["a", "b"]),
    ],
)
async def test_who_comes_who_leaves_and_whose_key_is_another_is_told(keys, then, told):
    await keys.follow("o", [group("k", "a", "b")])
    assert keys.told == [("o", "a", "box-a"), ("o", "b", "box-b")]
    keys.told.clear()
    await keys.follow("o", then)
    assert keys.told == [("o", uid, f"box-{uid}") for uid in told]
    assert keys.orgs() == ({"o"} if then else set())


async def test_what_has_ended_while_nobody_listened_has_left_its_groups():
    """A host that is met anew says of its runs whether they live, and how they stand only to whoever asks."""
    links, group_ = Links(), SimpleNamespace(uid="g", stop=None)
    links.add("o", {"east": FakeHost().end})
    crowd = Crowd(SimpleNamespace(), links, "o")
    crowd._members.put_group("g", Group("", HasLabel("team", Glob("a"))))
    for uid in "ab":
        crowd._seen[uid] = _Seen(1, None, Member(uid, "east", {"team": "a"}, (), 1))
        crowd._members.put(uid, crowd._seen[uid].member)
    assert set(crowd.of(group_)) == {"a", "b"}
    met = Inventory(
        session=1, number=1, process="p", runs=(Standing(uid="a", seq=1),), ended=(Standing(uid="b", seq=1),)
    )
    links.of("o", "east").picture.take_over(met)
    assert set(crowd.of(group_)) == {"a"}
