"""`dayfly get`: the formats of `-o`, several spellings, and the watch."""

from __future__ import annotations

import getpass
import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def demo(served: Cli, journal: Path) -> Cli:
    """With the sandbox `demo`, which has labels."""
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox().replace("cluster: local", "cluster: local\n  labels: {team: pay}"))
    assert served("apply", "-f", ".").code == 0
    return served


def test_spellings_of_one_sandbox_print_the_same(demo: Cli):
    def stable(*words: str) -> str:
        done = demo(*words)
        assert done.code == 0, done.err
        return re.sub(r"\(\d+s ago\)|\d+ (ms|s)\b|< 1 s", "", done.out)

    shown = stable("get", "sandbox", "demo")
    assert "Labels:        team=pay\n" in shown
    assert re.search(r"^OUTPUT +VALUE$", shown, re.MULTILINE)
    assert "succeeded" in shown
    for words in (["get", "sandbox/demo"], ["sandbox", "get", "demo"], ["sb", "get", "sandbox/demo"]):
        assert stable(*words) == shown, words
    data = [
        json.loads(demo(*words, "-o", "json").out) for words in (["get", "sandbox/demo"], ["sandbox", "get", "demo"])
    ]
    assert data[0] == data[1]


def test_output_formats(demo: Cli):
    for words in (["get"], ["sandbox", "list"]):
        assert demo(*words, "-o", "name").out == "demo\n"
        assert demo(*words, "-o", "jsonpath={[*].name}").out == "demo\n"
        assert yaml.safe_load(demo(*words, "-o", "yaml").out)[0]["name"] == "demo"
        assert "team=pay" not in demo(*words).out
        header, row = demo(*words, "-o", "wide").out.splitlines()
        assert header.endswith("LABELS")
        assert row.endswith("team=pay")
        assert demo(*words, "--no-headers").out.startswith("demo ")
    assert demo("get", "sandbox", "demo", "-o", "jsonpath=$.units[*].state").out.split()[:2] == ["succeeded"] * 2
    assert demo("sandbox", "get", "demo", "-o", "jsonpath=.status").out.startswith('{"ready": true')
    refused(demo("why", "demo", "-o", "name"), 2, "these objects have no names")
    refused(demo("get", "-o", "xml"), 2, "'xml' is not one of json, yaml, name, wide and jsonpath=QUERY")
    refused(demo("get", "-o", "jsonpath=$.a["), 2, "is not a JSONPath query")


def test_mine_lists_only_sandboxes_of_the_local_user(demo: Cli):
    user = getpass.getuser()
    assert demo("get", "--mine", "-o", "name").out == "demo\n"
    assert demo("get", "resources", "--mine", "-o", "name").out == "db\n"
    assert f" {user} " in demo("get", "-o", "wide").out.splitlines()[1]
    assert f"Created by:    {user}\n" in demo("get", "sandbox", "demo").out
    assert json.loads(demo("get", "-o", "json").out)[0]["createdBy"] == user
    refused(demo("get", "routegroups", "--mine"), 2, "--mine is for lists of sandboxes")
    refused(demo("get", "sandbox", "demo", "--mine"), 2, "--mine is for lists of sandboxes")


def test_times_in_json_are_rfc_3339(demo: Cli):
    found = json.loads(demo("get", "sandbox", "demo", "-o", "json").out)
    times = [found["bornAt"], *(unit[key] for unit in found["units"][:2] for key in ("startedAt", "endedAt"))]
    assert all(TIME.fullmatch(each) for each in times), times
    entry = json.loads(demo("audit", "-o", "json").out)[0]
    assert TIME.fullmatch(entry["at"])


def test_watch_prints_each_change_of_a_sandbox(demo: Cli):
    demo.write("other.yaml", sample_specs.sandbox("other"))
    process = demo.start("get", "-w", "-l", "!team")
    assert demo("apply", "-f", "other.yaml").code == 0
    lines: list[str] = []

    def read_until(word: str) -> None:
        while not (lines and word in lines[-1]):
            lines.append(process.stdout.readline().decode())

    read_until("Ready")
    assert demo("sandbox", "delete", "other").code == 0
    read_until("Gone")
    assert lines[0].startswith("SANDBOX ")
    assert {line.split()[0] for line in lines[1:]} == {"other"}
    refused(demo("get", "sandbox", "none", "-w"), 3, 'no sandbox "none"')
    refused(demo("get", "-w", "-o", "json"), 2, "--watch prints a table")


PARENT = """
name: shelf@1.0.0
spec:
  create:
  - name: start
    outputs: [{name: path, valueFromPath: /tmp/path}]
    script: "#!/bin/sh\\nprintf %s shelf >/tmp/path\\n"
"""
CHILD = """
name: book@1.0.0
spec:
  parent: {plugin: shelf@1.0.0, linger: 1h}
  create:
  - name: make
    inputs: [{name: shelf, valueFromParent: {step: start, output: path}}]
    script: "#!/bin/sh\\n"
"""
BOX = """
name: %s
spec: {cluster: local, labels: {team: %s}, resources: [{name: first, plugin: book}, {name: second, plugin: book}]}
"""


def test_parents_are_listed_with_their_holders(served: Cli):
    assert served("get", "parents").err == "There are no shared parents.\n"
    for name, text in (("p", PARENT), ("c", CHILD), ("a", BOX % ("a", "pay")), ("b", BOX % ("b", "web"))):
        served.write(f"{name}.yaml", text)
    assert served("apply", "-f", ".").code == 0
    [found] = json.loads(served("get", "parents", "-o", "json").out)
    assert found["name"].startswith("shelf-")
    assert (found["phase"], found["holders"]) == ("Ready", ["a/first", "a/second", "b/first", "b/second"])
    assert served("get", "parents", "-l", "team=web").out.split()[-4:] == ["Ready", "2", "b/first,", "b/second"]
    assert served("get", "parents", "-o", "name").out == f"{found['name']}\n"
    assert served("sandbox", "delete", "a").code == 0
    assert json.loads(served("get", "parent", found["name"], "-o", "json").out)[0]["holders"] == ["b/first", "b/second"]
    refused(served("get", "parent/shelf"), 3, 'no shared parent "shelf"', "dayfly get parents")
    assert served("why", f"parent/{found['name']}").out == f"parent/{found['name']} is not waiting for anything\n"
    asked = json.loads(served("why", f"parents/{found['name']}", "-o", "json").out)
    assert (asked["subject"], asked["reason"]) == (f"parents/{found['name']}", "AllDesiredWorkloadsReady")
    refused(served("why", "parent/shelf"), 3, 'no sandbox uses a shared parent "shelf"', "dayfly get parents")
