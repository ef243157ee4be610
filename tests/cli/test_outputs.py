"""Outputs as variables: names, and values that survive a shell and other readers of dotenv files."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from dotenv import dotenv_values
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.cli import sample_specs
from tests.cli.fake_server import serving
from tests.cli.with_command import FakeServer, fake_home, run_with

from dayfly.cli import outputs
from dayfly.client import Output, Outputs
from dayfly.client.errors import DayflyError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Cli

    from dayfly.client.home import Home

__all__ = ["fake_home"]


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
    with pytest.raises(DayflyError, match=r"a-b/c\.x and a/b-c\.x have the same variable name, A_B_C_X"):
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
    assert outputs.format_dotenv(_one(value)) == line


def test_binary_output_is_named_in_a_comment():
    assert outputs.format_dotenv(_one("AP8=", encoding="base64")).startswith("# DB_MAKE_X is binary (2 bytes)")
    assert outputs.format_dotenv(_one("a\0b")).startswith("# DB_MAKE_X is binary (3 bytes)")


def test_withheld_output_is_named_and_never_empty(
    fake_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    place = {"resource": "notes", "step": "provision", "output": "path"}
    withheld = {**place, "value": "", "sensitive": True, "withheld": True}
    assert outputs.format_dotenv(_one("", withheld=True)) == "# DB_MAKE_X is sensitive and never leaves its cluster"
    monkeypatch.delenv("NOTES_PROVISION_PATH", raising=False)
    fake = FakeServer()
    fake.outputs = [withheld]
    with serving(fake) as url:
        fake_home.url.write_text(url)
        assert run_with(tmp_path, "--", "sh", "-c", 'test -z "${NOTES_PROVISION_PATH+set}"') == 0
        assert (
            "NOTES_PROVISION_PATH is sensitive and never leaves its cluster, so it is left out"
            in capsys.readouterr().err
        )
        assert run_with(tmp_path, "-e", "PGPASSWORD=provision.path", "--", "true") == 1
        assert "the variable PGPASSWORD cannot hold the output notes/provision.path" in capsys.readouterr().err


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(_TEXT)
def test_a_shell_reads_every_value_back(value: str):
    script = f"set -a; {outputs.format_dotenv(_one(value))}\nprintf '%s.' \"$DB_MAKE_X\""
    read = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    assert read == value.encode() + b"."


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab\\'\"$`{} #=\n\té"), max_size=12) | _TEXT)
@example("a\\\\b")
@example("\\'\"")
def test_dotenv_reader_reads_back_documented_values(value: str):
    """docs/guides/automate-the-command-line.md lists the exceptions: no syntax expresses them for both readers."""
    expanded = {"$", "`"} & {*value}
    apart = value.endswith("\\") or "\r" in value or "${" in value
    assume(not apart and not (expanded and ("'" in value or "\\\\" in value)))
    text = f'{outputs.format_dotenv(_one(value))}\nNEXT="it\'s"\n'
    assert dotenv_values(stream=io.StringIO(text, newline="")) == {"DB_MAKE_X": value, "NEXT": "it's"}


def _read_by_github(text: str) -> dict[str, str]:
    """Parse the file `$GITHUB_ENV` as GitHub's runner does."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        equals, here = line.find("="), line.find("<<")
        if here >= 0 and (equals < 0 or here < equals):
            name, delimiter = line.split("<<", 1)
            found[name] = "\n".join(iter(lambda: next(lines), delimiter))
        elif line:
            assert equals > 0, f"Invalid format {line!r}"
            found[line[:equals]] = line[equals + 1 :]
    return found


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab=<'\"$ %#\n\r"), max_size=12) | _TEXT)
@example("-----BEGIN X-----\nNODE_OPTIONS=--require /tmp/x\n-----END X-----\n")
@example("<<EOF\nEOF\nPATH=/tmp")
@example("postgres://app:pw@127.0.0.1:5432/shop?sslmode=disable")
def test_github_reads_every_value_back_and_sets_nothing_else(value: str):
    read = _read_by_github(outputs.format_github(_one(value)) + "NEXT=1\n")
    assert read == {"DB_MAKE_X": value, "NEXT": "1"}


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab=<'\"$ %#\n\r"), max_size=12) | _TEXT)
@example("a\u2028b\x85c")
def test_gitlab_reads_back_every_value_that_is_not_refused(value: str):
    text = value.rstrip("\n")
    if text != text.strip() or {"\r", "\n"} & {*text}:
        with pytest.raises(DayflyError, match=r"^DB_MAKE_X has several lines or a space at an end"):
            outputs.format_gitlab([_one(value)])
        return
    lines = outputs.format_gitlab([_one(value)])
    name, _, read = lines.removesuffix("\n").partition("=")
    assert (name, read.strip(), lines.count("\n")) == ("DB_MAKE_X", text, 1)


@pytest.mark.parametrize(
    ("place", "form", "name"),
    [
        (("node", "options"), "", "NODE_OPTIONS"),
        (("bash", "env"), "", "BASH_ENV"),
        (("ld", "library", "path"), "", "LD_LIBRARY_PATH"),
        (("git", "ssh", "command"), "github", "GIT_SSH_COMMAND"),
        (("dayfly", "url"), "", "DAYFLY_URL"),
        (("pip", "extra", "index-url"), "", "PIP_EXTRA_INDEX_URL"),
        (("npm", "config", "ca"), "", "NPM_CONFIG_CA"),
        (("lua", "init"), "", "LUA_INIT"),
        (("tf", "cli", "args"), "", "TF_CLI_ARGS"),
        (("node", "tls", "reject-unauthorized"), "", "NODE_TLS_REJECT_UNAUTHORIZED"),
        (("git", "clean", "flags"), "gitlab", "GIT_CLEAN_FLAGS"),
        (("github", "env"), "github", "GITHUB_ENV"),
        (("runner", "tool", "cache"), "github", "RUNNER_TOOL_CACHE"),
        (("ci", "job", "token"), "gitlab", "CI_JOB_TOKEN"),
    ],
)
def test_output_that_would_steer_programs_is_refused(place: tuple[str, ...], form: str, name: str):
    *resource, step, output = place
    found = {"resource": "".join(resource), "step": step, "output": output, "value": "x"}
    with pytest.raises(DayflyError, match=rf"the output \S+ would set {name}.*rename its resource, step or output"):
        outputs.variables([found], form)
    if name.startswith(("GITHUB", "RUNNER", "CI")):
        assert [each.name for each in outputs.variables([found])] == [name], "elsewhere it is a name like others"
    else:
        typed = Output(**found, encoding="utf-8", sensitive=False)
        with pytest.raises(DayflyError, match=name):
            Outputs((typed,)).variables()


def test_env_without_outputs_fails_also_within_eval(served: Cli):
    steps = json.dumps([{"name": "make", "script": "#!/bin/sh\n"}])
    served.write(
        "n.yaml", f"name: none\nspec: {{cluster: local, resources: [{{name: a, spec: {{create: {steps}}}}}]}}\n"
    )
    assert served("apply", "-f", "n.yaml").code == 0
    done = served("env", "none")
    assert (done.code, done.err) == (1, 'Sandbox "none" has no outputs\n'), "it is ready: no more will come"
    assert subprocess.run(["sh", "-c", 'eval "$1" && exit 7', "sh", done.out], check=False).returncode == 1
    for form, printed in (("github", ""), ("gitlab", ""), ("json", "[]\n")):
        done = served("env", "none", "-o", form)
        assert (done.code, done.out) == (1, printed)


def test_env_for_ci_skips_and_reports_too_long_values(served: Cli, journal: Path):
    longest = 32 * os.sysconf("SC_PAGE_SIZE")
    big = f"head -c {longest} /dev/zero | tr '\\0' a > /tmp/bytes"
    served.write("p.yaml", sample_specs.plugin(journal, extra=big))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    done = served("env", "demo", "-o", "github")
    assert (done.code, done.err) == (0, f"DB_SEED_BYTES has {longest} bytes, which is more than a variable can hold\n")
    assert _read_by_github(done.out) == {"DB_PROVISION_PATH": "/data/demo", "DB_PROVISION_SECRET": "it's a $ecret"}
    assert served("env", "demo", "-o", "gitlab").out == "DB_PROVISION_PATH=/data/demo\n"


def test_env_and_a_shell(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox())
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


SECRET = {"resource": "db", "step": "make", "output": "password", "value": "p%w\nnext", "sensitive": True}
URL = {"resource": "db", "step": "make", "output": "url", "value": "db://1"}
BINARY = {"resource": "db", "step": "seed", "output": "url", "value": "AP8=", "encoding": "base64"}


def test_github_masks_each_line_of_sensitive_values():
    assert outputs.github_masks(outputs.variables([SECRET, URL])) == ["::add-mask::p%25w", "::add-mask::next"]


def test_gitlab_report_omits_sensitive_outputs():
    assert outputs.format_gitlab(outputs.variables([SECRET, URL])) == "DB_MAKE_URL=db://1\n"


def test_docker_file_holds_values_of_one_line():
    spaced = {**URL, "value": " a 'b' $c "}
    assert outputs.format_docker(outputs.variables([spaced])) == "DB_MAKE_URL= a 'b' $c \n"
    with pytest.raises(DayflyError, match="DB_MAKE_PASSWORD: docker --env-file cannot hold"):
        outputs.format_docker(outputs.variables([SECRET]))


@pytest.mark.parametrize("name", ["db.password", "make.password", "db/make.password", "DB_MAKE_PASSWORD"])
def test_one_output_is_found_by_each_of_its_names(name: str):
    assert outputs.find_output([SECRET, URL, BINARY], name) == b"p%w\nnext"


def test_unknown_ambiguous_and_withheld_output_are_refused():
    with pytest.raises(DayflyError, match=r'no output "db.pasword"; did you mean "db/make.password"\?'):
        outputs.find_output([SECRET, URL], "db.pasword")
    with pytest.raises(DayflyError, match=r"several outputs; use one of db/make.url, db/seed.url"):
        outputs.find_output([URL, BINARY], "db.url")
    with pytest.raises(DayflyError, match="never leaves its cluster"):
        outputs.find_output([{**SECRET, "value": "", "withheld": True}], "db.password")
    assert outputs.find_output([URL, BINARY], "seed.url") == b"\x00\xff"
