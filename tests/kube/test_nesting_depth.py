"""JSON that is nested too deeply is cut, and the rest is unchanged."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from dayfly.kube import answers

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just('a"[{\\'), st.just("]}")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=30,
)


def bounded(value, most):
    """The same by recursion, without the limit of recursion."""
    if isinstance(value, list | dict) and most == 0:
        return answers.CUT
    if isinstance(value, list):
        return [bounded(each, most - 1) for each in value]
    if isinstance(value, dict):
        return {key: bounded(each, most - 1) for key, each in value.items()}
    return value


@given(VALUES, st.integers(0, 4), st.booleans())
def test_depth_cut_equals_the_recursive_definition(value, most, spaced):
    text = json.dumps(value, indent=1 if spaced else None).encode()
    before, answers.MAX_DEPTH = answers.MAX_DEPTH, most
    try:
        found = json.loads(answers.truncate_nested(text))
    finally:
        answers.MAX_DEPTH = before
    assert found == bounded(value, most)
    assert answers.is_truncated(found) == bool(re.search(re.escape(answers.CUT), json.dumps(found)))


def test_cut_handles_the_deepest_and_largest_objects():
    nested = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    found = json.loads(
        answers.truncate_nested(b'{"before":[1],"deep":' + nested + b',"after":"' + b"x" * 1_000_000 + b'"}')
    )
    assert (found["before"], len(found["after"])) == ([1], 1_000_000)
    assert answers.is_truncated(found)
    assert not answers.is_truncated({"before": [1]})
