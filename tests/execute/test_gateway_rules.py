"""Selection of rules: with a key the fork's rule instead of the baseline's, and otherwise unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.execute.gateways import Request, Route, choose, fitting

from dayfly.execute.gateway.rules import (
    MAX_CONDITIONS,
    MAX_RULE_MATCHES,
    MAX_RULES,
    MAX_TOTAL_MATCHES,
    CopiedRules,
    KeyMatch,
    RuleTargets,
    copy_rules,
)

KEY = "k1"
SIGNS_OF_KEY = (
    KeyMatch("baggage", ".*sd-routing-key=k1.*", pattern=True),
    KeyMatch("sd-key", KEY),
    KeyMatch("key", KEY, query=True),
)
MANY = 10_000
WEB, API = {"name": "web", "port": 80}, {"name": "api", "port": 80}
CANARY = {"name": "canary", "port": 80}
FORK, OTHER_FORK = {"name": "f-web", "port": 80}, {"name": "f-api", "port": 80}


def copy(rules, key_matches=SIGNS_OF_KEY, forks=(("web", "f-web"),), others=(), most: int = MANY) -> CopiedRules:
    return copy_rules(rules, key_matches, RuleTargets(dict(forks), others), "shop", most)


def routes(base, *made: CopiedRules) -> list[Route]:
    ours = [
        Route(f"web-{at}-{number}", 5, rules)
        for at, each in enumerate(made)
        for number, rules in enumerate(each.objects)
    ]
    return [Route("web", 1, tuple(base)), *ours]


class TestCopies:
    def test_rule_is_copied_for_each_key_match(self):
        base = [{"backendRefs": [WEB], "matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "name": "all"}]
        (rules,) = copy(base).objects
        path = {"path": {"type": "PathPrefix", "value": "/"}}
        baggage = {"type": "RegularExpression", "name": "baggage", "value": ".*sd-routing-key=k1.*"}
        assert rules == (
            {
                "matches": [
                    {**path, "headers": [baggage]},
                    {**path, "headers": [{"type": "Exact", "name": "sd-key", "value": KEY}]},
                    {**path, "queryParams": [{"type": "Exact", "name": "key", "value": KEY}]},
                ],
                "backendRefs": [FORK],
            },
        )

    def test_rule_without_a_match_matches_everything(self):
        (rules,) = copy([{"backendRefs": [WEB]}]).objects
        assert [list(match) for match in rules[0]["matches"]] == [["headers"], ["headers"], ["queryParams"]]

    def test_copied_rule_keeps_all_other_fields(self):
        filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x"]}}]
        base = [{"backendRefs": [WEB | {"filters": filters}], "filters": filters, "timeouts": {"request": "3s"}}]
        (rules,) = copy(base).objects
        assert rules[0]["timeouts"] == {"request": "3s"}
        assert rules[0]["filters"] == filters
        assert rules[0]["backendRefs"] == [FORK | {"filters": filters}]

    def test_copied_rule_sends_everything_to_the_fork(self):
        base = [{"backendRefs": [WEB | {"weight": 9}, CANARY | {"weight": 1}]}]
        (rules,) = copy(base).objects
        assert rules[0]["backendRefs"] == [FORK | {"weight": 9}]

    @pytest.mark.parametrize(
        "ref",
        [
            CANARY,
            WEB | {"weight": 0},
            WEB | {"namespace": "elsewhere"},
            WEB | {"kind": "ServiceImport", "group": "multicluster.x-k8s.io"},
        ],
        ids=["another", "nothing", "elsewhere", "no Service"],
    )
    def test_rule_without_the_baseline_is_not_copied(self, ref):
        assert copy([{"backendRefs": [ref]}]).objects == ()

    def test_backend_may_name_its_own_namespace(self):
        (rules,) = copy([{"backendRefs": [WEB | {"namespace": "shop"}]}]).objects
        assert rules[0]["backendRefs"] == [FORK | {"namespace": "shop"}]

    @pytest.mark.parametrize(
        ("match", "shielded"),
        [
            ({"path": {"type": "Exact", "value": "/a"}}, True),
            ({"path": {"type": "Exact", "value": "/b"}}, False),
            ({"path": {"type": "PathPrefix", "value": "/a"}}, False),
            ({"path": {"type": "Exact", "value": "/a"}, "method": "GET"}, False),
        ],
        ids=["the same", "another", "a prefix", "a method"],
    )
    def test_shield_needs_the_same_path_and_method(self, match, shielded):
        """Rules with different paths or methods need no shield, and the number of matches is limited."""
        headers = [{"name": "x", "value": "1"}]
        baseline = {"backendRefs": [WEB], "matches": [{"path": {"type": "Exact", "value": "/a"}}]}
        made = copy([{"backendRefs": [CANARY], "matches": [match | {"headers": headers}]}, baseline])
        led = [rule["backendRefs"] for rules in made.objects for rule in rules]
        assert led == ([[CANARY], [FORK]] if shielded else [[FORK]])

    def test_first_of_equal_rules_is_chosen(self):
        baseline, canary = {"backendRefs": [WEB]}, {"backendRefs": [CANARY]}
        for rules, led in (([canary, baseline], [[CANARY], [FORK]]), ([baseline, canary], [[FORK]])):
            assert [rule["backendRefs"] for made in copy(rules).objects for rule in made] == led

    @pytest.mark.parametrize(("kind", "shielded"), [("PathPrefix", True), ("Exact", False)])
    def test_trailing_slash_of_a_prefix_is_ignored(self, kind, shielded):
        slashed, plain = ({"path": {"type": kind, "value": value}} for value in ("/a/", "/a"))
        made = copy([{"backendRefs": [CANARY], "matches": [slashed]}, {"backendRefs": [WEB], "matches": [plain]}])
        assert ([CANARY] in [rule["backendRefs"] for rules in made.objects for rule in rules]) is shielded

    def test_no_key_copies_no_rules(self):
        assert copy([{"backendRefs": [WEB]}], key_matches=()) == CopiedRules((), ())


class TestLimits:
    def test_copies_stay_within_the_limits_of_the_api(self):
        match = {"path": {"type": "Exact", "value": "/a"}}
        base = [{"backendRefs": [WEB], "matches": [match] * MAX_RULE_MATCHES}] * MAX_RULES
        made = copy(base).objects
        assert len(made) > 1
        for rules in made:
            assert len(rules) <= MAX_RULES
            assert max(len(rule["matches"]) for rule in rules) <= MAX_RULE_MATCHES
            assert sum(len(rule["matches"]) for rule in rules) <= MAX_TOTAL_MATCHES
        found = [match for rules in made for rule in rules for match in rule["matches"]]
        assert len(found) == MAX_RULES * MAX_RULE_MATCHES * len(SIGNS_OF_KEY)

    def test_prefix_replacement_needs_a_single_match(self):
        path = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
        filters = [{"type": "URLRewrite", "urlRewrite": path}]
        for rule in ({"backendRefs": [WEB], "filters": filters}, {"backendRefs": [WEB | {"filters": filters}]}):
            (rules,) = copy([rule]).objects
            assert [len(each["matches"]) for each in rules] == [1, 1, 1]

    def test_full_match_is_reported(self):
        headers = [{"name": f"h{number}", "value": "v"} for number in range(MAX_CONDITIONS)]
        made = copy([{"backendRefs": [WEB], "matches": [{"headers": headers}]}], key_matches=SIGNS_OF_KEY[:2])
        assert made == CopiedRules((), (0,))

    def test_existing_header_match_is_not_duplicated(self):
        match = {"headers": [{"name": "Baggage", "value": "v"}]}
        (rules,) = copy([{"backendRefs": [WEB], "matches": [match]}]).objects
        assert [each["headers"][1:] for each in rules[0]["matches"]] == [
            [{"type": "Exact", "name": "sd-key", "value": KEY}],
            [],
        ]

    def test_number_of_matches_is_limited(self):
        made = copy([{"backendRefs": [WEB]}] * 9, most=10)
        assert sum(len(rule["matches"]) for rules in made.objects for rule in rules) == 10


def refs():
    return st.lists(st.sampled_from([WEB, API, CANARY]), min_size=1, max_size=2)


PATHS = ("/", "/a", "/a/", "/a/b")
matches = st.fixed_dictionaries(
    {},
    optional={
        "path": st.builds(dict, type=st.sampled_from(("Exact", "PathPrefix")), value=st.sampled_from(PATHS)),
        "method": st.sampled_from(("GET", "POST")),
        "headers": st.lists(
            st.builds(dict, name=st.sampled_from(("x", "Y")), value=st.just("1")),
            max_size=2,
            unique_by=lambda each: each["name"],
        ),
        "queryParams": st.lists(st.just({"name": "q", "value": "1"}), max_size=1),
    },
)
rules = st.lists(
    st.builds(
        lambda refs, found: {"backendRefs": refs, **({"matches": found} if found else {})},
        refs(),
        st.lists(matches, max_size=3),
    ),
    min_size=1,
    max_size=6,
)
KEYED = (
    {"headers": {"baggage": "a=b, sd-routing-key=k1;p=1"}},
    {"headers": {"sd-key": KEY}},
    {"query": {"key": KEY}},
    {"headers": {"baggage": "sd-routing-key=k1", "sd-key": KEY}, "query": {"key": KEY}},
)
requests = st.builds(
    Request,
    path=st.sampled_from(("/", "/a", "/a/b", "/c")),
    method=st.sampled_from(("GET", "POST")),
    headers=st.dictionaries(st.sampled_from(("x", "y")), st.just("1")),
    query=st.dictionaries(st.just("q"), st.just("1")),
)


def with_key(request: Request, carried) -> Request:
    headers, query = request.headers | carried.get("headers", {}), request.query | carried.get("query", {})
    return request._replace(headers=headers, query=query)


def backends(rule) -> list[str]:
    return [ref["name"] for ref in rule["backendRefs"]]


class TestMeaning:
    @given(rules, requests, st.sampled_from(({}, {"headers": {"sd-key": "k2"}}, {"query": {"key": "k"}})))
    def test_request_without_a_known_key_is_unchanged(self, base, request, carried):
        asked = with_key(request, carried)
        assert choose(routes(base, copy(base)), asked) == choose(routes(base), asked)

    @given(rules, requests, st.sampled_from(KEYED))
    def test_request_with_a_key_reaches_the_fork_or_as_before(self, base, request, carried):
        asked = with_key(request, carried)
        before, now = choose(routes(base), asked), choose(routes(base, copy(base)), asked)
        if before is None:
            assert now is None
        elif "web" in backends(before.rule):
            assert set(backends(now.rule)) == {"f-web"}
        else:
            assert backends(now.rule) == backends(before.rule)

    @given(rules, requests, st.sampled_from(KEYED))
    def test_two_forks_of_one_sandbox_share_a_route(self, base, request, carried):
        asked = with_key(request, carried)
        base = [rule for rule in base if not {"web", "api"} <= set(backends(rule))]
        if not base:
            return
        before = choose(routes(base), asked)
        equals = [each for each in fitting(routes(base), asked) if before and each.rank[:-1] == before.rank[:-1]]
        if len({json.dumps(backends(each.rule)) for each in equals}) > 1:
            return  # they differ only by their order: see docs/guides/routing-gateway-api.md
        web, api = copy(base, others=("api",)), copy(base, forks=(("api", "f-api"),), others=("web",))
        now = choose(routes(base, web, api), asked)
        if before is None:
            assert now is None
        else:
            led = {"web": "f-web", "api": "f-api"}
            wanted = [led[name] for name in backends(before.rule) if name in led] or backends(before.rule)
            assert set(backends(now.rule)) == set(wanted)
