"""What a watcher has been told comes to what holds, however often rules change before it looks."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from dayfly.routeserver.board import Board
from dayfly.spec.routing.rules import Query, RoutedBaseline, RoutedSandbox, RoutingRule

BASELINES = [RoutedBaseline(kind="Deployment", namespace="shop", name=name) for name in ("web", "api")]


def rule(baseline, key, sandbox):
    return RoutingRule(routing_key=key, baseline=baseline, destination_sandbox=RoutedSandbox(name=sandbox), mappings=())


RULES = st.builds(rule, st.sampled_from(BASELINES), st.sampled_from(["k1", "k2"]), st.sampled_from(["one", "two"]))
QUERIES = st.builds(
    Query,
    name=st.sampled_from(["", "web"]),
    key=st.sampled_from(["", "k1"]),
    sandbox=st.sampled_from(["", "one"]),
)


def take(told, watcher):
    """Each step of the way is one that a client can take."""
    seen_others = False
    for op, each in watcher.changes():
        if op == "REMOVE":
            assert told.pop(each.id) == each
            assert not seen_others, "what holds no more comes first"
            continue
        seen_others = True
        assert (each.id in told) == (op == "REPLACE")
        assert told.get(each.id) != each
        told[each.id] = each


@given(st.lists(st.tuples(st.lists(RULES, max_size=4), st.booleans()), max_size=8), QUERIES)
def test_watcher_that_polls_knows_the_current_rules(states, query):
    board = Board()
    with board.watch(query) as watcher:
        told = {}
        for found, looks in states:
            board.replace(found)
            if looks:
                take(told, watcher)
                assert sorted(told.values(), key=repr) == sorted(board.rules(query), key=repr)
        take(told, watcher)
        assert sorted(told.values(), key=repr) == sorted(board.rules(query), key=repr)
        assert watcher.changes() == []
    assert board.watchers == 0


async def test_unchanged_rule_does_not_wake_a_watcher():
    board = Board()
    first = rule(BASELINES[0], "k1", "one")
    board.replace([first])
    with board.watch(Query()) as watcher:
        assert watcher.changes() == [("ADD", first)]
        waiting = asyncio.create_task(watcher.wait())
        await asyncio.sleep(0)
        board.replace([first])
        await asyncio.sleep(0)
        assert not waiting.done()
        board.put({first.id: None})
        await waiting
        assert watcher.changes() == [("REMOVE", first)]


async def test_none_is_another_thing_than_not_known():
    board = Board()
    known = asyncio.create_task(board.wait_known())
    await asyncio.sleep(0)
    assert not board.known
    assert not known.done()
    board.replace([])
    await known
    assert board.known
