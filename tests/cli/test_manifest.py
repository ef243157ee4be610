"""Manifest: files as objects for kubectl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path

SANDBOX = """\
name: demo
spec:
  cluster: local
  resources: [{name: db, plugin: notes@1.0.0, params: {owner: "@{who}"}}]
"""
HOOK = """\
name: backup
spec:
  selector: {apiVersion: v1, kind: ConfigMap}
  preStop: [{name: save, script: "#!/bin/sh"}]
"""
BASELINE = "kind: Deployment\nname: web\nnamespace: default\ncommand: [sleep]\n"


def write(cli: Cli, journal: Path) -> tuple[str, ...]:
    """A plugin, a sandbox and a hook, and a baseline; the words that name them."""
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("s.yaml", SANDBOX)
    cli.write("h.yaml", HOOK)
    cli.write("b.yaml", BASELINE)
    return ("-f", ".", "--set", "who=ada")


def test_files_become_objects(cli: Cli, journal: Path):
    done = cli("manifest", *write(cli, journal))
    assert done.code == 0
    assert done.err == "left out: the baseline default/web, because a cluster has its own Deployments\n"
    listed = yaml.safe_load(done.out)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert [(each["kind"], each["metadata"]) for each in listed["items"]] == [
        ("ResourcePlugin", {"name": "notes.1.0.0"}),
        ("Sandbox", {"name": "demo"}),
        ("LifecycleHook", {"name": "backup"}),
    ]
    assert listed["items"][1]["spec"]["resources"][0]["params"] == {"owner": "ada"}
    assert not cli.home.exists()


def test_manifest_objects_plan_the_same_as_their_files(cli: Cli, journal: Path):
    words = write(cli, journal)
    meant = cli("plan", *words)
    made = json.loads(cli("manifest", *words, "-o", "json").out)
    again = "\n---\n".join(map(json.dumps, made["items"]))
    read = cli("plan", "-f", "-", stdin=again)
    assert read.out == meant.out != ""


def test_file_without_cluster_objects_is_refused(cli: Cli):
    cli.write("b.yaml", BASELINE)
    refused(cli("manifest", "-f", "b.yaml"), 2, "contains nothing for a cluster")


def test_leak_check_becomes_an_object(cli: Cli):
    cli.write("c.yaml", "kind: LeakCheck\nname: folders\nspec: {cluster: east, plugin: folder, grace: 2h}\n")
    done = cli("manifest", "-f", "c.yaml")
    assert (done.code, done.err) == (0, "")
    [found] = yaml.safe_load(done.out)["items"]
    assert (found["kind"], found["metadata"]) == ("LeakCheck", {"name": "folders"})
    assert found["spec"] == {"cluster": "east", "plugin": "folder", "params": {}, "grace": "2h"}
