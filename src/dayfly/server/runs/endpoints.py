"""The endpoints of a sandbox: those in its spec, and those of its forks on the host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dayfly.spec.lifecycle import Baseline, fork_id, preview_id
from dayfly.spec.routing.endpoints import split_target
from dayfly.spec.unsupported_fields import PREVIEWED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.spec.run_data import RunEndpoint
    from dayfly.spec.sandbox import SandboxSpec

_HOST: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?|\[[0-9a-f:.]{2,39}\]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def describe(spec: SandboxSpec, found: Iterable[RunEndpoint], *, routes: bool = False) -> list[dict[str, Any]]:
    """Return the endpoints in the API. `url` is empty while nothing answers there.

    Args:
        spec: The spec. A fork without an endpoint in the spec gets one with the baseline's name.
        found: Addresses of the forks and previews on the host.
        routes: Whether the host routes requests by routing key; then endpoints have preview addresses.
    """
    by_unit = {endpoint.unit: endpoint for endpoint in found}
    declared: list[tuple[str, str, str, str, int]] = []  # name, unit, scheme, host, port
    for fork in spec.forks:
        unit = fork_id(Baseline(kind=fork.fork_of.kind, namespace=fork.fork_of.namespace, name=fork.fork_of.name))
        host = f"{fork.fork_of.name}.{fork.fork_of.namespace}.svc"
        declared += [(port.name, unit, port.protocol or "http", host, port.port) for port in fork.endpoints]
    for port in spec.endpoints:
        declared.append((port.name, _fork_behind(port.host), port.protocol or "http", port.host, port.port))
    for target in spec.default_route_group.endpoints if spec.default_route_group else ():
        scheme, host, number = split_target(target.target)
        unit = preview_id(target.name) if routes and scheme in PREVIEWED else _fork_behind(host)
        declared.append((target.name, unit, scheme, host, number))
    covered = {unit for _, unit, _, host, _ in declared for unit in (unit, _fork_behind(host))}
    taken = {name for name, _, _, _, _ in declared}
    described = [_describe(name, scheme, host, port, by_unit.get(unit)) for name, unit, scheme, host, port in declared]
    for fork in spec.forks:
        baseline = fork.fork_of
        unit = fork_id(Baseline(kind=baseline.kind, namespace=baseline.namespace, name=baseline.name))
        if unit not in covered and unit in by_unit:
            name = baseline.name if baseline.name not in taken else f"{baseline.name}.{baseline.namespace}"
            taken.add(name)
            described.append(_describe(name, "http", by_unit[unit].host, by_unit[unit].port, by_unit[unit]))
    return described


def _fork_behind(host: str) -> str:
    """Return the fork's unit for the address `<workload>.<namespace>.svc` or `.deploy`."""
    name, _, rest = host.partition(".")
    return fork_id(Baseline(kind="", namespace=rest.partition(".")[0] or "default", name=name))


def _describe(name: str, scheme: str, host: str, port: int, found: RunEndpoint | None) -> dict[str, Any]:
    return {
        "name": name,
        "target": f"{scheme}://{host}:{port}",
        "routeType": "host",
        "host": host,
        "port": port,
        "protocol": scheme,
        "url": format_url(found, scheme) if found else "",
    }


def format_url(found: RunEndpoint, scheme: str) -> str:
    """Return the URL of an endpoint; "" if it is not valid.

    The endpoint comes from a cluster and people open the URL, so each part is checked. `scheme` is the default.
    """
    scheme, port = found.scheme or scheme, found.port
    if found.scheme not in ("", *_DEFAULT_PORTS) or not _HOST.fullmatch(found.host) or not 0 < port < 1 << 16:
        return ""
    has_default_port = found.scheme and _DEFAULT_PORTS.get(scheme) == port
    return f"{scheme}://{found.host}" if has_default_port else f"{scheme}://{found.host}:{port}"
