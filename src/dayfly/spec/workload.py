"""Baselines of the embedded host: processes from which forks are derived, declared as `kind: Deployment`.

There are two forms: a short one (name, command, env, port, workdir at the top) and that of Kubernetes (apps/v1, with
one container), so that one file serves both hosts.
"""

from __future__ import annotations

from typing import Annotated, Any

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import dns_label, doc, list_of, map_of
from dayfly.spec.parsing import text
from dayfly.spec.routing.endpoints import check_port
from dayfly.spec.sandbox import MAX_VALUE_LENGTH
from dayfly.spec.scalars import kube_names, names
from dayfly.spec.scalars.numbers import parse_whole

ROUTED_PORT = "dayfly.dev/routed-port"
"""Annotation of a Deployment with the local port for its requests."""
CONTAINER: Path = ("spec", "template", "spec", "containers", 0)


class Workload(WireStruct, frozen=True, kw_only=True):
    """A process from which forks are derived."""

    kind: Annotated[str, doc("Always Deployment.", 63)] = "Deployment"
    name: Annotated[str, dns_label("Name of the workload.")]
    namespace: Annotated[str, dns_label("Namespace of the workload.")] = "default"
    command: Annotated[tuple[str, ...], list_of("The program and its arguments.", 256)]
    env: Annotated[dict[str, str], map_of("Variables of its environment.", MAX_VALUE_LENGTH)] = {}
    port: Annotated[
        int | None, doc("The port on which it listens. A fork gets its own in PORT.", minimum=1, maximum=65_535)
    ] = None
    routed_port: Annotated[
        int | None,
        doc("The port on which the host accepts its requests, to route those with a routing key to forks.", minimum=1),
    ] = None
    workdir: Annotated[str, doc("Working directory. By default the server's own.", 4096)] = ""


def check_workload(workload: Workload) -> None:
    """Check a baseline.

    Raises:
        SpecError: The first fault, with a path of the short form.
    """
    for field, value in (("name", workload.name), ("namespace", workload.namespace)):
        if not kube_names.is_label(value):
            problem = f'{quote(value)} is not a workload\'s {field}: at most 63 lower-case letters, digits and "-"'
            raise SpecError(problem, (field,))
    if not workload.command or not workload.command[0]:
        raise SpecError(
            'is empty; write the program and its arguments as a list, like ["python3", "app.py"]', ("command",)
        )
    for name in workload.env:
        names.check_environment(name, ("env", name))
    if workload.port is not None:
        check_port(workload.port, ("port",))
    if workload.routed_port is not None:
        check_port(workload.routed_port, ("routedPort",))
        if workload.port is None:
            raise SpecError("requests for the baseline itself have no target; write the port too", ("routedPort",))
        if workload.routed_port == workload.port:
            raise SpecError("is the port where the workload itself listens; choose another one", ("routedPort",))
    if workload.workdir and not workload.workdir.startswith("/"):
        raise SpecError(f'{quote(workload.workdir)} is not an absolute path: begin it with "/"', ("workdir",))


def from_deployment(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the short form of an apps/v1 Deployment, and the original path of each field, for errors.

    Raises:
        SpecError: There is not exactly one container, or only a cluster could know a value.
    """
    metadata = _mapping_at(data, ("metadata",))
    containers = _containers(data)
    if len(containers) != 1:
        found = f"{len(containers)} containers"
        raise SpecError(f"{found}; a baseline on this machine is one process, so write one", CONTAINER[:-1])
    container = containers[0]
    if not isinstance(container, dict):
        raise SpecError(f"must be a mapping, not {text.kind_of(container)}", CONTAINER)
    short: dict[str, Any] = {
        "name": metadata.get("name", ""),
        "namespace": "default" if metadata.get("namespace") in (None, "") else metadata["namespace"],
        "command": [*_list(container, "command"), *_list(container, "args")],
        "env": _environment(container),
        "workdir": container.get("workingDir", ""),
    }
    if (routed := _mapping_at(metadata, ("annotations",), ("metadata",)).get(ROUTED_PORT)) is not None:
        number = parse_whole(routed, 99_999) if isinstance(routed, str) else None
        short["routedPort"] = routed if number is None else number
    if ports := _list(container, "ports"):
        short["port"] = ports[0].get("containerPort") if isinstance(ports[0], dict) else ports[0]
    places: dict[str, Path] = {
        "name": ("metadata", "name"),
        "namespace": ("metadata", "namespace"),
        "command": (*CONTAINER, "command"),
        "env": (*CONTAINER, "env"),
        "port": (*CONTAINER, "ports", 0, "containerPort"),
        "workdir": (*CONTAINER, "workingDir"),
        "routedPort": ("metadata", "annotations", ROUTED_PORT),
    }
    return short, places


def _containers(data: dict[str, Any]) -> list[Any]:
    return _list(_mapping_at(data, CONTAINER[:-2]), "containers", CONTAINER[:-2])


def _mapping_at(data: dict[str, Any], keys: Path, before: Path = ()) -> dict[str, Any]:
    """Return the value at a path, if there is one. `before` is the path of the data."""
    value: Any = data
    for depth, key in enumerate(keys):
        value = {} if value.get(key) is None else value[key]
        if not isinstance(value, dict):
            raise SpecError(f"must be a mapping, not {text.kind_of(value)}", (*before, *keys[: depth + 1]))
    found: dict[str, Any] = value
    return found


def _list(container: dict[str, Any], field: str, keys: Path = CONTAINER) -> list[Any]:
    value = [] if container.get(field) is None else container[field]
    if not isinstance(value, list):
        raise SpecError(f"must be a list, not {text.kind_of(value)}", (*keys, field))
    return value


def _environment(container: dict[str, Any]) -> dict[str, Any]:
    env: dict[str, Any] = {}
    for index, item in enumerate(_list(container, "env")):
        here = (*CONTAINER, "env", index)
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise SpecError("must be a mapping with a name", here)
        if item.get("valueFrom"):
            raise SpecError("only a cluster knows this value; write the value itself, as value", (*here, "valueFrom"))
        value = "" if item.get("value") is None else item["value"]
        if not isinstance(value, str):
            raise SpecError(f"must be a string, not {text.kind_of(value)}; write it in quotes", (*here, "value"))
        env[item["name"]] = value
    return env
