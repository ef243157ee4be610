"""What a sandbox may wish for, as it may of the original, and no host of ours does anything about. Pure.

It works on the form of the wire, which a host has of a wish that was checked long ago, and takes nothing for granted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dayfly.spec.errors import quote

SERVED = "Served"
"""The type of the condition that tells of it in a cluster."""

_FIELDS = {
    "local": "there is no connection to a developer's machine",
    "virtual": "there are no virtual workloads",
    "middleware": "requests are not intercepted",
    "routing": "there is no connection to a developer's machine",
}


def unserved(spec: Mapping[str, Any], *, by_name: bool) -> tuple[str, ...]:
    """The ways to what is wished for in vain, each with its reason.

    Args:
        spec: Of a sandbox.
        by_name: Whether an endpoint's host names the workload that is forked. Where Services lead to workloads it may
            have another name, so that only an endpoint into a namespace without any fork is known to lead nowhere.
    """
    found = [f"spec.{field} ({why})" for field, why in _FIELDS.items() if spec.get(field)]
    return (*found, *_endpoints(spec, by_name=by_name))


def group_unserved(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a route group, where nothing is installed that routes requests by their key."""
    endpoints = [f"spec.endpoints[{index}]" for index in range(len(_list(spec.get("endpoints"))))]
    ways = " and ".join(["spec.match", *endpoints[:1]]) + (f" to [{len(endpoints) - 1}]" if endpoints[1:] else "")
    return (f"{ways} (no data plane routes requests by their key: they reach the baselines)",)


def _endpoints(spec: Mapping[str, Any], *, by_name: bool) -> Iterator[str]:
    baselines = [_mapping(_mapping(fork).get("forkOf")) for fork in _list(spec.get("forks"))]
    forks = {(str(of.get("namespace")), str(of.get("name"))) for of in baselines}
    namespaces = {namespace for namespace, _ in forks}
    for way, host in _hosts(spec):
        name, _, rest = host.partition(".")
        namespace, _, kind = rest.partition(".")
        namespace = namespace or "default"
        exact = by_name or kind == "deploy"
        if (namespace, name) not in forks if exact else namespace not in namespaces:
            yield f"{way} (no fork answers for {quote(host)})"


def _hosts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, endpoint in enumerate(_list(spec.get("endpoints"))):
        yield f"spec.endpoints[{index}]", str(_mapping(endpoint).get("host", ""))
    for index, endpoint in enumerate(_list(_mapping(spec.get("defaultRouteGroup")).get("endpoints"))):
        target = str(_mapping(endpoint).get("target", ""))
        yield f"spec.defaultRouteGroup.endpoints[{index}]", target.partition("://")[2].rpartition(":")[0]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
