"""What is done to routes of ours: made, kept as they are to be, taken away; each by its UID and the version seen."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import BESIDE_ANNOTATION, LABELS_ANNOTATION, ROUTE_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import Resource, anything

GROUP, VERSION = "gateway.networking.k8s.io", "v1"
HTTP_ROUTES = Resource(GROUP, VERSION, "httproutes", "HTTPRoute", RouteObject)
GRPC_ROUTES = Resource(GROUP, VERSION, "grpcroutes", "GRPCRoute", RouteObject)
KINDS = (HTTP_ROUTES, GRPC_ROUTES)
_SLICES = anything("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")


class ForeignRouteError(Exception):
    """A route with the name of ours is not ours."""


class AlteredRouteError(Exception):
    """The server would keep a route of ours in another form, in which it would fit other requests."""


class Routes:
    """Routes of ours. Every read is a quorum read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def left(self, kind: Resource[RouteObject], run: str, fork: str, namespace: str) -> list[RouteObject]:
        """Those that lead to a fork, as they are now.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        try:
            which = f"{RUN_LABEL}={run},{ROUTE_LABEL}={fork}"
            return list((await self._client.list_all(kind, namespace, labels=which)).items)
        except errors.NotServed:
            return []  # nothing of that kind is served any more

    async def answers(self, service: str, namespace: str) -> bool:
        """Whether a Service has a pod that answers; also where that cannot be told.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        try:
            found = await self._client.list_all(_SLICES, namespace, labels=f"kubernetes.io/service-name={service}")
        except (errors.NotServed, errors.Forbidden):
            return True
        ends = (end for each in found.items for end in each.get("endpoints") or ())
        return any((end.get("conditions") or {}).get("ready", True) for end in ends)

    async def make(self, kind: Resource[RouteObject], manifest: Mapping[str, Any]) -> RouteObject:
        """Create one, or find the one that an earlier try, or a peer, has created.

        Raises:
            ForeignRouteError: the name is taken by somebody else's.
            AlteredRouteError: it would be kept in a form that fits other requests.
            errors.Refused: the server does not admit it.
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
            name = f"{kind.kind} {meta['namespace']}/{meta['name']}"
            raise ForeignRouteError(f"{name} exists and does not belong to Dayfly; delete it")
        return found

    async def keep(self, kind: Resource[RouteObject], seen: RouteObject, manifest: Mapping[str, Any]) -> RouteObject:
        """Give it the form of the manifest: that very object, at the version seen.

        Raises:
            errors.Conflict: it is another one by now.
            AlteredRouteError: it would be kept in a form that fits other requests.
            errors.Refused: the server does not admit it.
        """
        meta = seen.metadata
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**manifest, "metadata": {**manifest["metadata"], **identity}}
        _check(await self._client.update(kind, body, meta.name, meta.namespace, dry_run=True), kind, manifest)
        return await self._client.update(kind, body, meta.name, meta.namespace)

    async def remove(self, kind: Resource[RouteObject], seen: RouteObject) -> bool:
        """Delete it; false if the server saw another one than we do."""
        meta = seen.metadata
        return bool(meta.deletion_timestamp) or await _done(
            self._client.delete(kind, meta.name, meta.namespace, uid=meta.uid)
        )


def differs(seen: RouteObject, manifest: Mapping[str, Any]) -> bool:
    """Whether one of ours is other than it is to be, whoever has changed it; what others have added is left.

    A label that it has of another route is told from an added one by what is noted on it.
    """
    wanted = manifest["metadata"]
    labels, notes = seen.metadata.labels or {}, seen.metadata.annotations or {}
    return (
        seen.spec != manifest["spec"]
        or not wanted["labels"].items() <= labels.items()
        or any(notes.get(name) != wanted["annotations"].get(name) for name in (BESIDE_ANNOTATION, LABELS_ANNOTATION))
    )


def _check(kept: RouteObject, kind: Resource[RouteObject], manifest: Mapping[str, Any]) -> None:
    """What a server does not know of a match it drops: without the key in it a rule would take everybody's requests."""
    if _asked(kept.rules) != _asked(manifest["spec"]["rules"]):
        name = f"{kind.kind} {manifest['metadata']['name']}"
        raise AlteredRouteError(
            f"the API server would keep {name} without some of what its rules ask for, so it is not made: the Gateway "
            "API's definitions may be too old, or something alters routes on their way"
        )


def _asked(rules: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """By rule and match, the headers and parameters that it asks for."""
    matches = ([*(rule.get("matches") or ())] for rule in rules)
    return [[(match.get("headers"), match.get("queryParams")) for match in found] for found in matches]


async def _done(change: Awaitable[Any]) -> bool:
    """Whether the change was made, or there is nothing left to change."""
    try:
        await change
    except errors.ABSENT:
        return True
    except errors.Conflict:
        return False
    return True
