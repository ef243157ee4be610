"""The hosts and the scope of VirtualServices. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.gateway.read import parse_time_ms
from dayfly.execute.gateway.render import IGNORE_ANNOTATION
from dayfly.execute.pod.names import GROUP
from dayfly.kube.objects import AnnotatedMeta, KubeStruct

SHARED_LABEL = f"{GROUP}/mesh"
"""On a VirtualService that Dayfly created: the name of its Service."""
MESH = "mesh"
DOMAIN = "cluster.local"
_MANAGER = "dayfly"


class Write(KubeStruct, frozen=True):
    """An entry of `managedFields`: the last writer of some fields, and the time."""

    manager: str = ""
    time: str | None = None


class WrittenMeta(AnnotatedMeta, frozen=True):
    """Metadata with `managedFields`."""

    managed_fields: list[Write] | None = None


class VirtualService(KubeStruct, frozen=True):
    """A VirtualService, created by Dayfly or by another owner."""

    metadata: WrittenMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The HTTP rules, in order of evaluation."""
        found = self.spec.get("http")
        return found if isinstance(found, list) else []

    @property
    def is_ours(self) -> bool:
        return SHARED_LABEL in (self.metadata.labels or {})

    @property
    def is_ignored(self) -> bool:
        """Whether its owner has annotated that Dayfly must not change it."""
        return (self.metadata.annotations or {}).get(IGNORE_ANNOTATION) == "ignore"

    def is_exported_to(self, namespace: str) -> bool:
        """Return whether `exportTo` includes a namespace. By default all are included."""
        wanted = [str(each) for each in self.spec.get("exportTo") or ("*",)]
        return "*" in wanted or namespace in wanted or ("." in wanted and namespace == self.metadata.namespace)

    @property
    def is_in_mesh(self) -> bool:
        """Whether it applies to calls between workloads, not only to gateways."""
        return MESH in (self.spec.get("gateways") or (MESH,))


class ServiceRef(NamedTuple):
    """Name and namespace of a Service."""

    name: str
    namespace: str


def service_of_host(host: str, own: str) -> ServiceRef | None:
    """Return the Service of a host name; None if it is not a Service. As in Istio, a short name has no dots."""
    if host and "." not in host and "*" not in host:
        return ServiceRef(host, own)
    name, _, rest = host.partition(".")
    namespace, _, rest = rest.partition(".")
    if "*" in host or not rest.startswith("svc.") or not namespace:
        return None
    return ServiceRef(name, namespace)


def replace_service(host: str, names: Mapping[str, str]) -> str:
    """Return the host with its Service replaced by that in `names`, in the same notation."""
    name, dot, rest = host.partition(".")
    return f"{names[name]}{dot}{rest}"


def applies_to(seen: VirtualService, service: ServiceRef) -> bool:
    """Return whether a VirtualService applies to calls to a Service, also by a wildcard host.

    A VirtualService that is not exported to the Service's namespace does not apply to calls from that namespace.
    """
    if not seen.is_exported_to(service.namespace):
        return False
    whole = f"{service.name}.{service.namespace}.svc.{DOMAIN}"
    for host in map(str, seen.spec.get("hosts") or ()):
        if service_of_host(host, seen.metadata.namespace) == service or (
            host.startswith("*") and whole.endswith(host[1:])
        ):
            return seen.is_in_mesh
    return False


def sort_by_age(every: Iterable[VirtualService]) -> Iterator[VirtualService]:
    """Yield those that are not being deleted, oldest first, as in Istio."""
    found = (each for each in every if not each.metadata.deletion_timestamp)
    return iter(sorted(found, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name)))


def written_at(seen: VirtualService) -> int:
    """Return when Dayfly last changed it, in unix milliseconds; 0 if `managedFields` has no such entry."""
    ours = (each.time for each in seen.metadata.managed_fields or () if each.manager == _MANAGER)
    return max(map(parse_time_ms, ours), default=0)
