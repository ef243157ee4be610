"""Outputs as variables: names, and values that survive a shell and other readers of dotenv files."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from dotenv import dotenv_values
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cli import wishes
from dayfly.cli import outputs, with_
from dayfly.cli.exits import CliError

if TYPE_CHECKING:
    from pathlib import Path

    from cli.command import Cli


def _one(value: str, **more: object) -> outputs.Variable:
    (found,) = outputs.variables([{"resource": "db", "step": "make", "output": "x", "value": value, **more}])
    return found


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("db", "provision", "path"), "DB_PROVISION_PATH"),
        (("my-Db", "set-up", "a-b"), "MY_DB_SET_UP_A_B"),
        (("", "hook", "url"), "HOOK_URL"),
    ],
)
def test_a_variable_is_named_after_resource_step_and_output(place: tuple[str, str, str], name: str):
    found = dict(zip(("resource", "step", "output"), place, strict=True))
    assert [each.name for each in outputs.variables([{**found, "value": ""}])] == [name]


def test_two_outputs_of_one_name_are_refused():
    found = [{"resource": r, "step": s, "output": "x", "value": ""} for r, s in (("a-b", "c"), ("a", "b-c"))]
    with pytest.raises(CliError, match=r"a-b/c\.x and a/b-c\.x would both be A_B_C_X"):
        outputs.variables(found)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("postgres://u:p@h:5432/db", "DB_MAKE_X=postgres://u:p@h:5432/db"),
        ("", "DB_MAKE_X="),
        ("two words # no comment $HOME", "DB_MAKE_X='two words # no comment $HOME'"),
        ('it\'s $5 `x` "y" \\', 'DB_MAKE_X="it\'s \\$5 \\`x\\` \\"y\\" \\\\"'),
    ],
)
def test_plain_words_stand_bare_and_others_are_quoted(value: str, line: str):
    assert outputs.dotenv(_one(value)) == line


def test_what_no_variable_can_carry_is_named_in_a_comment():
    assert outputs.dotenv(_one("AP8=", encoding="base64")).startswith("# DB_MAKE_X is binary (2 bytes)")
    assert outputs.dotenv(_one("a\0b")).startswith("# DB_MAKE_X is binary (3 bytes)")


def test_what_never_leaves_its_cluster_is_nowhere_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    withheld = {"resource": "db", "step": "make", "output": "x", "value": "", "sensitive": True, "withheld": True}
    assert outputs.dotenv(_one("", withheld=True)) == "# DB_MAKE_X is sensitive and never leaves its cluster"
    monkeypatch.delenv("DB_MAKE_X", raising=False)
    assert "DB_MAKE_X" not in with_._environment([withheld], {})
    assert capsys.readouterr().err == "DB_MAKE_X is sensitive and never leaves its cluster, so no variable holds it\n"
    with pytest.raises(CliError, match=r"the output make\.x cannot be in PGPASSWORD"):
        with_._environment([withheld], {"PGPASSWORD": "make.x"})


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(_TEXT)
def test_a_shell_reads_every_value_back(value: str):
    script = f"set -a; {outputs.dotenv(_one(value))}\nprintf '%s.' \"$DB_MAKE_X\""
    read = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    assert read == value.encode() + b"."


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab\\'\"$`{} #=\n\té"), max_size=12) | _TEXT)
@example("a\\\\b")
@example("\\'\"")
def test_a_dotenv_reader_reads_back_what_the_page_says(value: str):
    """As docs/cli.md has it: but for a few values, of which no form is the same for it and for a shell."""
    expanded = {"$", "`"} & {*value}
    apart = value.endswith("\\") or "\r" in value or "${" in value
    assume(not apart and not (expanded and ("'" in value or "\\\\" in value)))
    text = f'{outputs.dotenv(_one(value))}\nNEXT="it\'s"\n'
    assert dotenv_values(stream=io.StringIO(text, newline="")) == {"DB_MAKE_X": value, "NEXT": "it's"}


def test_env_and_a_shell(served: Cli, journal: Path):
    served.write("p.yaml", wishes.plugin(journal))
    served.write("s.yaml", wishes.sandbox())
    assert served("apply", "-f", ".").code == 0
    done = served("env", "demo")
    assert done.code == 0, done.err
    (served.folder / ".env").write_text(done.out)
    script = 'set -a; . ./.env; printf \'%s|%s\' "$DB_PROVISION_PATH" "$DB_PROVISION_SECRET"'
    read = subprocess.run(["sh", "-c", script], cwd=served.folder, capture_output=True, text=True, check=True)
    assert read.stdout == "/data/demo|it's a $ecret"
    assert "# DB_SEED_BYTES is binary (2 bytes)" in done.out
    values = {each["output"]: each for each in json.loads(served("env", "demo", "-o", "json").out)}
    assert (values["bytes"]["value"], values["bytes"]["encoding"]) == ("AP8=", "base64")
    assert values["secret"]["sensitive"] is True
    assert shlex.split(done.out, comments=True)[0] == "DB_PROVISION_PATH=/data/demo"
