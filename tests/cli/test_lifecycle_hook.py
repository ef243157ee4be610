"""Lifecycle hooks on the command line: shown by plan, sent to kubectl by whatever applies to this machine."""

from __future__ import annotations

import json

import pytest
from tests.cli.command import Cli, refused

HOOK = """\
apiVersion: dayfly.dev/v1alpha1
kind: LifecycleHook
metadata: {name: volume-backup}
spec:
  selector: {apiVersion: cluster.example.org/v1, kind: Machine, namespaces: [shop], labels: {backup: "yes"}}
  started: {condition: Ready}
  stopped: {when: {path: $.status.phase, in: [Stopped, Gone]}}
  hold: {path: /spec/hold, value: false}
  runner: {image: busybox}
  preStart:
  - name: register
    inputs: [{name: uid, valueFromTarget: $.metadata.uid}]
    outputs: [{name: id, valueFromPath: /tmp/id}]
    script: "#!/bin/sh"
  preStop:
  - name: backup
    inputs: [{name: volume, valueFromTarget: $.spec.volume, as: {path: /tmp/volume}}]
    script: "#!/bin/sh"
  postStop:
  - {name: tell, script: "#!/bin/sh"}
  - name: unregister
    undoes: register
    inputs: [{name: id, valueFromStep: {name: register, output: id}}]
    script: "#!/bin/sh"
"""

EXPECTED = """\
LifecycleHook "volume-backup" for any Machine of namespace shop with backup=yes

hold
  /spec/hold = false, until preStop is done

preStart, wave 1
  register (once, image busybox)
    $UID = $.metadata.uid of the Machine
    /tmp/id -> id

start
  has started once its condition Ready is True

delete, stage 1: preStop
  backup (up to 5 times, 5 s apart at first, image busybox)
    /tmp/volume = $.spec.volume of the Machine

delete, stage 2: stop
  has stopped once $.status.phase is "Stopped" or "Gone"

delete, stage 3: postStop
  tell (until it succeeds, 5 s apart at first, image busybox)
  unregister (until it succeeds, 5 s apart at first, image busybox)
    $ID = register.id

removal of the hook, stage 1: postStop
  unregister (until it succeeds, 5 s apart at first, image busybox)
    $ID = register.id
"""

SMALL = """\
kind: LifecycleHook
metadata: {name: small}
spec:
  selector: {apiVersion: apps/v1, kind: Deployment}
  hold: {annotation: example.org/hold}
  preStop:
  - {name: a, script: "#!/bin/sh"}
"""

EXPECTED_SMALL = """\
LifecycleHook "small" for any Deployment of any namespace

hold
  annotation example.org/hold = "", until preStop is done

start
  has started once it exists

delete, stage 1: preStop
  a (up to 5 times, 5 s apart at first)

delete, stage 2: stop
  has stopped once only Dayfly's finalizer is left

removal of the hook: nothing to run
"""


def test_hook_plan_prints_the_story_of_one_object(cli: Cli):
    cli.write("hook.yaml", HOOK)
    done = cli("plan", "-f", "hook.yaml")
    assert (done.code, done.out) == (0, EXPECTED)
    assert done.err.startswith("warning: hook.yaml:10:3: spec.preStart: runs in parallel with the object's own start")
    assert not cli.home.exists()


def test_plan_of_minimal_hook_states_its_defaults(cli: Cli):
    cli.write("hook.yaml", SMALL)
    done = cli("plan", "-f", "hook.yaml")
    assert (done.code, done.out, done.err) == (0, EXPECTED_SMALL, "")


def test_several_of_all_kinds_as_data(cli: Cli):
    cli.write("all.yaml", f"{HOOK}---\n{SMALL}---\nname: box\nspec: {{cluster: local}}\n")
    done = cli("plan", "-f", "all.yaml", "-o", "json")
    assert done.code == 0, done.err
    box, backup, small = json.loads(done.out)
    assert (box["sandbox"], backup["hook"], small["hook"]) == ("box", "volume-backup", "small")
    assert [stage["what"] for stage in backup["deletion"]] == ["preStop", "stop", "postStop"]
    assert [stage["units"] for stage in backup["removal"]] == [["unregister"]]
    assert "removal" not in box


def test_a_mistake_between_two_steps_has_its_place(cli: Cli):
    cli.write("hook.yaml", HOOK.replace("undoes: register", "undoes: registr"))
    refused(
        cli("plan", "-f", "hook.yaml"), 2, 'hook.yaml:22:5: spec.postStop[1].undoes: no preStart or postStart step "'
    )


@pytest.mark.slow
def test_one_machine_refuses_it_before_it_changes_anything(served: Cli):
    served.write("hook.yaml", HOOK)
    served.write("a.yaml", "name: box\nspec: {cluster: local}\n")
    done = served("apply", "-f", ".")
    refused(done, 2, 'hook.yaml:1:1: "volume-backup" is a lifecycle hook', "kubectl apply -f hook.yaml")
    refused(served("sandbox", "get", "box"), 3, 'no sandbox "box"')
    refused(served("sandbox", "apply", "-f", "hook.yaml"), 2, "is a lifecycle hook, not a sandbox", "kubectl apply -f")
    refused(served("plugin", "apply", "-f", "hook.yaml"), 2, "is a lifecycle hook, not a plugin", "kubectl apply -f")


def test_two_of_one_name_are_refused(cli: Cli):
    cli.write("hook.yaml", f"{SMALL}---\n{SMALL}")
    refused(cli("plan", "-f", "hook.yaml"), 2, 'the lifecycle hook "small" is defined twice')
