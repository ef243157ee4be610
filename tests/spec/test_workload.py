"""Baselines of the embedded host, in the short form and in that of Kubernetes."""

import pytest
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents
from dayfly.spec.workload import Workload

SHORT = "kind: Deployment\nname: web\n"
LONG = """kind: Deployment
apiVersion: apps/v1
metadata: {name: web, namespace: shop, labels: {a: b}}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: main
        image: example/web
        CONTENT
"""

REFUSED = {
    "no command": ("§" + SHORT, "", '"command"'),
    "empty command": (SHORT + "§command: []", "command", "as a list"),
    "null command": ("§" + SHORT + "command:", "", '"command"'),
    "command as text": (SHORT + "§command: run", "command", "must be a list"),
    "number in the command": (SHORT + "command:\n- run\n- §80", "command[1]", 'write "80" in quotes'),
    "unknown field": (SHORT + "command: [a]\n§replicas: 1", "replicas", "known here"),
    "name": (SHORT.replace("name", "§name").replace("web", "Web") + "command: [a]", "name", "lower-case"),
    "namespace": (SHORT + "command: [a]\n§namespace: a.b", "namespace", "lower-case"),
    "empty namespace": (SHORT + "command: [a]\n§namespace: ''", "namespace", "lower-case"),
    "env value": (SHORT + "command: [a]\nenv: {A: b, §B: on}", "env.B", 'write "on" in quotes'),
    "env name": (SHORT + "command: [a]\nenv: {§A-B: c}", "env.A-B", "environment variable"),
    "port": (SHORT + "command: [a]\n§port: 0", "port", "65535"),
    "port as text": (SHORT + "command: [a]\n§port: http", "port", "a whole number"),
    "workdir": (SHORT + "command: [a]\n§workdir: app", "workdir", "absolute"),
    "no containers": (
        LONG.replace("      containers", "      §containers")
        .replace("- name: main\n        image: example/web\n        CONTENT", "[]")
        .replace("§containers:\n      []", "§containers: []"),
        "spec.template.spec.containers",
        "0 containers",
    ),
    "two containers": (
        LONG.replace("containers", "§containers").replace("CONTENT", "command: [a]\n      - name: b"),
        "spec.template.spec.containers",
        "2 containers",
    ),
    "container as text": (
        "kind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [§x]}}}",
        "spec.template.spec.containers[0]",
        "a mapping",
    ),
    "spec as text": ("kind: Deployment\nmetadata: {name: web}\n§spec: x", "spec", "a mapping"),
    "template as text": ("kind: Deployment\nmetadata: {name: web}\nspec: {§template: x}", "spec.template", "a mapping"),
    "args as text": (LONG.replace("CONTENT", "§args: x"), "spec.template.spec.containers[0].args", "a list"),
    "no command in a container": (
        LONG.replace("- name: main", "- §name: main").replace("CONTENT", "tty: true"),
        "spec.template.spec.containers[0].command",
        "as a list",
    ),
    "env of a container": (
        LONG.replace("CONTENT", "command: [a]\n        env:\n        - {name: A, §value: 1}"),
        "spec.template.spec.containers[0].env[0].value",
        "quotes",
    ),
    **{
        f"{value} in the env of a container": (
            LONG.replace("CONTENT", f"command: [a]\n        env:\n        - {{name: A, §value: {value}}}"),
            "spec.template.spec.containers[0].env[0].value",
            "quotes",
        )
        for value in ("0", "no", "[]")
    },
    "a namespace called no": (
        LONG.replace("namespace: shop", "§namespace: no").replace("CONTENT", "command: [a]"),
        "metadata.namespace",
        "must be a string, not a boolean",
    ),
    "args that are no list": (
        LONG.replace("CONTENT", "command: [a]\n        §args: off"),
        "spec.template.spec.containers[0].args",
        "must be a list, not a boolean",
    ),
    "annotations that are no mapping": (
        LONG.replace("{name: web", "{§annotations: [x], name: web").replace("CONTENT", "command: [a]"),
        "metadata.annotations",
        "must be a mapping, not a list",
    ),
    "a routed port of very many digits": (
        LONG.replace("{name: web", f"{{annotations: {{§dayfly.dev/routed-port: '{'1' * 5_000}'}}, name: web").replace(
            "CONTENT", "command: [a]"
        ),
        'metadata.annotations["dayfly.dev/routed-port"]',
        "must be a whole number, not a string",
    ),
    "env of a cluster": (
        LONG.replace("CONTENT", "command: [a]\n        env:\n        - {name: A, §valueFrom: {fieldRef: {}}}"),
        "spec.template.spec.containers[0].env[0].valueFrom",
        "only a cluster",
    ),
    "env without name": (
        LONG.replace("CONTENT", "command: [a]\n        env:\n        - §value: x"),
        "spec.template.spec.containers[0].env[0]",
        "with a name",
    ),
    "port of a container": (
        LONG.replace("CONTENT", "command: [a]\n        ports:\n        - §containerPort: 70000"),
        "spec.template.spec.containers[0].ports[0].containerPort",
        "65535",
    ),
    "name of an object": (
        LONG.replace("{name: web", "{§name: a.b").replace("CONTENT", "command: [a]"),
        "metadata.name",
        "lower-case",
    ),
}


@pytest.mark.parametrize(("source", "path", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(source, path, word):
    error = refusal(source)
    assert error.path == path
    assert word in error.problem


def test_the_short_shape():
    source = SHORT + "command: [python3, app.py]\nenv: {A: b}\nport: 8080\nworkdir: /srv"
    found = Workload(name="web", command=("python3", "app.py"), env={"A": "b"}, port=8080, workdir="/srv")
    assert load(source) == found
    assert documents.export(found) == {
        "kind": "Deployment",
        "name": "web",
        "command": ["python3", "app.py"],
        "env": {"A": "b"},
        "port": 8080,
        "workdir": "/srv",
    }


def test_the_shape_of_kubernetes_means_the_same():
    content = (
        "command: [python3]\n        args: [app.py]\n        workingDir: /srv\n"
        "        env: [{name: A, value: b}, {name: E}]\n        ports: [{containerPort: 8080, name: http}]"
    )
    found = load(LONG.replace("CONTENT", content))
    assert found == Workload(
        name="web", namespace="shop", command=("python3", "app.py"), env={"A": "b", "E": ""}, port=8080, workdir="/srv"
    )
    assert documents.from_wire(documents.export(found), "Deployment") == found
