"""Changes to derived routes: create, update, delete. Each names the UID, and updates also the resource version."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import BESIDE_ANNOTATION, LABELS_ANNOTATION, ROUTE_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, untyped_resource
from dayfly.plan import messages

GROUP, VERSION = "gateway.networking.k8s.io", "v1"
HTTP_ROUTES = ApiResource(GROUP, VERSION, "httproutes", "HTTPRoute", RouteObject)
GRPC_ROUTES = ApiResource(GROUP, VERSION, "grpcroutes", "GRPCRoute", RouteObject)
KINDS = (HTTP_ROUTES, GRPC_ROUTES)
_SLICES = untyped_resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")


class ForeignRouteError(Exception):
    """A route with the derived name exists and was not created by Dayfly."""


class AlteredRouteError(Exception):
    """The API server would store Dayfly's route in a form that matches other requests."""


class Routes:
    """A client for derived routes. Every read is a quorum read."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def list_of_fork(
        self, kind: ApiResource[RouteObject], run: str, fork: str, namespace: str
    ) -> list[RouteObject]:
        """List the routes of a fork.

        Raises:
            errors.ApiError: The request failed.
        """
        try:
            which = f"{RUN_LABEL}={run},{ROUTE_LABEL}={fork}"
            return list((await self._client.list_all(kind, namespace, labels=which)).items)
        except errors.NotServed:
            return []  # the kind is no longer served

    async def has_ready_endpoint(self, service: str, namespace: str) -> bool:
        """Return whether a Service has a ready pod, and true if EndpointSlices cannot be read.

        Raises:
            errors.ApiError: The request failed.
        """
        try:
            found = await self._client.list_all(_SLICES, namespace, labels=f"kubernetes.io/service-name={service}")
        except (errors.NotServed, errors.Forbidden):
            return True
        ends = (end for each in found.items for end in each.get("endpoints") or ())
        return any((end.get("conditions") or {}).get("ready", True) for end in ends)

    async def ensure(self, kind: ApiResource[RouteObject], manifest: Mapping[str, Any]) -> RouteObject:
        """Create a route, or return the one that an earlier try or another replica has created.

        Raises:
            ForeignRouteError: An object with this name was not created by Dayfly.
            AlteredRouteError: The stored route would match other requests.
            errors.Refused: The API server refuses the object.
        """
        meta = manifest["metadata"]
        try:
            _check(await self._client.create(kind, manifest, meta["namespace"], dry_run=True), kind, manifest)
            return await self._client.create(kind, manifest, meta["namespace"])
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            found = await self._client.find(kind, meta["name"], meta["namespace"])
            if found is None:
                raise fault from None
        owner = meta["ownerReferences"][0]["uid"]
        if owner not in {each.uid for each in found.metadata.owner_references or ()}:
            raise ForeignRouteError(messages.foreign_object(kind.kind, meta["namespace"], meta["name"]))
        return found

    async def update(
        self, kind: ApiResource[RouteObject], seen: RouteObject, manifest: Mapping[str, Any]
    ) -> RouteObject:
        """Update a route to the manifest if it still has this UID and resource version.

        Raises:
            errors.Conflict: The route has changed.
            AlteredRouteError: The stored route would match other requests.
            errors.Refused: The API server refuses the update.
        """
        meta = seen.metadata
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**manifest, "metadata": {**manifest["metadata"], **identity}}
        _check(await self._client.update(kind, body, meta.name, meta.namespace, dry_run=True), kind, manifest)
        return await self._client.update(kind, body, meta.name, meta.namespace)

    async def remove(self, kind: ApiResource[RouteObject], seen: RouteObject) -> bool:
        """Delete a route; return false if it was replaced."""
        meta = seen.metadata
        return bool(meta.deletion_timestamp) or await _succeeds(
            self._client.delete(kind, meta.name, meta.namespace, uid=meta.uid)
        )


def differs(seen: RouteObject, manifest: Mapping[str, Any]) -> bool:
    """Return whether a stored route differs from its manifest. Labels and annotations that others added are ignored.

    `LABELS_ANNOTATION` distinguishes copied labels from added ones.
    """
    wanted = manifest["metadata"]
    labels, notes = seen.metadata.labels or {}, seen.metadata.annotations or {}
    return (
        seen.spec != manifest["spec"]
        or not wanted["labels"].items() <= labels.items()
        or any(notes.get(name) != wanted["annotations"].get(name) for name in (BESIDE_ANNOTATION, LABELS_ANNOTATION))
    )


def _check(kept: RouteObject, kind: ApiResource[RouteObject], manifest: Mapping[str, Any]) -> None:
    """Check that the API server stores all conditions of matches.

    It drops unknown fields. A rule without its key match would receive all requests.
    """
    if _conditions(kept.rules) != _conditions(manifest["spec"]["rules"]):
        name = f"{kind.kind} {manifest['metadata']['name']}"
        raise AlteredRouteError(
            f"the API server would store {name} without some matches of its rules, so it is not created: the Gateway "
            "API's CustomResourceDefinitions may be too old, or a webhook changes routes"
        )


def _conditions(rules: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return headers and query parameters by rule and match."""
    matches = ([*(rule.get("matches") or ())] for rule in rules)
    return [[(match.get("headers"), match.get("queryParams")) for match in found] for found in matches]


async def _succeeds(change: Awaitable[Any]) -> bool:
    """Return whether the change was made, or the object is gone; false after a conflict."""
    try:
        await change
    except errors.ABSENT:
        return True
    except errors.Conflict:
        return False
    return True
