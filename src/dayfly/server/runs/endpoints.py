"""Where a sandbox answers: the endpoints its wish names, and those its forks have on the host."""

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
_USUAL: Final = {"http": 80, "https": 443}


def describe(spec: SandboxSpec, found: Iterable[RunEndpoint], *, routes: bool = False) -> list[dict[str, Any]]:
    """The endpoints as clients know them; `url` is empty while nothing answers there.

    Args:
        spec: The wish. A fork for which it names no endpoint has one by the baseline's name.
        found: Where the forks and previews answer.
        routes: Whether the host routes requests by their key: then these endpoints have addresses of their own.
    """
    where = {endpoint.unit: endpoint for endpoint in found}
    wished: list[tuple[str, str, str, str, int]] = []  # name, unit, scheme, host, port
    for fork in spec.forks:
        unit = fork_id(Baseline(kind=fork.fork_of.kind, namespace=fork.fork_of.namespace, name=fork.fork_of.name))
        host = f"{fork.fork_of.name}.{fork.fork_of.namespace}.svc"
        wished += [(port.name, unit, port.protocol or "http", host, port.port) for port in fork.endpoints]
    for port in spec.endpoints:
        wished.append((port.name, _unit(port.host), port.protocol or "http", port.host, port.port))
    for target in spec.default_route_group.endpoints if spec.default_route_group else ():
        scheme, host, number = split_target(target.target)
        unit = preview_id(target.name) if routes and scheme in PREVIEWED else _unit(host)
        wished.append((target.name, unit, scheme, host, number))
    covered = {unit for _, unit, _, host, _ in wished for unit in (unit, _unit(host))}
    taken = {name for name, _, _, _, _ in wished}
    described = [_describe(name, scheme, host, port, where.get(unit)) for name, unit, scheme, host, port in wished]
    for fork in spec.forks:
        of = fork.fork_of
        unit = fork_id(Baseline(kind=of.kind, namespace=of.namespace, name=of.name))
        if unit not in covered and unit in where:
            name = of.name if of.name not in taken else f"{of.name}.{of.namespace}"
            taken.add(name)
            described.append(_describe(name, "http", where[unit].host, where[unit].port, where[unit]))
    return described


def _unit(host: str) -> str:
    """The fork that stands behind `<workload>.<namespace>.svc` or `.deploy`."""
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
        "url": url(found, scheme) if found else "",
    }


def url(found: RunEndpoint, scheme: str) -> str:
    """Where one answers that is asked by `scheme` if it does not say otherwise; empty for what is no such place.

    It comes from a cluster, and people follow it.
    """
    scheme, port = found.scheme or scheme, found.port
    if found.scheme not in ("", *_USUAL) or not _HOST.fullmatch(found.host) or not 0 < port < 1 << 16:
        return ""
    usual = found.scheme and _USUAL.get(scheme) == port
    return f"{scheme}://{found.host}" if usual else f"{scheme}://{found.host}:{port}"
