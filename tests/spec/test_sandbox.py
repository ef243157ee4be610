"""Sandboxes: every rule with the place of its fault, Dayfly's additions, and published forms."""

import pytest
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents, sandbox
from dayfly.spec.errors import SpecError

HEAD = "name: s\nspec:\n  cluster: c\n"
FORK = "  forks:\n  - forkOf: {kind: Deployment, namespace: d, name: web}\n"
ENV = HEAD + FORK + "    customizations:\n      env:\n      - "
HOOK = HEAD + "  hooks:\n    preStart:\n    - name: a\n      script: '#!/bin/sh'\n"
RESOURCE = HEAD + "  resources:\n  - name: db\n"

REFUSED = {
    "name": ("§name: -s\nspec:\n  cluster: c", "name", "a sandbox name"),
    "long name": (f"§name: {'s' * 31}\nspec:\n  cluster: c", "name", "31 characters"),
    "no cluster": ("kind: Sandbox\nname: s\n§spec:\n  forks: []", "spec", "sandbox spec must specify cluster"),
    "null cluster": ("name: s\n§spec:\n  cluster:", "spec", "sandbox spec must specify cluster"),
    "long cluster": (f"name: s\nspec:\n  §cluster: {'c' * 256}", "spec.cluster", "255"),
    "unknown field": (HEAD + "  §bogus: 1", "spec.bogus", 'unknown field "bogus"'),
    "label": (
        HEAD + "  labels:\n    a: b\n    §x: y",
        "spec.labels.x",
        '"y" is a boolean in YAML; write "y" in quotes',
    ),
    "label with dots": (HEAD + "  labels: {a: b, §x.y/z: 1, c: d}", 'spec.labels["x.y/z"]', '"1" is a number'),
    "label is a list": (HEAD + "  labels: {§a: [b]}", "spec.labels.a", "must be a string, not a list"),
    "ttl": (HEAD + "  ttl: {§duration: 8}", "spec.ttl.duration", "8 has no unit; write 8s, 8m or 8h"),
    "ttl unit": (HEAD + "  ttl: {§duration: 8s}", "spec.ttl.duration", "like 8h"),
    "ttl offset": (HEAD + "  ttl: {duration: 8h, §offsetFrom: now}", "spec.ttl.offsetFrom", "createdAt, updatedAt"),
    "ttl without duration": (HEAD + "  §ttl: {offsetFrom: ''}", "spec.ttl", '"duration"'),
    "fork kind": (HEAD + FORK.replace("kind: D", "§kind: d"), "spec.forks[0].forkOf.kind", "Deployment, Rollout"),
    "fork without name": (
        HEAD + FORK.replace("forkOf", "§forkOf").replace(", name: web", ""),
        "spec.forks[0].forkOf",
        '"name"',
    ),
    "fork of nothing": (HEAD + FORK.replace("name: web", "§name: ''"), "spec.forks[0].forkOf.name", "missing"),
    "namespace with a blank": (
        HEAD + FORK.replace("namespace: d", "§namespace: d e"),
        "spec.forks[0].forkOf.namespace",
        "not a namespace name",
    ),
    "namespace that leads elsewhere": (
        HEAD + FORK.replace("namespace: d", "§namespace: d/secrets/e"),
        "spec.forks[0].forkOf.namespace",
        "not a namespace name",
    ),
    "workload with capitals": (
        HEAD + FORK.replace("name: web", "§name: Web"),
        "spec.forks[0].forkOf.name",
        "not the name of a workload",
    ),
    "local namespace": (
        HEAD + "  local:\n  - from: {kind: Deployment, §namespace: ../d, name: web}",
        "spec.local[0].from.namespace",
        "not a namespace name",
    ),
    "runner's namespace": (HEAD + "  runner: {§namespace: d?watch=1}", "spec.runner.namespace", "not a namespace name"),
    "endpoint that leads elsewhere": (
        HEAD + "  defaultRouteGroup: {endpoints: [{name: a, §target: 'http://a.d%2fsecrets.svc:80'}]}",
        "spec.defaultRouteGroup.endpoints[0].target",
        "not a target",
    ),
    "host of an endpoint": (
        HEAD + "  endpoints: [{name: a, §host: 'a/b', port: 80}]",
        "spec.endpoints[0].host",
        "not the name of a host",
    ),
    "container": (
        HEAD + FORK + "    customizations: {images: [{image: i, §container: a b}]}",
        "spec.forks[0].customizations.images[0].container",
        "not a container name",
    ),
    "name of a Secret": (
        ENV + "{name: A, valueFrom: {secret: {§name: ../a, key: k}}}",
        "spec.forks[0].customizations.env[0].valueFrom.secret.name",
        "not the name of a Secret",
    ),
    "key of a ConfigMap": (
        ENV + "{name: A, valueFrom: {configMap: {name: a, §key: k/l}}}",
        "spec.forks[0].customizations.env[0].valueFrom.configMap.key",
        "not a key of a ConfigMap",
    ),
    "fork of an expression": (
        ENV + "{name: A, valueFrom: {fork: {forkOf: {kind: Deployment, §namespace: d e, name: web}, expression: x}}}",
        "spec.forks[0].customizations.env[0].valueFrom.fork.forkOf.namespace",
        "not a namespace name",
    ),
    "baseline twice": (
        HEAD + FORK + FORK.replace("  forks:\n", "").replace("forkOf", "§forkOf"),
        "spec.forks[1].forkOf",
        "twice",
    ),
    "baseline of a rollout twice": (
        HEAD
        + FORK.replace("Deployment", "Rollout")
        + FORK[9:].replace("Deployment", "ArgoRollout").replace("forkOf", "§forkOf"),
        "spec.forks[1].forkOf",
        "twice",
    ),
    "baseline forked and local": (
        HEAD + FORK + "  local:\n  - §from: {kind: Deployment, namespace: d, name: web}",
        "spec.local[0].from",
        "spec.forks[0].forkOf",
    ),
    "image": (
        HEAD + FORK + "    customizations: {images: [{§image: ''}]}",
        "spec.forks[0].customizations.images[0].image",
        "empty",
    ),
    "env name": (ENV + "§name: A-B", "spec.forks[0].customizations.env[0].name", "environment variable"),
    "env value": (
        ENV + "name: A\n        §value: 8080",
        "spec.forks[0].customizations.env[0].value",
        'write "8080" in quotes',
    ),
    "env with two": (
        ENV + "§name: A\n        value: x\n        valueFrom: {resource: {name: db, outputKey: a.b}}",
        "spec.forks[0].customizations.env[0]",
        "both",
    ),
    "env from nothing": (
        ENV + "name: A\n        §valueFrom: {}",
        "spec.forks[0].customizations.env[0].valueFrom",
        "0 are given",
    ),
    "env from two": (
        ENV + "name: A\n        §valueFrom: {secret: {name: a, key: b}, configMap: {name: a, key: b}}",
        "spec.forks[0].customizations.env[0].valueFrom",
        "2 are given",
    ),
    "env from a secret without key": (
        ENV + "name: A\n        valueFrom: {§secret: {name: a}}",
        "spec.forks[0].customizations.env[0].valueFrom.secret",
        "a name and a key",
    ),
    "env from no output": (
        ENV + "name: A\n        valueFrom: {resource: {name: db, §outputKey: .host}}",
        "spec.forks[0].customizations.env[0].valueFrom.resource.outputKey",
        '"<step>.<output>"',
    ),
    "env operation": (
        ENV + "name: A\n        §operation: drop",
        "spec.forks[0].customizations.env[0].operation",
        "upsert, delete",
    ),
    "patch type": (
        HEAD + FORK + "    customizations: {patch: {§type: diff, value: ''}}",
        "spec.forks[0].customizations.patch.type",
        "strategic",
    ),
    "patch value": (
        HEAD + FORK + "    customizations: {patch: {type: merge, §value: '[1]'}}",
        "spec.forks[0].customizations.patch.value",
        "a mapping",
    ),
    "json patch value": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: 'a: b'}}",
        "spec.forks[0].customizations.patch.value",
        "a list",
    ),
    "patch that is no YAML": (
        HEAD + FORK + "    customizations: {patch: {type: merge, §value: 'a: ['}}",
        "spec.forks[0].customizations.patch.value",
        "of the patch",
    ),
    "json patch with an operation that is none": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: '[{op: test, path: /kind, value: x}, 7]'}}",
        "spec.forks[0].customizations.patch.value",
        "line 1 of the patch: operation 2 is a number",
    ),
    "json patch with an unknown operation": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: '[{op: put, path: /kind}]'}}",
        "spec.forks[0].customizations.patch.value",
        'operation 1: op is "put"; write one of add, remove',
    ),
    "json patch with a path that is none": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: '[{op: remove, path: spec.replicas}]'}}",
        "spec.forks[0].customizations.patch.value",
        'path is "spec.replicas"; write a path like',
    ),
    "json patch with a tilde": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: '[{op: remove, path: /a~b}]'}}",
        "spec.forks[0].customizations.patch.value",
        "write ~0 for ~ and ~1 for /",
    ),
    "json patch into itself": (
        HEAD + FORK + "    customizations: {patch: {type: json, §value: '[{op: move, from: /spec, path: /spec/a}]'}}",
        "spec.forks[0].customizations.patch.value",
        "moves a value into itself",
    ),
    "json patch with a fault in a later line": (
        HEAD
        + FORK
        + "    customizations:\n      patch:\n        type: json\n        §value: |\n"
        + "          - op: test\n            path: /kind\n            value: x\n          - op: copy\n            path: /x\n",
        "spec.forks[0].customizations.patch.value",
        "line 4 of the patch: operation 2 (copy): from is missing",
    ),
    "json patch with too many operations": (
        HEAD
        + FORK
        + "    customizations: {patch: {type: json, §value: '["
        + ", ".join(["{op: remove, path: /a}"] * 257)
        + "]'}}",
        "spec.forks[0].customizations.patch.value",
        "has 257 operations; a patch has at most 256",
    ),
    "patch that is too large": (
        HEAD + FORK + f"    customizations: {{patch: {{type: merge, §value: '{{a: {'x' * 65_536}}}'}}}}",
        "spec.forks[0].customizations.patch.value",
        "the patch has 65541 bytes; at most 65536",
    ),
    "too many forks": (
        HEAD
        + "  §forks: ["
        + ", ".join(f"{{forkOf: {{kind: Deployment, namespace: d, name: w{n}}}}}" for n in range(65))
        + "]",
        "spec.forks",
        "has 65 items; at most 64",
    ),
    "too many images": (
        HEAD + FORK + "    customizations: {§images: [" + ", ".join(["{image: x}"] * 33) + "]}",
        "spec.forks[0].customizations.images",
        "has 33 items; at most 32",
    ),
    "too many changes": (
        HEAD + FORK + "    customizations: {§env: [" + ", ".join(["{name: A}"] * 129) + "]}",
        "spec.forks[0].customizations.env",
        "has 129 items; at most 128",
    ),
    "value that is too long": (
        ENV + f"name: A\n        §value: {'x' * 131_073}",
        "spec.forks[0].customizations.env[0].value",
        "has 131073 characters; at most 131072",
    ),
    "expression that is too long": (
        ENV
        + "name: A\n        valueFrom: {fork: {forkOf: {kind: Deployment, namespace: d, name: web}, "
        + f"§expression: {'x' * 4097}}}}}",
        "spec.forks[0].customizations.env[0].valueFrom.fork.expression",
        "has 4097 characters; at most 4096",
    ),
    "patch as a mapping": (
        HEAD + FORK + "    customizations: {patch: {type: merge, §value: {spec: {}}}}",
        "spec.forks[0].customizations.patch.value",
        "must be a string, not a mapping",
    ),
    "resource name": (
        RESOURCE.replace("name: db", "§name: d_b") + "    plugin: p",
        "spec.resources[0].name",
        "a resource name",
    ),
    "long resource name": (
        RESOURCE.replace("name: db", f"§name: {'d' * 31}") + "    plugin: p",
        "spec.resources[0].name",
        "31",
    ),
    "resource twice": (
        RESOURCE + "    plugin: p\n  - §name: db\n    plugin: q",
        "spec.resources[1].name",
        "spec.resources[0].name",
    ),
    "no plugin": (RESOURCE.replace("name: db", "§name: db"), "spec.resources[0]", "neither is given"),
    "plugin and spec": (
        RESOURCE.replace("name: db", "§name: db")
        + "    plugin: p\n    spec: {create: [{name: a, script: '#!/bin/sh'}]}",
        "spec.resources[0]",
        "both",
    ),
    "plugin version": (RESOURCE + "    §plugin: p@one", "spec.resources[0].plugin", "not a version"),
    "plugin in place": (
        RESOURCE + "    spec: {create: [{name: a, §script: echo}]}",
        "spec.resources[0].spec.create[0].script",
        "must begin with #!",
    ),
    "param is a number": (
        RESOURCE + "    plugin: p\n    params: {a: b, §k: 1, c: d}",
        "spec.resources[0].params.k",
        '"1" is a number',
    ),
    "param is a list": (
        RESOURCE + "    plugin: p\n    params: {§k: [1]}",
        "spec.resources[0].params.k",
        "a string or a mapping, not a list",
    ),
    "param from elsewhere": (
        RESOURCE + "    plugin: p\n    params: {a: {valueFrom: {resource: {name: q, outputKey: a.b}}}, k: {§from: x}}",
        "spec.resources[0].params.k.from",
        "known here: valueFrom",
    ),
    "param from an output": (
        RESOURCE + "    plugin: p\n    params: {k: {valueFrom: {resource: {name: q, §outputKey: a.b.c}}}}",
        "spec.resources[0].params.k.valueFrom.resource.outputKey",
        "<step>.<output>",
    ),
    "hook event": (HEAD + "  hooks: {§onStart: []}", "spec.hooks.onStart", "preStart, postStart, preStop, postStop"),
    "hook script": (
        HEAD + "  hooks: {postStop: [{name: a, §script: true}]}",
        "spec.hooks.postStop[0].script",
        'write "true" in quotes',
    ),
    "hook with params": (
        HOOK + "      inputs:\n      - §name: b\n        valueFromSandbox: true",
        "spec.hooks.preStart[0].inputs[0]",
        "no params",
    ),
    "hook without source": (
        HOOK + "      inputs:\n      - §name: b",
        "spec.hooks.preStart[0].inputs[0]",
        "0 are given",
    ),
    "hook with two sources": (
        HOOK + "      inputs:\n      - §name: b\n        value: x\n        valueFromStep: {name: c, output: d}",
        "spec.hooks.preStart[0].inputs[0]",
        "2 are given",
    ),
    "hook of a step": (
        HOOK + "      inputs:\n      - name: b\n        valueFromStep: {name: c, §output: d.e}",
        "spec.hooks.preStart[0].inputs[0].valueFromStep.output",
        "an output name",
    ),
    "fork name": (HEAD + FORK.replace("- forkOf", "- §name: a b\n    forkOf"), "spec.forks[0].name", "a fork name"),
    "hook of an output": (
        HOOK + "      inputs:\n      - name: b\n        valueFrom: {resource: {name: db, §outputKey: x.}}",
        "spec.hooks.preStart[0].inputs[0].valueFrom.resource.outputKey",
        "<step>.<output>",
    ),
    "hook of nothing": (
        HOOK + "      inputs:\n      - name: b\n        §valueFrom: {}",
        "spec.hooks.preStart[0].inputs[0].valueFrom",
        "exactly one of resource and fork; none given",
    ),
    "hook of a resource and a fork": (
        HOOK + "      inputs:\n      - name: b\n        §valueFrom:\n          resource: {name: db, outputKey: a.b}\n"
        "          fork: {forkOf: {kind: Deployment, namespace: s, name: w}, expression: x}",
        "spec.hooks.preStart[0].inputs[0].valueFrom",
        "both given",
    ),
    "hook of a fork before there is one": (
        HOOK + "      inputs:\n      - name: b\n        valueFrom:\n"
        "          §fork: {forkOf: {kind: Deployment, namespace: s, name: w}, expression: x}",
        "spec.hooks.preStart[0].inputs[0].valueFrom.fork",
        "forks exist only in postStart and preStop hooks: no preStart hook can read one",
    ),
    "hook of a fork after it": (
        (
            HOOK + "      inputs:\n      - name: b\n        valueFrom:\n"
            "          §fork: {forkOf: {kind: Deployment, namespace: s, name: w}, expression: x}"
        ).replace("preStart", "postStop"),
        "spec.hooks.postStop[0].inputs[0].valueFrom.fork",
        "no postStop hook can read one",
    ),
    "hook of a fork, in too many words": (
        (
            HOOK + "      inputs:\n      - name: b\n        valueFrom:\n          fork:\n"
            "            forkOf: {kind: Deployment, namespace: s, name: w}\n"
            f"            §expression: {'x' * 4097}"
        ).replace("preStart", "preStop"),
        "spec.hooks.preStop[0].inputs[0].valueFrom.fork.expression",
        "4097 characters",
    ),
    "hook twice": (
        HOOK + "    preStop:\n    - §name: a\n      script: '#!/bin/sh'",
        "spec.hooks.preStop[0].name",
        "preStart[0]",
    ),
    "hook limit": (
        HEAD + "  hooks: {postStop: [{name: a, script: '#!/bin/sh', retry: {§limit: 2}}]}",
        "spec.hooks.postStop[0].retry.limit",
        "until it succeeds",
    ),
    "runner": (HEAD + "  runner: {§podTemplateOverlay: '[]'}", "spec.runner.podTemplateOverlay", "a mapping"),
    "target": (
        HEAD + "  defaultRouteGroup: {endpoints: [{name: a, §target: web}]}",
        "spec.defaultRouteGroup.endpoints[0].target",
        "<scheme>://<host>:<port>",
    ),
    "endpoint twice": (
        HEAD
        + "  endpoints: [{name: a, port: 80}]\n  defaultRouteGroup: {endpoints: [{§name: a, target: http://w:80}]}",
        "spec.defaultRouteGroup.endpoints[0].name",
        "spec.endpoints[0].name",
    ),
    "endpoint of a fork twice": (
        HEAD + "  endpoints: [{name: a, port: 80}]\n" + FORK + "    endpoints: [{§name: a, port: 80}]",
        "spec.forks[0].endpoints[0].name",
        "twice",
    ),
    "port": (HEAD + "  endpoints: [{name: a, §port: http}]", "spec.endpoints[0].port", 'port is not int: "http"'),
    "a resource's name in a hook": (
        HEAD
        + "  hooks: {preStart: [{name: a, webhook: {method: POST, url: 'https://a.example/', "
        + "body: {§$env: DAYFLY_RESOURCE_NAME}}}]}",
        'spec.hooks.preStart[0].webhook.body["$env"]',
        '"DAYFLY_RESOURCE_NAME" is not one of DAYFLY_SANDBOX_NAME, DAYFLY_SANDBOX_ROUTING_KEY, DAYFLY_RESOURCE_ID',
    ),
    "port too high": (HEAD + "  endpoints: [{name: a, §port: '65536'}]", "spec.endpoints[0].port", "65535"),
    "local": (HEAD + "  local: [§x]", "spec.local[0]", "must be a mapping"),
}


@pytest.mark.parametrize(("source", "path", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(source, path, word):
    error = refusal(source)
    assert error.path == path
    assert word in error.problem


FULL = """
name: "@{name}"
extra: is ignored
spec:
  description: all that can be said
  cluster: "@{cluster}"
  labels: {team: a, signadot/github-repo: org/repo}
  ttl: {duration: 8h}
  forks:
  - forkOf: {kind: Deployment, namespace: "@{namespace}", name: echo-env}
    customizations:
      images: [{image: "example/echo:1"}]
      env:
      - {name: HOST, valueFrom: {resource: {name: customObjects, outputKey: provision.host}}}
      - {name: PEER, valueFrom: {fork: {forkOf: {kind: Deployment, namespace: d, name: b}, expression: "{{.Service.Host}}"}}}
      - {name: OLD, operation: delete}
      - {name: EMPTY}
      - {name: S, container: side, valueFrom: {secret: {name: a, key: b, optional: true}}}
      patch: {type: strategic, value: "spec: {template: {spec: {serviceAccountName: x}}}"}
    endpoints: [{name: old, port: "80", protocol: http}]
  resources:
  - name: usersDb
    plugin: branch@v1
    params: {port: "5432", host: {valueFrom: {resource: {name: customObjects, outputKey: provision.host}}}}
  - name: customObjects
    spec: {create: [{name: provision, script: "#!/bin/sh", outputs: [{name: host, valueFromPath: /tmp/h}]}]}
  hooks:
    preStart:
    - name: migrate
      inputs:
      - {name: mode, value: ""}
      - {name: host, valueFrom: {resource: {name: usersDb, outputKey: provision.host}}}
      outputs: [{name: version, valueFromPath: /tmp/version}]
      script: "#!/bin/sh"
      retry: {idempotent: true, limit: 3, backoff: 5s}
      timeouts: {schedule: 1m, pull: 5m, run: 1h, grace: 10s}
    postStop:
    - {name: report, script: "#!/bin/sh", inputs: [{name: v, valueFromStep: {name: migrate, output: version}}]}
  runner: {image: example/tools}
  defaultRouteGroup: {endpoints: [{name: web, target: http://echo-env.d.deploy:80}]}
  endpoints: [{name: outside, host: h, port: 443, protocol: https}]
  local: [{name: l, from: {kind: Deployment, namespace: d, name: c}, mappings: [{port: 80, toLocal: "localhost:1"}]}]
  virtual: [{name: v, workload: {kind: Deployment, namespace: d, name: e}}]
  middleware: [{name: override, args: [{name: a, value: b}], match: [{workload: "*"}]}]
  routing: {forwards: [{name: f, port: 1, toLocal: "localhost:2"}]}
  localMachineID: m
  disableSandboxTrafficManager: true
"""


def test_sandbox_with_every_field():
    found = load(FULL, name="s1", cluster="c1", namespace="shop")
    assert isinstance(found, sandbox.Sandbox)
    assert found.spec.forks[0].endpoints[0].port == 80
    assert found.spec.resources[0].params["port"] == "5432"
    assert found.spec.ttl.seconds == 8 * 3600
    assert found.spec.hooks.pre_start[0].inputs[0].value == ""


def test_sandbox_survives_an_export_and_import():
    found = load(FULL, name="s1", cluster="c1", namespace="shop")
    wire = documents.export(found)
    assert documents.from_wire(wire, "Sandbox") == found
    assert documents.export(documents.from_wire(wire, "Sandbox")) == wire
    assert wire["spec"]["middleware"] == [
        {"name": "override", "args": [{"name": "a", "value": "b"}], "match": [{"workload": "*"}]}
    ]
    assert wire["spec"]["ttl"] == {"duration": "8h", "offsetFrom": "createdAt"}
    assert wire["spec"]["localMachineID"] == "m"


def test_the_smallest_one_shows_its_lists():
    wire = documents.export(load(HEAD))
    lists = ("forks", "resources", "endpoints", "local", "virtual", "middleware")
    assert wire == {"name": "s", "spec": {"cluster": "c", **{field: [] for field in lists}}}


def test_null_absent_and_empty_are_alike():
    fields = ("endpoints", "forks", "local", "middleware", "resources", "virtual", "labels", "ttl", "hooks", "routing")
    nulls = {"name": "s", "spec": {"cluster": "c", **dict.fromkeys(fields)}}
    assert documents.from_wire(nulls, "Sandbox") == load(HEAD)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0m", 0), ("30m", 1800), ("8h", 28_800), ("2d", 172_800), ("1w", 604_800), ("4294967295m", 4294967295 * 60)],
)
def test_times_to_live(text, seconds):
    assert sandbox.ttl_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "1", "1s", "-1m", "1.5h", "4294967296m", "1h30m", "٣m", "9" * 5000 + "m"])
def test_no_times_to_live(text):
    with pytest.raises(SpecError):
        sandbox.ttl_seconds(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0m", "is not a valid time to live: write more than 0, like 8h, or leave `ttl` out"),
        ("00w", "is not a valid time to live: write more than 0"),
        ("-5m", "is not a time to live: write a whole number and m, h, d or w, like 8h"),
        ("30", "is not a time to live: write a whole number and m, h, d or w, like 8h"),
        ("30s", "is not a time to live: write a whole number and m, h, d or w, like 8h"),
        ("4294967296w", "is not a time to live"),
    ],
)
@pytest.mark.parametrize("kind", ["Sandbox", "RouteGroup"])
def test_ttl_without_effect_is_refused_with_field_and_advice(kind, text, said):
    match = {"match": {"label": {"key": "a", "value": "b"}}} if kind == "RouteGroup" else {}
    body = {"name": "s", "spec": {"cluster": "c", "ttl": {"duration": text}, **match}}
    with pytest.raises(SpecError) as fault:
        documents.from_wire(body, kind)
    assert str(fault.value).startswith(f'spec.ttl.duration: "{text}" {said}')
