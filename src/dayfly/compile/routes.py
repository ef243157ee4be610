"""What leads requests to a sandbox: for each fork a route by key, for each endpoint an address that gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.spec import lifecycle, routing
from dayfly.spec.endpoints import split_target
from dayfly.spec.lifecycle import Kind, Preview, Route, Unit
from dayfly.spec.unserved import PREVIEWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.spec.route_group import GroupEndpoint
    from dayfly.spec.sandbox import Endpoint


def routes(forks: Sequence[Unit], key: str, others: Mapping[str, Sequence[str]]) -> tuple[Unit, ...]:
    """For each fork the route to it: there once it answers, and gone before it ends.

    Args:
        forks: The kept units of the forks.
        key: The sandbox's own.
        others: By `<namespace>/<name>` of a baseline the keys of the groups whose requests go to this sandbox's fork.
    """
    found = []
    for unit in forks:
        assert unit.fork is not None, "asked for forks"
        of = unit.fork.baseline
        keys = (key, *sorted(set(others.get(f"{of.namespace}/{of.name}", ())) - {key}))
        for each in keys:
            routing.check_key(each)
        route = Route(baseline=of, keys=keys)
        found.append(Unit(name=unit.name, kind=Kind.ROUTE, route=route, after=(lifecycle.fork_id(of),)))
    return tuple(found)


def previews(endpoints: Iterable[Endpoint | GroupEndpoint], key: str, after: Sequence[Unit] = ()) -> tuple[Unit, ...]:
    """For each endpoint whose requests can carry a key an address of its own; `after` are the routes there are."""
    routing.check_key(key)
    found = []
    for endpoint in endpoints:
        scheme, host, port = split_target(endpoint.target)
        if scheme in PREVIEWED:
            preview = Preview(scheme=scheme, host=host, port=port, key=key)
            ids = tuple(map(lifecycle.kept_id, after))
            found.append(Unit(name=endpoint.name, kind=Kind.PREVIEW, preview=preview, after=ids))
    return tuple(found)
