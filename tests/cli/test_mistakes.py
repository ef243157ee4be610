"""Mistakes that people make: each answer has the exit code of its kind, and the place or the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Cli

PLUGIN = """\
name: good@1.0.0
spec:
  create:
  - name: make
    inputs: [{name: size, valueFromSandbox: true, default: "3"}]
    outputs: [{name: path, valueFromPath: /tmp/path}]
    script: "#!/bin/sh"
"""
SANDBOX = """\
name: box
spec:
  cluster: local
  resources: [{name: db, plugin: good}]
"""
# The command line, the exit code, and the words that name the place or the next command.
WITHOUT_SERVER = [
    ("apply plugin.yaml", 2, ["apply -f plugin.yaml"]),
    ("apply -f plugin.yml", 2, ["plugin.yml", "plugin.yaml"]),
    ("apply -f folder", 2, ["folder"]),
    ("get", 6, ["dayfly up"]),
    ("get --server nosuch", 3, ["nosuch", "dayfly login"]),
    ("get -n team", 2, ["--context"]),
    ("get -o xml", 2, ["xml", "jsonpath"]),
    ("get plugins", 2, ["dayfly plugin list"]),
    ("get leakchecks", 2, ["dayfly leaks"]),
    ("delete pool box", 2, ["dayfly pool delete"]),
    ("list plugins", 2, ["dayfly plugin list"]),
    ("session list", 2, ["dayfly mcp"]),
    ("usage --by team=pay", 2, ["--by team", "'team=pay'"]),
    ("pool create", 2, ["dayfly apply -f"]),
    ("state pull a b", 2, ["dayfly state show"]),
    ("cluster rm local", 2, ["dayfly cluster remove"]),
    ("sandbox creat", 2, ["dayfly sandbox apply"]),
    ("validate", 2, ["dayfly plugin lint"]),
    ("plugin plan sandbox.yaml", 2, ["sandbox.yaml:1:1", "dayfly apply -f sandbox.yaml"]),
    ("plugin plan plugin.yaml -p siz=1", 2, ["siz", "size"]),
    ("plugin test plugin.yaml --param-file size=nosuch", 2, ["nosuch", "the param"]),
    ("plugin test plugin.yaml -x --keep-going", 2, ["--fail-fast"]),
    ("plugin test plugin.yaml --publish", 2, ["--context"]),
    ("with -f plugin.yaml -- nosuch-program", 127, ["nosuch-program"]),
    ("explain sandbox.resourcs", 3, ["resources"]),
    ("up --engine lxc", 2, ["--engine", "podman"]),
]
WITH_SERVER = [
    ("env demo nosuch", 3, ["nosuch", "provision.path"]),
    ("bug-report nosuch", 3, ["nosuch", "dayfly sandbox list"]),
    ("reset nosuch db", 3, ["nosuch", "dayfly sandbox list"]),
    ("logs demo nosuch", 3, ["nosuch", "db/"]),
    ("leaks nosuch", 3, ['no leak check "nosuch"', "see: dayfly leaks"]),
    ("leaks nosuch --sweep", 3, ['no leak check "nosuch"']),
    ("key delete nosuch", 3, ["dayfly key list"]),
    ("cluster token delete local nosuch", 3, ["dayfly cluster token list local"]),
    ("plugin delete notes@9.9.9", 3, ["9.9.9", "1.0.0"]),
    ("abandon demo --reason x", 1, ["dayfly sandbox delete demo"]),
]
POOL = """\
kind: ResourcePool
name: pool
spec: {cluster: local, plugin: good, ready: 1, maxAge: 24h}
"""
CHECK = """\
kind: LeakCheck
name: check
spec: {cluster: local, plugin: good, every: 24h}
"""
# A text of a valid file, its replacement, and the place of the fault.
FILES = [
    (SANDBOX, "cluster:", "clustr:", "3:3: spec.clustr"),
    (SANDBOX, "plugin: good", "plugin: good, params: [a]", "4:40: spec.resources[0].params"),
    (SANDBOX, "[{name: db, plugin: good}]", "{}", "4:3: spec.resources"),
    (SANDBOX, "[{name: db, plugin: good}]", "[{name: db", "5:1"),
    (PLUGIN, "valueFromSandbox: true,", "valueFromSandbx: true,", "5:27: spec.create[0].inputs[0].valueFromSandbx"),
    (PLUGIN, 'default: "3"', "default: 3", "5:51: spec.create[0].inputs[0].default"),
    (
        PLUGIN,
        "  create:",
        "  inputs: [{name: a, valueFromSandbox: true, steps: [mak]}]\n  create:",
        "3:54: spec.inputs[0].steps[0]",
    ),
    (PLUGIN, "  create:", "  redy: 1\n  plugin: x\n  cluster: local\n  creat:", "3:3: spec.redy"),
]


@pytest.mark.parametrize(("words", "code", "named"), WITHOUT_SERVER)
def test_mistake_without_a_server_is_answered(cli: Cli, words: str, code: int, named: list[str]):
    cli.write("plugin.yaml", PLUGIN)
    cli.write("sandbox.yaml", SANDBOX)
    (cli.folder / "folder").mkdir()
    refused(cli(*words.split()), code, *named)


def test_mistake_with_a_server_is_answered(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    for words, code, named in WITH_SERVER:
        refused(served(*words.split()), code, *named)


@pytest.mark.parametrize(("text", "old", "new", "place"), FILES)
def test_mistake_in_a_file_is_answered_with_its_place(cli: Cli, text: str, old: str, new: str, place: str):
    cli.write("file.yaml", text.replace(old, new))
    done = cli("plan", "-f", "file.yaml")
    assert (done.code, done.out) == (2, ""), done
    assert f"file.yaml:{place}" in done.err, done.err


@pytest.mark.parametrize(("text", "field"), [(POOL, "3:48: spec.maxAge"), (CHECK, "3:38: spec.every")])
def test_duration_without_a_unit_is_answered_with_units(cli: Cli, text: str, field: str):
    cli.write("file.yaml", text.replace("24h", "24"))
    done = cli("plan", "-f", "file.yaml")
    assert (done.code, done.out) == (2, ""), done
    assert f"file.yaml:{field}: 24 has no unit; write 24s, 24m or 24h" in done.err
