"""`dayfly plugin lint` for people, editors and code hosts."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from sarif_pydantic import Sarif

from dayfly.cli import linter
from dayfly.cli.commands import plugin
from dayfly.client.errors import DayflyError
from dayfly.lint import RULES
from dayfly.spec.errors import SpecError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TWO = """\
name: app@1.0.0
spec:
  runner: {image: postgres}
  create:
  - name: make
    script: "@{embed: ./make.sh}"
  delete:
  - name: remove
    script: |
      #!/bin/sh
      dropdb --if-exists "app_$DAYFLY_RESOURCE_ID"
  inventory:
  - name: list
    script: "@{embed: ./list.py}"
"""
MAKE = """\
#!/bin/sh
set -eu

createdb everybodys
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin with two mistakes, one of them in a script file, without shellcheck."""
    (tmp_path / "plugin.yaml").write_text(TWO)
    (tmp_path / "make.sh").write_text(MAKE)
    (tmp_path / "list.py").write_text("#!/usr/bin/env python3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(plugin.command, ["lint", *words], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.stdout, done.stderr


def test_the_text_has_place_code_mistake_and_advice(folder: Path):
    code, out, err = run()
    assert code == 1
    assert out.splitlines() == [
        "make.sh:4: DF202 spec.create[0].script: creates something with the same name in every sandbox",
        f"    {RULES['DF202'].advice}",
        'plugin.yaml:3: DF601 spec.runner.image: "postgres" has no tag',
        f"    {RULES['DF601'].advice}",
    ]
    assert err.splitlines() == ["2 mistakes found.", f"note: {linter.NO_SHELLCHECK}"]


def test_json_has_the_same(folder: Path):
    code, out, _ = run("plugin.yaml", "-o", "json")
    first, second = json.loads(out)
    assert (code, second["code"], second["line"], second["column"]) == (1, "DF601", 3, 12)
    assert first == {
        "code": "DF202",
        "rule": "shared-name",
        "file": "make.sh",
        "line": 4,
        "column": 0,
        "path": "spec.create[0].script",
        "problem": "creates something with the same name in every sandbox",
        "advice": RULES["DF202"].advice,
    }


def test_sarif_is_read_by_a_reader_of_it(folder: Path):
    code, out, err = run("-f", "plugin.yaml", "-o", "sarif")
    assert (code, err) == (1, "")
    log = Sarif.model_validate_json(out)
    [ran] = log.runs
    assert (log.version, ran.tool.driver.name) == ("2.1.0", "dayfly")
    assert [rule.id for rule in ran.tool.driver.rules] == sorted(RULES)
    found = [(each.rule_id, ran.tool.driver.rules[each.rule_index].id) for each in ran.results]
    assert found == [("DF202", "DF202"), ("DF601", "DF601")]
    place = ran.results[0].locations[0].physical_location
    assert (place.artifact_location.uri, place.region.start_line) == ("make.sh", 4)
    assert linter.NO_SHELLCHECK in out


def test_nothing_found_is_0_in_each_form(folder: Path):
    (folder / "make.sh").write_text(MAKE.replace("everybodys", '"app_$DAYFLY_RESOURCE_ID"'))
    assert run("--ignore", "DF601")[:2] == (0, "")
    assert run("--ignore", "DF601", "-o", "json")[:2] == (0, "[]\n")
    code, out, _ = run("--ignore", "DF601", "-o", "sarif")
    assert (code, Sarif.model_validate_json(out).runs[0].results) == (0, [])


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("--select DF2", ["DF202"]),
        ("--select df601,DF202", ["DF202", "DF601"]),
        ("--select DF2 --select DF6", ["DF202", "DF601"]),
        ("--ignore DF2", ["DF601"]),
        ("--select DF2 --ignore DF202", []),
        ("--ignore DF", []),
    ],
)
def test_rules_are_chosen_by_their_beginning(folder: Path, words: str, codes: list[str]):
    _, out, _ = run("-o", "json", *shlex.split(words))
    assert [each["code"] for each in json.loads(out)] == codes


def test_unknown_rule_is_refused(folder: Path):
    with pytest.raises(DayflyError, match='no rule has a code that begins with "DF9"') as raised:
        run("--select", "DF9")
    assert raised.value.code == 2
    with pytest.raises(DayflyError, match='there is no rule "DF999"') as raised:
        run("--explain", "DF999")
    assert raised.value.code == 2


def test_a_rule_is_explained(folder: Path):
    code, out, _ = run("--explain", "df202")
    assert code == 0
    assert out.splitlines()[:3] == ["DF202 shared-name", RULES["DF202"].wrong, RULES["DF202"].advice]


def test_unreadable_input_is_a_usage_error(folder: Path):
    with pytest.raises(DayflyError, match=r"nothing\.yaml: no such file") as raised:
        run("nothing.yaml")
    assert raised.value.code == 2
    (folder / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(DayflyError, match="contains no document"):
        run("empty.yaml")
    with pytest.raises(SpecError, match="--set"):
        run("--set", "image")


def test_refusals_and_advice_are_reported_together(folder: Path):
    (folder / "make.sh").unlink()
    (folder / "other.yaml").write_text(TWO.replace('"@{embed: ./make.sh}"', "createdb everybodys"))
    (folder / "third.yaml").write_text("name: [\n")
    code, out, _ = run("-o", "json", "other.yaml", "plugin.yaml", "third.yaml")
    told = [(each["file"], each["code"]) for each in json.loads(out)]
    assert code == 1
    assert told == [
        ("other.yaml", "DF601"),
        ("other.yaml", "DF101"),
        ("plugin.yaml", "DF101"),
        ("third.yaml", "DF101"),
    ]


def test_unreadable_field_hides_no_other_finding(folder: Path):
    """A misspelt field, a bad name and a null are reported with everything else."""
    (folder / "plugin.yaml").write_text("""\
name: Bad_Name@1
spec:
  runner: {image: postgres}
  create:
  - name: make
    scirpt: createdb everybodys
  - name: make
    inputs: null
    script: |
      #!/bin/sh
      createdb everybodys
  - name: use
    inputs: [{name: of, valueFromStep: {name: mkae, output: x}}]
    script: echo $OF
""")
    code, out, _ = run("-o", "json")
    told = [(each["line"], each["code"], each["path"]) for each in json.loads(out)]
    assert code == 1
    assert told == [
        (1, "DF101", "name"),
        (3, "DF601", "spec.runner.image"),
        (6, "DF101", "spec.create[0].scirpt"),
        (7, "DF101", "spec.create[1].name"),
        (11, "DF202", "spec.create[1].script"),
        (11, "DF207", "spec.create[1].script"),
        (13, "DF101", "spec.create[2].inputs[0].valueFromStep"),
        (14, "DF101", "spec.create[2].script"),
    ]
    (folder / "plugin.yaml").write_text(TWO.replace("delete:", "dlete:").replace('"@{embed: ./make.sh}"', "echo"))
    told = [(each["line"], each["path"]) for each in json.loads(run("--select", "DF1,DF207", "-o", "json")[1])]
    assert told == [(6, "spec.create[0].script"), (7, "spec.dlete")], "what is not there may be misspelt"


def test_the_steps_of_a_sandbox_are_held_against_each_other_too(folder: Path):
    step = {
        "name": "use",
        "script": "#!/bin/sh",
        "inputs": [{"name": "a", "valueFromStep": {"name": "b", "output": "c"}}],
    }
    sandbox = {"name": "s", "spec": {"cluster": "local", "resources": [{"name": "db", "spec": {"create": [step]}}]}}
    (folder / "plugin.yaml").write_text(yaml.safe_dump(sandbox))
    [found] = json.loads(run("--select", "DF1", "-o", "json")[1])
    assert found["path"] == "spec.resources[0].spec.create[0].inputs[0].valueFromStep"


def test_a_comment_silences_one_rule_in_its_line_or_the_next(folder: Path):
    (folder / "make.sh").write_text(MAKE.replace("everybodys", "everybodys  # dayfly: ignore=DF202"))
    assert run("--select", "DF202")[0] == 0
    (folder / "make.sh").write_text(MAKE.replace("createdb", "# on purpose; dayfly: ignore=DF301, DF202\ncreatedb"))
    assert run("--select", "DF202")[0] == 0
    (folder / "make.sh").write_text(MAKE.replace("everybodys", "everybodys  # dayfly: ignore=DF203"))
    assert run("--select", "DF202")[0] == 1
    (folder / "make.sh").write_text(MAKE.replace("set -eu", "set -eu  # dayfly: ignore=DF202"))
    assert run("--select", "DF202")[0] == 1


def test_value_with_an_unset_variable_is_not_judged(folder: Path):
    webhook = TWO.replace('script: "@{embed: ./make.sh}"', "webhook: {method: GET, url: '@{server}/x'}")
    (folder / "plugin.yaml").write_text(webhook.replace("image: postgres}", "image: '@{image}'}"))
    assert run()[0] == 0
    assert json.loads(run("--set", "image=postgres", "-o", "json")[1])[0]["code"] == "DF601"
    assert json.loads(run("--set", "server=nowhere", "-o", "json")[1])[0]["code"] == "DF101"


def test_plugins_within_a_sandbox_are_looked_at_too(folder: Path):
    spec = yaml.safe_load(TWO)["spec"]
    spec["create"][0]["script"] = MAKE
    sandbox = {"name": "s", "spec": {"cluster": "local", "resources": [{"name": "db", "spec": spec}]}}
    (folder / "plugin.yaml").write_text(yaml.safe_dump(sandbox))
    _, out, _ = run("-o", "json")
    assert sorted((each["code"], each["path"]) for each in json.loads(out)) == [
        ("DF202", "spec.resources[0].spec.create[0].script"),
        ("DF601", "spec.resources[0].spec.runner.image"),
    ]


def test_failing_shellcheck_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch):
    program = folder / "shellcheck"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(DayflyError, match="shellcheck failed"):
        run()


def test_shellcheck_finds_its_mistakes_in_the_line_of_the_script(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    (folder / "make.sh").write_text("#!/bin/sh\nset -eu\n\nmkdir /srv/$DAYFLY_RESOURCE_ID $1\n")
    code, out, err = run("--select", "DF502")
    assert (code, "note:" in err) == (1, False)
    assert out.startswith(
        "make.sh:4: DF502 spec.create[0].script: Double quote to prevent globbing and word splitting (SC2086)"
    )


def test_hostile_input_is_read_and_never_run(folder: Path):
    """A file may come from an untrusted change: lint reads it and runs nothing of it."""
    (folder / "plugin.yaml").write_bytes(TWO.encode() + b"\xff")
    assert json.loads(run("-o", "json")[1])[0]["code"] == "DF101"
    (folder / "plugin.yaml").write_text(TWO)
    long = "kubectl create x --dry-run " * 4000
    for script in (
        f"#!/bin/sh\n{long}",
        "#!/bin/sh\n'" + long.replace(" ", "\n"),
        "#!/bin/sh\n" + "if a\n" * 20_000,
        "#!/bin/sh\n" + "$(" * 60_000,
        "#!/bin/sh\n" + "'" * 9999,
        "#!/bin/sh\n" + "x <<EOF\n" * 999,
        "#!\n",
        "#!/usr/bin/env -S sh\n((((`$({",
    ):
        (folder / "make.sh").write_text(script)
        run("-o", "json")
    (folder / "make.sh").write_text("#!/bin/sh\ntouch ran; $(touch ran) `touch ran`\n")
    run()
    assert not (folder / "ran").exists()


@pytest.mark.timeout(20)
def test_a_path_that_begins_with_two_slashes_is_looked_for_once(folder: Path):
    """The parent of `//` is `//` by POSIX, so a loop to the root would never end."""
    outputs = "    outputs: [{name: path, valueFromPath: //tmp/path}]\n"
    (folder / "plugin.yaml").write_text(TWO.replace("  delete:\n", f"{outputs}  delete:\n"))
    found = json.loads(run("--select", "DF101,DF402", "-o", "json")[1])
    assert [(each["code"], each["line"]) for each in found] == [("DF101", 7), ("DF402", 7)]


NAMELESS = """\
name: app@1.0.0
spec:
  create:
  - name: make
    inputs: [{name: "NAME", valueFromSandbox: true}]
    outputs: [{name: id, valueFromPath: /tmp/id}]
    script: |
      #!/bin/sh
      set -eu
      mkdir "/srv/$DAYFLY_RESOURCE_ID"
      printf %s "/srv/$DAYFLY_RESOURCE_ID" >/tmp/id
  delete:
  - name: remove
    inputs: [{name: "NAME", valueFromStep: {name: make, output: id}}]
    WORK
"""


@pytest.mark.parametrize("name", ["disk[0", "*disk", "(disk", "d{1"])
@pytest.mark.parametrize(
    "work", ["script: '#!/bin/sh'", 'webhook: {url: "https://a.example", body: {id: {$input: x}}}']
)
def test_a_name_that_is_none_is_refused_in_its_place(folder: Path, name: str, work: str):
    """The other rules read the name as text, not as a pattern."""
    (folder / "plugin.yaml").write_text(NAMELESS.replace("NAME", name).replace("WORK", work))
    found = json.loads(run("-o", "json")[1])
    assert {each["line"] for each in found if "is not an input name" in each["problem"]} == {5, 14}


@pytest.mark.parametrize(
    ("spec", "line", "problem"), [("", 1, "has no spec"), ("spec: [resources]\n", 3, "must be a mapping, not a list")]
)
def test_a_sandbox_that_has_no_spec_is_refused(folder: Path, spec: str, line: int, problem: str):
    (folder / "plugin.yaml").write_text(f"kind: Sandbox\nname: ada\n{spec}")
    (found,) = json.loads(run("-o", "json")[1])
    assert (found["code"], found["line"]) == ("DF101", line)
    assert problem in found["problem"]


def test_blanks_behind_a_variable_that_never_ends_are_read_once(folder: Path):
    (folder / "plugin.yaml").write_text(TWO.replace("postgres", f'"@{{image{" " * 120_000}"'))
    started = time.process_time()
    run("-o", "json")
    assert time.process_time() - started < 10  # CPU seconds; at most one on a quiet machine


def test_pre_commit_hook_calls_an_existing_command(folder: Path):
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    program, *words = shlex.split(hook["entry"])
    assert (program, words[0]) == ("dayfly", "plugin")
    shutil.copy(folder / "plugin.yaml", folder / "other-plugin.yaml")
    done = CliRunner().invoke(plugin.command, [*words[1:], "plugin.yaml", "other-plugin.yaml"], standalone_mode=False)
    assert (done.return_value, done.stdout.count("DF601")) == (1, 2)
