"""Lifecycle hooks: their documents, faults and previews."""

import pytest
from tests.compile.builders import read
from tests.spec.marked_text import marked

from dayfly.compile import check_hook, compile_hook, hook_warnings, preview_hook
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import (
    As,
    LifecycleEvent,
    Ref,
    StepOrigin,
    Target,
    UnitInput,
    UnitRetry,
    digest,
)
from dayfly.spec.lifecycle_hook import LifecycleHook

HEAD = """\
kind: LifecycleHook
metadata: {name: volume-backup}
spec:
  selector: {apiVersion: cluster.example.org/v1, kind: Machine}
  runner: {image: busybox, namespace: dayfly-runners}
"""
HOOK = (
    HEAD
    + """\
  preStart:
  - name: register
    inputs:
    - {name: uid, valueFromTarget: $.metadata.uid, as: {path: /tmp/uid}}
    outputs: [{name: id, valueFromPath: /tmp/id}]
    script: "#!/bin/sh"
  postStart:
  - name: claim
    object: {manifest: {apiVersion: v1, kind: ConfigMap}}
    outputs: [{name: name, valueFromJSONPath: $.metadata.name}]
  preStop:
  - name: backup
    inputs:
    - {name: volume, valueFromTarget: $.spec.volume}
    - {name: claim, valueFromStep: {name: claim, output: name}}
    script: "#!/bin/sh"
  postStop:
  - name: tell
    inputs: [{name: id, valueFromStep: {name: register, output: id}}]
    webhook: {method: POST, url: "https://a.example.com"}
  - name: unregister
    undoes: register
    inputs: [{name: phase, valueFromTarget: $.status.phase}]
    webhook: {method: DELETE, url: "https://a.example.com", path: [{$input: phase}]}
"""
)
MACHINE = Target(api_version="cluster.example.org/v1", kind="Machine", namespace="shop", name="m1", uid="u1")


def hook(source: str) -> LifecycleHook:
    wish, _ = read(source)
    assert isinstance(wish, LifecycleHook)
    return wish


def refusal(source: str) -> str:
    """Return the message for a hook that does not compile. Its place must be that of the sign §."""
    plain, line, column = marked(source)
    wish, document = read(plain, "hook.yaml")
    with pytest.raises(SpecError) as caught:
        compile_hook(wish, MACHINE, source=document)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    return f"{caught.value.path}: {caught.value.problem}"


def test_hook_document_has_target_and_named_origin():
    made = compile_hook(hook(HOOK), MACHINE)
    assert made.target == MACHINE
    assert made.resource == ""
    assert made.origin == StepOrigin(publisher="hook", plugin="volume-backup")
    assert made.origin.name == "hook:volume-backup"
    assert [[unit.name for unit in made.units(event)] for event in LifecycleEvent] == [
        ["register"],
        ["claim"],
        ["backup"],
        ["tell", "unregister", "remove-claim"],
    ]


def test_inputs_come_from_fields_of_the_target():
    made = compile_hook(hook(HOOK), MACHINE)
    assert made.pre_start[0].inputs == (UnitInput(name="uid", target="$.metadata.uid", as_=As(path="/tmp/uid")),)
    assert made.pre_stop[0].inputs == (
        UnitInput(name="volume", target="$.spec.volume", as_=As(env="VOLUME")),
        UnitInput(name="claim", from_=Ref(unit="claim", output="name"), as_=As(env="CLAIM")),
    )
    unregister = made.post_stop[1]
    assert unregister.inputs == (UnitInput(name="phase", target="$.status.phase", as_=As(env="DAYFLY_INPUT_PHASE")),)


def test_undo_is_as_written_or_from_removed_objects():
    """As written, and automatically for removals of objects, also for written ones."""
    made = compile_hook(hook(HOOK), MACHINE)
    assert {unit.name: unit.undoes for unit in made.post_stop} == {
        "tell": "",
        "unregister": "register",
        "remove-claim": "claim",
    }
    written = HOOK + "  - {name: drop, object: {remove: claim}}\n"
    assert [unit.undoes for unit in compile_hook(hook(written), MACHINE).post_stop] == ["", "register", "claim"]


def test_how_often_each_is_tried():
    made = compile_hook(hook(HOOK), MACHINE)
    tries = {
        unit.name: (unit.retry.idempotent, unit.retry.limit) for event in LifecycleEvent for unit in made.units(event)
    }
    assert tries == {
        "register": (False, 1),
        "claim": (False, 1),
        "backup": (True, 5),
        "tell": (True, 0),
        "unregister": (True, 0),
        "remove-claim": (True, 0),
    }
    assert made.pre_start[0].retry == UnitRetry()


def test_steps_receive_the_identity_of_their_target():
    made = compile_hook(hook(HOOK), MACHINE)
    told = {
        "DAYFLY_HOOK_NAME": "volume-backup",
        "DAYFLY_TARGET_API_VERSION": "cluster.example.org/v1",
        "DAYFLY_TARGET_KIND": "Machine",
        "DAYFLY_TARGET_NAMESPACE": "shop",
        "DAYFLY_TARGET_NAME": "m1",
        "DAYFLY_TARGET_UID": "u1",
    }
    assert made.pre_stop[0].exec.env == told
    assert made.post_stop[0].webhook.env == told
    assert (made.pre_stop[0].exec.image, made.pre_stop[0].exec.namespace) == ("busybox", "dayfly-runners")


def test_each_object_and_each_hook_has_a_document_of_its_own():
    first = compile_hook(hook(HOOK), MACHINE)
    again = compile_hook(hook(HOOK), MACHINE)
    anew = compile_hook(hook(HOOK), Target(**{**_fields(MACHINE), "uid": "u2"}))
    other = compile_hook(hook(HOOK.replace("volume-backup", "other")), MACHINE)
    assert digest(first) == digest(again)
    assert len({digest(made) for made in (first, anew, other)}) == 3


def _fields(target: Target) -> dict[str, str]:
    return {name: getattr(target, name) for name in target.__struct_fields__}


REFUSED = {
    "reads no step": (
        HEAD
        + "  preStop:\n  - name: a\n    script: '#!/bin/sh'\n    inputs:\n"
        + "    - name: x\n      §valueFromStep: {name: b, output: c}\n",
        'spec.preStop[0].inputs[0].valueFromStep: no step "b"; there is "a"',
    ),
    "reads what comes later": (
        HEAD
        + "  preStop:\n  - name: a\n    script: '#!/bin/sh'\n    inputs:\n"
        + "    - name: x\n      §valueFromStep: {name: b, output: c}\n"
        + "  postStop:\n  - name: b\n    script: '#!/bin/sh'\n    outputs: [{name: c, valueFromPath: /tmp/c}]\n",
        'spec.preStop[0].inputs[0].valueFromStep: a preStop step cannot read "b": a postStop step runs later',
    ),
    "waits for itself": (
        HEAD
        + "  preStop:\n  - name: a\n    script: '#!/bin/sh'\n    outputs: [{name: c, valueFromPath: /tmp/c}]\n"
        + "    inputs:\n    - name: x\n      §valueFromStep: {name: a, output: c}\n",
        "spec.preStop[0].inputs[0].valueFromStep: steps that wait for each other can never start: a.c -> a.c",
    ),
    "undoes what is not there": (
        HOOK.replace("undoes: register", "§undoes: registr"),
        'spec.postStop[1].undoes: no preStart or postStart step "registr"; did you mean "register"?',
    ),
    "undoes what creates nothing": (
        HOOK.replace("undoes: register", "§undoes: backup"),
        'spec.postStop[1].undoes: no preStart or postStart step "backup"; there are "register", "claim"',
    ),
    "a limit before the stop": (
        HEAD + "  preStop:\n  - name: a\n    script: '#!/bin/sh'\n    retry: {idempotent: true, §limit: 2}\n",
        "spec.preStop[0].retry.limit: a preStop step has 5 attempts; leave the limit out",
    ),
    "not to be tried again": (
        HEAD + "  postStop:\n  - name: a\n    script: '#!/bin/sh'\n    retry: {§idempotent: false}\n",
        "spec.postStop[0].retry.idempotent: a postStop step may be retried; make its script safe to run twice",
    ),
    "an object that is not removed by its name": (
        HEAD
        + "  preStart:\n  - §name: a\n    object: {manifest: {apiVersion: v1, kind: ConfigMap}}\n"
        + "  postStop:\n  - name: remove-a\n    script: '#!/bin/sh'\n",
        'spec.preStart[0].name: its removal would be named "remove-a", as another step is: rename one, or write a',
    ),
    "too many": (
        HEAD.replace("spec:", "§spec:")
        + "  postStop:\n"
        + "".join(f"  - {{name: s{number}, script: '#!/bin/sh'}}\n" for number in range(257)),
        "spec: 257 steps are too many; one hook has at most 256",
    ),
    "too large": (
        HEAD.replace("spec:", "§spec:")
        + "  postStop:\n"
        + "".join(f"  - {{name: s{n}, script: '#!/bin/sh {'x' * 120_000}'}}\n" for n in range(9)),
        "spec: has ",
    ),
}


@pytest.mark.parametrize(("source", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(source: str, said: str):
    assert refusal(source).startswith(said)


def test_hook_is_checked_without_an_object():
    made = check_hook(hook(HOOK))
    assert made.target == Target(api_version="cluster.example.org/v1", kind="Machine", name="", uid="")
    assert [unit.name for unit in made.pre_stop] == ["backup"]
    with pytest.raises(SpecError):
        check_hook(hook(HOOK.replace("undoes: register", "undoes: nobody")))


def test_pre_start_without_hold_is_a_warning():
    wish, document = read(HOOK, "hook.yaml")
    [said] = hook_warnings(wish, source=document)
    assert said.startswith("hook.yaml:6:3: spec.preStart: runs in parallel with the object's own start")
    without, _ = read(HEAD + "  preStop:\n  - {name: a, script: '#!/bin/sh'}\n")
    assert hook_warnings(without) == ()


def test_hook_preview_lists_events_and_removal():
    found = preview_hook(check_hook(hook(HOOK)), ("a warning",))
    assert [(line.event, [step.id for wave in line.waves for step in wave]) for line in found.events] == [
        ("preStart", ["register"]),
        ("postStart", ["claim"]),
        ("preStop", ["backup"]),
        ("postStop", ["tell", "unregister", "remove-claim"]),
    ]
    assert [(stage.what, stage.units) for stage in found.deletion] == [
        ("preStop", ("backup",)),
        ("stop", ()),
        ("postStop", ("tell", "unregister", "remove-claim")),
    ]
    assert [(stage.what, stage.units) for stage in found.removal] == [("postStop", ("unregister", "remove-claim"))]
    [volume, _] = found.events[2].waves[0][0].inputs
    assert (volume.source, volume.value, volume.env) == ("$.spec.volume of the Machine", None, "VOLUME")
    assert found.warnings == ("a warning",)
