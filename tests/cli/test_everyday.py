"""Everyday commands: delete several, wait, history, open, the ends of logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def three(served: Cli, journal: Path) -> Cli:
    """With the sandboxes `a`, `b` and `c`; the first two have the label `team=pay`."""
    served.write("p.yaml", sample_specs.plugin(journal))
    for name in "abc":
        label = "cluster: local\n  labels: {team: pay}" if name != "c" else "cluster: local"
        served.write(f"{name}.yaml", sample_specs.sandbox(name).replace("cluster: local", label))
    assert served("apply", "-f", ".").code == 0
    return served


def test_delete_takes_names_labels_or_all(three: Cli):
    refused(three("sandbox", "delete"), 2, "give either names, -f FILE, --label or --all")
    refused(three("sandbox", "delete", "a", "--all"), 2, "give either names, -f FILE, --label or --all")
    assert three.sandboxes() == ["a", "b", "c"]
    done = three("sandbox", "delete", "-l", "team=none")
    assert (done.code, done.err) == (0, "No sandbox has matching labels; there are 3 without --label.\n")
    done = three("sandbox", "delete", "-l", "team=pay")
    assert done.code == 0, done.err
    assert three.sandboxes() == ["c"]
    done = three("sandbox", "delete", "sandbox/c", "none")
    assert done.code == 3
    assert 'no sandbox "none"' in done.err
    assert three.sandboxes() == []
    done = three("sandbox", "delete", "none", "--ignore-not-found")
    assert (done.code, done.err) == (0, "")
    assert three("sandbox", "delete", "--all").err == "There are no sandboxes.\n"


def test_delete_of_all_removes_every_sandbox(three: Cli):
    assert three("sandbox", "delete", "--all", "--no-wait").code == 0
    done = three("wait", "a", "b", "c", "--for", "deleted")
    assert done.code == 0, done.err
    assert three.sandboxes() == []


def test_wait_returns_when_ready_and_fails_when_it_cannot_be(three: Cli):
    done = three("wait", "a", "sandbox/b", "--for", "condition=Ready")
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "ready" in line] == [
        f'Sandbox "{name}" is ready.' for name in "ab"
    ]
    refused(three("wait", "none"), 3, 'no sandbox "none"')
    assert three("wait", "none", "--for", "deleted").code == 0
    refused(three("wait", "a", "--for", "deleted", "--timeout", "0s"), 4, "a still exists after 0 s")
    refused(three("wait"), 2, "Missing argument 'NAME...'")
    assert three("sandbox", "delete", "a").code == 0
    refused(three("wait", "a"), 3, "it has ended")


def test_history_lists_attempts_and_the_deletion(three: Cli):
    events = json.loads(three("history", "a", "-o", "json").out)
    assert ("db/provision", "Claim") in [(each["unit"], each["move"]) for each in events]
    assert three("sandbox", "delete", "a").code == 0
    header, *rows = three("history", "a").out.splitlines()
    assert header.split() == ["TIME", "UNIT", "ATTEMPT", "EVENT", "REASON", "MESSAGE"]
    assert any("deletion requested" in row and "(by " in row for row in rows)
    refused(three("history", "missing"), 3, 'no sandbox "missing"')


def test_open_prints_a_link_to_the_sandbox(three: Cli):
    (link,) = three("open", "a", "--no-open").out.splitlines()
    assert "/page/enter?to=sandboxes/a#" in link
    refused(three("open", "none"), 3, 'no sandbox "none"')
    refused(three("open", "pool/x"), 2, "the page shows sandboxes and route groups, not pools")


CHATTY = """\
name: chatty
spec:
  cluster: local
  labels: {team: talk}
  resources:
  - name: talk
    spec:
      create:
      - {name: many, script: "#!/bin/sh\\nseq 1 200\\nprintf end"}
      - {name: few, script: "#!/bin/sh\\necho one"}
"""


def test_logs_begin_with_the_last_lines(served: Cli):
    served.write("s.yaml", CHATTY)
    assert served("apply", "-f", "s.yaml").code == 0
    assert served("logs", "chatty", "talk", "many", "--tail", "2").out == "200\nend\n"
    assert served("logs", "chatty", "talk", "many", "--tail", "0").out == ""
    assert served("logs", "chatty", "talk", "many", "--tail", "2", "-f").out == "200\nend\n"
    assert served("logs", "chatty", "--tail", "1").out.splitlines() == ["talk/few | one", "talk/many | end"]
    stamped = served("logs", "chatty", "talk", "many", "--tail", "1", "--timestamps").out
    assert stamped.endswith("Z end\n")
    lines = served("logs", "-l", "team=talk", "--tail", "1").out.splitlines()
    assert lines == ["chatty/talk/few | one", "chatty/talk/many | end"]
    assert served("logs", "-l", "team=none").err == "No sandbox has matching labels; there is 1 without --label.\n"
    refused(served("logs", "chatty", "-n", "5"), 2, "for the last 5 lines of each log, type: --tail 5")
    refused(served("logs"), 2, "give either a sandbox or --label")
    refused(served("logs", "-l", "team=talk", "-f"), 2, "--follow only with a sandbox")


def test_apply_recreates_only_a_sandbox_that_cannot_change(three: Cli, journal: Path):
    three.write("a.yaml", sample_specs.sandbox("a").replace("owner: me", "owner: you"))
    unchanged = three("apply", "-f", "a.yaml")
    assert unchanged.code == 2
    assert journal.read_text().count("drop") == 0
    done = three("apply", "-f", "a.yaml", "-f", "b.yaml", "--recreate")
    assert done.code == 0, done.err
    assert 'Recreating sandbox "a", because resources cannot be changed.' in done.err
    assert 'Unchanged: sandbox "b"' in done.err
    assert journal.read_text().count("drop") == 1


def test_apply_recreates_a_sandbox_that_has_failed(served: Cli):
    flag = served.folder / "flag"
    script = f"#!/bin/sh\\ntest -e '{flag}'"
    served.write("s.yaml", CHATTY.replace("#!/bin/sh\\necho one", script).replace("chatty", "late"))
    assert served("apply", "-f", "s.yaml").code == 1
    flag.touch()
    assert 'Unchanged: sandbox "late"' in served("apply", "-f", "s.yaml").err
    done = served("apply", "-f", "s.yaml", "--recreate")
    assert (done.code, 'Recreating sandbox "late", because it has failed.' in done.err) == (0, True), done.err
    assert 'Unchanged: sandbox "late"' in served("apply", "-f", "s.yaml", "--recreate").err


SENSITIVE = """\
name: keeper
spec:
  cluster: local
  resources:
  - name: db
    spec:
      create:
      - name: make
        script: "#!/bin/sh\\nprintf hidden >/tmp/password; printf shown >/tmp/url"
        outputs:
        - {name: password, valueFromPath: /tmp/password, sensitive: true}
        - {name: url, valueFromPath: /tmp/url}
"""


def test_env_masks_sensitive_values_only_in_github_actions(served: Cli):
    served.write("s.yaml", SENSITIVE)
    assert served("apply", "-f", "s.yaml").code == 0
    assert served("env", "keeper", "db.url").out == "shown"
    assert served("env", "keeper", "-o", "docker").out.splitlines() == ["DB_MAKE_PASSWORD=hidden", "DB_MAKE_URL=shown"]
    assert served("env", "keeper", "-o", "dotenv").out == served("env", "keeper").out
    done = served("env", "keeper", "-o", "github", GITHUB_ACTIONS="true")
    assert (done.err, "DB_MAKE_PASSWORD=hidden" in done.out) == ("::add-mask::hidden\n", True)
    assert served("env", "keeper", "-o", "github", GITHUB_ACTIONS="").err == ""
    done = served("env", "keeper", "-o", "gitlab")
    assert (done.out, "DB_MAKE_PASSWORD is sensitive" in done.err) == ("DB_MAKE_URL=shown\n", True)
    shown = served("get", "sandbox", "keeper").out
    assert "hidden" not in shown
    assert "db/make.password   (sensitive)\n" in shown
    refused(served("env", "keeper", "db.none"), 3, 'no output "db.none"')


def test_with_names_the_resource_of_a_missing_plugin(served: Cli):
    served.write("s.yaml", "name: t\nspec: {cluster: local, resources: [{name: a, plugin: nosuch}]}\n")
    refused(
        served("with", "-f", "s.yaml", "--", "true"),
        3,
        "s.yaml:2:46: spec.resources[0].plugin",
        "add the plugin's file with -f",
    )
