"""Forks as kept units."""

import pytest
from tests.compile.builders import PG, box, run

from dayfly.spec.lifecycle import Baseline, EnvChange, Ref, UnitInput

BUILTIN = (
    EnvChange(name="SIGNADOT_SANDBOX_NAME", value="box"),
    EnvChange(name="SIGNADOT_SANDBOX_ROUTING_KEY", value="k3v9"),
    EnvChange(name="DAYFLY_SANDBOX_NAME", value="box"),
    EnvChange(name="DAYFLY_SANDBOX_ROUTING_KEY", value="k3v9"),
)


def fork(customizations, *, kind="Deployment", name=""):
    lines = "".join(f"    {line}\n" for line in customizations.strip("\n").splitlines())
    compiled = run(
        box(
            "resources:\n- {name: db, plugin: pg}\n- {name: db-2, plugin: pg}\n"
            f"forks:\n- {name}forkOf: {{kind: {kind}, namespace: shop, name: web}}\n"
            + (f"  customizations:\n{lines}" if lines else "")
        ),
        PG,
    )
    [unit] = compiled.forks
    return unit


def env(changes):
    return fork("env:\n" + changes).fork.env[len(BUILTIN) :]


def test_a_fork_without_changes_still_knows_its_sandbox():
    unit = fork("")
    assert (unit.name, unit.kind, unit.inputs) == ("web", "fork", ())
    assert unit.fork.baseline == Baseline(kind="Deployment", namespace="shop", name="web")
    assert (unit.fork.env, unit.fork.images, unit.fork.patch) == (BUILTIN, (), None)


def test_a_fork_may_have_a_name():
    assert fork("", name="name: shop-web, ".replace(", ", "\n  ")).name == "shop-web"


@pytest.mark.parametrize("kind", ["Rollout", "ArgoRollout"])
def test_the_kind_is_the_one_that_clusters_know(kind):
    assert fork("", kind=kind).fork.baseline.kind == "Rollout"


def test_fork_values_from_one_resource_share_an_input():
    unit = fork(
        "env:\n"
        "- {name: A, valueFrom: {resource: {name: db, outputKey: provision.host}}}\n"
        "- {name: B, valueFrom: {resource: {name: db-2, outputKey: provision.host}}, container: sidecar}\n"
        "- {name: C, valueFrom: {resource: {name: db, outputKey: provision.host}}}\n"
    )
    assert unit.inputs == (
        UnitInput(name="db.provision.host", from_=Ref(resource="db", unit="provision", output="host")),
        UnitInput(name="db-2.provision.host", from_=Ref(resource="db-2", unit="provision", output="host")),
    )
    assert unit.fork.env == (
        *BUILTIN,
        EnvChange(name="A", input="db.provision.host"),
        EnvChange(name="B", input="db-2.provision.host", container="sidecar"),
        EnvChange(name="C", input="db.provision.host"),
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("{name: A, value: x}", EnvChange(name="A", value="x")),
        ("{name: A}", EnvChange(name="A")),
        ("{name: A, value: x, operation: upsert, container: c}", EnvChange(name="A", value="x", container="c")),
        ("{name: A, operation: delete}", EnvChange(name="A", delete=True)),
        (
            "{name: A, valueFrom: {configMap: {name: m, key: k}}}",
            EnvChange(name="A", source={"configMap": {"name": "m", "key": "k"}}),
        ),
        (
            "{name: A, valueFrom: {secret: {name: s, key: k, optional: true}}}",
            EnvChange(name="A", source={"secret": {"name": "s", "key": "k", "optional": True}}),
        ),
    ],
)
def test_changes_of_the_environment(change, expected):
    assert env(f"- {change}\n") == (expected,)


@pytest.mark.parametrize(
    "expression",
    ["{{.Service.Host}}", "http://{{ .Service.Host }}:{{.Service.Port}}/x", "plain text"],
)
def test_expressions_over_another_fork_go_through_untouched(expression):
    of = {"kind": "Deployment", "namespace": "shop", "name": "web"}
    change = (
        "- name: A\n  valueFrom:\n    fork:\n      forkOf: {kind: Deployment, namespace: shop, name: web}\n"
        f"      expression: '{expression}'\n"
    )
    assert env(change) == (EnvChange(name="A", source={"fork": {"forkOf": of, "expression": expression}}),)


def test_a_deleted_variable_asks_for_no_value():
    unit = fork("env:\n- {name: A, operation: delete, valueFrom: {resource: {name: db, outputKey: provision.host}}}\n")
    assert unit.inputs == ()
    assert unit.fork.env[-1] == EnvChange(name="A", delete=True)


def test_images_keep_their_order():
    changes = "images:\n- {image: 'web:2'}\n- {image: 'proxy:1', container: proxy}\n"
    assert fork(changes).fork.images == ({"image": "web:2"}, {"image": "proxy:1", "container": "proxy"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("strategic", "'{spec: {replicas: 2}}'", {"spec": {"replicas": 2}}),
        ("merge", '\'{"spec": {"paused": true}}\'', {"spec": {"paused": True}}),
        ("json", "'[{op: remove, path: /spec/x}]'", [{"op": "remove", "path": "/spec/x"}]),
    ],
)
def test_patches_are_read_once_here(kind, text, value):
    assert fork(f"patch: {{type: {kind}, value: {text}}}\n").fork.patch == {"type": kind, "value": value}
