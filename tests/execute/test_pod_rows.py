"""The checks of the policy's shapes, at their bounds."""

import pytest

from dayfly.execute.pod.policy import rows

PAIR = rows.record({"a": rows.flag(), "b": rows.number(1, 3)}, ("a",))
NOT_THERE = "is set by Dayfly and must not be removed"


@pytest.mark.parametrize(
    ("row", "good", "bad", "said"),
    [
        (rows.exactly("x"), ["x"], ["y", None], "must be 'x'"),
        (rows.exactly(1), [1], [True, 1.0, 2], "must be 1"),
        (rows.exactly(False), [False], [0, True], "must be false"),
        (rows.choice("", "x", "y"), ["", "x", "y"], ["z", 1, None], "must be one of x, y"),
        (rows.flag(), [True, False], [0, 1, "true", None], "must be true or false"),
        (rows.number(1, 3), [1, 2, 3], [0, 4, True, 2.0, "2"], "must be a whole number from 1 to 3"),
        (rows.text(3), ["", "abc"], ["abcd", 3, None], "must be a string of at most 3 characters"),
        (rows.strings(2, 2), [{}, {"a": "ab", "b": ""}], [{"a": "", "b": "", "c": ""}, [], None], "2 entries"),
        (rows.each(rows.flag(), 2), [[], [True, False]], [{}, None], "must be a list"),
        (rows.each(rows.flag(), 2), [], [[True] * 3], "has 3 items; at most 2 are allowed"),
        (rows.each(rows.flag(), 0), [[]], [[True]], "must be empty"),
        (rows.free("it", depth=2, most=3), [1, "x" * 1024, [1, 2], {"a": {"b": 1}}], ["x" * 1025], "is too large"),
        (rows.free("it", depth=2, most=3), [], [[1, 2, 3], [[[1]]], {"a": [1, 2]}], "is too large or too deep for it"),
        (rows.free("it", depth=0, most=3), [1, "x"], [[], {}, [1]], "is too large or too deep for it"),
        (PAIR, [{"a": True}, {"a": True, "b": 3}, {"a": True, "b": None}], [], ""),
        (PAIR, [], [[], None, "a"], "must be a mapping"),
        (PAIR, [], [{}, {"a": None}, {"b": 1}], NOT_THERE),
    ],
)
def test_row_accepts_valid_and_rejects_invalid_values(row, good, bad, said):
    assert [list(row(value, "here")) for value in good] == [[]] * len(good)
    for value in bad:
        [(path, problem)] = row(value, "here")
        assert path in ("here", "here.a")
        assert said in problem


def test_each_problem_has_its_path():
    told = list(rows.each(PAIR, 9)([{"a": 1, "b": 9, "c": 1, "hostPort": 2}, {"a": True}], "spec"))
    assert [path for path, _ in told] == ["spec[0].a", "spec[0].b", "spec[0].c", "spec[0].hostPort"]
    assert "is not an allowed field" in told[2][1]
    assert told[3][1] == rows.REASONS["hostPort"]
    assert [path for path, _ in PAIR({"b": 9}, "")] == ["b", "a"]


@pytest.mark.parametrize(("key", "value"), [(1, "x"), ("a", 1), ("a", "xxx")])
def test_invalid_entry_of_a_mapping_is_named(key, value):
    [(path, problem)] = rows.strings(2, 2)({key: value}, "here")
    assert (path, problem) == (f"here[{key}]", "must be a string of at most 2 characters")
