"""YAML and JSON: values, places, refusals, and limits of time and memory."""

import json
import math
import re
import subprocess
import sys
import time

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.spec.marked_text import marked

from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="ascii"), max_size=5).map(lambda k: k.replace("\0", "")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def read(source):
    return text.parse_one(source, file="x.yaml").data


def refusal(source):
    with pytest.raises(SpecError) as caught:
        text.parse(source, file="x.yaml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("x.yaml:")
    return caught.value


class TestWords:
    @pytest.mark.parametrize("word", ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"])
    def test_true(self, word):
        assert read(f"- {word}") == [True]

    @pytest.mark.parametrize("word", ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"])
    def test_false(self, word):
        assert read(f"- {word}") == [False]

    @pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
    def test_null(self, word):
        assert read(f"- {word}") == [None]

    @pytest.mark.parametrize(
        ("word", "value"),
        [
            ("0", 0),
            ("12", 12),
            ("+12", 12),
            ("-12", -12),
            ("012", 10),
            ("-012", -10),
            ("0o12", 10),
            ("0x1F", 31),
            ("0b101", 5),
            ("1_000", 1000),
            ("18446744073709551615", 2**64 - 1),
            ("18446744073709551616", 2.0**64),
            ("-9223372036854775808", -(2**63)),
            ("-9223372036854775809", -(2.0**63)),
            ("9" * 300, float("9" * 300)),
            ("1.5", 1.5),
            (".5", 0.5),
            ("1.", 1.0),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("-1.5e+3", -1500.0),
            ("08", 8.0),
        ],
    )
    def test_numbers(self, word, value):
        found = read(f"- {word}")[0]
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        "word",
        [
            "1:30",
            "12:30:45",
            "2026-11-21",
            "2026-11-21T07:24:29Z",
            "yEs",
            "oN",
            "1.2.3",
            "0x",
            "0x_",
            "-0b_",
            "0o__",
            "e3",
            ".",
            "-",
            "<<",
            "=",
            "nan",
        ],
    )
    def test_strings(self, word):
        assert read(f"[{word}]" if word != "-" else "- '-'") == [word]

    @pytest.mark.parametrize("source", ["- 'on'", '- "on"', "- !!str on", "- |-\n  on", "- >-\n  on", "- ! on"])
    def test_quoted_word_is_a_string(self, source):
        assert read(source) == ["on"]

    @pytest.mark.parametrize("word", [".inf", "-.inf", ".NaN", "1e999", "9" * 400])
    def test_number_json_cannot_express_is_refused(self, word):
        assert refusal(f"a:\n- {word}").path == "a[0]"

    def test_spelling_of_converted_words_is_kept(self):
        document = text.parse_one("a: on\nb: [0x10, x, '1']\nc:\n", file="x.yaml")
        assert document.spelled == {("a",): "on", ("b", 0): "0x10"}


class TestPlaces:
    def test_mark_is_at_the_key_or_the_first_column_of_an_item(self):
        document = text.parse_one("a:\n  - b: 1\n    c: {d: |\n      x}\n".replace("|\n      x", "x"), file="x.yaml")
        assert document.marks == {
            (): (1, 1),
            ("a",): (1, 1),
            ("a", 0): (2, 5),
            ("a", 0, "b"): (2, 5),
            ("a", 0, "c"): (3, 5),
            ("a", 0, "c", "d"): (3, 9),
        }

    def test_an_error_about_something_absent_is_where_its_parent_is(self):
        document = text.parse_one("a:\n  b: 1\n", file="x.yaml")
        assert str(document.error("wrong", ("a", "c", 0))) == "x.yaml:1:1: a.c[0]: wrong"
        assert (document.error("wrong").line, document.error("wrong").column) == (1, 1)

    def test_unmarked_path_is_located_by_file_only(self):
        document = text.ParsedDocument(data={}, marks={}, spelled={}, file="x.yaml")
        assert str(document.error("wrong", ("a",))) == "x.yaml: a: wrong"

    def test_each_document_of_a_file_has_its_own(self):
        first, second = text.parse("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n", file="x.yaml")
        assert (first.data, second.data) == ({"a": 1}, {"b": 2})
        assert (first.marks["a",], second.marks["b",]) == ((2, 1), (6, 1))


REFUSED = {
    "duplicate key": "a: 1\n§a: 2",
    "duplicate in flow": 'x: {"a": 1, §a: 2}',
    "boolean key": "x:\n  §on: 1",
    "number key": "x:\n  §12: 1",
    "null key": "x:\n  §~: 1",
    "key that is a list": "x:\n  ? §[1]\n  : 2",
    "tag": "a: §!!python/object:os.system x",
    "binary tag": "a: §!!binary aGk=",
    "tag on a mapping": "a: §!!set {x}",
    "tab": "a:\n§\t- b",
    "unclosed": "a: [1, 2\n§",
    "escaped NUL": 'a: §"x\\0y"',
    "control character": "a: x§\x07y",
    "NUL": "a: x§\0y",
    "lone surrogate": "a: x§\ud800y",
    "infinity": "a: §.inf",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_refused_with_its_place(source):
    plain, line, column = marked(source)
    error = refusal(plain)
    assert (error.line, error.column) == (line, column), str(error)


def test_error_hints_at_the_correction():
    assert 'write "on" in quotes' in refusal("x: {on: 1}").problem
    assert "spaces" in refusal("a:\n\t- b").problem
    assert "line 1" in refusal("a: 1\na: 2").problem


class TestBytes:
    def test_not_utf8_says_at_which_byte(self):
        error = refusal(b"a: 1\nb: \xff")
        assert "byte 8" in error.problem
        assert (error.line, error.column) == (2, 4)

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_utf16_is_named_with_its_remedy(self, encoding):
        assert refusal("a: 1".encode(encoding)).problem == "UTF-16, not UTF-8; save the file as UTF-8"

    def test_a_byte_order_mark_and_carriage_returns_are_no_matter(self):
        document = text.parse_one("\ufeffa: 1\r\nb: 2\r\n".encode(), file="x.yaml")
        assert document.data == {"a": 1, "b": 2}
        assert document.marks["b",] == (2, 1)

    @pytest.mark.parametrize("source", ["", b"", "# nothing", "---\n---\n", "null"])
    def test_nothing_is_no_document(self, source):
        assert text.parse(source, file="x.yaml") == []

    def test_parse_one_refuses_several_documents(self):
        for source in ("", "a: 1\n---\nb: 2"):
            with pytest.raises(SpecError):
                text.parse_one(source, file="x.yaml")


class TestJson:
    @example(["\x7f"])
    @example(["\x85", "\u2028", "\u2029", "\ufeff", "\ue000", "\uffff", "\U0001f600", "\ud7ff", "\r", "\n ", " \t\n"])
    @given(JSON)
    def test_json_is_read_unchanged(self, value):
        assert same(read(json.dumps([value])), [value])

    @example(["\x85", "\u2028"])
    @example(["\ufeff"])
    @example(["\ue000", "\U0001f600", "\ud7ff", "\r", "\n ", " \t\n"])
    @given(JSON)
    def test_raw_characters_are_read_or_refused_but_never_changed(self, value):
        source = json.dumps([value], ensure_ascii=False)
        if re.search("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", source):
            refusal(source)
        else:
            assert same(read(source), [value])

    def test_pairs_of_surrogates(self):
        assert read(r'{"a": "\ud83d\ude00 \\ud83d \uD83D\uDE00"}') == {"a": "😀 \\ud83d 😀"}

    def test_only_in_json_is_a_pair_an_escape(self):
        script = "printf '\\ud83d\\ude00'"
        assert read(f"a: |-\n  {script}") == {"a": script}
        assert read("[ |]".replace("|", "'\\ud83d\\ude00'")) == ["\\ud83d\\ude00"]

    def test_tabs_between_values(self):
        assert read('{"a":\t1,\n\t"b":\t[2]}') == {"a": 1, "b": [2]}


class TestDump:
    @example(
        ["on", "y", "n", "12", "012", "1_000", "1e3", ".5", ".inf", "null", "", "~", "=", "<<", "1:30", "2026-11-21"]
    )
    @example({"on": 1, "12": 2, "": 3, "a\nb": 4, "- a": 5})
    @example(
        ["a\nb", "a\n", "\na", "a\n\n", " a\nb", "a \nb", "\ta\nb", "a\r\nb", "a: b\n# c\n", "\n", "a\nb\x85c\u2028"]
    )
    @example([1e22, 1e-7, -0.5, 2**64 - 1, True, None, [], {}])
    @given(JSON)
    def test_dumped_value_is_read_unchanged(self, value):
        assert same(read(text.dump([value])), [value])

    def test_scripts_are_blocks_and_equal_values_are_written_twice(self):
        step = {"script": "#!/bin/sh\ntrue\n"}
        written = text.dump({"name": "y", "steps": [step, step]})
        assert written.count("- script: |\n    #!/bin/sh\n    true\n") == 2
        assert written.startswith('name: "y"\nsteps:\n- ')


def same(found, value):
    """Equality in which booleans are not numbers, and a float may be the integer that was written."""
    if isinstance(value, dict):
        return found.keys() == value.keys() and all(same(found[key], value[key]) for key in value)
    if isinstance(value, list):
        return len(found) == len(value) and all(map(same, found, value))
    if isinstance(value, float):
        return math.isclose(found, value) or found == value
    return type(found) is type(value) and found == value


BOMBS = {
    "flow depth": "[" * 100_000,
    "mapping depth": "{a: " * 100_000,
    "block depth": "- " * 100_000,
    "complex keys": "? " * 100_000,
    "width": "[" + "1," * 500_000 + "1]",
    "lines": "- 1\n" * 500_000,
    "empty documents": "---\n" * 500_000,
    "documents": "--- a\n" * 300_000,
    "aliases": "b0: &b0 [x,x]\n" + "".join(f"b{n}: &b{n} [*b{n - 1},*b{n - 1}]\n" for n in range(1, 100)),
    "long string": "a: [" + '"' + "x" * 4_000_000,
    "long word": "a: " + "9" * 4_000_000,
    "too big": "a" * (text.MAX_BYTES + 1),
    "unprintable": "\x01" * 1_000_000,
    "colons": "a:" * 1_000_000,
    "comments": "#\n" * 2_000_000 + "\0",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_bombs_end_soon(source):
    started = time.process_time()
    with pytest.raises(SpecError):
        text.parse(source, file="x.yaml")
    assert time.process_time() - started < 10  # CPU seconds; at most one on a quiet machine


@pytest.mark.parametrize(
    ("source", "documents"),
    [("a: '" + "''" * 500_000 + "'", 1), ("a: 1" + "_" * 1_000_000 + "x", 1), ("#\n" * 500_000, 0)],
    ids=["quotes", "underscores", "comments"],
)
def test_long_legal_document_is_parsed_fast(source, documents):
    started = time.process_time()
    assert len(text.parse(source, file="x.yaml")) == documents
    assert time.process_time() - started < 10  # CPU seconds; at most one on a quiet machine


def test_bombs_stay_small():
    """A separate process, so that the peak memory is only that of this parser."""
    program = f"""
import resource
from dayfly.spec.parsing import text
from dayfly.spec.errors import SpecError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for source in {["[", "- ", "? ", "{a: "]!r}:
    try:
        text.parse(source * 500_000, file="x")
    except SpecError:
        pass
try:
    text.parse("[" + "1," * 2_000_000, file="x")
except SpecError:
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, env={"PYTHONPATH": "src"}, check=True)
    assert int(ran.stdout) < 100, "MiB"


def test_limits_apply_exactly():
    deep = "[" * text.MAX_DEPTH + "]" * text.MAX_DEPTH
    assert json.loads(deep) == read(deep)
    refusal("[" + deep + "]")
    wide = "[" + "1," * (text.MAX_NODES - 1) + "]"
    assert len(read(wide)) == text.MAX_NODES - 1
    refusal("[1," + wide[1:])


def test_bodies_have_the_same_limits():
    deep = json.loads("[" * text.MAX_DEPTH + "]" * text.MAX_DEPTH)
    text.check_bounds(deep)
    for data in (
        [[deep]],
        ["x"] * text.MAX_NODES,
        {"a": [{"b": "\0"}]},
        {"a\0": 1},
        ["\ud800"],
        {"\udfff": 1},
        [2**64],
        [-(2**63) - 1],
        [math.inf],
        [math.nan],
    ):
        with pytest.raises(SpecError):
            text.check_bounds(data)


def test_the_slower_parser_reads_the_same(monkeypatch):
    source = "a: on\nb:\n  - |\n    x\n  - {c: 012, d: 'y'}\n"
    quick = text.parse_one(source, file="x.yaml")
    monkeypatch.setattr(text, "_LOADER", yaml.SafeLoader)
    assert text.parse_one(source, file="x.yaml") == quick
    for case in REFUSED.values():
        refusal(case.replace("§", ""))


class TestAnchors:
    @pytest.mark.parametrize(
        ("source", "data"),
        [
            ("a: &x 1\nb: *x", {"a": 1, "b": 1}),
            ("a: &x\nb: *x", {"a": None, "b": None}),
            ("a: &x [1, {k: v}]\nb: [*x, *x]", {"a": [1, {"k": "v"}], "b": [[1, {"k": "v"}]] * 2}),
            ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
            ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
            ("a: &k name\n*k : 1", {"a": "name", "name": 1}),
            ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3, m: 4}", {"a": {"k": 1, "l": 2}, "b": {"l": 3, "m": 4, "k": 1}}),
            ("a: {<<: [{k: 1}, {k: 2, l: 2}], m: 3}", {"a": {"k": 1, "l": 2, "m": 3}}),
            (
                "a: &x {k: 1}\nb: &z {<<: *x, l: 2}\nc: {<<: *z}",
                {"a": {"k": 1}, "b": {"k": 1, "l": 2}, "c": {"k": 1, "l": 2}},
            ),
            ("a: {'<<': 1}", {"a": {"<<": 1}}),
        ],
    )
    def test_alias_is_the_value_of_its_anchor(self, source, data):
        assert text.parse_one(source, file="x.yaml").data == data

    def test_values_of_aliases_are_separate(self):
        data = text.parse_one("a: &x {k: []}\nb: *x\nc: {<<: *x}", file="x.yaml").data
        data["a"]["k"].append(1)
        assert (data["b"], data["c"]) == ({"k": []}, {"k": []})

    def test_alias_has_its_own_place_and_words(self):
        document = text.parse_one("a: &x\n  k: on\nb: *x\nc:\n  <<: *x", file="x.yaml")
        assert [document.marks[keys] for keys in (("a", "k"), ("b", "k"), ("c", "k"))] == [(2, 3), (3, 4), (5, 3)]
        assert {keys[0] for keys in document.spelled if keys[1:] == ("k",)} == {"a", "b", "c"}

    @pytest.mark.parametrize(
        ("source", "place", "said"),
        [
            ("a: *x", (1, 4), "the alias *x has no anchor &x before it; write it in quotes if it is text"),
            (
                "a: &x 1\n---\nb: *x",
                (3, 4),
                "the alias *x has no anchor &x before it; write it in quotes if it is text",
            ),
            ("a: &x [*x]", (1, 8), "the alias *x is inside its own anchor; write it in quotes if it is text"),
            ("a: &x {<<: *x}", (1, 12), "the alias *x is inside its own anchor; write it in quotes if it is text"),
            ("a: {<<: 1}", (1, 5), "a merge key (<<) takes a mapping, or a list of mappings"),
            ("a: &x 1\nb: {<<: [{}, *x]}", (2, 5), "a merge key (<<) takes a mapping, or a list of mappings"),
            ("a: &x {}\nb: {<<: *x, <<: *x}", (2, 13), 'the key "<<" appears twice; the first is in line 2'),
            ("a: &x 1\n*x : 2", (2, 1), '"*x" is a number in YAML; write "*x" in quotes'),
            (
                "a: *.x",
                (1, 5),
                '"*" and "&" begin aliases and anchors in YAML; write the value in quotes if it is text',
            ),
        ],
    )
    def test_alias_without_value_is_refused_with_its_place(self, source, place, said):
        fault = refusal(source)
        assert ((fault.line, fault.column), fault.problem) == (place, said)

    def test_bomb_ends_at_the_limit(self):
        lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
        lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
        assert refusal("\n".join(lines)).line == 4
        merged = ["a0: &a0 {k0: x}"]
        merged += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: *a{n - 1}}}" for n in range(1, 40)]
        assert "more than 10000" in refusal("\n".join(merged)).problem

    def test_depth_counts_through_aliases(self):
        lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
        assert refusal("\n".join(lines)).problem == "nested more than 64 deep"


@pytest.mark.parametrize(
    ("source", "column", "said"),
    [
        ("a: @{v}", 4, '"@" cannot begin a value in YAML; write it in quotes: "@{v}"'),
        ("- @{v}-x", 3, '"@" cannot begin a value in YAML; write it in quotes: "@{v}-x"'),
        ("a: {b: @{v}}", 8, '"@" cannot begin a value in YAML; write it in quotes: "@{v}"'),
        ("[@{v}, c]", 2, '"@" cannot begin a value in YAML; write it in quotes: "@{v}"'),
        ("@{v}: x", 1, '"@" cannot begin a value in YAML; write it in quotes: "@{v}"'),
        ("a: @{embed: ./x y}", 4, '"@" cannot begin a value in YAML; write it in quotes: "@{embed: ./x y}"'),
        ("a: `x`", 4, '"`" cannot begin a value in YAML; write it in quotes: "`x`"'),
        ("a: %x", 4, '"%" cannot begin a value in YAML; write it in quotes: "%x"'),
        ("a: x @{embed: ./x}", 13, '"@{embed:"... must be in quotes, with the whole value around it'),
        ("a: b: c", 5, 'a value that contains ": " must be in quotes; or the line has the wrong indentation'),
    ],
)
def test_value_without_quotes_is_named(source, column, said):
    fault = refusal(source)
    assert (fault.line, fault.column, fault.problem) == (1, column, said)
