"""`dayfly plan` without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused

from dayfly.cli.output import plan_diff

if TYPE_CHECKING:
    from pathlib import Path

SANDBOX = """\
name: demo
spec:
  cluster: local
  forks:
  - forkOf: {kind: Deployment, namespace: default, name: web}
    customizations:
      env:
      - {name: DB, valueFrom: {resource: {name: db, outputKey: provision.path}}}
      - {name: MODE, value: "test mode"}
      - {name: OLD, operation: delete}
  resources:
  - {name: db, plugin: notes}
  hooks:
    postStart:
    - name: hello
      inputs: [{name: db, valueFrom: {resource: {name: db, outputKey: provision.secret}}, as: {path: /tmp/db}}]
      script: "#!/bin/sh"
"""

EXPECTED = """\
Sandbox "demo" in cluster "local"

preStart, wave 1
  db/provision (once, image debian:12)
    $OWNER = (no value)
    /tmp/out/path -> path
    /tmp/out/secret -> secret (sensitive)

preStart, wave 2
  db/seed (once, image debian:12)
    $DB = db/provision.path
    /tmp/bytes -> bytes

start
  fork:default/web (Deployment)
    $DB = db/provision.path
    $MODE = "test mode"
    $OLD is removed
"""

AFTER = """\

postStart, wave 1
  hello (once)
    /tmp/db = db/provision.secret (sensitive)

delete, stage 1: forks
  fork:default/web stops

delete, stage 2: postStop
  db/drop (until it succeeds, 5 s apart at first, image debian:12)
    $DB = db/provision.path
"""


def test_plan_prints_the_story_of_a_sandbox(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("s.yaml", SANDBOX)
    done = cli("plan", "-f", ".")
    assert (done.code, done.err) == (0, "")
    # The compiler's own variables of forks are not shown.
    told = [line for line in done.out.splitlines(keepends=True) if "$SIGNADOT_" not in line and "$DAYFLY_" not in line]
    assert "".join(told) == EXPECTED + AFTER
    assert not cli.home.exists()


def test_as_data(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("s.yaml", SANDBOX)
    (found,) = json.loads(cli("plan", "-f", ".", "-o", "json").out)
    assert found["sandbox"] == "demo"
    assert [event["event"] for event in found["events"]] == ["preStart", "postStart", "postStop"]
    assert "clocks" in found["events"][0]["waves"][0][0]


def test_a_plugin_that_is_in_no_file_comes_from_the_server(served: Cli, journal: Path):
    served.write("p/p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox())
    refused(served("plan", "-f", "s.yaml"), 3, 'plugin "notes" is neither in these files nor on the server')
    assert served("apply", "-f", "p").code == 0
    done = served("plan", "-f", "s.yaml")
    assert done.code == 0
    assert '$OWNER = "me"' in done.out
    assert served.sandboxes() == []
    assert not journal.exists()


def test_plan_errors_name_file_line_and_suggestion(cli: Cli, journal: Path):
    cli.write("s.yaml", sample_specs.sandbox())
    refused(cli("plan", "-f", "s.yaml"), 3, 'plugin "notes" is in none of these files', "dayfly up")
    cli.write("p.yaml", sample_specs.plugin(journal))
    refused(cli("plan", "-f", "p.yaml"), 2, "contains no sandbox")
    cli.write("s.yaml", SANDBOX.replace("provision.path", "provision.pth"))
    refused(cli("plan", "-f", "."), 2, "s.yaml:8:", 'no output "pth"', 'did you mean "path"?')
    text = sample_specs.plugin(journal).replace(
        "{name: owner, valueFromSandbox: true", "{name: o, valueFromStep: {name: seed, output: bytes}"
    )
    cli.write("p.yaml", text)
    refused(cli("plan", "-f", "."), 2, "p.yaml:7:", "provision.path -> seed.bytes")


@pytest.mark.parametrize(
    ("lives", "wished", "fixed"),
    [
        ("db@1.0.0", "db", ()),
        ("db@1.0.0", "db@latest", ()),
        ("db@1.0.0", "db@v1", ()),
        ("db", "db@latest", ()),
        ("db@1.0.0", "db@2.0.0", ("resources",)),
        ("db@1.0.0", "other", ("resources",)),
    ],
)
def test_plugin_reference_to_running_version_is_no_difference(lives: str, wished: str, fixed: tuple[str, ...]):
    """The comparison matches the server: changes that it rejects are immutable here."""
    now, new = (
        plan_diff.parse_existing({"cluster": "local", "resources": [{"name": "db", "plugin": plugin}]}, "sb1")
        for plugin in (lives, wished)
    )
    assert plan_diff.find_difference(now, new) == ((), fixed)


def test_diff_lists_changes_to_a_live_sandbox(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    sandbox = "name: living\nspec:\n  cluster: local\n  labels: {team: LABEL}\n  resources: [{name: db, plugin: notes, params: {owner: OWNER}}]\n"
    served.write("s.yaml", sandbox.replace("LABEL", "pay").replace("OWNER", "me"))
    refused(served("plan", "--diff", "-f", "p.yaml", "-f", "s.yaml"), 3, 'no sandbox "living"')
    assert served("apply", "-f", "p.yaml", "-f", "s.yaml").code == 0
    same = served("plan", "--diff", "-f", "s.yaml")
    assert (same.code, same.out.splitlines()[-1]) == (0, '"living" matches the file.'), same.err
    assert all(line.startswith("  ") or not line.strip() for line in same.out.splitlines()[:-1])
    served.write("s.yaml", sandbox.replace("LABEL", "new").replace("OWNER", "me"))
    assert (
        served("plan", "--diff", "-f", "s.yaml").out.splitlines()[-1] == 'Applying the file changes labels of "living".'
    )
    served.write("s.yaml", sandbox.replace("LABEL", "new").replace("OWNER", "you"))
    done = served("plan", "--diff", "-f", "s.yaml")
    assert [line for line in done.out.splitlines() if line[:1] in "+-"][:2] == [
        '-     $OWNER = "me"',
        '+     $OWNER = "you"',
    ]
    assert "is immutable in resources: delete it" in done.out
    data = json.loads(served("plan", "--diff", "-f", "s.yaml", "-o", "json").out)[0]
    assert (data["changes"], data["refused"]) == (["labels"], ["resources"])
    nobody = str(served.folder / "none")
    files = ("-f", "p.yaml", "-f", "s.yaml")
    refused(served("plan", "--diff", *files, DAYFLY_HOME=nobody), 6, "no server is running", "dayfly up")
