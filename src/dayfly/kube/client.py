"""Requests to the API server: typed, rate-limited, with a deadline, and with exact errors about their outcome."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from dayfly.kube import answers, errors
from dayfly.kube.answers import Listing, Page
from dayfly.kube.forms import METADATA, Propagation, Style, accept, deletion, query_params, writing
from dayfly.kube.objects import PODS, ApiResource, ServedGroup, ServedKind, ServedKinds, group_root, root
from dayfly.kube.transport import JSON, Answer, KubeRequest, LostError, NotSentError, Stream, Transport
from dayfly.lib.pace import Pace, Urgency

T = TypeVar("T")
Body = Mapping[str, Any] | msgspec.Struct

_MANAGER = "dayfly"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one client: requests per second and burst, and times in seconds.

    The API server distributes its capacity among clients (API Priority and Fairness), and the client obeys its requests
    to pause. `rate` and `burst` only bound the damage of a defect, as no process needs that many. A pause
    applies to all requests, and a proxy may request any length, so `pause_max` limits it.
    """

    rate: float = 1000.0
    burst: int = 1000
    timeout: float = 30.0
    backoff: float = 0.2
    backoff_max: float = 10.0
    pause_max: float = 30.0


class KubeClient:
    """The client of one API server, shared by all controllers of a process.

    Reads are repeated with jittered back-off until their deadline. A change is sent once. It succeeds, or raises
    `errors.Refused` or `errors.Throttled` (nothing changed), `errors.ServerError` (never sent), or
    `errors.OutcomeUnknown`. If the rate is limited, deletes go before other requests.
    """

    def __init__(self, transport: Transport, limits: Limits | None = None, *, seed: int | None = None) -> None:
        self._transport = transport
        self._limits = limits or Limits()
        self._pace = Pace(self._limits.rate, self._limits.burst)
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self.headers: dict[str, str] = {}
        """Additional headers of each request."""

    def acting_as(self, user: str, extra: Mapping[str, str]) -> KubeClient:
        """Return a client with the same connection and rate limit that impersonates another user.

        Args:
            user: The user name, such as `system:serviceaccount:NAMESPACE:NAME`.
            extra: Extra fields for policies of the server. RBAC must permit us to impersonate each key.
        """
        other = copy.copy(self)
        other.headers = {"Impersonate-User": user}
        other.headers |= {f"Impersonate-Extra-{quote(key, safe='')}": value for key, value in extra.items()}
        return other

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    # Reading.

    async def get(self, resource: ApiResource[T], name: str, namespace: str = "", *, subresource: str = "") -> T:
        """Return the current state of an object (a quorum read).

        Raises:
            errors.NotFound: the object does not exist.
        """
        request = self._request("GET", resource.path(namespace, name, subresource), accept=accept(resource))
        return answers.decode(resource.model, await self._send(request), request)

    async def find(self, resource: ApiResource[T], name: str, namespace: str = "") -> T | None:
        """Return the current state of an object; None if it does not exist."""
        try:
            return await self.get(resource, name, namespace)
        except errors.NotFound:
            return None

    async def kinds(self, api_version: str) -> list[ServedKind]:
        """Return the kinds that the server serves under an API version, such as `batch/v1`.

        Raises:
            errors.NotServed: it does not serve the version.
        """
        request = self._request("GET", root(api_version))
        return answers.decode(ServedKinds, await self._send(request), request).resources

    async def versions(self, group: str) -> list[str]:
        """Return the API versions that the server serves of a group, such as `batch/v1`; none for an unknown group."""
        try:
            request = self._request("GET", group_root(group))
            found = answers.decode(ServedGroup, await self._send(request), request)
        except errors.NotServed:
            return []
        return [each.group_version for each in found.versions]

    async def page(
        self,
        resource: ApiResource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_: str = "",
    ) -> Page[T]:
        """Return one page of a list.

        Raises:
            errors.Gone: `continue_` has expired; start again.
        """
        query = query_params(labelSelector=labels, fieldSelector=fields, limit=str(limit), **{"continue": continue_})
        request = self._request("GET", resource.path(namespace), query, accept=accept(resource, "List"))
        return answers.decode(Page[resource.model], await self._send(request), request)  # type: ignore[name-defined] # a type made at run time

    async def list_all(
        self, resource: ApiResource[T], namespace: str = "", *, labels: str = "", fields: str = "", limit: int = 500
    ) -> Listing[T]:
        """Return all matching objects, page by page at one version; start again if the version expires."""
        while True:
            try:
                page = await self.page(resource, namespace, labels=labels, fields=fields, limit=limit)
                items = list(page.items)
                while page.metadata.continue_:
                    page = await self.page(
                        resource,
                        namespace,
                        labels=labels,
                        fields=fields,
                        limit=limit,
                        continue_=page.metadata.continue_,
                    )
                    items += page.items
                return Listing(page.metadata.resource_version, items)
            except errors.Gone:
                await asyncio.sleep(self._jittered(0))

    async def log(
        self,
        name: str,
        namespace: str,
        *,
        container: str,
        follow: bool = False,
        timestamps: bool = False,
        limit_bytes: int = 0,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's log in pieces as they arrive; with `follow` until its end. The first piece is empty.

        With `timestamps` each line begins with its time and a space.

        The log belongs to the pod with that name: compare its content with the UID that you expect.

        Raises:
            errors.Refused: status 400: the container has not started yet.
            errors.ServerError: the connection broke; the pieces so far are only a part.
        """
        query = query_params(
            container=container,
            follow="true" if follow else "",
            timestamps="true" if timestamps else "",
            limitBytes=str(limit_bytes or ""),
        )
        request = self._request("GET", PODS.path(namespace, name, "log"), query, accept="*/*")
        async with self.stream(request) as stream:
            yield b""
            async for chunk in stream.chunks:
                yield chunk

    # Changing.

    async def create(
        self,
        resource: ApiResource[T],
        body: Body,
        namespace: str = "",
        *,
        dry_run: bool = False,
        manager: str = _MANAGER,
    ) -> T:
        """Create an object.

        Raises:
            errors.AlreadyExists: the name is taken, perhaps by an earlier request of ours.
        """
        return await self._change(resource, "POST", resource.path(namespace), body, writing(dry_run, manager))

    async def update(
        self,
        resource: ApiResource[T],
        body: Body,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = _MANAGER,
    ) -> T:
        """Replace an object; with a resource version in `body`, as a compare-and-swap.

        Raises:
            errors.Conflict: the object has another version or UID.
        """
        path = resource.path(namespace, name, subresource)
        return await self._change(resource, "PUT", path, body, writing(dry_run, manager))

    async def patch(
        self,
        resource: ApiResource[T],
        patch: Body | list[dict[str, Any]],
        name: str,
        namespace: str = "",
        *,
        style: Style = Style.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = _MANAGER,
        force: bool = False,
    ) -> T:
        """Change parts of an object. `metadata.uid` or `metadata.resourceVersion` in the patch make it conditional.

        Args:
            resource: The kind.
            patch: Operations for `Style.JSON`, otherwise a partial object.
            name: The name of the object.
            namespace: The namespace of the object.
            style: The type of the patch.
            subresource: For example `status`.
            dry_run: Only validate the change and return the result.
            manager: The field manager; for `Style.APPLY` the owner of the fields.
            force: Take over fields of other managers (only for `Style.APPLY`).

        Raises:
            errors.Conflict: the UID or version differs, or another manager owns a field.
        """
        query = writing(dry_run, manager) | query_params(force="true" if force else "")
        path = resource.path(namespace, name, subresource)
        return await self._change(resource, "PATCH", path, patch, query, style.value)

    async def delete(
        self,
        resource: ApiResource[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> None:
        """Request the deletion of an object. It is gone once its finalizers are removed and a pod's grace period is
        over.

        Args:
            resource: The kind.
            name: The name of the object.
            namespace: The namespace of the object.
            uid: Only if the object has this UID.
            resource_version: Only if the object has this version.
            grace: The grace period of a pod in seconds; 0 removes it without waiting for the kubelet.
            propagation: How owned objects are deleted; the default of the server if None.
            dry_run: Only validate the request.

        Raises:
            errors.NotFound: the object does not exist.
            errors.Conflict: the object has another UID or version.
        """
        options = deletion(uid, resource_version, grace, propagation)
        if dry_run:
            options["dryRun"] = ["All"]  # as a query parameter it would be ignored, and the object deleted
        body = msgspec.json.encode(options)
        # The response is the deleted object, which is not needed: request only its metadata.
        await self._send(self._request("DELETE", resource.path(namespace, name), body=body, accept=METADATA))

    async def evict(self, name: str, namespace: str, *, uid: str = "", grace: int | None = None) -> None:
        """Request the eviction of a pod.

        Raises:
            errors.Throttled: a disruption budget does not permit it now.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": deletion(uid, "", grace, None),
        }
        await self._send(self._request("POST", PODS.path(namespace, name, "eviction"), body=msgspec.json.encode(body)))

    async def scale(self, resource: ApiResource[T], name: str, namespace: str, replicas: int, *, uid: str) -> None:
        """Set the number of replicas if the object has this UID."""
        await self.patch(
            resource.read_as(dict[str, Any]),
            {"metadata": {"uid": uid}, "spec": {"replicas": replicas}},
            name,
            namespace,
        )

    # Shared parts.

    @contextlib.asynccontextmanager
    async def stream(self, request: KubeRequest) -> AsyncIterator[Stream]:
        """Open a streaming response: a watch or a log. The caller judges its end."""
        await self._wait_for_pace(request)
        try:
            async with self._transport.stream(request) as stream:
                if stream.status >= answers.FIRST_REFUSAL:
                    body = b""
                    with contextlib.suppress(TimeoutError):  # the status is enough for the error
                        async with asyncio.timeout(request.timeout):
                            body = b"".join([chunk async for chunk in stream.chunks])
                    fault = answers.error_of_response(
                        request, Answer(stream.status, body, stream.headers), changes=False
                    )
                    if isinstance(fault, errors.Throttled):
                        self._apply_throttling(fault)
                    if isinstance(fault, errors.Unauthorized):
                        await self._transport.renew_credentials()
                    raise fault
                yield stream
        except (NotSentError, LostError) as fault:
            raise errors.ServerError(str(request), str(fault)) from fault

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
    ) -> KubeRequest:
        return KubeRequest(method, path, query or {}, body, content_type, accept, self._limits.timeout, self.headers)

    async def _change(
        self,
        resource: ApiResource[T],
        method: str,
        path: str,
        body: Body | list[dict[str, Any]],
        query: Mapping[str, str],
        content_type: str = JSON,
    ) -> T:
        request = self._request(method, path, query, msgspec.json.encode(body), content_type, accept(resource))
        answer = await self._send(request)
        return answers.decode(resource.model, answer, request)

    async def _send(self, request: KubeRequest) -> Answer:
        """Send a request; repeat a read until its deadline."""
        if request.method not in answers.READS:
            return await self._send_once(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        tries = 0
        while True:
            try:
                return await self._send_once(
                    msgspec.structs.replace(request, timeout=max(0.001, deadline - loop.time()))
                )
            except (errors.ServerError, errors.Throttled) as fault:
                wait = self._jittered(tries)
                if isinstance(fault, errors.Throttled):
                    wait += fault.retry_after
                tries += 1
                if loop.time() + wait >= deadline:
                    raise
                await asyncio.sleep(wait)

    async def _send_once(self, request: KubeRequest) -> Answer:
        """Send a request once; after a 401, which proves that nothing was executed, again with renewed credentials."""
        await self._wait_for_pace(request)
        changes = request.method not in answers.READS
        answer = await self._exchange(request, changes)
        if answer.status == answers.UNAUTHORIZED and await self._transport.renew_credentials():
            answer = await self._exchange(request, changes)
        if answer.status < answers.FIRST_REFUSAL:
            return answer
        fault = answers.error_of_response(request, answer, changes=changes)
        if isinstance(fault, errors.Throttled):
            self._apply_throttling(fault)
        raise fault

    async def _exchange(self, request: KubeRequest, changes: bool) -> Answer:
        try:
            return await self._transport.send(request)
        except NotSentError as fault:
            raise errors.ServerError(str(request), f"could not connect, nothing was sent: {fault}") from fault
        except LostError as fault:
            family = errors.OutcomeUnknown if changes else errors.ServerError
            raise family(str(request), f"the answer was lost: {fault}") from fault

    async def _wait_for_pace(self, request: KubeRequest) -> None:
        urgent = request.method == "DELETE" or request.path.endswith("/eviction")
        urgency = Urgency.URGENT if urgent else Urgency.NORMAL
        if self._pace.take_at_once(urgency):
            return  # the usual case, without the cost of a timeout
        try:
            async with asyncio.timeout(request.timeout):
                await self._pace.take(urgency)
        except TimeoutError:
            raise errors.Throttled(
                str(request), "held back by our own rate limit until its deadline; nothing was sent", retry_after=1.0
            ) from None

    def _apply_throttling(self, fault: errors.Throttled) -> None:
        if fault.by_all:
            self._pace.pause(min(fault.retry_after, self._limits.pause_max))

    def _jittered(self, tries: int) -> float:
        ceiling = min(self._limits.backoff_max, self._limits.backoff * 2.0**tries)
        return ceiling * self._random.uniform(0.5, 1.0)
