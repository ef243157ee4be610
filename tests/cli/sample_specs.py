"""Plugins and sandboxes as YAML. Each script appends its name to the file `journal`."""

from __future__ import annotations

from pathlib import Path


def plugin(journal: Path, *, name: str = "notes@1.0", create: str = "", delete: str = "", extra: str = "") -> str:
    """Return a plugin with two create steps and a delete step; the second create step reads an output of the first."""
    return f"""\
name: {name}
spec:
  runner: {{image: "debian:12"}}
  create:
  - name: provision
    inputs:
    - {{name: owner, valueFromSandbox: true, as: {{env: OWNER}}}}
    outputs:
    - {{name: path, valueFromPath: /tmp/out/path}}
    - {{name: secret, valueFromPath: /tmp/out/secret, sensitive: true}}
    script: |
      #!/bin/sh
      mkdir -p /tmp/out
      echo provision >> {journal}
      echo "provision for $OWNER"
      printf '/data/%s' "$SIGNADOT_SANDBOX_NAME" > /tmp/out/path
      printf "it's a \\$ecret" > /tmp/out/secret
      {create}
  - name: seed
    inputs:
    - {{name: path, valueFromStep: {{name: provision, output: path}}, as: {{env: DB}}}}
    outputs:
    - {{name: bytes, valueFromPath: /tmp/bytes}}
    script: |
      #!/bin/sh
      echo seed >> {journal}
      echo "seed $DB"
      printf '\\000\\377' > /tmp/bytes
      {extra}
  delete:
  - name: drop
    inputs:
    - {{name: path, valueFromStep: {{name: provision, output: path}}, as: {{env: DB}}}}
    script: |
      #!/bin/sh
      {delete}
      echo drop >> {journal}
"""


def waiting(gate: Path) -> str:
    """Return a script that waits until a file exists, at most 45 seconds."""
    return f"for i in $(seq 900); do [ -e {gate} ] && break; sleep 0.05; done"


def sandbox(name: str = "demo", *, plugin: str = "notes", more: str = "") -> str:
    """Return a sandbox with one resource, `db`."""
    return f"""\
name: {name}
spec:
  cluster: local
  resources:
  - {{name: db, plugin: {plugin}, params: {{owner: me}}}}
{more}"""
