"""Pools on the command line, against the real server with the embedded host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Cli, refused, until

from dayfly.cli.output.pools import print_explanation

if TYPE_CHECKING:
    from pathlib import Path

STEPS = ("create", "grant", "revoke", "drop")


def plugin(journal: Path, *, name: str = "notes@1.0.0", create: str = ":") -> str:
    """Return a plugin with a step that a pool runs, and one that needs the sandbox."""
    return f"""\
name: {name}
spec:
  create:
  - name: create
    script: |
      #!/bin/sh
      {create}
      echo "create $DAYFLY_RESOURCE_ID" >> {journal}
      echo -n "file-$DAYFLY_RESOURCE_ID" > /tmp/url
    outputs: [{{name: url, valueFromPath: /tmp/url}}]
  - name: grant
    script: |
      #!/bin/sh
      echo "grant $owner $DAYFLY_RESOURCE_ID" >> {journal}
    inputs:
    - {{name: owner, valueFromSandbox: true, as: {{env: owner}}}}
  delete:
  - name: drop
    script: |
      #!/bin/sh
      echo "drop $url" >> {journal}
    inputs:
    - {{name: url, valueFromStep: {{name: create, output: url}}, as: {{env: url}}}}
"""


def pool(**changes: object) -> str:
    spec = {"cluster": "local", "plugin": "notes", "ready": 2, **changes}
    return json.dumps({"kind": "ResourcePool", "name": "small", "spec": spec})


def sandbox(name: str = "demo") -> str:
    return f"""\
name: {name}
spec:
  cluster: local
  resources:
  - {{name: db, plugin: notes, params: {{owner: ann}}}}
"""


@pytest.fixture
def pooled(served: Cli, journal: Path) -> Cli:
    """A server with a pool of two ready members."""
    served.write("plugin.yaml", plugin(journal))
    served.write("pool.yaml", pool())
    served.write("sandbox.yaml", sandbox())
    done = served("apply", "-f", "plugin.yaml", "-f", "pool.yaml")
    assert done.code == 0, done.err
    assert 'Created pool "small" in cluster "local".' in done.err
    assert done.err.splitlines()[-1] == 'Pool "small" is ready.'
    return served


def lines(journal: Path, step: str) -> list[str]:
    return [line for line in journal.read_text().splitlines() if line.split()[0] == step]


def ready(cli: Cli) -> list[dict[str, str]]:
    return [each for each in members(cli) if each["state"] == "ready"]


def members(cli: Cli) -> list[dict[str, str]]:
    return json.loads(cli("pool", "get", "small", "-o", "json").out)["status"]["members"]


def test_sandbox_takes_a_member_and_gives_it_back(pooled: Cli, journal: Path):
    made = lines(journal, "create")
    assert len(made) == 2
    assert pooled("apply", "-f", "sandbox.yaml").code == 0
    (grant,) = lines(journal, "grant")
    (held,) = [each for each in members(pooled) if each["state"] == "held"]
    assert (grant.split()[1], held["holder"]) == ("ann", "demo/db")
    assert f"create {grant.split()[2]}" in made, "the sandbox got a member that existed"
    assert f"file-{grant.split()[2]}" in pooled("env", "demo").out
    until(lambda: len(ready(pooled)) == 2)
    assert len(lines(journal, "create")) == 3, "the pool replaced the member"
    resource = json.loads(pooled("sandbox", "get", "demo", "-o", "json").out)["status"]["resources"]
    assert resource == [{"name": "db", "member": held["name"], "pool": "small", "hit": True}]
    shown = pooled("why", "pool/small")
    assert shown.code == 0, shown.err
    assert pooled("logs", "pool/small").code == 0
    assert pooled("sandbox", "delete", "demo").code == 0
    assert lines(journal, "drop") == [f"drop file-{grant.split()[2]}"]
    assert pooled("pool", "delete", "small").code == 0
    assert len(lines(journal, "drop")) == len(lines(journal, "create")) == 3
    refused(pooled("pool", "get", "small"), 3, 'no pool "small"')
    gone = 'pool "small" has ended, and the logs of its members are gone'
    refused(pooled("logs", "pool/small"), 3, gone, "see: dayfly why pool/small, or dayfly pool list")


def test_held_member_outlives_its_pool(pooled: Cli, journal: Path):
    assert pooled("apply", "-f", "sandbox.yaml").code == 0
    assert pooled("pool", "delete", "-f", "pool.yaml").code == 0
    held = lines(journal, "grant")[0].split()[2]
    assert f"drop file-{held}" not in lines(journal, "drop")
    assert pooled("sandbox", "delete", "demo").code == 0
    assert f"drop file-{held}" in lines(journal, "drop")
    assert len(lines(journal, "drop")) == len(lines(journal, "create"))


def test_paused_pool_serves_its_members_and_makes_none(pooled: Cli, journal: Path):
    assert pooled("pool", "pause", "small").err == 'Pool "small" is paused.\n'
    assert pooled("apply", "-f", "sandbox.yaml").code == 0
    assert len(lines(journal, "create")) == 2
    (row,) = pooled("pool", "list").out.splitlines()[1:]
    assert row.split()[:7] == ["small", "notes", "local", "1/2", "0", "1", "0"]
    assert row.split()[-1] == "Paused"
    assert pooled("pool", "drain", "small").code == 0
    until(lambda: not ready(pooled))
    assert len(lines(journal, "drop")) == 1
    assert pooled("pool", "resume", "small").code == 0
    until(lambda: len(ready(pooled)) == 2)
    assert pooled("sandbox", "delete", "demo").code == 0
    assert pooled("pool", "drain", "small").code == 0
    until(lambda: not members(pooled))
    refused(pooled("logs", "pool/small"), 3, "has no members, so it has no logs", "see: dayfly pool get small")
    assert pooled("pool", "delete", "small").code == 0


def test_pool_with_a_failing_plugin_pauses_itself(served: Cli, journal: Path):
    served.write("plugin.yaml", plugin(journal, create="echo broken disk; exit 7"))
    served.write("pool.yaml", pool(ready=1))
    done = served("apply", "-f", "plugin.yaml", "-f", "pool.yaml")
    assert done.code == 1
    assert "is paused" in done.err
    shown = served("pool", "get", "small").out
    assert "failed" in shown
    assert served("pool", "delete", "small").code == 0
    assert lines(journal, "create") == []


def test_invalid_pool_is_refused_with_its_place(served: Cli, journal: Path):
    served.write("plugin.yaml", plugin(journal))
    assert served("apply", "-f", "plugin.yaml").code == 0
    served.write("pool.yaml", pool(ready=-1))
    refused(served("apply", "-f", "pool.yaml"), 2, "pool.yaml:1:")
    served.write("pool.yaml", pool(plugin="nothing"))
    refused(served("apply", "-f", "pool.yaml"), 2, "pool.yaml:1:", "spec.plugin", "no plugin")
    assert served("pool", "list").err == "There are no pools; create one with: dayfly apply -f FILE\n"
    refused(served("pool", "pause", "small"), 3, 'no pool "small"')


@pytest.mark.parametrize("files", [("-f", "sandbox.yaml"), ("-f", "plugin.yaml", "-p", "owner=ann")], ids=str)
def test_command_with_a_file_uses_a_member(pooled: Cli, journal: Path, files: tuple[str, ...]):
    made = lines(journal, "create")
    done = pooled("with", *files, "--", "sh", "-c", "env | grep URL=")
    assert done.code == 0, done.err
    (grant,) = lines(journal, "grant")
    assert f"file-{grant.split()[2]}" in done.out
    assert f"create {grant.split()[2]}" in made
    assert pooled("pool", "delete", "small").code == 0


def test_explanation_has_predictions_for_other_sizes(capsys):
    sizes = [{"ready": size, "missRatio": ratio} for size, ratio in ((0, 1.0), (2, 0.4), (4, 0.095))]
    numbers = {"hits": 3, "misses": 1, "ratePerHour": 1200.0, "refillSeconds": 6.0, "load": 2.0, "idleSeconds": 90.4}
    print_explanation({"name": "small", "wanted": 2, **numbers, "sizes": sizes})
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Requests:", "4,", "1200", "per", "hour"] in shown
    assert ["Hits:", "3", "(75.0", "%)"] in shown
    assert ["Misses:", "1", "(25.0", "%),", "40.0", "%", "predicted", "for", "this", "size"] in shown
    assert shown[-3:] == [["0", "100.00", "%"], ["2", "(now)", "40.00", "%"], ["4", "9.50", "%"]]


def test_get_shows_pools(pooled: Cli):
    listed = json.loads(pooled("get", "pools", "-o", "json").out)
    assert [each["name"] for each in listed] == ["small"]
    facts = dict(line.split(":", 1) for line in pooled("get", "pool", "small").out.splitlines() if ":" in line)
    assert facts["Ready"].strip() == "2 of 2"
    assert facts["Plugin"].strip() == "notes (newest version)"
    assert pooled("pool", "delete", "small").code == 0


def test_pool_in_verbs_for_runs_is_named_and_explained(pooled: Cli):
    refused(pooled("plugin", "delete", "notes"), 1, "notes@1.0.0 is in use by pool(s): small")
    refused(pooled("retry", "pool/small"), 2, "dayfly pool resume small")
    assert 'Abandoned pool "small"' in pooled("abandon", "pool/small", "--reason", "test", "--force").err
    until(lambda: pooled("pool", "list").err.startswith("There are no pools"))
    refused(pooled("pool", "get", "small"), 3, 'no pool "small": it has ended', "dayfly why pool/small")
    assert "Abandoned" in pooled("why", "pool/small").out
    again = pooled("abandon", "pool/small", "--reason", "again")
    refused(again, 3, 'no pool "small": it has ended', "dayfly why pool/small")


def test_explain_predicts_the_misses_of_other_sizes(pooled: Cli):
    assert pooled("apply", "-f", "sandbox.yaml").code == 0
    until(lambda: "PREDICTED MISSES" in pooled("pool", "explain", "small").out)
    assert pooled("sandbox", "delete", "demo").code == 0
    assert pooled("pool", "delete", "small").code == 0


def test_missing_field_of_a_pool_is_refused_with_a_line(served: Cli, journal: Path):
    served.write("plugin.yaml", plugin(journal))
    served.write("pool.yaml", "kind: ResourcePool\nname: small\nspec:\n  plugin: notes\n  ready: 1\n")
    assert served("apply", "-f", "plugin.yaml").code == 0
    refused(served("apply", "-f", "pool.yaml"), 2, "pool.yaml:3:1: spec.cluster: is required")


def test_reset_gives_a_resource_another_member(served: Cli, journal: Path):
    whole = plugin(journal, name="plain@1.0.0")
    served.write("plugin.yaml", whole[: whole.index("  - name: grant")] + whole[whole.index("  delete:") :])
    served.write("pool.yaml", pool(plugin="plain"))
    served.write("sandbox.yaml", "name: demo\nspec: {cluster: local, resources: [{name: db, plugin: plain}]}\n")
    done = served("apply", "-f", "plugin.yaml", "-f", "pool.yaml", "-f", "sandbox.yaml")
    assert done.code == 0, done.err
    before = served("env", "demo").out
    until(lambda: len(ready(served)) == 2)
    done = served("reset", "demo", "db")
    assert done.code == 0, done.err
    until(lambda: lines(journal, "drop"))
    after = served("env", "demo").out
    assert (before != after, before.count("file-"), after.count("file-")) == (True, 1, 1)
    assert lines(journal, "drop") == [f"drop {before[before.index('file-') :].split()[0].strip(chr(39))}"]
    refused(served("reset", "demo", "cache"), 3, 'no resource "cache"; it has "db"')
    assert served("sandbox", "delete", "demo").code == 0


def test_reset_of_a_resource_with_a_step_for_its_sandbox_is_refused(pooled: Cli, journal: Path):
    assert pooled("apply", "-f", "sandbox.yaml").code == 0
    refused(pooled("reset", "demo", "db"), 1, "db/grant has run for this sandbox")
    assert pooled("sandbox", "delete", "demo").code == 0
    assert len(lines(journal, "grant")) == 1
