"""Routing keys of requests, and patterns for data planes that must agree with the parser."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.routing.routing_keys import (
    PLAIN,
    Forms,
    baggage_pattern,
    check_forms,
    first_route,
    injected_headers,
    is_key,
    keys_of,
    plain_pattern,
    query_pattern,
    tracestate_pattern,
)

KEY, OTHER = "wtmb8kfswrrtb", "vf0ju8vw50wpu"
FORMS = Forms(("x-team-key",), "sd-key")


@pytest.mark.parametrize(
    "header",
    [
        ("baggage", f"sd-routing-key={KEY}"),
        ("Baggage", f"a=b , sd-sandbox = {KEY} ; ttl=3;x , c=d"),
        ("baggage", f"sd-workspace={KEY},sd-workspace={OTHER}"),
        ("baggage", "sd-routing-key=%77tmb8kfswrrt%62"),
        ("tracestate", f"vendor=1,sd-routing-key={KEY}"),
        *((name, f" {KEY}\t") for name in PLAIN),
        ("uberctx-sd-routing-key", f"%{ord(KEY[0]):X}{KEY[1:]}"),
        ("X-Team-Key", KEY),
    ],
)
def test_recognised(header):
    assert KEY in keys_of([("host", "x"), header], forms=FORMS)


@pytest.mark.parametrize(
    "header",
    [
        ("baggage", f"xsd-routing-key={KEY}"),
        ("baggage", f"sd-routing-key={KEY}x"),
        ("baggage", f"sd-routing-key={KEY} x"),
        ("baggage", f"sd-routing-key;p={KEY}"),
        ("baggage", f"a=b;sd-routing-key={KEY}"),
        ("baggage", f"SD-ROUTING-KEY={KEY}"),
        ("baggage", f'"sd-routing-key={KEY}"'),
        ("tracestate", f"sd-routing-key={KEY};p"),
        ("tracestate", "sd-routing-key=%77tmb8kfswrrtb"),
        ("ot-baggage-sd-routing-key", f"{KEY},{OTHER}"),
        ("x-other", KEY),
        ("cookie", f"sd-routing-key={KEY}"),
    ],
)
def test_not_recognised(header):
    assert KEY not in keys_of([header], forms=FORMS)


def test_a_parameter_of_the_query():
    assert keys_of([], f"/a?b=1&sd-key={KEY}#x", FORMS) == {KEY}
    assert keys_of([], "/a?sd-key=%77tmb8kfswrrtb", FORMS) == {KEY}
    assert keys_of([], f"/sd-key={KEY}?other={KEY}", FORMS) == frozenset()
    assert keys_of([], f"/a?sd-key={OTHER}&sd-key={KEY}", FORMS) == {OTHER}
    assert keys_of([], f"/a?sd-key={KEY}") == frozenset()


def test_first_route_with_a_carried_key_wins():
    routes = [((KEY, "group"), "older"), ((OTHER, "group"), "younger")]
    assert first_route(routes, frozenset({OTHER, "unknown"})) == "younger"
    assert first_route(routes, frozenset({"group"})) == first_route(routes, frozenset({KEY, OTHER})) == "older"
    assert first_route(routes, frozenset({"unknown"})) is None


def test_injected_header_is_recognised():
    for header in injected_headers(KEY):
        assert keys_of([header]) == {KEY}


@pytest.mark.parametrize("name", ["", "a b", "x\r\ny", "Baggage", "Host", ":path", "ä", "x" * 65, "cookie"])
def test_headers_that_cannot_carry_a_key(name):
    with pytest.raises(SpecError):
        check_forms([name])


@pytest.mark.parametrize("name", ["a&b", "a b", "a=b", "x" * 65, "ä", ".*["])
def test_parameters_that_cannot(name):
    with pytest.raises(SpecError):
        check_forms([], name)


def test_forms_are_compared_in_small_letters():
    assert check_forms(["X-Key", "x-key"], "k") == Forms(("x-key",), "k")


keys = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
# Near misses of keys, and every encoding close to one.
bits = st.sampled_from(["sd-routing-key", "sd-sandbox", "=", ",", ";", " ", "\t", "a", "b1", "%61", "%62", "%2C", "x"])
values = st.lists(bits, max_size=12).map("".join)


@given(values, st.lists(st.sampled_from(["a", "b1", "ab1"]), min_size=1, unique=True))
def test_patterns_agree_with_the_parser(value, wanted):
    def means(name):
        return not keys_of([(name, value)], forms=FORMS).isdisjoint(wanted)

    def matches(pattern):
        return re.fullmatch(pattern, value) is not None

    assert matches(baggage_pattern(wanted)) == means("baggage")
    assert matches(tracestate_pattern(wanted)) == means("tracestate")
    assert matches(plain_pattern(wanted, escapes=True)) == means("uberctx-sd-sandbox")
    assert matches(plain_pattern(wanted, escapes=False)) == means("x-team-key")


@given(keys, st.text(max_size=40))
def test_pattern_matches_its_key_and_no_other_text(key, text):
    assert is_key(key)
    assert re.fullmatch(query_pattern([key]), key)
    if text != key and "%" not in text:
        assert not re.fullmatch(query_pattern([key]), text)
