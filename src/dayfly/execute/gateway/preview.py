"""An address of its own for one endpoint: a route of one host name, which gives each request the key. Pure."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.execute.gateway.read import Lack, RouteObject
from dayfly.execute.gateway.render import BESIDE_ANNOTATION, refs
from dayfly.execute.gateway.run import GROUP, HTTP_ROUTES
from dayfly.execute.pod.names import GROUP as OURS
from dayfly.execute.pod.names import RUN_LABEL, derive_name
from dayfly.spec.errors import SpecError
from dayfly.spec.routing import routing_keys

PREVIEW_LABEL = f"{OURS}/preview"
"""On a route of ours that is an endpoint's address: the name of the endpoint."""

# A first part of up to 63 characters has to fit before the host's.
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_URL = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<host>(?=[^:/]{{1,188}}(?:[:/]|$)){_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?/?"
)


class PreviewGateway(NamedTuple):
    """Where addresses are: the Gateway by which requests come, and the domain below which each has a name."""

    namespace: str
    gateway: str
    domain: str
    scheme: str = "http"
    port: str = ""

    def url(self, host: str) -> str:
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port else "")


def read_edge(gateway: str, domain: str) -> PreviewGateway | None:
    """Return where previews have addresses; None if neither is given.

    Args:
        gateway: NAMESPACE/NAME of a Gateway.
        domain: Its domain, with or without scheme and port, such as `https://preview.example.com`.

    Raises:
        SpecError: one is missing or malformed.
    """
    if not gateway and not domain:
        return None
    namespace, _, name = gateway.partition("/")
    found = _URL.fullmatch(domain.lower())
    if not (namespace and name and "/" not in name and found):
        raise SpecError("endpoints get addresses at a Gateway and below a domain")
    return PreviewGateway(namespace, name, found["host"], found["scheme"] or "http", found["port"] or "")


def host_name(edge: PreviewGateway, sandbox: str, uid: str, endpoint: str) -> str:
    """Derived from the sandbox's UID, so that nobody else's is ever called so."""
    return f"{label(sandbox, uid, endpoint)}.{edge.domain}"


def label(sandbox: str, uid: str, endpoint: str) -> str:
    """The first part of the host's name, and the name of the route."""
    return derive_name("", f"{endpoint}-{sandbox}", "preview", uid, endpoint)


def manifest(
    edge: PreviewGateway,
    name: str,
    endpoint: str,
    run: str,
    owner: Mapping[str, Any],
    *,
    key: str,
    to: tuple[str, str, int],
) -> dict[str, Any]:
    """The route; `to` is a Service: its namespace, in which the route is as well, its name and the port."""
    namespace, service, port = to
    given = [{"name": header, "value": value} for header, value in routing_keys.injected(key)]
    backend = {"group": "", "kind": "Service", "name": service, "port": port, "weight": 1}
    return {
        "apiVersion": HTTP_ROUTES.api_version,
        "kind": HTTP_ROUTES.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {PREVIEW_LABEL: endpoint, RUN_LABEL: run, "app.kubernetes.io/managed-by": "dayfly"},
            "annotations": {BESIDE_ANNOTATION: ""},
            "ownerReferences": [dict(owner)],
        },
        "spec": {
            "parentRefs": [{"group": GROUP, "kind": "Gateway", "namespace": edge.namespace, "name": edge.gateway}],
            "hostnames": [f"{name}.{edge.domain}"],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": given}}],
                    "backendRefs": [backend],
                }
            ],
        },
    }


def led_to(seen: RouteObject) -> set[str]:
    """The Services to which an address leads, whatever somebody has made of it."""
    return {str(ref["name"]) for ref in refs(seen.rules)}


def lacking(ours: RouteObject, edge: PreviewGateway) -> Lack | None:
    """Why the address does not work yet; None if its Gateway has taken the route as it is now."""
    called = f"Gateway {edge.namespace}/{edge.gateway}"
    told = [parent.find(type_) for parent in ours.status.parents or () for type_ in ("Accepted", "ResolvedRefs")]
    newest = [each for each in told if each is not None and each.observed_generation >= ours.metadata.generation]
    if against := next((each for each in newest if each.status != "True"), None):
        return Lack(f"{called} does not take it: {against.reason}: {against.message}", refused=True)
    return None if len(newest) >= 2 else Lack(f"{called} has not taken it yet")
