"""JSONPath queries: the results equal the library's, at a limited cost."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import jsonpath

QUERIES = [
    "$",
    "$.a",
    "$['a']['b']",
    "$[0]",
    "$[-1]",
    "$[1:3]",
    "$[::-1]",
    "$.*",
    "$..*",
    "$..a",
    "$..[0]",
    "$..[0, 'a']",
    "$[?@.a]",
    "$[?@.a == 1]",
    "$[?@.a != @.b]",
    "$[?@ == $.a]",
    "$..[?@ == $[0]]",
    "$[?@.a < 2 || @.b >= 'x']",
    "$[?length(@) > 1]",
    "$[?count(@.*) == 2]",
    "$[?value(@..a) == 1]",
    "$..[?@.a[?@.b]]",
]
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from(["", "a", "x"]))
DATA = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=20,
)


def deep(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"a": value, "b": 1}
    return value


@given(st.sampled_from(QUERIES), DATA)
def test_query_finds_the_same_as_the_library(query, data):
    if isinstance(data, str):
        return  # the library reads it as a document
    theirs = importlib.import_module("jsonpath").JSONPathEnvironment(strict=True).findall(query, data)
    found = jsonpath.find(query, data)
    assert found == theirs
    assert [type(each) for each in found] == [type(each) for each in theirs], "it is given on as JSON"


@pytest.mark.parametrize(
    ("query", "data"),
    [
        ("$..*..*..*..*..*", deep(60)),  # took 51 s
        ("$..[?@..[?@..a]]", deep(60)),
        ("$.l[?$.l[?$.l[?@ == 0]]]", {"l": [1] * 1_000}),
        ("$.l[?@ == $.m]", {"l": [[1] * 900 + [0]] * 900, "m": [1] * 901}),
        ("$.l[?@ == $.m]", {"l": [{**dict.fromkeys(map(str, range(900)), 1), "x": 0}] * 900,
                            "m": dict.fromkeys(map(str, range(900)), 1) | {"x": 1}}),
        ("$.l[?count($.l[::]) == 1]", {"l": [1] * 1_000}),
    ],
)  # fmt: skip
def test_nothing_is_found_where_too_much_would_be_looked_at(monkeypatch, query, data):
    """The author of an inline plugin also owns the object, but the operator serves all tenants."""
    assert jsonpath.find(query, data) == []
    monkeypatch.setattr(jsonpath, "MAX_VISITED", 0)
    assert jsonpath.find(query, data) == []


def test_a_large_object_is_looked_through_once(monkeypatch):
    data = {"items": [{"name": str(number), "at": number} for number in range(100)]}
    monkeypatch.setattr(jsonpath, "MAX_VISITED", 1_000)
    assert jsonpath.find("$..at", data) == list(range(100))
    assert jsonpath.find("$.items[?@.at == 99].name", data) == ["99"]
    monkeypatch.setattr(jsonpath, "MAX_VISITED", 100)
    assert jsonpath.find("$..at", data) == []


@pytest.mark.parametrize("query", ["$[?search(@, '(a|a)+$')]", "$.a[?match(@.b, 'x') && @.c]"])
def test_regular_expression_is_refused_outside_webhooks(query):
    jsonpath.check(query)
    with pytest.raises(SpecError, match=r"match and search can take any time; only webhooks may use them") as refused:
        jsonpath.check(query, ("spec", "path"), regex=False)
    assert refused.value.keys == ("spec", "path")
    assert jsonpath.find(query, ["a" * 40 + "b"]) == []


@pytest.mark.parametrize("query", ["$[1e3]", "$[0:1E2]", "$[?@.a[1e1]]", "$[?@.a == 1e999]"])
def test_number_the_library_cannot_read_is_refused(query):
    """Queries come from users and must not crash the reader."""
    with pytest.raises(SpecError, match="is not a JSONPath query: it holds a number that"):
        jsonpath.check(query)
