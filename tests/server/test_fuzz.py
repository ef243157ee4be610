"""Random bodies and queries: no internal errors and no partial changes."""

from __future__ import annotations

import json
import random
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server import specs

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)
BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
BASES = {
    "sandboxes/fz": specs.sandbox(
        labels={"a": "b"},
        ttl={"duration": "1h"},
        forks=[specs.fork(customizations={"env": [{"name": "A", "value": "b"}], "images": [{"image": "i"}]})],
        endpoints=[{"name": "e", "host": "h", "port": 1}],
        hooks={"preStart": [{"name": "a", "script": "#!/bin/sh\n"}]},
    )
    | {"lease": {"seconds": 60}},
    "resource-plugins/fz": specs.plugin("fz@1.0"),
    "workloads/default/fz": specs.baseline("fz", env={"A": "b"}),
}


def ways(value, keys=()):
    """Return the paths to all values within a value."""
    yield keys
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ways(item, (*keys, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ways(item, (*keys, index))


def replaced(value, keys, other):
    if not keys:
        return other
    copy = value.copy()
    copy[keys[0]] = replaced(value[keys[0]], keys[1:], other)
    return copy


def refused_or_done(client, path, body):
    """Check that a PUT was stored as sent, or was refused as a client error and changed nothing."""
    before = client.call("GET", path).body
    answer = client.call("PUT", path, body)
    assert answer.status in (200, 400, 409), (answer.status, answer.body, body)
    if answer.status == 200:
        assert client.call("GET", path).status == 200
    else:
        assert answer.error
        after = client.call("GET", path)
        assert json.loads(before).get("name") == after.json.get("name")


@BOUNDED
@given(path=st.sampled_from(sorted(BASES)), seed=st.integers(0, 10_000), other=ANYTHING)
def test_spec_with_one_random_value(filled, path, seed, other):
    base = BASES[path]
    way = random.Random(seed).choice(list(ways(base)))
    refused_or_done(filled, path, replaced(base, way, other))


@BOUNDED
@given(path=st.sampled_from(sorted(BASES)), body=ANYTHING)
def test_random_json_body(filled, path, body):
    refused_or_done(filled, path, body)


@BOUNDED
@given(path=st.sampled_from(sorted(BASES)), body=st.binary(max_size=200))
def test_random_bytes_as_body(filled, path, body):
    answer = filled.call("PUT", path, body)
    assert answer.status in (200, 400)


@BOUNDED
@given(
    path=st.sampled_from(["report", "log", "logs", "why", "outputs", "history"]),
    key=st.sampled_from(["after", "unit", "attempt", "offset", "resource", "step", "force", "version"]),
    value=st.text(max_size=20),
)
def test_random_query(filled, path, key, value):
    answer = filled.call("GET", f"sandboxes/sb1/{path}?{key}={quote(value)}")
    assert answer.status in (200, 400), answer.body


@BOUNDED
@given(name=st.text(min_size=1, max_size=40), family=st.sampled_from(["sandboxes", "resource-plugins", "clusters"]))
def test_random_name(filled, name, family):
    for method in ("GET", "PUT", "DELETE"):
        answer = filled.call(method, f"{family}/{quote(name, safe='')}", specs.empty())
        assert answer.status in (200, 400, 404, 405, 409), answer.body


@BOUNDED
@given(value=st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=40))
def test_random_headers(filled, value):
    for header in ("signadot-api-key", "Authorization", "Host"):
        answer = filled.call("GET", "sandboxes", headers={header: value.encode("latin-1")})
        assert answer.status in (200, 401, 403), answer.body
