"""The members of a route group, and what is queued when they change."""

from __future__ import annotations

import pytest
from tests.operator.rig.route_group_bench import MATCH, PAY, Bench, with_bench

from dayfly.kube.objects import Key
from dayfly.spec.identity import routing_key

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
ENDPOINT = {"name": "web", "target": "http://web.shop.svc:80"}
NOBODY = {"match": {"label": {"key": "team", "value": "none"}}}


def box(name: str) -> Key:
    return Key("shop", name)


class TestMembers:
    @with_bench
    async def test_new_member_is_queued_with_its_group(self, bench: Bench):
        bench.take_queued()
        bench.box("one")
        assert bench.take_queued() == [box("one"), bench.run_name]
        assert bench.emptied == [PAY]
        assert bench.membership.has_any(bench.uid)

    @with_bench
    async def test_member_that_becomes_ready_queues_only_its_group(self, bench: Bench):
        bench.box("one")
        bench.box("other", team="x")
        bench.take_queued()
        bench.emptied.clear()
        bench.box("one", ready=True)
        bench.box("other", team="x", ready=True)
        assert (bench.take_queued(), bench.emptied) == ([bench.run_name], [])
        bench.box("one", spoken=False)
        assert bench.take_queued() == [bench.run_name]

    @pytest.mark.parametrize("how", ["deleting", "gone", "relabelled"])
    @with_bench
    async def test_last_member_that_leaves_empties_the_group(self, bench: Bench, how):
        bench.box("one")
        bench.take_queued()
        bench.emptied.clear()
        if how == "deleting":
            bench.box("one", gone=True)
        elif how == "gone":
            bench.caches.sandboxes.drop(box("one"))
        else:
            bench.box("one", team="x")
        looked = [box("one")] if how == "relabelled" else []
        assert (bench.take_queued(), bench.emptied) == ([*looked, bench.run_name], [PAY])
        assert not bench.membership.has_any(bench.uid)
        bench.box("two")
        assert box("one") not in bench.take_queued()

    @with_bench
    async def test_key_moves_to_the_fork_of_the_next_member(self, bench: Bench):
        bench.box("one", forks=[FORK])
        second = bench.box("two", forks=[FORK])
        bench.take_queued()
        bench.emptied.clear()
        bench.box("one", forks=[FORK], gone=True)
        assert (bench.take_queued(), bench.emptied) == ([box("two"), bench.run_name], [])
        assert bench.membership.keys_of(second) == {"shop/web": (routing_key(bench.uid),)}

    @with_bench
    async def test_recreated_sandbox_is_another_member(self, bench: Bench):
        bench.box("one", uid="a")
        bench.box("one", uid="b")
        assert list(bench.membership.members_of(bench.uid)) == ["b"]

    @with_bench
    async def test_invalid_labels_and_forks_are_ignored(self, bench: Bench):
        bench.box("one", labels={"team": "pay", "n": 1}, forks=["web", {}, FORK])
        [member] = bench.membership.members_of(bench.uid).values()
        assert member.labels == {"team": "pay"}
        assert member.baselines == ("/", "shop/web")
        assert member.scope == "shop"
        bench.box("two", labels=None, forks=None)
        assert len(bench.membership.members_of(bench.uid)) == 1

    @with_bench
    async def test_key_routes_to_the_fork_of_the_oldest_member(self, bench: Bench):
        first, second = (bench.box(name, forks=[FORK]) for name in ("one", "two"))
        assert bench.membership.keys_of(first) == {"shop/web": (routing_key(bench.uid),)}
        assert bench.membership.keys_of(second) == {}
        assert bench.membership.keys_of(bench.box("other", team="x", forks=[FORK])) == {}


class TestMatch:
    @with_bench
    async def test_existing_sandbox_joins_a_new_group(self, bench: Bench):
        bench.box("other", team="x")
        bench.take_queued()
        bench.emptied.clear()
        bench.applied("second", match={"label": {"key": "team", "value": "x"}})
        assert (bench.take_queued(), bench.emptied) == ([box("other")], [box("second")])

    @with_bench
    async def test_changed_match_queues_old_and_new_members(self, bench: Bench):
        bench.box("one")
        bench.box("other", team="x")
        bench.take_queued()
        bench.emptied.clear()
        bench.changed({"spec": {"match": {"label": {"key": "team", "value": "x"}}}})
        assert (bench.take_queued(), bench.emptied) == ([box("one"), box("other")], [])
        assert list(bench.membership.members_of(bench.uid)) == ["uid-other"]
        bench.changed({"spec": NOBODY})
        assert (bench.take_queued(), bench.emptied) == ([box("other")], [PAY])

    @with_bench
    async def test_invalid_match_keeps_the_members(self, bench: Bench):
        bench.box("one")
        bench.take_queued()
        wrong = {"spec": {"match": {"label": {"key": "team", "value": "[pay"}}}}
        bench.changed(wrong)
        assert bench.take_queued() == []
        assert list(bench.membership.members_of(bench.uid)) == ["uid-one"]
        assert "is not a pattern" in bench.membership.refused[bench.uid]
        bench.changed({"spec": {"match": MATCH}})
        assert bench.membership.refused == {}
        bench.changed(wrong)
        bench.caches.groups.drop(PAY)
        assert bench.membership.refused == {}

    @with_bench
    async def test_deleted_group_releases_its_members(self, bench: Bench):
        first = bench.box("one", forks=[FORK])
        bench.take_queued()
        bench.caches.groups.drop(PAY)
        assert bench.take_queued() == [box("one")]
        assert bench.membership.keys_of(first) == {}
        assert not bench.membership.has_any(bench.uid)
