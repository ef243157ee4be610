"""Rules in a VirtualService: a request with a key reaches the fork exactly if it would reach the baseline without."""

import itertools
import random

import pytest
from tests.execute.istio_evaluator import Call, choose

from dayfly.execute.gateway.rules import build_key_matches
from dayfly.execute.istio.read import (
    SHARED_LABEL,
    ServiceRef,
    VirtualService,
    Write,
    WrittenMeta,
    applies_to,
    replace_service,
    service_of_host,
    sort_by_age,
    written_at,
)
from dayfly.execute.istio.rules import (
    MAX_MATCHES,
    MAX_PATTERN_CHARS,
    ForkRules,
    RuleOwner,
    group_by_run,
    insert_rules,
    owner_of,
    remove_rules,
    rules_of_others,
)
from dayfly.spec.routing.routing_keys import PLAIN, Forms, injected_headers

KEY, OTHER = "k7xw0q1m2n3p4", "another-key"
NS = "shop"


def to(host, **more):
    return {"destination": {"host": host, **more}}


def thread(*keys, born=1, fork="f-web", leads=None, forms=None):
    return ForkRules(
        RuleOwner(born, f"run-{fork}", fork),
        NS,
        leads or {"web": fork},
        build_key_matches(keys or (KEY,), forms or Forms(), max_chars=MAX_PATTERN_CHARS),
    )


def answer(rules, call):
    rule = choose(rules, call)
    return rule["route"][0]["destination"]["host"] if rule and "route" in rule else None


PATH = {"uri": {"prefix": "/a"}}
TEAM = {"headers": {"x-team": {"exact": "t"}}}
POOL = [
    {"match": [PATH], "route": [to("web")]},
    {"match": [TEAM], "route": [to("api")]},
    {"match": [PATH, TEAM], "route": [to("web.shop.svc.cluster.local", port={"number": 80})], "timeout": "3s"},
    {"match": [{"uri": {"exact": "/gone"}}], "redirect": {"uri": "/"}},
    {"match": [{"withoutHeaders": {"x-team": {}}}], "route": [to("web", subset="v1")]},
    {"route": [to("web")]},
    {"route": [to("api")]},
]
CALLS = [
    Call(path, headers) for path in ("/", "/a", "/a/b", "/gone") for headers in ({}, {"x-team": "t"}, {"x-team": "u"})
]


@pytest.mark.slow
def test_request_with_a_key_reaches_the_fork_instead():
    """The test covers all orders of up to four rules, also with rules of other forks."""
    ways = [dict([each]) for each in injected_headers(KEY)] + [{name: KEY} for name in PLAIN]
    for rules in itertools.chain.from_iterable(itertools.permutations(POOL, count) for count in (1, 2, 3, 4)):
        made = insert_rules(insert_rules(rules, thread(OTHER, born=2, fork="f-other"), NS).rules, thread(), NS).rules
        assert rules_of_others(made) == list(rules)
        for call, way in zip(CALLS, itertools.cycle(ways)):
            plain, keyed = answer(rules, call), answer(made, call._replace(headers={**call.headers, **way}))
            assert answer(made, call) == plain
            asked = service_of_host(plain, NS) if plain else None
            if asked == ServiceRef("web", NS):
                assert service_of_host(keyed, NS) == ServiceRef("f-web", NS), (rules, call)
            else:
                assert keyed == plain, (rules, call)


def test_weaving_is_idempotent_and_fully_reversible():
    chance = random.Random(4)
    for _ in range(200):
        rules = chance.sample(POOL, 5)
        threads = [thread(f"key{n}", born=chance.randint(1, 3), fork=f"f-{n}") for n in range(4)]
        made = list(rules)
        for each in chance.sample(threads, 4):
            made = list(insert_rules(made, each, NS).rules)
        for each in threads:
            assert list(insert_rules(made, each, NS).rules) == made
        for each in chance.sample(threads, 4):
            made = remove_rules(made, run=each.owner.run, fork=each.owner.fork)
        assert made == rules


def test_rules_of_a_fork_or_run_are_removed():
    marked = [{"name": RuleOwner(1, run, fork).name(0)} for run, fork in (("a", "f"), ("a", "g"), ("b", "f"))]
    assert remove_rules(marked, run="a", fork="f") == marked[1:]
    assert remove_rules(marked, run="a") == marked[2:]


def test_oldest_key_wins_in_any_weaving_order():
    both = {"baggage": f"sd-routing-key={KEY},sd-routing-key={OTHER}"}
    old, new = thread(KEY, born=5, fork="f-old"), thread(OTHER, born=40, fork="f-new")
    for order in ((old, new), (new, old)):
        made = [{"route": [to("web")]}]
        for each in order:
            made = list(insert_rules(made, each, NS).rules)
        assert answer(made, Call(headers=both)) == "f-old"


def test_copied_rule_sends_only_to_the_fork():
    rule = {"route": [{**to("web", subset="v1", port={"number": 81}), "weight": 90}, {**to("canary"), "weight": 10}]}
    [copy, kept] = insert_rules([rule], thread(), NS).rules
    assert copy["route"] == [to("f-web", port={"number": 81})]
    assert kept == rule
    nothing = {"route": [{**to("web"), "weight": 0}, {**to("canary"), "weight": 100}]}
    assert insert_rules([nothing], thread(), NS).rules == (nothing,)


def test_everything_else_of_a_rule_is_in_its_copy():
    rule = {
        "name": "mine",
        "match": [{"name": "one", **PATH, "queryParams": {"q": {"exact": "1"}}}],
        "route": [{**to("web"), "headers": {"request": {"set": {"a": "b"}}}}],
        "retries": {"attempts": 2},
        "rewrite": {"uri": "/b"},
        "corsPolicy": {"allowOrigins": [{"exact": "*"}]},
    }
    [copy, _] = insert_rules([rule], thread(forms=Forms(("x-key",), "sd")), NS).rules
    assert owner_of(copy) == RuleOwner(1, "run-f-web", "f-web")
    assert {key: copy[key] for key in ("retries", "rewrite", "corsPolicy")} == {
        key: rule[key] for key in ("retries", "rewrite", "corsPolicy")
    }
    assert copy["route"] == [{**to("f-web"), "headers": rule["route"][0]["headers"]}]
    names = [next(iter(match.get("headers") or (match["queryParams"].keys() - {"q"}))) for match in copy["match"]]
    assert names == ["baggage", "tracestate", *PLAIN, "x-key", "sd"]
    assert all(match["uri"] == PATH["uri"] and match["queryParams"]["q"] == {"exact": "1"} for match in copy["match"])


def test_rule_with_the_same_headers_is_reported():
    full = {"match": [{"headers": {name: {"exact": "x"} for name in ("Baggage", "tracestate", *PLAIN)}}]}
    made = insert_rules([{**full, "route": [to("web")]}, {"route": [to("web")]}], thread(), NS)
    assert made.full_rules == (1,)
    one = insert_rules([{"match": [{"headers": {"Baggage": {"exact": "x"}}}], "route": [to("web")]}], thread(), NS)
    assert not one.full_rules
    assert all("Baggage" in match["headers"] and "baggage" not in match["headers"] for match in one.rules[0]["match"])


def test_patterns_stay_within_istios_limit():
    keys = [f"{'k' * 28}{number:04}" for number in range(40)]
    [copy, _] = insert_rules([{"route": [to("web")]}], thread(*keys), NS).rules
    values = [each["regex"] for match in copy["match"] for each in match["headers"].values()]
    assert max(map(len, values)) <= MAX_PATTERN_CHARS
    for key in keys:
        assert answer([copy], Call(headers={"tracestate": f"sd-routing-key={key}"})) == "f-web"


def test_number_of_matches_of_a_fork_is_limited():
    keys = [f"{'k' * 28}{number:04}" for number in range(600)]
    made = insert_rules([{"match": [PATH], "route": [to("web")]}] * 9, thread(*keys), NS)
    assert made.is_cut
    assert sum(len(rule["match"]) for rule in group_by_run(made.rules)["run-f-web"]) == MAX_MATCHES


def test_omitted_matches_are_reported():
    fits = MAX_MATCHES // len(thread("k1").key_matches)
    assert fits * len(thread("k1").key_matches) == MAX_MATCHES
    cut = [insert_rules([{"route": [to("web")]}] * count, thread("k1"), NS).is_cut for count in (fits, fits + 1)]
    assert cut == [False, True]


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("web", ServiceRef("web", NS)),
        ("web.team.svc.cluster.local", ServiceRef("web", "team")),
        ("web.team.svc.corp.internal", ServiceRef("web", "team")),
        ("web.team", None),
        ("web.team.svc", None),
        ("example.com", None),
        ("a.b.svcs.local", None),
        ("*", None),
        ("*.team.svc.cluster.local", None),
        ("", None),
    ],
)
def test_host_names_are_parsed_as_in_istio(host, place):
    assert service_of_host(host, NS) == place


def test_host_of_a_fork_keeps_the_notation():
    assert replace_service("web", {"web": "f"}) == "f"
    assert replace_service("web.shop.svc.corp.internal", {"web": "f"}) == "f.shop.svc.corp.internal"


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ({"hosts": ["web"]}, True),
        ({"hosts": ["web.shop.svc.cluster.local"], "gateways": ["mesh", "a/b"]}, True),
        ({"hosts": ["*.shop.svc.cluster.local"]}, True),
        ({"hosts": ["*"]}, True),
        ({"hosts": ["web"], "gateways": ["a/b"]}, False),
        ({"hosts": ["api", "*.other.svc.cluster.local", "shop.example.org"]}, False),
        ({}, False),
    ],
)
def test_virtual_service_covers_the_service_by_its_hosts(spec, covered):
    seen = VirtualService(WrittenMeta(name="v", namespace=NS), spec)
    assert applies_to(seen, ServiceRef("web", NS)) is covered


@pytest.mark.parametrize(
    ("where", "namespace", "covered"),
    [
        (["*"], NS, True),
        ([], NS, True),
        ([NS], "theirs", True),
        (["."], NS, True),
        (["."], "theirs", False),
        (["other", "another"], NS, False),
    ],
)
def test_virtual_service_covers_by_its_export_namespaces(where, namespace, covered):
    seen = VirtualService(WrittenMeta(name="v", namespace=namespace), {"hosts": ["*"], "exportTo": where})
    assert applies_to(seen, ServiceRef("web", NS)) is covered


def test_virtual_services_are_ordered_by_age_without_ending():
    def service(name, at, **meta):
        return VirtualService(WrittenMeta(name=name, namespace=NS, creation_timestamp=at, **meta))

    every = [
        service("b", "2026-01-02T00:00:00Z"),
        service("c", "2026-01-01T00:00:00Z"),
        service("a", "2026-01-02T00:00:00Z"),
        service("gone", "2026-01-01T00:00:00Z", deletion_timestamp="2026-01-03T00:00:00Z"),
        service("new", None),
    ]
    assert [each.metadata.name for each in sort_by_age(every)] == ["new", "c", "a", "b"]


def test_last_write_is_read_from_our_field_manager():
    def written(*writes):
        return written_at(VirtualService(WrittenMeta(name="v", namespace=NS, managed_fields=list(writes) or None)))

    early, late = Write("dayfly", "1970-01-01T00:00:01Z"), Write("dayfly", "1970-01-01T00:00:02Z")
    assert written(late, Write("kubectl", "1970-01-01T00:00:09Z"), early) == 2000
    assert written(Write("kubectl", "1970-01-01T00:00:09Z")) == written() == 0


@pytest.mark.parametrize("time", ["10000-01-01T13:59:59Z", "x", "9999-12-31T23:59:59-14:00"])
def test_unreadable_write_time_counts_as_in_the_future(time):
    """Users can forge `managedFields`. An API server accepts time zones up to 14 hours, so the year can exceed 9999."""
    forged = WrittenMeta(name="v", namespace=NS, managed_fields=[Write("dayfly", time)])
    assert written_at(VirtualService(forged)) > 1 << 50


def test_labels_and_annotations_mark_ownership():
    plain = VirtualService(WrittenMeta(name="v", namespace=NS))
    assert (plain.is_ours, plain.is_ignored) == (False, False)
    said = {"labels": {SHARED_LABEL: "web"}, "annotations": {"dayfly.dev/routing": "ignore"}}
    marked = VirtualService(WrittenMeta(name="v", namespace=NS, **said))
    assert (marked.is_ours, marked.is_ignored) == (True, True)


def test_only_valid_rule_names_have_an_owner():
    names = ["", "dayfly", "dayfly/", "dayfly/1/run/fork", "dayfly/x/run/fork/00", "mine/1/run/fork/00"]
    assert [owner_of({"name": name}) for name in names] == [None] * len(names)
    assert owner_of({}) is None


@pytest.mark.parametrize("name", ["", ".", "..", "?watch=1", "%2e%2e", "Box", "-box", "box-", "b" * 64, "ü"])
def test_rule_names_with_invalid_parts_have_no_owner(name):
    """Users can write such rules, and the operator requests runs by these names. An empty name would list all runs."""
    of = [("box", "f-web"), (name, "f-web"), ("box", name)]
    assert [bool(owner_of({"name": RuleOwner(1, *each).name(0)})) for each in of] == [True, False, False]
    assert owner_of({"name": RuleOwner(1, "b" * 63, "0").name(0)})
