"""Clusters of a server that route requests to forks by key."""

from __future__ import annotations

from tests.operator.rig import control_plane as planes
from tests.operator.rig.control_plane import ControlPlane
from tests.operator.rig.scenes import fork
from tests.operator.rig.world import Unit, World

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.operator.cluster.route_kinds import RoutingSettings

EDGE = PreviewGateway("edges", "edge", "preview.example.com", "https")
HOOKS = {"before": True, "warm": True, "drain": False, "report": False}
"""Hooks of a group by name, and whether they run before its start."""


def world(*, edge: PreviewGateway | None = EDGE, installed: bool = True, grants: bool = True) -> World:
    """Baselines `web` and `page` in `shop`, forkable for the organisation's sandboxes, and a Gateway."""
    made = planes.world(more={name: Unit(creates=creates) for name, creates in HOOKS.items()})
    made.routing = RoutingSettings(edge=edge)
    if grants:
        made.grant("shop", annotations={"dayfly.dev/sandboxes-from": "acme-sandboxes"})
    for name in ("web", "page"):
        made.forks.baseline(name)
    if installed:
        made.gateways.install()
        made.gateways.route()
    return made


def forking(*names: str, cluster: str = "east", **more) -> dict:
    """Create a sandbox with forks and without resources."""
    plain = [{"forkOf": fork(name)["forkOf"]} for name in names or ("web",)]
    return {"spec": {"cluster": cluster, "forks": plain, **more}}


def previewed(**targets: str) -> dict:
    return {"endpoints": [{"name": name, "target": target} for name, target in targets.items()]}


async def urls(plane: ControlPlane, what: str = "sandboxes/shop") -> dict[str, str]:
    """Return the addresses that the server reports."""
    return {each["name"]: each["url"] for each in (await plane.must("GET", what))["endpoints"]}


async def key(plane: ControlPlane, what: str = "sandboxes/shop") -> str:
    return (await plane.must("GET", what))["routingKey"]


async def status(plane: ControlPlane, what: str = "sandboxes/shop") -> dict:
    return (await plane.must("GET", what))["status"]
