"""Whom a route group has, and who looks again when that changes."""

from __future__ import annotations

import pytest
from rig.grouping import MATCH, PAY, Bench, played

from dayfly.kube.objects import Key
from dayfly.spec.identity import routing_key

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
ENDPOINT = {"name": "web", "target": "http://web.shop.svc:80"}
NOBODY = {"match": {"label": {"key": "team", "value": "none"}}}


def box(name: str) -> Key:
    return Key("shop", name)


class TestMembers:
    def test_a_sandbox_that_comes_is_looked_at_with_its_group(self):
        async def story(bench: Bench):
            bench.taken()
            bench.box("one")
            assert bench.taken() == [box("one"), bench.run_name]
            assert bench.emptied == [PAY]
            assert bench.crowd.has_any(bench.uid)

        played(story)

    def test_the_second_is_news_to_the_group_and_empties_nothing(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            bench.box("two")
            assert bench.taken() == [box("one"), box("two"), bench.run_name]
            assert bench.emptied == [PAY], "the time to live of a group counts from its last"

        played(story)

    def test_what_is_no_news_is_passed_over(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            bench.box("one")
            bench.box("other", team="x")
            assert (bench.taken(), bench.emptied) == ([], [])

        played(story)

    def test_a_sandbox_that_gets_ready_is_news_to_its_group_alone(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.box("one", ready=True)
            bench.box("other", team="x", ready=True)
            assert (bench.taken(), bench.emptied) == ([bench.run_name], [])
            bench.box("one", spoken=False)
            assert bench.taken() == [bench.run_name]

        played(story)

    @pytest.mark.parametrize("how", ["deleting", "gone", "relabelled"])
    def test_the_last_that_leaves_empties_it(self, how):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            if how == "deleting":
                bench.box("one", gone=True)
            elif how == "gone":
                bench.caches.sandboxes.drop(box("one"))
            else:
                bench.box("one", team="x")
            looked = [box("one")] if how == "relabelled" else []
            assert (bench.taken(), bench.emptied) == ([*looked, bench.run_name], [PAY])
            assert not bench.crowd.has_any(bench.uid)
            bench.box("two")
            assert box("one") not in bench.taken()

        played(story)

    def test_one_that_leaves_in_the_moment_in_which_it_gets_ready_leaves(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.box("one", team="x", ready=True)
            assert bench.taken() == [box("one"), bench.run_name]

        played(story)

    def test_when_the_first_has_gone_requests_go_to_the_forks_of_the_next(self):
        async def story(bench: Bench):
            bench.box("one", forks=[FORK])
            second = bench.box("two", forks=[FORK])
            bench.taken()
            bench.emptied.clear()
            bench.box("one", forks=[FORK], gone=True)
            assert (bench.taken(), bench.emptied) == ([box("two"), bench.run_name], [])
            assert bench.crowd.keys_of(second) == {"shop/web": (routing_key(bench.uid),)}
            bench.caches.sandboxes.drop(box("one"))
            bench.caches.sandboxes.drop(box("two"))
            bench.caches.groups.drop(PAY)
            assert (bench.crowd._sandboxes, bench.crowd._keys) == ({}, {}), "nothing is kept of what is gone"

        played(story)

    def test_another_of_its_name_is_another_one(self):
        async def story(bench: Bench):
            bench.box("one", uid="a")
            bench.box("one", uid="b")
            assert list(bench.crowd.of(bench.uid)) == ["b"]

        played(story)

    def test_what_is_no_label_is_passed_over(self):
        async def story(bench: Bench):
            bench.box("one", labels={"team": "pay", "n": 1}, forks=["web", {}, FORK])
            [member] = bench.crowd.of(bench.uid).values()
            assert member.labels == {"team": "pay"}
            assert member.baselines == ("/", "shop/web")
            assert member.scope == "shop"
            bench.box("two", labels=None, forks=None)
            assert len(bench.crowd.of(bench.uid)) == 1

        played(story)

    def test_requests_with_its_key_go_to_the_forks_of_the_first(self):
        async def story(bench: Bench):
            first, second = (bench.box(name, forks=[FORK]) for name in ("one", "two"))
            assert bench.crowd.keys_of(first) == {"shop/web": (routing_key(bench.uid),)}
            assert bench.crowd.keys_of(second) == {}
            assert bench.crowd.keys_of(bench.box("other", team="x", forks=[FORK])) == {}

        played(story)


class TestMatch:
    def test_who_had_been_there_before_belongs_to_it(self):
        async def story(bench: Bench):
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.applied("second", match={"label": {"key": "team", "value": "x"}})
            assert (bench.taken(), bench.emptied) == ([box("other")], [box("second")])

        played(story)

    def test_who_joins_and_who_leaves_with_another_match_are_looked_at(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.changed({"spec": {"match": {"label": {"key": "team", "value": "x"}}}})
            assert (bench.taken(), bench.emptied) == ([box("one"), box("other")], [])
            assert list(bench.crowd.of(bench.uid)) == ["uid-other"]
            bench.changed({"spec": NOBODY})
            assert (bench.taken(), bench.emptied) == ([box("other")], [PAY])

        played(story)

    def test_of_the_same_wish_nothing_is_looked_at(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.changed({"metadata": {"annotations": {"a": "b"}}})
            assert bench.taken() == []

        played(story)

    def test_one_that_cannot_be_read_leaves_all_as_it_was_until_it_is_mended_or_gone(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            wrong = {"spec": {"match": {"label": {"key": "team", "value": "[pay"}}}}
            bench.changed(wrong)
            assert bench.taken() == []
            assert list(bench.crowd.of(bench.uid)) == ["uid-one"]
            assert "is not a pattern" in bench.crowd.refused[bench.uid]
            bench.changed({"spec": {"match": MATCH}})
            assert bench.crowd.refused == {}
            bench.changed(wrong)
            bench.caches.groups.drop(PAY)
            assert bench.crowd.refused == {}

        played(story)

    def test_those_of_one_that_is_gone_are_looked_at_and_belong_to_nobody(self):
        async def story(bench: Bench):
            first = bench.box("one", forks=[FORK])
            bench.taken()
            bench.caches.groups.drop(PAY)
            assert bench.taken() == [box("one")]
            assert bench.crowd.keys_of(first) == {}
            assert not bench.crowd.has_any(bench.uid)

        played(story)
