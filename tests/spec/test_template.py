"""`@{...}`: each directive, each message, and text that cannot become code."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import template, text

FILES = {
    "./seed.sh": b"#!/bin/sh\necho @{x}\n",
    "data.yaml": b"a: [1, on]\nb: {c: d}\n",
    "nothing.yaml": b"",
    "two.yaml": b"a\n---\nb\n",
    "/etc/x": b"joined by the reader",
    "../up": b"up",
    "binary": b"\xff\x00",
    "nul": b"a\0b",
    "wide.yaml": b"[" + b"1," * 6_000 + b"1]",
    "large": b"x" * 3_000_000,
    "bad.yaml": b"a: [",
    "marked.sh": b"\xef\xbb\xbf#!/bin/sh\n",
    "marked.yaml": b"\xef\xbb\xbfa: 1\n",
    "wide.sh": "#!/bin/sh".encode("utf-16"),
}


def read(path):
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", f"/dir/{path}")
    return FILES[path]


def expand(source, **variables):
    return template.expand(text.parse_one(source, file="x.yaml"), variables, read).data


def refusal(source, **variables):
    with pytest.raises(SpecError) as caught:
        expand(source, **variables)
    return caught.value


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("a: '@{x}'", {"a": "X"}),
        ("a: '@{ x }'", {"a": "X"}),
        ("a: '@{x[raw]}'", {"a": "X"}),
        ("a: '@{ x[yaml] }'", {"a": "X"}),
        ("a: '@{n[yaml]}'", {"a": 12}),
        ("a: '@{m[yaml]}'", {"a": {"k": [True]}}),
        ("a: '@{x[binary]}'", {"a": "WA=="}),
        ("a: '@{n}'", {"a": "12"}),
        ("a: '-@{x}-@{n}-'", {"a": "-X-12-"}),
        ("a: '@{x}@{n}'", {"a": "X12"}),
        ("a: ['@{x}', {b: '@{n}'}]", {"a": ["X", {"b": "12"}]}),
        ("a: '@{d.o-t_1}'", {"a": "D"}),
        ("a: '@{empty}'", {"a": ""}),
        ("a: '@{embed: ./seed.sh}'", {"a": "#!/bin/sh\necho @{x}\n"}),
        ("a: '@{embed: marked.sh}'", {"a": "#!/bin/sh\n"}),
        ("a: '>@{embed: marked.sh}'", {"a": ">#!/bin/sh\n"}),
        ("a: '@{embed[yaml]: marked.yaml}'", {"a": {"a": 1}}),
        ("a: '@{embed[binary]: marked.yaml}'", {"a": "77u/YTogMQo="}),
        ("a: '@{embed:./seed.sh}'", {"a": "#!/bin/sh\necho @{x}\n"}),
        ("a: '@{ embed : ./seed.sh }'", {"a": "#!/bin/sh\necho @{x}\n"}),
        ("a: '@{embed[raw]: ../up}!'", {"a": "up!"}),
        ("a: '@{embed: /etc/x}'", {"a": "joined by the reader"}),
        ("a: '@{embed[yaml]: data.yaml}'", {"a": {"a": [1, True], "b": {"c": "d"}}}),
        ("a: '@{embed[yaml]: nothing.yaml}'", {"a": None}),
        ("a: '@{embed[binary]: binary}'", {"a": "/wA="}),
        ("a: '@{}'", {"a": "@{}"}),
        ("a: '@@{x}'", {"a": "@X"}),
        ("a: '@ {x} {x} ${x} @{'", {"a": "@ {x} {x} ${x} @{"}),
        ("a: '@{self}'", {"a": "@{self}"}),
        ("'@{x}': 1", {"@{x}": 1}),
        ("# @{nowhere}\na: 1", {"a": 1}),
        ("a: |\n  one @{x}\n  two\n", {"a": "one X\ntwo\n"}),
        ("'@{x}'", "X"),
    ],
)
def test_template_document_expands_as_specified(source, result):
    variables = {"x": "X", "n": "12", "m": "k: [on]", "empty": "", "self": "@{self}", "d.o-t_1": "D", "unused": "u"}
    assert expand(source, **variables) == result


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a: '@{b}'\nc: '@{a} @{b}'", "unexpanded variable: a, b; give --set a=... --set b=..."),
        ("a: '@{b[yaml]}'", "unexpanded variable: b; give --set b=..."),
        ("a: '@{1x}'", 'invalid variable name: "1x"'),
        ("a: '@{x y}'", 'invalid variable name: "x y"'),
        ("a: '@{ }'", 'invalid variable name: ""'),
        ("a: '@{x;id}'", 'invalid variable name: "x;id"'),
        ("a: 'b @{embed[yaml]: data.yaml}'", "invalid encoding: embed yaml does not work as part of a larger string"),
        ("a: 'b @{embed[binary]: x}'", "invalid encoding: embed binary does not work as part of a larger string"),
        ("a: '@{x[yaml]} b'", "invalid encoding: variable yaml does not work as part of a larger string"),
        ("a: '@{x[json]}'", 'unrecognized template op type: "json"'),
        ("a: '@{embed[]: x}'", 'unrecognized template op type: ""'),
        ("a: '@{embed[yaml: x}'", "invalid op spec: \"embed[yaml\": imbalanced '[]'"),
        ("a: '@{x]}'", "invalid op spec: \"x]\": imbalanced '[]'"),
        ("a: '@{template: x}'", 'error parsing template: unsupported operation: "template"'),
        ("a: '@{embed: nofile}'", "open /dir/nofile: no such file or directory"),
    ],
)
def test_refusals_in_their_exact_words(source, problem):
    error = refusal(source)
    assert error.problem == problem
    assert (error.file, error.line, error.column, error.path) == ("x.yaml", 1, 1, "a")


@pytest.mark.parametrize(
    "source",
    [
        "a: '@{embed: }'",
        "a: '@{embed: binary}'",
        "a: '@{embed: nul}'",
        "a: 'x @{embed: binary}'",
        "a: '@{embed[yaml]: two.yaml}'",
        "a: ['@{embed: large}', '@{embed: large}']",
        "a: ['@{embed[yaml]: wide.yaml}', '@{embed[yaml]: wide.yaml}']",
    ],
)
def test_other_refusals_have_their_place_too(source):
    error = refusal(source)
    assert error.keys[0] == "a"
    assert error.line == 1


def test_a_fault_within_an_embedded_file_has_its_place_there():
    error = refusal("a: '@{embed[yaml]: bad.yaml}'")
    assert (error.file, error.line) == ("bad.yaml", 2)


def test_files_are_read_before_variables_are_missed():
    assert refusal("a: '@{nope}'\nb: '@{embed: nofile}'").problem.startswith("open /dir/nofile")


def test_the_first_missing_variable_is_shown():
    error = refusal("a: 1\nb:\n  - '@{z}'\n  - '@{a}'")
    assert (error.problem, error.path, error.line, error.column) == (
        "unexpanded variable: a, z; give --set a=... --set z=...",
        "b[0]",
        3,
        5,
    )


def test_an_expanded_document_still_knows_places_and_spellings():
    document = text.parse_one("a: on\nb: '@{embed[yaml]: data.yaml}'", file="x.yaml")
    expanded = template.expand(document, {}, read)
    assert expanded.error("wrong", ("b", "b", "c")).line == 2
    assert expanded.spelled == {("a",): "on", ("b", "a", 0): "1", ("b", "a", 1): "on"}
    assert document.data["b"] == "@{embed[yaml]: data.yaml}", "the original stays as it was"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_expanded_value_is_not_expanded_again(value):
    assert expand("a: '@{x}'\nb: '<@{x}>'", x=value) == {"a": value, "b": f"<{value}>"}


@given(st.text("@{}x[]:embd raw", max_size=12))
def test_any_text_is_expanded_or_refused(value):
    document = text.ParsedDocument(data={"a": value}, marks={}, spelled={})
    try:
        found = template.expand(document, {"x": "X"}, read).data["a"]
    except SpecError:
        return
    assert isinstance(found, str | dict | list | int | None)


@pytest.mark.parametrize("value", ["@{" * 250_000, "}" + "@{" * 250_000])
def test_expansion_time_is_limited_for_every_text(value):
    started = time.process_time()
    assert expand(f"a: '{value}'") == {"a": value}
    with pytest.raises(SpecError, match="imbalanced"):
        expand(f"a: '@{{a{' ' * 500_000}[}}'")
    assert time.process_time() - started < 10  # CPU seconds; at most one on a quiet machine


class TestSets:
    @pytest.mark.parametrize(
        ("pairs", "variables"),
        [
            ([], {}),
            (["a=1"], {"a": "1"}),
            (["a="], {"a": ""}),
            (["a=b=c"], {"a": "b=c"}),
            (["a=1", "a=1"], {"a": "1"}),
            (["a.b-c_1=x", "d=@{a}"], {"a.b-c_1": "x", "d": "@{a}"}),
        ],
    )
    def test_taken(self, pairs, variables):
        assert template.parse_sets(pairs) == variables

    @pytest.mark.parametrize(
        ("pairs", "problem"),
        [
            (["x"], '--set expects <var>=<val> syntax, got "x"'),
            (["1x=2"], 'invalid variable name: "1x"'),
            (["=2"], 'invalid variable name: ""'),
            (["x=1", "y=3", "x=2"], "conflicting variable defs:\n\tx: 1, 2"),
            (["y=1", "x=1", "y=2", "x=3"], "conflicting variable defs:\n\tx: 1, 3\n\ty: 1, 2"),
        ],
    )
    def test_refused(self, pairs, problem):
        with pytest.raises(SpecError) as caught:
            template.parse_sets(pairs)
        assert caught.value.problem == problem


class TestPorts:
    def ports(self, source):
        return template.integer_ports(text.parse_one(source, file="x.yaml")).data

    def test_strings_become_numbers_wherever_they_are(self):
        source = "spec: {port: '80', a: [{port: '8080', host: '1'}], b: {port: 9}}"
        assert self.ports(source) == {"spec": {"port": 80, "a": [{"port": 8080, "host": "1"}], "b": {"port": 9}}}

    def test_labels_and_params_are_the_users_own(self):
        source = "{params: {port: '5432'}, labels: {port: http}}"
        assert self.ports(source) == {"params": {"port": "5432"}, "labels": {"port": "http"}}

    @pytest.mark.parametrize("where", ["resources: [{spec: {create: [%s]}}]", "hooks: {preStart: [%s]}"])
    def test_port_numbers_in_user_content_stay_strings(self, where):
        step = "{webhook: {query: {port: any}, body: {port: '5432'}}, object: {manifest: {stringData: {port: '80'}}}}"
        source = f"spec: {{{where % step}, endpoints: [{{port: '80'}}]}}"
        expected = text.parse_one(source.replace("[{port: '80'}]", "[{port: 80}]"), file="x.yaml").data
        assert self.ports(source) == expected

    @pytest.mark.parametrize("value", ["http", "", "-1", "1.0", "٣", "1" * 20])
    def test_not_a_number(self, value):
        with pytest.raises(SpecError) as caught:
            self.ports(f"a:\n  - port: '{value}'")
        assert caught.value.problem == f'port is not int: "{value}"'
        assert (caught.value.path, caught.value.line, caught.value.column) == ("a[0].port", 2, 5)


def test_utf16_file_is_named_with_its_remedy():
    assert refusal("a: '@{embed: wide.sh}'").problem == (
        '"wide.sh" is UTF-16, not UTF-8; save it as UTF-8, or embed it with [binary]'
    )


def test_fault_in_an_embedded_text_names_its_file():
    filled = template.expand(text.parse_one("a: ['@{embed: marked.sh}', b]", file="x.yaml"), {}, read)
    assert [filled.error("is wrong", ("a", at)).problem for at in (0, 1)] == ["marked.sh: is wrong", "is wrong"]
