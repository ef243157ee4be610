"""What a sandbox may wish for, as it may of the original, and no host of ours does anything about. Pure.

It works on the form of the wire, which a host has of a wish that was checked long ago, and takes nothing for granted.
"""

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dayfly.spec.errors import quote

SUPPORTED = "Supported"
"""The type of the condition that tells of it in a cluster."""

PREVIEWED = frozenset({"http", "https", "grpc"})
"""The schemes of endpoints whose requests have headers, which a routing key can stand in."""


class ToLocal(enum.Enum):
    """Whether a host leads requests to programs of the developer's machine; if not, the value is the reason."""

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


def fields_without_effect(spec: Mapping[str, Any], local: ToLocal) -> Iterator[tuple[str, str]]:
    """Yield each field of a sandbox's spec that is set and has no effect on a host, with the reason."""
    for field, why in {"local": local.value, **_FIELDS}.items():
        if why and spec.get(field):
            yield field, why


def unsupported(
    spec: Mapping[str, Any], *, by_name: bool, routes: bool = False, local: ToLocal = ToLocal.CLUSTER
) -> tuple[str, ...]:
    """The ways to what is wished for in vain, each with its reason.

    Args:
        spec: Of a sandbox.
        by_name: Whether an endpoint's host names the workload that is forked. Where Services lead to workloads it may
            have another name, so that only an endpoint into a namespace without any fork is known to lead nowhere.
        routes: Whether the host gives endpoints an address of their own, and says itself where one leads nowhere.
        local: Whether it leads requests to programs of the developer's machine.
    """
    found = [f"spec.{field} ({why})" for field, why in fields_without_effect(spec, local)]
    return (*found, *_endpoints(spec, by_name=by_name, routes=routes))


class GroupReach(NamedTuple):
    """Where a route group's key leads anywhere: whether it does at all, and in which clusters of its sandboxes not.

    `addresses` is the cluster in which its endpoints have addresses of their own; empty where none of them has, None
    for a cluster that does not heed which one an endpoint names.
    """

    anywhere: bool = False
    nowhere: tuple[str, ...] = ()
    addresses: str | None = ""


def group_unsupported(spec: Mapping[str, Any], leads: GroupReach = GroupReach()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """The same of a route group."""
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
            yield f"spec.endpoints[{index}] (no key can stand in what is sent by {scheme})"
        elif cluster is not None and of != cluster:
            yield f"spec.endpoints[{index}] (the group has its addresses in {cluster}, and none in {of})"


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
