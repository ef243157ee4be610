"""The manifest and the work order of a step's pod."""

import pytest
from msgspec import structs

from dayfly.execute.pod.read import is_traced
from dayfly.execute.pod.render import PodAttempt, PodSecretKey, render_pod
from dayfly.execute.state import access
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.frames import decode
from dayfly.spec.identity import nonce, resource_id
from dayfly.spec.lifecycle import As, Exec, Ref, Unit, UnitInput, UnitOutput, UnitTimeouts
from dayfly.spec.steps.overlay import parse_overlay

LIMITS = UnitTimeouts(schedule_ms=1_000, pull_ms=2_000, run_ms=30_000, grace_ms=5_000)
READ = Ref(unit="make", output="out")
UNIT = Unit(
    name="seed",
    kind="exec",
    inputs=(
        UnitInput(name="plain", value="1", as_=As(env="PLAIN", path="/in/plain")),
        UnitInput(name="url", from_=READ, as_=As(env="URL", path="/in/url")),
        UnitInput(name="again", from_=READ, as_=As(env="AGAIN")),
        UnitInput(name="key", from_=READ, as_=As(path="/in/key")),
        UnitInput(name="gone", from_=READ, as_=As(env="GONE", path="/in/gone")),
    ),
    outputs=(UnitOutput(name="o", path="/o"), UnitOutput(name="s", path="/s", sensitive=True)),
    timeouts=LIMITS,
    exec=Exec(script="#!/bin/sh\n", image="x:1", env={"DAYFLY_SANDBOX_NAME": "box"}),
)
OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "s-abc", "uid": "r"}
URL, KEY = PodSecretKey("outputs", "url"), PodSecretKey("outputs", "key")


def rendered(unit=UNIT, **fields):
    values = {"plain": b"1", "url": URL, "again": URL, "key": KEY, "gone": None}
    given = {
        "run": "u",
        "run_name": "s-abc",
        "owner": OWNER,
        "resource": "db",
        "unit": "db/seed",
        "number": 2,
        "inputs": values,
        "complete": False,
        "sensitive": frozenset({"key"}),
        "namespace": "jobs",
        "runner": "runner-1",
        "start_before": 7_000,
        "reads": "abc",
    }
    return render_pod(unit, PodAttempt(**given | fields))


def order(manifest):
    return decode("dayfly-order", manifest["metadata"]["annotations"]["dayfly.dev/order"].encode())


def test_pod_has_the_expected_spec():
    assert rendered()["spec"] == {
        "restartPolicy": "Never",
        "schedulingGates": [{"name": "dayfly.dev/claim"}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": 37 + 60,
        "terminationGracePeriodSeconds": 7,
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
        },
        "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        "containers": [
            {
                "name": "main",
                "image": "x:1",
                "command": ["/dayfly/runner", "pod"],
                "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {"name": "dayfly", "mountPath": "/dayfly", "readOnly": True},
                    {"name": "dayfly-state", "mountPath": "/dayfly-state"},
                ],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "volumes": [
            {
                "name": "dayfly",
                "projected": {
                    "defaultMode": 0o444,
                    "sources": [
                        {
                            "configMap": {
                                "name": "runner-1",
                                "items": [{"key": "runner", "path": "runner", "mode": 0o555}],
                            }
                        },
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "order",
                                        "fieldRef": {
                                            "apiVersion": "v1",
                                            "fieldPath": "metadata.annotations['dayfly.dev/order']",
                                        },
                                    },
                                    {"path": "uid", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
                                ]
                            }
                        },
                        {
                            "secret": {
                                "name": "outputs",
                                "items": [{"key": "url", "path": "in/0"}, {"key": "key", "path": "in/1"}],
                            }
                        },
                    ],
                },
            },
            {"name": "dayfly-state", "emptyDir": {}},
        ],
    }


def test_pod_has_owner_labels_and_annotations():
    meta = rendered()["metadata"]
    assert (meta["namespace"], meta["finalizers"], meta["ownerReferences"]) == ("jobs", ["dayfly.dev/record"], [OWNER])
    assert meta["labels"] == {
        "dayfly.dev/run": "s-abc",
        "app.kubernetes.io/managed-by": "dayfly",
        "dayfly.dev/reads": "abc",
    }
    told = {key: value for key, value in meta["annotations"].items() if key != "dayfly.dev/order"}
    assert told == {
        "dayfly.dev/unit": "db/seed",
        "dayfly.dev/attempt": "2",
        "dayfly.dev/nonce": nonce("u", "db/seed", 2),
    }


def test_overlay_labels_are_kept_but_ours_win():
    overlay = {
        "metadata": {
            "labels": {"team.example/a": "b", "dayfly.dev/run": "other"},
            "annotations": {"team.example/c": "d", "dayfly.dev/attempt": "9"},
        }
    }
    exec_ = Exec(script="#!/bin/sh\n", image="x:1", pod_template=overlay)
    meta = rendered(Unit(name="seed", kind="exec", exec=exec_), inputs={})["metadata"]
    assert (meta["labels"]["team.example/a"], meta["labels"]["dayfly.dev/run"]) == ("b", "s-abc")
    assert (meta["annotations"]["team.example/c"], meta["annotations"]["dayfly.dev/attempt"]) == ("d", "2")


@pytest.mark.parametrize(
    "overlay",
    [
        "metadata:",
        "spec:",
        "spec: {containers: , initContainers: , volumes: }",
        "spec: {restartPolicy: }",
        "spec: {restartPolicy: ''}",
        "spec: {containers: [{name: main, image: }]}",
        "apiVersion: v1\nkind: PodTemplate",
    ],
)
def test_empty_overlay_fields_remove_nothing(overlay):
    exec_ = Exec(script="#!/bin/sh\n", image="x:1")
    laid_over = structs.replace(exec_, pod_template=parse_overlay(overlay))
    plain, found = (rendered(Unit(name="seed", kind="exec", exec=each), inputs={}) for each in (exec_, laid_over))
    assert found == plain


@pytest.mark.parametrize("overlay", [{"metadata": None}, {"spec": None}])
def test_null_fields_of_a_stored_overlay_remove_nothing(overlay):
    """A document that was not compiled from a plugin may have an unchecked template."""
    plain, found = (
        rendered(
            Unit(name="seed", kind="exec", exec=Exec(script="#!/bin/sh\n", image="x:1", pod_template=each)), inputs={}
        )
        for each in (None, overlay)
    )
    assert found == plain


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ({"metadata": "x"}, "metadata of the pod template must be a mapping"),
        ({"spec": [1]}, "spec of the pod template must be a mapping"),
        ({"metadata": {"labels": "x"}}, "metadata.labels of the pod template must be a mapping"),
        ({"spec": {"containers": [{"image": "y:1"}]}}, "needs name"),
    ],
)
def test_invalid_pod_template_is_refused(overlay, said):
    exec_ = Exec(script="#!/bin/sh\n", image="x:1", pod_template=overlay)
    with pytest.raises(CannotRenderError, match=said):
        rendered(Unit(name="seed", kind="exec", exec=exec_), inputs={})


def test_pod_has_the_expected_work_order():
    nonce_of = nonce("u", "db/seed", 2)
    assert order(rendered()) == [
        ("nonce", nonce_of.encode()),
        ("attempt", b"2"),
        ("start-before-ms", b"7000"),
        ("script", b"#!/bin/sh\n"),
        ("run-ms", b"30000"),
        ("grace-ms", b"5000"),
        ("unit-limit", b"524288"),
        ("output", b"o\0/o"),
        ("sensitive-output", b"s\0/s"),
        ("file", b"/in/plain\0" + b"1"),
        ("secret-file", b"/in/url\0/dayfly/in/0"),
        ("sensitive-file", b"/in/key\0/dayfly/in/1"),
        ("file", b"/in/gone\0"),
        ("env", b"DAYFLY_SANDBOX_NAME=box"),
        ("env", b"DAYFLY_RESOURCE_ID=" + resource_id("u", "db").encode()),
        ("env", b"DAYFLY_ATTEMPT=2"),
        ("env", b"DAYFLY_ATTEMPT_NONCE=" + nonce_of.encode()),
        ("env", b"DAYFLY_OUTPUTS_COMPLETE=false"),
        ("env", b"DAYFLY_ABSENT_INPUTS=gone"),
        ("env", b"PLAIN=1"),
        ("secret-env", b"URL\0/dayfly/in/0"),
        ("secret-env", b"AGAIN\0/dayfly/in/0"),
        ("env", b"GONE="),
    ]


def test_optional_pod_fields_depend_on_the_step():
    bare = Unit(name="seed", kind="exec", exec=Exec(script="#!/bin/sh\n"))
    other = rendered(bare, inputs={}, restricted=False, cleaning=True, architecture="arm64", start_before=0)
    assert "image" not in other["spec"]["containers"][0]
    assert other["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert other["spec"]["priorityClassName"] == "dayfly-cleanup"
    assert other["spec"]["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    assert "start-before-ms" not in dict(order(other))
    assert "priorityClassName" not in rendered()["spec"]


def test_script_too_large_for_a_pod_is_refused():
    long = Unit(name="seed", kind="exec", exec=Exec(script="x" * 300_000))
    with pytest.raises(CannotRenderError, match="Move large constants into the image"):
        rendered(long, inputs={})


def test_trace_parent_is_in_the_order_unless_the_plugin_sets_it():
    def variables(manifest):
        return [value for key, value in order(manifest) if key == "env" and value.startswith(b"TRACEPARENT=")]

    traced = rendered(trace="00-a-b-01")
    assert (variables(rendered()), variables(traced)) == ([], [b"TRACEPARENT=00-a-b-01"])
    assert [is_traced(each) for each in (rendered(), traced)] == [False, True]
    assert [each for each in order(traced) if each[1] != b"TRACEPARENT=00-a-b-01"] == order(rendered())
    # If an input sets TRACEPARENT, the pod does not change: a constant, a value and a Secret.
    constant = structs.replace(UNIT, exec=structs.replace(UNIT.exec, env={"TRACEPARENT": "mine"}))
    assert variables(rendered(constant, trace="00-a-b-01")) == [b"TRACEPARENT=mine"]
    for name in ("plain", "url"):
        inputs = tuple(
            structs.replace(each, as_=As(env="TRACEPARENT")) if each.name == name else each for each in UNIT.inputs
        )
        unit = structs.replace(UNIT, inputs=inputs)
        assert rendered(unit, trace="00-a-b-01") == rendered(unit)


@pytest.mark.parametrize("said", ["", "no order", "dayfly-order\n"])
def test_invalid_order_is_not_traced(said):
    assert not is_traced({"metadata": {"annotations": {"dayfly.dev/order": said}}})
    assert not is_traced({"metadata": {}})


def test_ephemeral_storage_limit_is_set_without_a_request():
    resources = rendered(ephemeral_storage="2Gi")["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"ephemeral-storage": "2Gi"}, "requests": {"ephemeral-storage": "0"}}


def test_overlay_can_replace_the_ephemeral_storage_limit():
    overlay = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"ephemeral-storage": "9Gi"}}}]}}
    exec_ = Exec(script="#!/bin/sh\n", image="x:1", pod_template=overlay)
    pod = rendered(Unit(name="seed", kind="exec", exec=exec_), inputs={}, ephemeral_storage="2Gi")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"ephemeral-storage": "9Gi"}


@pytest.mark.parametrize(
    ("env", "excepted"),
    [
        ([], {}),
        ([{"name": "NO_PROXY", "value": "other"}], {}),
        (
            [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
            {"NO_PROXY": "states.example", "no_proxy": "states.example"},
        ),
        (
            [{"name": "https_proxy", "valueFrom": {}}, {"name": "no_proxy", "value": "a,b"}],
            {"NO_PROXY": "states.example", "no_proxy": "a,b,states.example"},
        ),
        (
            [{"name": "HTTPS_PROXY", "value": "http://proxy"}, {"name": "NO_PROXY", "valueFrom": {}}],
            {"no_proxy": "states.example"},
        ),
    ],
)
def test_state_server_is_excepted_from_proxies_of_overlay(env, excepted):
    overlay = {"spec": {"containers": [{"name": "main", "env": env}]}}
    unit = structs.replace(UNIT, exec=structs.replace(UNIT.exec, pod_template=overlay))
    state = access.variables(
        access.StateEndpoint("https://states.example:8443"), access.state_caller("u", "db", "db/seed", 2)
    )
    found = dict(value.decode().split("=", 1) for kind, value in order(rendered(unit, state=state)) if kind == "env")
    assert {name: value for name, value in found.items() if name.lower() == "no_proxy"} == excepted
    assert state.items() <= found.items()


def test_step_without_state_keeps_its_proxies():
    overlay = {"spec": {"containers": [{"name": "main", "env": [{"name": "HTTPS_PROXY", "value": "x"}]}]}}
    unit = structs.replace(UNIT, exec=structs.replace(UNIT.exec, pod_template=overlay))
    assert not any(value.startswith(b"NO_PROXY") for _, value in order(rendered(unit)))
