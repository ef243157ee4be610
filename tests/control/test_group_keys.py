"""Whoever joins a route group, or leaves it, has the keys of its forks told anew."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.control import group_keys
from dayfly.control.group_keys import GroupKeys


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
