"""What VirtualServices say: for which hosts they are, and where. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.gateway.read import moment
from dayfly.execute.gateway.render import IGNORE_ANNOTATION
from dayfly.execute.pod.names import GROUP
from dayfly.kube.objects import AnnotatedMeta, Slim

SHARED_LABEL = f"{GROUP}/mesh"
"""On a VirtualService of ours: the Service whose calls it leads."""
MESH = "mesh"
DOMAIN = "cluster.local"
_MANAGER = "dayfly"


class Write(Slim, frozen=True):
    """Who has written some fields last, and when."""

    manager: str = ""
    time: str | None = None


class WrittenMeta(AnnotatedMeta, frozen=True):
    """Metadata with who has written."""

    managed_fields: list[Write] | None = None


class VirtualService(Slim, frozen=True):
    """Somebody's, or one that is ours."""

    metadata: WrittenMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def rules(self) -> list[dict[str, Any]]:
        """Those for HTTP, in the order in which they are tried."""
        found = self.spec.get("http")
        return found if isinstance(found, list) else []

    @property
    def is_ours(self) -> bool:
        return SHARED_LABEL in (self.metadata.labels or {})

    @property
    def is_left_alone(self) -> bool:
        """Whether whoever owns it says so."""
        return (self.metadata.annotations or {}).get(IGNORE_ANNOTATION) == "ignore"

    def is_for(self, namespace: str) -> bool:
        """Whether callers in a namespace go by it: it may be kept to some. Without a word on it, all do."""
        wanted = [str(each) for each in self.spec.get("exportTo") or ("*",)]
        return "*" in wanted or namespace in wanted or ("." in wanted and namespace == self.metadata.namespace)

    @property
    def in_mesh(self) -> bool:
        """Whether it is for calls from workload to workload, and not for gateways alone."""
        return MESH in (self.spec.get("gateways") or (MESH,))


class ServiceRef(NamedTuple):
    """A Service."""

    name: str
    namespace: str


def place_of(host: str, own: str) -> ServiceRef | None:
    """The Service that a host names; None if it is no Service's. As Istio does: only a name without dots is short."""
    if host and "." not in host and "*" not in host:
        return ServiceRef(host, own)
    name, _, rest = host.partition(".")
    namespace, _, rest = rest.partition(".")
    if "*" in host or not rest.startswith("svc.") or not namespace:
        return None
    return ServiceRef(name, namespace)


def renamed(host: str, names: Mapping[str, str]) -> str:
    """The host of another Service of the same namespace, said in the same way."""
    name, dot, rest = host.partition(".")
    return f"{names[name]}{dot}{rest}"


def covers(seen: VirtualService, service: ServiceRef) -> bool:
    """Whether calls to a Service go by this one, be it by a host with a wildcard.

    One that somebody keeps to another namespace is for that one's callers alone, and decides nothing for the Service's.
    """
    if not seen.is_for(service.namespace):
        return False
    whole = f"{service.name}.{service.namespace}.svc.{DOMAIN}"
    for host in map(str, seen.spec.get("hosts") or ()):
        if place_of(host, seen.metadata.namespace) == service or (host.startswith("*") and whole.endswith(host[1:])):
            return seen.in_mesh
    return False


def in_order(every: Iterable[VirtualService]) -> Iterator[VirtualService]:
    """Those that stay, the oldest first, as Istio has them."""
    found = (each for each in every if not each.metadata.deletion_timestamp)
    return iter(sorted(found, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name)))


def written_at(seen: VirtualService) -> int:
    """When Dayfly has last changed it, in unix milliseconds; 0 if it has not, as far as the server knows."""
    ours = (each.time for each in seen.metadata.managed_fields or () if each.manager == _MANAGER)
    return max(map(moment, ours), default=0)
