"""Key matches of routes: the patterns of `routing_keys`, as few as the length limit permits."""

import re

from dayfly.execute.gateway.rules import MAX_VALUE_CHARS, build_key_matches
from dayfly.spec.routing import routing_keys
from dayfly.spec.routing.routing_keys import Forms

KEY = "k7xw0q1m2n3p4"
FORMS = Forms(("x-team-key",), "sd")


def test_every_key_form_is_matched():
    found = build_key_matches((KEY,), FORMS)
    headers = [routing_keys.BAGGAGE, routing_keys.TRACESTATE, *routing_keys.PLAIN, "x-team-key"]
    assert [sign.name for sign in found] == [*headers, "sd"]
    assert [sign.query for sign in found] == [False] * len(headers) + [True]
    assert all(sign.pattern for sign in found)


def test_injected_headers_are_matched():
    found = {sign.name: sign.value for sign in build_key_matches((KEY, "other"), FORMS)}
    for name, value in routing_keys.injected_headers(KEY):
        assert re.fullmatch(found[name], f"a=b, {value}")
        assert not re.fullmatch(found[name], value.replace(KEY, f"{KEY}x"))
    assert re.fullmatch(found["x-team-key"], KEY)
    assert re.fullmatch(found["sd"], KEY)


def test_many_keys_are_split_into_several_patterns():
    keys = tuple(f"{number:013}" for number in range(200))
    found = [sign for sign in build_key_matches(keys, Forms()) if sign.name == routing_keys.BAGGAGE]
    assert 1 < len(found) < 20
    assert all(len(sign.value) <= MAX_VALUE_CHARS for sign in found)
    for key in keys:
        assert sum(bool(re.fullmatch(sign.value, f"sd-sandbox={key}")) for sign in found) == 1


def test_no_key_has_no_matches():
    assert build_key_matches((), FORMS) == ()
