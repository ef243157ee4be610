"""Previews of two published plugins as golden files, without secrets."""

from pathlib import Path

import msgspec
import pytest
from tests.compile.builders import box, run

import dayfly.compile

GOLDEN = Path(__file__).parent / "golden"

# One step each way, an optional param, a pod template with secrets, and outputs that delete reads again.
BUCKET = """\
name: bucket
spec:
  runner:
    image: tool:1
    namespace: signadot
    podTemplateOverlay: |
      spec:
        containers:
        - name: main
          env: [{name: KEY, valueFrom: {secretKeyRef: {name: cloud, key: key}}}]
  create:
  - name: provision
    inputs:
    - {name: region, valueFromSandbox: true, as: {env: REGION}}
    - {name: tags, valueFromSandbox: true, as: {env: TAGS}}
    outputs:
    - {name: bucket-name, valueFromPath: /tmp/bucket-name}
    script: |
      #!/bin/sh
      echo -n "b-$SIGNADOT_SANDBOX_ID" > /tmp/bucket-name
  delete:
  - name: deprovision
    inputs:
    - {name: region, valueFromSandbox: true, as: {env: REGION}}
    - {name: bucket-name, valueFromStep: {name: provision, output: bucket-name}, as: {env: BUCKET}}
    timeouts: {run: 30m}
    script: |
      #!/bin/sh
      true
"""

# Two steps in a row, a secret among the outputs, a file as an input, and a delete step without inputs.
DATABASE = """\
name: database@1.1.0
spec:
  runner: {image: "postgres:16"}
  create:
  - name: setup
    inputs:
    - {name: db-name, valueFromStep: {name: provision, output: db-name}, as: {env: DB, path: /tmp/in/db}}
    - {name: password, valueFromStep: {name: provision, output: password}}
    retry: {idempotent: true, limit: 2, backoff: 90s}
    script: "#!/bin/bash"
  - name: provision
    inputs:
    - {name: store, valueFromSandbox: true}
    outputs:
    - {name: db-name, valueFromPath: /outputs/name}
    - {name: password, valueFromPath: /outputs/password, sensitive: true}
    script: "#!/bin/bash"
  delete:
  - name: deprovision
    script: "#!/bin/bash"
"""

BUCKETS = box("resources:\n- {name: files, plugin: bucket, params: {region: eu-1}}\n")
EVERYTHING = box(
    """\
resources:
- name: usersDb
  plugin: database
  params:
    store: {valueFrom: {resource: {name: files, outputKey: provision.bucket-name}}}
- {name: files, plugin: bucket, params: {region: eu-1}}
hooks:
  preStart:
  - {name: announce, script: "#!/bin/sh", inputs: [{name: text, value: hello}]}
  postStart:
  - name: warm
    script: "#!/bin/sh"
    inputs: [{name: secret, valueFrom: {resource: {name: usersDb, outputKey: provision.password}}}]
  preStop:
  - {name: drain, script: "#!/bin/sh", outputs: [{name: left, valueFromPath: /tmp/left}]}
  postStop:
  - {name: report, script: "#!/bin/sh", inputs: [{name: left, valueFromStep: {name: drain, output: left}}]}
forks:
- forkOf: {kind: Deployment, namespace: shop, name: web}
  customizations:
    images: [{image: "web:2"}, {image: "proxy:1", container: proxy}]
    env:
    - {name: DB, valueFrom: {resource: {name: usersDb, outputKey: provision.db-name}}}
    - {name: PASSWORD, valueFrom: {resource: {name: usersDb, outputKey: provision.password}}}
    - {name: TOKEN, valueFrom: {secret: {name: api, key: token}}, container: proxy}
    - {name: MODE, valueFrom: {configMap: {name: modes, key: mode}}}
    - name: SELF
      valueFrom:
        fork:
          forkOf: {kind: Deployment, namespace: shop, name: web}
          expression: "{{.Service.Host}}"
    - {name: OLD, operation: delete}
    patch: {type: strategic, value: "{metadata: {annotations: {hidden: not-shown}}}"}
"""
)


@pytest.mark.parametrize(("name", "wish"), [("bucket", BUCKETS), ("everything", EVERYTHING)])
def test_previews(name, wish):
    seen = msgspec.json.decode(msgspec.json.encode(dayfly.compile.preview(run(wish, BUCKET, DATABASE))))
    assert seen == msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes())


def test_an_empty_sandbox_does_nothing():
    seen = dayfly.compile.preview(run(box("")))
    assert (seen.events, seen.forks, seen.deletion, seen.warnings) == ((), (), (), ())


def test_without_forks_deletion_has_no_pre_stop():
    hooks = "hooks:\n  preStop:\n  - {name: a, script: '#!/bin/sh'}\n  postStop:\n  - {name: b, script: '#!/bin/sh'}\n"
    seen = dayfly.compile.preview(run(box(hooks)))
    assert [(stage.what, stage.units) for stage in seen.deletion] == [("postStop", ("b",))]


def test_odd_durations_and_endless_tries():
    plugin = "name: p\nspec:\n  create:\n  - name: s\n    script: '#!/bin/sh'\n    retry: {backoff: 90s}\n    timeouts: {run: 90s}\n"
    [event] = dayfly.compile.preview(run(box("resources:\n- {name: r, plugin: p}\n"), plugin)).events
    [[line]] = event.waves
    assert line.tries == "once"
    assert line.clocks == (
        "starts within 10 min, pulls its image within 10 min, runs at most 90 s, then has 10 s to end"
    )
