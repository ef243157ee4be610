"""Objects that the benchmarks apply: plugins, sandboxes, and bare pods that run the same script."""

from __future__ import annotations

from typing import Any

from testcluster import images

from bench.cluster.place import HOME

Object = dict[str, Any]

OUTPUT = "/tmp/output"
SCRIPT = f"#!/bin/sh\necho x >{OUTPUT}\n"


def plugin(name: str, steps: int, *, overlay: str = "", chained: int = 0) -> Object:
    """Return a plugin whose create steps each write an output. The first `chained` (or all) read the one before."""
    runner: Object = {"image": images.SHELL}
    if overlay:
        runner["podTemplateOverlay"] = overlay
    create = [_step(number, reads=0 < number < (chained or steps)) for number in range(steps)]
    body = {"name": f"{name}@1.0.0", "runner": runner, "create": create}
    return _object("ResourcePlugin", f"{name}.1.0.0", spec=body)


def _step(number: int, *, reads: bool) -> Object:
    step: Object = {
        "name": f"s{number}",
        "script": SCRIPT,
        "outputs": [{"name": "o", "valueFromPath": OUTPUT}],
    }
    if reads:
        before = {"name": f"s{number - 1}", "output": "o"}
        step["inputs"] = [{"name": "before", "valueFromStep": before, "as": {"env": "BEFORE"}}]
    return step


def sandbox(name: str, plugin: str = "", namespace: str = HOME) -> Object:
    """Return a sandbox with one resource, `db`, of that plugin. Without a plugin it is idle from the start."""
    resources = [{"name": "db", "plugin": f"{plugin}@1.0.0"}] if plugin else []
    spec = {"cluster": "local", "resources": resources} if resources else {"cluster": "local"}
    return _object("Sandbox", name, namespace=namespace, spec=spec)


def _object(kind: str, name: str, *, namespace: str = "", spec: Object) -> Object:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "dayfly.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def pod(name: str) -> Object:
    """Return a pod that does only the work of a step: one container, no account token, no limits."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{"name": "main", "image": images.SHELL, "command": ["/bin/sh", "-c", SCRIPT]}],
        },
    }
