"""Specs for requests."""

from __future__ import annotations

from typing import Any


def plugin(name: str = "db", **changes: Any) -> dict[str, Any]:
    """Return a plugin with a create step that outputs `provision.host`, and a delete step that reads it."""
    create = {
        "name": "provision",
        "script": "#!/bin/sh\necho -n h > /tmp/host\n",
        "inputs": [{"name": "size", "valueFromSandbox": True}],
        "outputs": [{"name": "host", "valueFromPath": "/tmp/host"}],
    }
    delete = {
        "name": "drop",
        "script": "#!/bin/sh\n",
        "inputs": [{"name": "host", "valueFromStep": {"name": "provision", "output": "host"}}],
        "outputs": None,
    }
    return {"name": name, "spec": {"runner": {"image": "busybox"}, "create": [create], "delete": [delete], **changes}}


def sandbox(**changes: Any) -> dict[str, Any]:
    """Return a sandbox with one resource `mydb` of the plugin `db`."""
    resource = {"name": "mydb", "plugin": "db", "params": {"size": "small"}}
    return {"spec": {"cluster": "local", "resources": [resource], "forks": None, **changes}}


def empty(**changes: Any) -> dict[str, Any]:
    """Return an empty sandbox."""
    return {"spec": {"cluster": "local", **changes}}


def baseline(name: str = "shop", **changes: Any) -> dict[str, Any]:
    """Return a baseline process."""
    return {"kind": "Deployment", "name": name, "command": ["python3", "-m", "http.server"], "port": 8080, **changes}


def fork(name: str = "shop", **changes: Any) -> dict[str, Any]:
    """Return a fork of that baseline."""
    return {"forkOf": {"kind": "Deployment", "namespace": "default", "name": name}, **changes}
