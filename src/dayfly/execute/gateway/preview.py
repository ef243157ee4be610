"""The route of a preview: it has its own host name and adds the routing key to each request. Pure."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.execute.gateway.read import RouteObject, RouteProblem
from dayfly.execute.gateway.render import BESIDE_ANNOTATION, backend_refs
from dayfly.execute.gateway.run import GROUP, HTTP_ROUTES
from dayfly.execute.pod.names import GROUP as OURS
from dayfly.execute.pod.names import RUN_LABEL, derive_name
from dayfly.spec.errors import SpecError
from dayfly.spec.routing import routing_keys

PREVIEW_LABEL = f"{OURS}/preview"
"""On the route of a preview: the name of the endpoint."""

# The domain must leave room for a first label of 63 characters.
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_URL = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<host>(?=[^:/]{{1,188}}(?:[:/]|$)){_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?/?"
)


class PreviewGateway(NamedTuple):
    """The Gateway for previews, and the domain of their host names."""

    namespace: str
    gateway: str
    domain: str
    scheme: str = "http"
    port: str = ""

    def url(self, host: str) -> str:
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port else "")


def read_edge(gateway: str, domain: str) -> PreviewGateway | None:
    """Return the Gateway and domain for previews; None if neither is given.

    Args:
        gateway: NAMESPACE/NAME of a Gateway.
        domain: Its domain, with or without scheme and port, such as `https://preview.example.com`.

    Raises:
        SpecError: One of them is missing or malformed.
    """
    if not gateway and not domain:
        return None
    namespace, _, name = gateway.partition("/")
    found = _URL.fullmatch(domain.lower())
    if not (namespace and name and "/" not in name and found):
        raise SpecError("previews need a Gateway (NAMESPACE/NAME) and a domain")
    return PreviewGateway(namespace, name, found["host"], found["scheme"] or "http", found["port"] or "")


def host_name(edge: PreviewGateway, sandbox: str, uid: str, endpoint: str) -> str:
    """Return the host name of a preview. It is derived from the sandbox's UID, so it is unique."""
    return f"{label(sandbox, uid, endpoint)}.{edge.domain}"


def label(sandbox: str, uid: str, endpoint: str) -> str:
    """Return the first label of the host name, which is also the name of the route."""
    return derive_name("", f"{endpoint}-{sandbox}", "preview", uid, endpoint)


def render_preview(
    edge: PreviewGateway,
    name: str,
    endpoint: str,
    run: str,
    owner: Mapping[str, Any],
    *,
    key: str,
    to: tuple[str, str, int],
) -> dict[str, Any]:
    """Return the route of a preview. `to` has the namespace of Service and route, the Service's name, and its port."""
    namespace, service, port = to
    given = [{"name": header, "value": value} for header, value in routing_keys.injected_headers(key)]
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


def backends(seen: RouteObject) -> set[str]:
    """Return the names of the Services that the stored route refers to."""
    return {str(ref["name"]) for ref in backend_refs(seen.rules)}


def find_problem(ours: RouteObject, edge: PreviewGateway) -> RouteProblem | None:
    """Return why the preview does not work yet; None if its Gateway has accepted the current route."""
    gateway = f"Gateway {edge.namespace}/{edge.gateway}"
    found = [parent.find(type_) for parent in ours.status.parents or () for type_ in ("Accepted", "ResolvedRefs")]
    current = [each for each in found if each is not None and each.observed_generation >= ours.metadata.generation]
    if against := next((each for each in current if each.status != "True"), None):
        return RouteProblem(f"{gateway} rejects the route: {against.reason}: {against.message}", is_refused=True)
    return None if len(current) >= 2 else RouteProblem(f"{gateway} has not accepted the route yet")
