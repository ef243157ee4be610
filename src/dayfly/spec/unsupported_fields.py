"""Fields of a sandbox or route group that are valid but have no effect on a host.

The functions read wire forms. A host may have checked such a spec long ago, so they rely on no field.
"""

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dayfly.spec.errors import quote

SUPPORTED = "Supported"
"""Condition type in a cluster."""

PREVIEWED = frozenset({"http", "https", "grpc"})
"""Schemes of endpoints whose requests have headers, and so may have a routing key."""


class LocalRouting(enum.Enum):
    """Whether a host routes requests to programs on the developer's machine; if not, the value is the reason."""

    YES = ""
    UNROUTED = "it needs a host that routes: restart this server with dayfly up --routing"
    CLUSTER = "it needs a host that routes on the developer's machine, which a cluster is not: dayfly up --routing"
    UNKNOWN = "it needs a host that routes on your machine: dayfly up --routing"
    """The host is not known yet."""


_FIELDS = {
    "virtual": "there are no virtual workloads",
    "middleware": "requests are not intercepted",
    "routing": "there is no connection to a developer's machine",
}


def fields_without_effect(spec: Mapping[str, Any], local: LocalRouting) -> Iterator[tuple[str, str]]:
    """Yield each field of a sandbox's spec that is set and has no effect on a host, with the reason."""
    for field, why in {"local": local.value, **_FIELDS}.items():
        if why and spec.get(field):
            yield field, why


def unsupported_sandbox_fields(
    spec: Mapping[str, Any], *, by_name: bool, routes: bool = False, local: LocalRouting = LocalRouting.CLUSTER
) -> tuple[str, ...]:
    """Return the paths of fields of a sandbox that have no effect, each with the reason.

    Args:
        spec: The sandbox's spec.
        by_name: Whether an endpoint's host is the name of the forked workload. With Services the name may differ, so
            that only an endpoint in a namespace without forks certainly has no effect.
        routes: Whether the host gives endpoints their own addresses, and itself reports those without effect.
        local: Whether the host routes requests to programs on the developer's machine.
    """
    found = [f"spec.{field} ({why})" for field, why in fields_without_effect(spec, local)]
    return (*found, *_endpoints(spec, by_name=by_name, routes=routes))


class GroupReach(NamedTuple):
    """Whether the key of a route group reaches forks, and in which clusters of its sandboxes it does not.

    `addresses` is the cluster in which its endpoints have addresses; empty if none has, None for a cluster that ignores
    the cluster of an endpoint.
    """

    anywhere: bool = False
    nowhere: tuple[str, ...] = ()
    addresses: str | None = ""


def unsupported_group_fields(spec: Mapping[str, Any], leads: GroupReach = GroupReach()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """Return the fields of a route group without effect, each with the reason."""
    if leads.anywhere:
        nowhere = (f"spec.match (in {each} no data plane routes requests by their key)" for each in leads.nowhere)
        return (*nowhere, *(_without_address(spec) if leads.addresses == "" else _elsewhere(spec, leads.addresses)))
    endpoints = [f"spec.endpoints[{index}]" for index in range(len(_list(spec.get("endpoints"))))]
    ways = " and ".join(["spec.match", *endpoints[:1]]) + (f" to [{len(endpoints) - 1}]" if endpoints[1:] else "")
    return (f"{ways} (no data plane routes requests by their key: they reach the baselines)",)


def _without_address(spec: Mapping[str, Any]) -> Iterator[str]:
    for index, _ in enumerate(_list(spec.get("endpoints"))):
        yield f"spec.endpoints[{index}] (no data plane routes requests in the cluster where the group's hooks run)"


def _elsewhere(spec: Mapping[str, Any], cluster: str | None) -> Iterator[str]:
    for index, endpoint in enumerate(_list(spec.get("endpoints"))):
        scheme = str(_mapping(endpoint).get("target", "")).partition("://")[0]
        of = _mapping(endpoint).get("cluster") or cluster
        if scheme not in PREVIEWED:
            yield f"spec.endpoints[{index}] (requests of {scheme} cannot have a routing key)"
        elif cluster is not None and of != cluster:
            yield f"spec.endpoints[{index}] (the group has addresses only in {cluster}, not in {of})"


def _endpoints(spec: Mapping[str, Any], *, by_name: bool, routes: bool) -> Iterator[str]:
    baselines = [_mapping(_mapping(fork).get("forkOf")) for fork in _list(spec.get("forks"))]
    forks = {(str(of.get("namespace")), str(of.get("name"))) for of in baselines}
    namespaces = {namespace for namespace, _ in forks}
    for way, host in _hosts(spec, routes=routes):
        name, _, rest = host.partition(".")
        namespace, _, kind = rest.partition(".")
        namespace = namespace or "default"
        exact = by_name or kind == "deploy"
        if (namespace, name) not in forks if exact else namespace not in namespaces:
            yield f"{way} (no fork answers for {quote(host)})"


def _hosts(spec: Mapping[str, Any], *, routes: bool) -> Iterator[tuple[str, str]]:
    for index, endpoint in enumerate(_list(spec.get("endpoints"))):
        yield f"spec.endpoints[{index}]", str(_mapping(endpoint).get("host", ""))
    for index, endpoint in enumerate(_list(_mapping(spec.get("defaultRouteGroup")).get("endpoints"))):
        target = str(_mapping(endpoint).get("target", ""))
        if routes and target.partition("://")[0] in PREVIEWED:
            continue
        yield f"spec.defaultRouteGroup.endpoints[{index}]", target.partition("://")[2].rpartition(":")[0]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
