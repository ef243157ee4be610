"""Patterns match exactly the values that Go's `filepath.Match` matches, and the same patterns are invalid."""

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.scalars.glob import MAX_NON_ASCII_LENGTH, MAX_PATTERN_LENGTH, MAX_VALUE_LENGTH, Glob

PROGRAM = r"""
package main

import ("encoding/json"; "os"; "path"; "path/filepath")

func main() {
	var asked [][2]string
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil { panic(err) }
	said := make([]string, len(asked))
	for n, each := range asked {
		ok, err := filepath.Match(each[0], each[1])
		said[n] = map[bool]string{true: "yes", false: "no"}[ok]
		// filepath.Match looks no further than where a value does not fit; path.Match looks at the whole pattern.
		if _, whole := path.Match(each[0], ""); err != nil || whole != nil { said[n] = "bad" }
	}
	json.NewEncoder(os.Stdout).Encode(said)
}
"""
ASCII = ["a", "b", "c", "ab", "/", "-", "]", "[", "^", "*", "\\", "?", "\n", "."]
LETTERS = ["a", "b", "ab", "/", "-", "é", "\u4e16", "\ufffd", "]", "[", "^", "*", "\\", "?", "{", "."]
PARTS = [*LETTERS, "[ab]", "[^a]", "[^é]", "[a-c]", "[é-\u4e16]", "\\*", "[\\]]", "[\\-a]", "*", "*", "?", "[*]"]


def says(pattern, value):
    try:
        return "yes" if Glob(pattern).matches(value) else "no"
    except SpecError:
        return "bad"


@pytest.fixture(scope="module")
def in_go(tmp_path_factory):
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(PROGRAM)

    def ask(pairs):
        done = subprocess.run(
            ["go", "run", "main.go"], cwd=folder, input=json.dumps(pairs), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return ask


def test_each_answer_is_gos(in_go):
    """Also if a star ends within a character."""
    chance = random.Random(20260723)
    pairs = [
        (
            "".join(chance.choices(PARTS, k=chance.randint(0, 5))),
            "".join(chance.choices(LETTERS, k=chance.randint(0, 5))),
        )
        for _ in range(10_000)
    ]
    pairs += [
        ("".join(chance.choices(PARTS, k=chance.randint(0, 6))), "".join(chance.choices(ASCII, k=chance.randint(0, 7))))
        for _ in range(10_000)
    ]
    pairs += [("[z-a]", "m"), ("[^z-a]", "/"), ("a*", "a\n"), ("a?", "a\n")]
    pairs += [
        ("*[^é]", "é"),
        ("a*b?c*x", "abxbbxdbxebxczzx"),
        ("*" * 9 + "/", "a/"),
        ("", ""),
        ("[]a]", "]"),
        ("[-]", "-"),
    ]
    answers = in_go(pairs)
    assert {"yes", "no", "bad"} == set(answers)
    assert answers.count("yes") > 500
    wrong = [(pair, said) for pair, said in zip(pairs, answers, strict=True) if says(*pair) != said]
    assert wrong == []


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves"),
    [
        ("feature-x-*", ["feature-x-", "feature-x-1"], ["feature-x", "feature-x-1/2", "Feature-x-1"]),
        ("signadot/*", ["signadot/hotrod"], ["signadot/hot/rod", "signadot"]),
        ("v?", ["v1", "vé"], ["v", "v12", "v/"]),
        ("[^a]", ["b", "/"], ["a", ""]),
        ("\\*", ["*"], ["a"]),
        ("team", ["team"], ["teams", ""]),
        ("", [""], ["a"]),
    ],
)
def test_pattern_matches_as_documented(pattern, takes, leaves):
    made = Glob(pattern)
    assert [value for value in takes + leaves if made.matches(value)] == takes


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("ab[", r'"ab[" is not a pattern: at character 3, the class that begins here has no end'),
        ("[a", r"at character 1, the class that begins here has no end"),
        ("x\\", r"at character 2, ends with a backslash; write two for a backslash itself"),
        ("[]a]", r'at character 2, "]" is not allowed in a class; write \]'),
        ("[a-]", r'at character 4, "]" is not allowed in a class; write \]'),
        ("*a" * 17, r"a pattern has at most 16 of * ? and classes, this one 17"),
        ("?[a]" * 9, r"a pattern has at most 16 of * ? and classes, this one 18"),
        ("a" * (MAX_PATTERN_LENGTH + 1), r"a pattern has at most 256 characters, this one 257"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_place(pattern, sentence):
    with pytest.raises(SpecError) as caught:
        Glob(pattern, ("spec", "match"))
    assert sentence in caught.value.problem
    assert caught.value.keys == ("spec", "match")


@pytest.mark.parametrize(("character", "longest"), [("a", MAX_VALUE_LENGTH), ("é", MAX_NON_ASCII_LENGTH)])
def test_values_that_are_too_long_are_taken_as_they_stand_alone(character, longest):
    assert Glob("*").matches(character * longest)
    assert not Glob("*").matches(character * (longest + 1))
    assert Glob(character * 256).matches(character * 256)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_text_is_too_strange(pattern, value):
    """Each valid pattern has an answer, and each value that it matches begins with its prefix."""
    try:
        made = Glob(pattern)
    except SpecError:
        return
    if made.matches(value):
        assert value.startswith(made.prefix)
        assert not made.literal or value == made.prefix


def test_pattern_of_many_stars_needs_few_calls():
    """Many stars that nearly match cost at most length times length. The test counts calls, because times vary."""
    calls = []
    pattern = Glob("*é" * 16 + "b")
    sys.setprofile(lambda _frame, event, _argument: calls.append(1) if event == "call" else None)
    try:
        takes = pattern.matches("é" * 60)
    finally:
        sys.setprofile(None)
    assert not takes
    assert 0 < len(calls) <= 2 * (2 * 60 + 20)
