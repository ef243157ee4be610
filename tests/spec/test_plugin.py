"""Plugins: every rule with the place of its fault, and published forms."""

import pytest
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents, plugin
from dayfly.spec.errors import SpecError

STEP = "    script: |\n      #!/bin/sh\n      true\n"


def create(body):
    """Return a plugin with one create step. `body` has its other fields, indented by four."""
    return f"name: p\nspec:\n  create:\n  - name: a\n{body}"


REFUSED = {
    "name": ("§name: 1p\nspec:\n  create: []", "name", "plugin name"),
    "version": ("§name: p@1.x\nspec:\n  create: []", "name", "version"),
    "boolean name": ("§name: on\nspec:\n  create: []", "name", 'write "on" in quotes'),
    "no steps": ("name: p\n§spec:\n  runner: {}", "spec", "neither create nor delete"),
    "unknown field": ("name: p\nspec:\n  §bogus: 1\n  create: []", "spec.bogus", 'unknown field "bogus"'),
    "unknown field of a step": (create(STEP + "    §inptus: []"), "spec.create[0].inptus", "known here: name, inputs"),
    "description": ("name: p\nspec:\n  §description: yes\n  create: []", "spec.description", '"yes" is a boolean'),
    "create is a mapping": ("name: p\nspec:\n  §create: {a: b}", "spec.create", "must be a list, not a mapping"),
    "a step is text": ("name: p\nspec:\n  create:\n  - §x", "spec.create[0]", "must be a mapping, not a string"),
    "a step is null": ("name: p\nspec:\n  create:\n  - §~", "spec.create[0]", "must be a mapping, not null"),
    "no step name": ("name: p\nspec:\n  create:\n  - §script: x", "spec.create[0]", 'missing required field "name"'),
    "no script": (create("    inputs: []").replace("name: a", "§name: a"), "spec.create[0]", "none is given"),
    "step name": (create(STEP).replace("name: a", "§name: a_b"), "spec.create[0].name", "a step name"),
    "64 characters": (
        create(STEP).replace("name: a", "§name: " + "a" * 64),
        "spec.create[0].name",
        "has 64 characters",
    ),
    "step name twice": (
        create(STEP) + "  delete:\n  - §name: a\n" + STEP,
        "spec.delete[0].name",
        "spec.create[0].name",
    ),
    "no interpreter": (create("    §script: echo"), "spec.create[0].script", "must begin with #!"),
    "empty script": (create("    §script: ''"), "spec.create[0].script", "must begin with #!"),
    "relative interpreter": (create("    §script: '#!sh'"), "spec.create[0].script", "absolute path"),
    "carriage return": (
        create('    §script: "#!/bin/sh\\r\\ntrue"'),
        "spec.create[0].script",
        "line 1 ends in a carriage return; save the script with Unix line endings (LF)",
    ),
    "carriage return in a command": (
        create('    command: [sh, -c, §"rm a\\r\\nrm b"]'),
        "spec.create[0].command[2]",
        "ends in a carriage return",
    ),
    "byte order mark": (
        create('    §script: "\\uFEFF#!/bin/sh"'),
        "spec.create[0].script",
        "begins with a byte order mark (U+FEFF); save it as UTF-8 without one",
    ),
    "long script": (create("    §script: '#!/bin/sh " + "ä" * 65_536 + "'"), "spec.create[0].script", "131072"),
    "script and command": (
        create(STEP + "    command: [x]").replace("name: a", "§name: a"),
        "spec.create[0]",
        "needs exactly one of script, command, webhook and object; script and command are given",
    ),
    "no program": (create("    §command: []"), "spec.create[0].command", "has no program"),
    "empty program": (create("    §command: ['', x]"), "spec.create[0].command", "has no program"),
    "a program from an input": (
        create("    command: [§$(TOOL), x]"),
        "spec.create[0].command[0]",
        "the program must be constant",
    ),
    "a number in a command": (create("    command: [sleep, §1]"), "spec.create[0].command[1]", 'write "1" in quotes'),
    "long argument": (create(f"    command: [x, §{'y' * 16_385}]"), "spec.create[0].command[1]", "16385 bytes"),
    "many arguments": (create(f"    §command: [{'x, ' * 257}]"), "spec.create[0].command", "at most 256"),
    "long command": (create(f"    §command: [{('x' * 9_999 + ', ') * 14}]"), "spec.create[0].command", "140000 bytes"),
    "an answer of a command": (
        create("    command: [x]\n    outputs:\n    - {name: o, §valueFromStatus: true}"),
        "spec.create[0].outputs[0].valueFromStatus",
        "this step is a command; write valueFromPath instead",
    ),
    "no place of a command's output": (
        create("    command: [x]\n    outputs:\n    - §name: o"),
        "spec.create[0].outputs[0]",
        'missing required field "valueFromPath"',
    ),
    "input name": (create(STEP + "    inputs:\n    - §name: a.b"), "spec.create[0].inputs[0].name", "an input name"),
    "input twice": (
        create(STEP + "    inputs:\n    - {name: b, valueFromSandbox: true}\n    - {§name: b, valueFromSandbox: true}"),
        "spec.create[0].inputs[1].name",
        "spec.create[0].inputs[0].name",
    ),
    "a state and no script that destroys": (
        "name: p\nspec:\n  §state: true\n  create:\n  - name: a\n" + STEP,
        "spec.state",
        "no delete step has a script or command",
    ),
    "a state and no script that makes": (
        "name: p\nspec:\n  §state: true\n  create:\n  - name: a\n    object: {remove: b}\n  delete:\n  - name: b\n"
        + STEP,
        "spec.state",
        "no create step has a script or command",
    ),
    "a state that is no boolean": ("name: p\nspec:\n  §state: 3\n  create: []", "spec.state", "must be true or false"),
    "a step's output is required": (
        create(STEP + "    inputs:\n    - {name: b, §required: true, valueFromStep: {name: a, output: o}}"),
        "spec.create[0].inputs[0].required",
        "belongs to an input with valueFromSandbox",
    ),
    "a step's output has a default": (
        create(STEP + "    inputs:\n    - {name: b, §default: '', valueFromStep: {name: a, output: o}}"),
        "spec.create[0].inputs[0].default",
        "belongs to an input with valueFromSandbox",
    ),
    "required and never missing": (
        create(STEP + "    inputs:\n    - {name: b, §required: true, default: x, valueFromSandbox: true}"),
        "spec.create[0].inputs[0].required",
        "leave one of the two out",
    ),
    "a default that is required elsewhere": (
        create(STEP + "    inputs:\n    - {name: b, required: true, valueFromSandbox: true}\n  - name: c\n" + STEP)
        + "    inputs:\n    - {name: b, §default: x, valueFromSandbox: true}",
        "spec.create[1].inputs[0].default",
        "leave one of the two out",
    ),
    "a step's output is a secret": (
        create(STEP + "    inputs:\n    - {name: b, §secret: true, valueFromStep: {name: a, output: o}}"),
        "spec.create[0].inputs[0].secret",
        "belongs to an input with valueFromSandbox",
    ),
    "a secret with a default": (
        create(STEP + "    inputs:\n    - {name: b, §default: x, secret: true, valueFromSandbox: true}"),
        "spec.create[0].inputs[0].default",
        "leave required and default out",
    ),
    "a secret that is required elsewhere": (
        create(STEP + "    inputs:\n    - {name: b, secret: true, valueFromSandbox: true}\n  - name: c\n" + STEP)
        + "    inputs:\n    - {name: b, §required: true, valueFromSandbox: true}",
        "spec.create[1].inputs[0].required",
        "leave required and default out",
    ),
    "two defaults": (
        create(STEP + "    inputs:\n    - {name: b, default: x, valueFromSandbox: true}\n  - name: c\n" + STEP)
        + "    inputs:\n    - {name: b, §default: z, valueFromSandbox: true}",
        "spec.create[1].inputs[0].default",
        'another step has the default "x" for this param',
    ),
    "a long default": (
        create(STEP + "    inputs:\n    - {name: b, §default: " + "x" * 65_537 + ", valueFromSandbox: true}"),
        "spec.create[0].inputs[0].default",
        "at most 65536 bytes",
    ),
    "no source": (create(STEP + "    inputs:\n    - §name: b"), "spec.create[0].inputs[0]", "none is given"),
    "false is no source": (
        create(STEP + "    inputs:\n    - §name: b\n      valueFromSandbox: false"),
        "spec.create[0].inputs[0]",
        "none is",
    ),
    "two sources": (
        create(
            STEP
            + "    inputs:\n    - §name: b\n      valueFromSandbox: true\n      valueFromStep: {name: c, output: d}"
        ),
        "spec.create[0].inputs[0]",
        "are given",
    ),
    "a hook's source": (
        create(STEP + "    inputs:\n    - name: b\n      §value: x"),
        "spec.create[0].inputs[0].value",
        "hook",
    ),
    "another hook's source": (
        create(STEP + "    inputs:\n    - name: b\n      §valueFrom: {resource: {name: a, outputKey: b.c}}"),
        "spec.create[0].inputs[0].valueFrom",
        "hook",
    ),
    "no output": (
        create(STEP + "    inputs:\n    - name: b\n      §valueFromStep: {name: c}"),
        "spec.create[0].inputs[0].valueFromStep",
        '"output"',
    ),
    "step of a source": (
        create(STEP + "    inputs:\n    - name: b\n      valueFromStep: {§name: '', output: x}"),
        "spec.create[0].inputs[0].valueFromStep.name",
        "cannot be empty",
    ),
    "variable": (
        create(STEP + "    inputs:\n    - name: b\n      valueFromSandbox: true\n      as: {§env: B-C}"),
        "spec.create[0].inputs[0].as.env",
        "environment variable name",
    ),
    "variable twice": (
        create(
            STEP + "    inputs:\n    - {name: b-c, valueFromSandbox: true}\n"
            "    - {name: d, valueFromSandbox: true, as: {§env: B_C}}"
        ),
        "spec.create[0].inputs[1].as.env",
        '"B_C" appears twice',
    ),
    "derived variable twice": (
        create(
            STEP + "    inputs:\n    - {name: b-c, valueFromSandbox: true}\n    - {§name: B-c, valueFromSandbox: true}"
        ),
        "spec.create[0].inputs[1].name",
        '"B_C" appears twice',
    ),
    "input file": (
        create(STEP + "    inputs:\n    - name: b\n      valueFromSandbox: true\n      as: {§path: /proc/1/mem}"),
        "spec.create[0].inputs[0].as.path",
        "/proc",
    ),
    "file twice": (
        create(
            STEP + "    inputs:\n    - {name: b, valueFromSandbox: true, as: {path: /a}}\n"
            "    - {name: c, valueFromSandbox: true, as: {§path: /a}}"
        ),
        "spec.create[0].inputs[1].as.path",
        '"/a" appears twice',
    ),
    "file within a file": (
        create(
            STEP + "    inputs:\n    - {name: b, valueFromSandbox: true, as: {§path: /a/b/c}}\n"
            "    - {name: c, valueFromSandbox: true, as: {path: /a}}"
        ),
        "spec.create[0].inputs[0].as.path",
        '"/a", which is another',
    ),
    "output name": (
        create(STEP + "    outputs:\n    - {§name: a b, valueFromPath: /x}"),
        "spec.create[0].outputs[0].name",
        "an output name",
    ),
    "output twice": (
        create(STEP + "    outputs:\n    - {name: b, valueFromPath: /x}\n    - {§name: b, valueFromPath: /y}"),
        "spec.create[0].outputs[1].name",
        "twice",
    ),
    "output path": (
        create(STEP + "    outputs:\n    - {name: b, §valueFromPath: tmp/x}"),
        "spec.create[0].outputs[0].valueFromPath",
        "absolute",
    ),
    "output path with dots": (
        create(STEP + "    outputs:\n    - {name: b, §valueFromPath: /tmp/../etc/shadow}"),
        "spec.create[0].outputs[0].valueFromPath",
        '".."',
    ),
    "backoff": (create(STEP + "    retry: {§backoff: 5}"), "spec.create[0].retry.backoff", 'write "5" in quotes'),
    "backoff without unit": (create(STEP + "    retry: {§backoff: '5'}"), "spec.create[0].retry.backoff", "duration"),
    "limit": (create(STEP + "    retry: {§limit: 3}"), "spec.create[0].retry.limit", "idempotent: true"),
    "limit of none": (create(STEP + "    retry: {§limit: 0}"), "spec.create[0].retry.limit", "1 or more"),
    "limit as text": (create(STEP + "    retry: {§limit: '3'}"), "spec.create[0].retry.limit", "a whole number"),
    "limit of a cleanup": (
        "name: p\nspec:\n  delete:\n  - name: a\n" + STEP + "    retry: {§limit: 3}",
        "spec.delete[0].retry.limit",
        "until it succeeds",
    ),
    "idempotent": (
        create(STEP + "    retry: {§idempotent: 'yes'}"),
        "spec.create[0].retry.idempotent",
        "true or false",
    ),
    "time-out": (create(STEP + "    timeouts: {§run: 0s}"), "spec.create[0].timeouts.run", "outside the limits"),
    "time-out unknown": (create(STEP + "    timeouts: {§start: 1s}"), "spec.create[0].timeouts.start", "known here"),
}


@pytest.mark.parametrize(("source", "path", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(source, path, word):
    error = refusal(source)
    assert error.path == path
    assert word in error.problem


def overlay(text, runner=""):
    indented = "".join(f"      {line}\n" for line in text.splitlines())
    return f"name: p\nspec:\n  runner:\n    §podTemplateOverlay: |\n{indented}{runner}  create:\n  - name: a\n{STEP}"


@pytest.mark.parametrize(
    ("text", "runner", "word"),
    [
        ("- a", "", "must be a mapping"),
        ("a: [", "", "line 2 of the overlay"),
        ("a: 1\n---\nb: 1", "", "2 documents"),
        ("template: {}", "", '"template"'),
        ("spec: [1]", "", "spec: must be a mapping"),
        ("metadata: no", "", "metadata: must be a mapping, not a boolean"),
        ("metadata: []", "", "metadata: must be a mapping, not a list"),
        ("spec: ''", "", "spec: must be a mapping, not a string"),
        ("spec: {containers: no}", "", "spec.containers: must be a list, not a boolean"),
        ("spec: {volumes: 0}", "", "spec.volumes: must be a list, not a number"),
        ("spec: {restartPolicy: no}", "", "spec.restartPolicy: must be Never"),
        ("spec: {containers: {}}", "", "spec.containers: must be a list, not a mapping"),
        ("spec: {containers: {a: b}}", "", "spec.containers: must be a list"),
        ("spec: {containers: [{image: x}]}", "", "spec.containers[0]: must be a mapping with a name"),
        ("spec: {restartPolicy: Always}", "", "spec.restartPolicy: must be Never"),
        ("spec: {containers: [{name: signadot-execunit-output-manager}]}", "", "reserved"),
        ("spec: {initContainers: [{name: signadot-execunit-input-manager}]}", "", "reserved"),
        ("spec: {volumes: [{name: signadot-execunit-io}]}", "", "reserved"),
        ("spec: {volumes: [{name: dayfly-io}]}", "", "reserved"),
        ("metadata: {name: x}", "", "metadata.name: leave the name out"),
        ("metadata: {namespace: a}", "    namespace: b\n", "metadata.namespace: a contradicts"),
        ("metadata: {namespace: a}", "", "metadata.namespace: a contradicts the runner's namespace signadot"),
        ("metadata: {namespace: [signadot]}", "", "metadata.namespace: must be a string, not a list"),
        ("metadata: {namespace: no}", "", "metadata.namespace: must be a string, not a boolean"),
        ("spec: {containers: [{name: main, image: a}]}", "    image: b\n", "spec.containers[0].image: contradicts"),
    ],
)
def test_an_overlay_that_contradicts(text, runner, word):
    error = refusal(overlay(text, runner))
    assert error.path == "spec.runner.podTemplateOverlay"
    assert word in error.problem


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        ("", ""),
        ("# nothing", ""),
        ("metadata:\nspec:", ""),
        ("spec: {containers: , initContainers: , volumes: , restartPolicy: ''}", ""),
        ("spec: {containers: [{name: main, image: ''}]}", "    image: a\n"),
        ("metadata: {annotations: {a: b}}", ""),
        ("metadata: {namespace: signadot}", ""),
        ("metadata: {namespace: dayfly-runners}", "    namespace: signadot\n"),
        ("metadata: {namespace: a}", "    namespace: a\n"),
        ("spec: {restartPolicy: Never, containers: [{name: main, image: a}, {name: proxy, image: x}]}", ""),
        ("spec: {containers: [{name: main, image: a}]}", "    image: a\n"),
    ],
)
def test_an_overlay_that_does_not(text, runner):
    assert load(overlay(text, runner).replace("§", ""))


@pytest.mark.parametrize(
    ("given", "env", "path"),
    [
        ({}, "DB_NAME", ""),
        ({"as": {}}, "DB_NAME", ""),
        ({"as": {"env": "X"}}, "X", ""),
        ({"as": {"path": "/x"}}, "", "/x"),
        ({"as": {"env": "X", "path": "/x"}}, "X", "/x"),
    ],
)
def test_input_has_a_variable_or_a_path(given, env, path):
    wanted = {"name": "db-name", "valueFromSandbox": True, **given}
    body = {"name": "p", "spec": {"create": [{"name": "a", "script": "#!/bin/sh", "inputs": [wanted]}]}}
    found = documents.from_wire(body, "ResourcePlugin").spec.create[0].inputs[0]
    assert (found.env, found.path) == (env, path)


@pytest.mark.parametrize(("text", "value"), [("1s", 1_000), ("90s", 90_000), ("5m", 300_000), ("168h", 604_800_000)])
def test_durations(text, value):
    assert plugin.milliseconds(text) == value


@pytest.mark.parametrize(
    "text", ["", "s", "5", "0s", "-1s", "1.5s", "1d", "169h", "1 s", "٣s", "9" * 5000 + "s", "1h30m"]
)
def test_no_durations(text):
    with pytest.raises(SpecError):
        plugin.milliseconds(text)


CHART = (
    """
name: chart-db
spec:
  description: |
    """
    + "A description longer than anybody documents. " * 15
    + """
  runner:
    image: example/helm
    namespace: signadot
    podTemplateOverlay: |
      spec:
        serviceAccountName: chart-db
  create:
  - name: provision
    inputs:
    - name: dbname
      valueFromSandbox: true
      as: {env: DBNAME}
    outputs:
    - {name: host, valueFromPath: /tmp/host}
    - {name: port, valueFromPath: /tmp/port}
    - {name: root-password, valueFromPath: /tmp/root-password, sensitive: true}
    script: |
      #!/bin/bash
      echo -n "db-${SIGNADOT_SANDBOX_ID}" > /tmp/host
  delete:
  - name: deprovision
    script: |
      #!/bin/bash
      true
"""
)
STATE = """
name: bucket
spec:
  runner:
    image: example/terraform
    namespace: signadot
    podTemplateOverlay: |
      spec:
        containers:
        - name: main
          env:
          - {name: STATE, value: "@{state-bucket}"}
          - name: KEY
            valueFrom: {secretKeyRef: {name: cloud, key: key}}
          volumeMounts: [{name: credentials, mountPath: /root/.cloud}]
        volumes: [{name: credentials, secret: {secretName: cloud}}]
  create:
  - name: provision
    inputs: [{name: region, valueFromSandbox: true, as: {env: REGION}}]
    outputs: [{name: bucket-name, valueFromPath: /outputs/name}]
    script: "#!/bin/sh\\n"
  delete:
  - name: deprovision
    inputs:
    - {name: region, valueFromSandbox: true, as: {env: REGION}}
    - name: bucket-name
      valueFromStep: {name: provision, output: bucket-name}
      as: {env: BUCKET}
    script: "#!/bin/sh\\n"
"""
MANIFESTS = """
name: manifests
spec:
  runner: {image: "example/apply:v1.0.0", namespace: signadot, podTemplateOverlay: "spec: {serviceAccountName: apply}"}
  create:
  - name: provision
    inputs: [{name: data, valueFromSandbox: true, as: {path: /tmp/input.yaml}}]
    script: "#!/bin/sh\\n"
"""
VAULT = """
name: shared-db
spec:
  runner:
    image: postgres
    namespace: signadot
    podTemplateOverlay: |
      metadata:
        annotations:
          vault.hashicorp.com/agent-inject: 'true'
      spec: {serviceAccountName: vault}
  create:
  - name: provision
    outputs: [{name: db-name, valueFromPath: /tmp/name}]
    script: "#!/bin/bash\\n"
  - name: setup
    inputs: [{name: db-name, valueFromStep: {name: provision, output: db-name}, as: {env: DB}}]
    script: "#!/bin/bash\\n"
  delete:
  - name: deprovision
    inputs: [{name: db-name, valueFromStep: {name: provision, output: db-name}, as: {env: DB}}]
    script: "#!/bin/bash\\n"
"""
PYTHON = """
name: python-thing
spec:
  runner: {image: "python:3", namespace: signadot}
  create: [{name: create-something, script: "#!/usr/bin/env python3\\n", inputs: null, outputs: null}]
  delete: [{name: delete-something, script: "#!/usr/bin/env python3\\n"}]
"""


@pytest.mark.parametrize(
    "source", [CHART, STATE, MANIFESTS, VAULT, PYTHON], ids=["chart", "state", "manifests", "vault", "python"]
)
def test_the_shapes_people_publish(source):
    assert isinstance(load(source, **{"state-bucket": "b"}), plugin.Plugin)


def test_null_absent_and_empty_are_alike():
    forms = [
        "{name: p, spec: {create: [{name: a, script: '#!/bin/sh', inputs: null}], delete: null, runner: null}}",
        "{name: p, spec: {create: [{name: a, script: '#!/bin/sh'}]}}",
        "{name: p, spec: {create: [{name: a, script: '#!/bin/sh', inputs: [], outputs: []}], delete: [], runner: {}}}",
    ]
    first, *others = [load(form) for form in forms]
    assert others == [first, first]


def test_param_attributes_of_any_step_apply_to_all():
    found = load("""\
name: p
spec:
  create:
  - {name: a, script: "#!/bin/sh", inputs: [{name: size, valueFromSandbox: true}, {name: own, valueFromSandbox: true}]}
  delete:
  - name: b
    script: "#!/bin/sh"
    inputs: [{name: size, valueFromSandbox: true, default: ""}, {name: own, valueFromSandbox: true, required: true}]
""")
    assert found.spec.params() == {"size": ("a", False, "", False, False), "own": ("a", True, None, False, False)}
    assert documents.from_wire(documents.export(found), "ResourcePlugin") == found


def test_a_secret_is_one_for_all_steps():
    found = load("""\
name: p
spec:
  create:
  - {name: a, script: "#!/bin/sh", inputs: [{name: key, valueFromSandbox: true}, {name: own, valueFromSandbox: true}]}
  delete:
  - {name: b, script: "#!/bin/sh", inputs: [{name: key, valueFromSandbox: true, secret: true}]}
""")
    assert found.spec.secrets() == {"key"}
    assert documents.from_wire(documents.export(found), "ResourcePlugin") == found


SHARED = """\
name: p
spec:
  inputs:
  - {name: owner, valueFromSandbox: true, default: me}
  - {name: password, valueFromSandbox: true, secret: true, as: {path: /tmp/password}}
  - {name: db, valueFromStep: {name: make, output: db}}
  - {name: color, valueFromSandbox: true, steps: [drop]}
  create:
  - {name: make, script: "#!/bin/sh", outputs: [{name: db, valueFromPath: /tmp/db}]}
  - name: grant
    inputs: [{name: owner, valueFromSandbox: true, as: {env: WHO}}]
    script: "#!/bin/sh"
  - {name: call, webhook: {method: GET, url: "https://a.example", path: [{$input: owner}]}}
  delete:
  - {name: drop, script: "#!/bin/sh"}
  inventory:
  - {name: list, script: "#!/bin/sh"}
"""
WRITTEN_OUT = """\
name: p
spec:
  create:
  - name: make
    inputs:
    - {name: owner, valueFromSandbox: true, default: me}
    - {name: password, valueFromSandbox: true, secret: true, as: {path: /tmp/password}}
    script: "#!/bin/sh"
    outputs: [{name: db, valueFromPath: /tmp/db}]
  - name: grant
    inputs:
    - {name: owner, valueFromSandbox: true, as: {env: WHO}}
    - {name: password, valueFromSandbox: true, secret: true, as: {path: /tmp/password}}
    - {name: db, valueFromStep: {name: make, output: db}}
    script: "#!/bin/sh"
  - name: call
    inputs:
    - {name: owner, valueFromSandbox: true, default: me}
    - {name: password, valueFromSandbox: true, secret: true}
    - {name: db, valueFromStep: {name: make, output: db}}
    webhook: {method: GET, url: "https://a.example", path: [{$input: owner}]}
  delete:
  - name: drop
    inputs:
    - {name: owner, valueFromSandbox: true, default: me}
    - {name: password, valueFromSandbox: true, secret: true, as: {path: /tmp/password}}
    - {name: db, valueFromStep: {name: make, output: db}}
    - {name: color, valueFromSandbox: true}
    script: "#!/bin/sh"
  inventory:
  - name: list
    inputs: [{name: owner, valueFromSandbox: true, default: me}]
    script: "#!/bin/sh"
"""


def test_shared_inputs_equal_inputs_in_each_step():
    assert load(SHARED) == load(WRITTEN_OUT)


def test_shared_inputs_of_an_inline_plugin_reach_its_steps():
    def inline(source):
        body = source.removeprefix("name: p\n").replace("\n", "\n    ")
        return f"name: s\nspec:\n  cluster: local\n  resources:\n  - name: r\n    {body}"

    assert load(inline(SHARED)) == load(inline(WRITTEN_OUT))


def test_removal_of_an_object_gets_no_shared_inputs():
    source = """\
name: p
spec:
  inputs: [{name: owner, valueFromSandbox: true}]
  create: [{name: make, object: {manifest: {apiVersion: v1, kind: ConfigMap}}}]
  delete: [{name: drop, object: {remove: make}}]
"""
    spec = load(source).spec
    assert ([each.name for each in spec.create[0].inputs], spec.delete[0].inputs) == (["owner"], ())


SHARED_REFUSED = {
    "no source": ("§{name: a}", "spec.inputs[0]", "needs exactly one of"),
    "name": ("{§name: a_b, valueFromSandbox: true}", "spec.inputs[0].name", "input name"),
    "twice": (
        "{name: a, valueFromSandbox: true}\n  - {§name: a, valueFromSandbox: true}",
        "spec.inputs[1].name",
        "spec.inputs[0].name",
    ),
    "unknown step": ("{name: a, valueFromSandbox: true, steps: [make, §nosuch]}", "spec.inputs[0].steps[1]", '"make"'),
    "own variable": ("{§name: dayfly-x, valueFromSandbox: true}", "spec.inputs[0].name", "choose another variable"),
    "forbidden file": (
        "{name: a, valueFromSandbox: true, as: {§path: /proc/a}}",
        "spec.inputs[0].as.path",
        "/proc",
    ),
    "variable of another input": (
        "{name: a, valueFromSandbox: true, as: {§env: OWN}}",
        "spec.inputs[0].as.env",
        "spec.create[0].inputs[0]",
    ),
}


@pytest.mark.parametrize(("shared", "path", "problem"), SHARED_REFUSED.values(), ids=SHARED_REFUSED)
def test_fault_of_a_shared_input_has_its_place(shared, path, problem):
    step = '{name: make, inputs: [{name: own, valueFromSandbox: true}], script: "#!/bin/sh"}'
    error = refusal(f"name: p\nspec:\n  inputs:\n  - {shared}\n  create:\n  - {step}\n")
    assert (error.path, problem in error.problem) == (path, True), str(error)


def test_fault_of_a_shared_input_in_a_request_has_its_path():
    step = {"name": "make", "script": "#!/bin/sh"}
    shared = {"name": "a", "valueFromSandbox": True, "as": {"path": "/proc/a"}}
    with pytest.raises(SpecError) as caught:
        documents.from_wire({"name": "p", "spec": {"inputs": [shared], "create": [step]}}, "ResourcePlugin")
    assert caught.value.path == "spec.inputs[0].as.path"


def test_unknown_word_in_test_is_refused():
    error = refusal(create("    inputs: [{name: x, valueFromSandbox: true, §test: always}]\n" + STEP))
    assert (error.path, "fixed" in error.problem) == ("spec.create[0].inputs[0].test", True)
