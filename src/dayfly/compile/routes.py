"""Routes of a sandbox: for each fork a route by routing key, for each endpoint an address that adds the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dayfly.spec import lifecycle
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Baseline, Kind, PreviewUnit, Route, Unit
from dayfly.spec.routing import routing_keys
from dayfly.spec.routing.endpoints import split_target
from dayfly.spec.scalars import numbers
from dayfly.spec.unsupported_fields import PREVIEWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.spec.errors import Path
    from dayfly.spec.route_group import GroupEndpoint
    from dayfly.spec.sandbox import Endpoint


_THIS_MACHINE: Final = ("", "localhost", "127.0.0.1")


def fork_routes(forks: Sequence[Unit], key: str, others: Mapping[str, Sequence[str]]) -> tuple[Unit, ...]:
    """Return the route to each fork, which is created when the fork answers and removed before the fork ends.

    Args:
        forks: The kept units of the forks.
        key: The sandbox's own routing key.
        others: By `<namespace>/<name>` of a baseline, the keys of the groups whose requests go to this sandbox's fork.
    """
    found = []
    for unit in forks:
        assert unit.fork is not None, "asked for forks"
        of = unit.fork.baseline
        route = Route(baseline=of, keys=_keys(of, key, others))
        found.append(Unit(name=unit.name, kind=Kind.ROUTE, route=route, after=(lifecycle.fork_id(of),)))
    return tuple(found)


def local_routes(
    local: Sequence[Mapping[str, Any]], key: str, others: Mapping[str, Sequence[str]], ways: Sequence[Unit] = ()
) -> tuple[Unit, ...]:
    """Return the route to each workload on the developer's machine, if that is the host.

    Raises:
        SpecError: The baseline or the local port is missing, or one of the other routes receives those requests.
    """
    found: list[Unit] = []
    for index, wished in enumerate(local):
        here = ("spec", "local", index)
        of = _origin(wished.get("from"), (*here, "from"))
        if lifecycle.route_id(of) in map(lifecycle.kept_id, (*ways, *found)):
            raise SpecError("another fork or local workload already receives the requests of this baseline", here)
        port = _local_port(wished.get("mappings"), (*here, "mappings"))
        route = Route(baseline=of, keys=_keys(of, key, others), local_port=port)
        found.append(Unit(name=str(wished.get("name") or of.name), kind=Kind.ROUTE, route=route))
    return tuple(found)


def _origin(given: Any, keys: Path) -> Baseline:
    named = [given.get(field) for field in ("kind", "namespace", "name")] if isinstance(given, dict) else [None]
    if not all(isinstance(each, str) and each for each in named):
        raise SpecError("needs the kind, namespace and name of the baseline whose requests it receives", keys)
    kind, namespace, name = map(str, named)
    return Baseline(kind=kind, namespace=namespace, name=name)


def _local_port(mappings: Any, keys: Path) -> int:
    """Return the target of the only possible mapping: a baseline of one machine has one port."""
    if not isinstance(mappings, list) or len(mappings) != 1 or not isinstance(mappings[0], dict):
        raise SpecError("allows one mapping here: a baseline of this machine has one port", keys)
    host, _, written = str(mappings[0].get("toLocal", "")).rpartition(":")
    port = numbers.parse_port(written)
    if host not in _THIS_MACHINE or port is None:
        problem = "is the address of the workload on this machine: write localhost:<port>"
        raise SpecError(problem, (*keys, 0, "toLocal"))
    return port


def _keys(of: Baseline, key: str, others: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    keys = (key, *sorted(set(others.get(f"{of.namespace}/{of.name}", ())) - {key}))
    for each in keys:
        routing_keys.check_key(each)
    return keys


def preview_units(
    endpoints: Iterable[Endpoint | GroupEndpoint], key: str, after: Sequence[Unit] = ()
) -> tuple[Unit, ...]:
    """Return an address for each endpoint whose requests can have a routing key. `after` are the existing routes."""
    routing_keys.check_key(key)
    found = []
    for endpoint in endpoints:
        scheme, host, port = split_target(endpoint.target)
        if scheme in PREVIEWED:
            preview = PreviewUnit(scheme=scheme, host=host, port=port, key=key)
            ids = tuple(map(lifecycle.kept_id, after))
            found.append(Unit(name=endpoint.name, kind=Kind.PREVIEW, preview=preview, after=ids))
    return tuple(found)
