"""`dayfly plan` for pools: the cut of a plugin, and the resources that come from pools of the same files."""

from __future__ import annotations

import json

from tests.cli.command import Cli, refused

PLUGIN = """\
name: pg@1.2.0
spec:
  create:
  - {name: make, outputs: [{name: host, valueFromPath: /tmp/host}], script: "#!/bin/sh"}
  - {name: users, inputs: [{name: host, valueFromStep: {name: make, output: host}}], script: "#!/bin/sh"}
  - {name: seed, inputs: [{name: owner, valueFromSandbox: true}], script: "#!/bin/sh"}
  delete:
  - {name: unseed, at: claim, inputs: [{name: owner, valueFromSandbox: true}], script: "#!/bin/sh"}
  - {name: drop, script: "#!/bin/sh"}
"""
POOL = "kind: ResourcePool\nmetadata: {name: warm}\nspec: {plugin: pg, ready: 2}\n"
SANDBOX = "name: box\nspec: {cluster: c, resources: [{name: db, plugin: pg, params: {owner: me}}]}\n"
CUT = '2 of 3 steps run before a sandbox needs them; "seed" waits for param "owner"'
PLAN = f"""\
Resource pool "warm" of pg@1.2.0
  {CUT}

preStart, wave 1
  pg/make (once)
    /tmp/host -> host

preStart, wave 2
  pg/users (once)
    $HOST = pg/make.host

for a sandbox
  seed (waits for param "owner")

delete, for a sandbox
  unseed (has at: claim and waits for param "owner")

delete, stage 1: postStop
  pg/drop (until it succeeds, 5 s apart at first)

Sandbox "box" in cluster "c"

pools
  db comes from the pool "warm"

preStart, wave 1
  db/make (once)
    is taken from the pool's member
    /tmp/host -> host

preStart, wave 2
  db/users (once)
    is taken from the pool's member
    host = db/make.host

preStart, wave 3
  db/seed (once)
    $OWNER = "me"

delete, stage 1: postStop
  db/unseed (until it succeeds, 5 s apart at first)
    $OWNER = "me"

delete, stage 2: postStop
  db/release (until it succeeds, 5 s apart at first)
    releases the pool's member
"""


def write(cli: Cli, *documents: str) -> None:
    cli.write("all.yaml", "---\n".join(documents))


def test_plan_shows_the_cut_and_the_pools_of_a_sandbox(cli: Cli):
    write(cli, SANDBOX, POOL, PLUGIN)
    done = cli("plan", "-f", "all.yaml")
    assert (done.code, done.err, done.out) == (0, "", PLAN)


def test_plan_of_a_pool_as_data(cli: Cli):
    write(cli, SANDBOX, POOL, PLUGIN)
    pool, sandbox = json.loads(cli("plan", "-f", "all.yaml", "-o", "json").out)
    assert (pool["pool"], pool["cut"]["sentence"]) == ("warm", CUT)
    assert [(each["step"], each["runs"]) for each in pool["cut"]["delete"]] == [("unseed", "claim"), ("drop", "pool")]
    assert pool["cut"]["digest"].startswith("sha256:")
    assert sandbox["pools"] == [{"resource": "db", "pool": "warm"}]


def test_plan_names_delete_steps_that_run_twice(cli: Cli):
    look = '  - {name: look, outputs: [{name: x, valueFromPath: /tmp/x}], script: "#!/bin/sh"}\n'
    reads = "{name: found, valueFromStep: {name: look, output: x}}"
    plugin = PLUGIN.replace("  delete:\n", "  delete:\n" + look)
    write(cli, POOL, plugin.replace("claim, inputs: [", f"claim, inputs: [{reads}, "))
    assert "  look (a step for the sandbox reads it; also runs in the pool)\n" in cli("plan", "-f", "all.yaml").out


def test_refused_pool_names_file_line_and_step(cli: Cli):
    write(cli, POOL, PLUGIN.replace("at: claim, ", ""))
    refused(cli("plan", "-f", "all.yaml"), 2, "all.yaml:3:8: spec.plugin: ", 'the delete step "unseed"', "at: claim")


def test_second_pool_with_the_same_params_is_refused(cli: Cli):
    write(cli, POOL, POOL.replace("warm", "other"), PLUGIN)
    refused(cli("plan", "-f", "all.yaml"), 2, 'the pool "warm" already has pg@1.2.0 with these params')


def test_warning_about_a_pool_is_printed(cli: Cli):
    claimed = PLUGIN.replace("seed, inputs:", "seed, at: claim, inputs:")
    write(cli, POOL.replace("ready: 2", "ready: 2, params: {owner: me}"), claimed)
    done = cli("plan", "-f", "all.yaml")
    assert done.code == 0
    assert "spec.params.owner: no step of a member reads it" in done.err
