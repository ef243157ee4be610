"""Changes of a subscription lead to the current rules, however often rules change between its reads."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from dayfly.routeserver.rule_store import RuleStore
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


def apply_changes(known, subscription):
    """Apply the changes as a client does, and check that each one is possible."""
    seen_others = False
    for op, each in subscription.take_changes():
        if op == "REMOVE":
            assert known.pop(each.id) == each
            assert not seen_others, "removals come first"
            continue
        seen_others = True
        assert (each.id in known) == (op == "REPLACE")
        assert known.get(each.id) != each
        known[each.id] = each


@given(st.lists(st.tuples(st.lists(RULES, max_size=4), st.booleans()), max_size=8), QUERIES)
def test_changes_of_a_subscription_yield_the_current_rules(states, query):
    store = RuleStore()
    with store.subscribe(query) as subscription:
        known = {}
        for found, reads in states:
            store.replace(found)
            if reads:
                apply_changes(known, subscription)
                assert sorted(known.values(), key=repr) == sorted(store.find(query), key=repr)
        apply_changes(known, subscription)
        assert sorted(known.values(), key=repr) == sorted(store.find(query), key=repr)
        assert subscription.take_changes() == []
    assert store.subscriptions == 0


async def test_unchanged_rule_does_not_wake_a_subscription():
    store = RuleStore()
    first = rule(BASELINES[0], "k1", "one")
    store.replace([first])
    with store.subscribe(Query()) as subscription:
        assert subscription.take_changes() == [("ADD", first)]
        waiting = asyncio.create_task(subscription.wait())
        await asyncio.sleep(0)
        store.replace([first])
        await asyncio.sleep(0)
        assert not waiting.done()
        store.update({first.id: None})
        await waiting
        assert subscription.take_changes() == [("REMOVE", first)]


async def test_store_without_rules_is_complete_after_the_first_replace():
    store = RuleStore()
    completed = asyncio.create_task(store.wait_complete())
    await asyncio.sleep(0)
    assert not store.is_complete
    assert not completed.done()
    store.replace([])
    await completed
    assert store.is_complete
