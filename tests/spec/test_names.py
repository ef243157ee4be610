"""Names, variables and paths: valid ones, and messages with the value and the rule."""

import subprocess
import sys

import pytest

from dayfly.spec.errors import SpecError, quote, render_path
from dayfly.spec.scalars import names


class TestNames:
    @pytest.mark.parametrize("name", ["a", "A", "usersDb", "my-db", "a1", "a--b", "x" * 30])
    def test_legal(self, name):
        names.check("step", name)

    @pytest.mark.parametrize(
        "name",
        ["", "1a", "-a", "a-", "a_b", "a.b", "a b", "a\n", "ä", "a²", "\u0430", "x" * 31, "x" * 64, "ﬁle"],
    )
    def test_illegal(self, name):
        with pytest.raises(SpecError) as caught:
            names.check("step", name, ("spec", "create", 0, "name"))
        assert caught.value.path == "spec.create[0].name"
        assert "step name" in caught.value.problem
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(("kind", "limit"), sorted(names.LIMITS.items()))
    def test_limit_of_each_kind(self, kind, limit):
        names.check(kind, "x" * limit)
        with pytest.raises(SpecError) as caught:
            names.check(kind, "x" * (limit + 1))
        assert f"has {limit + 1} characters" in caught.value.problem
        assert f"at most {limit}" in caught.value.problem


class TestEnvironment:
    @pytest.mark.parametrize("name", ["A", "_", "a_1", "PATH"])
    def test_legal(self, name):
        names.check_environment(name)

    @pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "Ä", "A\0", "٣"])
    def test_illegal(self, name):
        with pytest.raises(SpecError):
            names.check_environment(name)


class TestPaths:
    @pytest.mark.parametrize("path", ["/a", "/tmp/in/schema", "/var/run/x", "/procs/x", "/tmp/...", "/outputs/a b"])
    def test_legal(self, path):
        names.check_path(path)

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "a",
            "./a",
            "/",
            "/a/",
            "//a",
            "/a//b",
            "/a/./b",
            "/a/../b",
            "/..",
            "/proc/self/environ",
            "/sys/x",
            "/dev/null",
            "/proc",
            "/var/run/secrets/token",
            "/run/secrets/token",
            "/a\0b",
            "/" + "x" * 256,
            "/x" * 2048,
        ],
    )
    def test_illegal(self, path):
        with pytest.raises(SpecError) as caught:
            names.check_path(path, ("x",))
        assert caught.value.keys == ("x",)


@pytest.mark.parametrize("key", ["", ".", ".host", "a.", "a.b.c", "a.b c", "1.b", "1b", "b c"])
def test_output_keys_that_address_no_output(key):
    with pytest.raises(SpecError):
        names.check_output_key(key)


def test_second_duplicate_name_is_reported_with_the_first():
    with pytest.raises(SpecError) as caught:
        names.check_unique("the step", [("a", ("s", 0)), ("b", ("s", 1)), ("a", ("s", 2))])
    assert caught.value.path == "s[2]"
    assert "s[0]" in caught.value.problem


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (SpecError("wrong"), "wrong"),
            (SpecError("wrong", ("a", 0, "b")), "a[0].b: wrong"),
            (SpecError("wrong", ("a",), file="x.yaml", line=12, column=5), "x.yaml:12:5: a: wrong"),
            (SpecError("wrong", file="x.yaml"), "x.yaml: wrong"),
            (SpecError("wrong", line=2, column=1), "line 2, column 1: wrong"),
        ],
    )
    def test_message_is_one_line_with_the_place_first(self, error, said):
        assert str(error) == said

    def test_keys_with_dots_are_written_in_brackets(self):
        assert render_path(("labels", "a.b/c", "d-e_f")) == 'labels["a.b/c"].d-e_f'

    def test_quoted_text_stays_on_one_short_line(self):
        assert quote("a\nb\x1b") == '"a\\u000ab\\u001b"'
        assert quote("x" * 100) == '"' + "x" * 60 + '..."'


def test_names_and_errors_cost_the_command_line_nothing():
    """The module imports neither YAML nor msgspec nor other slow modules."""
    program = "import sys, dayfly.spec.scalars.names, dayfly.spec.scalars.semver; print(*sys.modules)"
    environment = {"PYTHONPATH": "src"}
    ran = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, env=environment, check=True)
    assert not {"yaml", "msgspec", "typing", "re", "dataclasses"} & set(ran.stdout.decode().split())
