"""The fake API server: handles requests, with the faults that a hook orders."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from urllib.parse import unquote

import msgspec
from tests.kube.fake import kinds, pods, reading, rights
from tests.kube.fake.applying import Ownership
from tests.kube.fake.collecting import Controllers
from tests.kube.fake.faults import Call, Crash, Fault, Harm, Hook
from tests.kube.fake.kinds import NAMESPACES, PODS, Kind
from tests.kube.fake.patching import check_type, patched
from tests.kube.fake.reading import Log, Logs, View
from tests.kube.fake.refusals import Refusal, not_found
from tests.kube.fake.store import Object, Store
from tests.kube.fake.writing import Admission, Writer

from dayfly.kube.objects import Key
from dayfly.kube.transport import Answer, KubeRequest, LostError, NotSentError, Stream


@dataclasses.dataclass(frozen=True)
class _Target:
    """The target of a path."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return Key(self.namespace if self.kind.namespaced else "", self.name)


class FakeCluster:
    """One API server with garbage collector and namespace controller, but without kubelet and scheduler.

    Everything depends on the seed: the same requests in the same order give the same UIDs, names and versions.
    """

    def __init__(
        self,
        seed: int = 0,
        extra: Iterable[Kind] = (),
        *,
        time: Callable[[], float] | None = None,
        settles: bool = True,
    ) -> None:
        """Create a cluster with the namespace `default`.

        Args:
            seed: For UIDs and generated names.
            extra: Further kinds, as from CRDs (`kinds.custom`).
            time: Returns seconds; by default the clock of the running loop.
            settles: Whether the controllers act at once after each write; otherwise call `controllers.step`.
        """
        self.time = time or (lambda: asyncio.get_running_loop().time())
        self.store = Store()
        self.logs: Logs = {}
        self.calls: list[Call] = []
        self.writes = 0
        self.faults: Hook = lambda _call: None
        self.rights: set[tuple[str, str, str]] = set()
        """Permissions of impersonated users: user, verb and resource, as in `jobs.batch`."""
        self.denied: set[tuple[str, str]] = set()
        """Denied permissions of all clients: verb and resource, as in `jobs.batch`."""
        self.refuses: Callable[[KubeRequest], Refusal | None] = lambda _request: None
        """Refusals of requests of all clients, for example by a webhook or a quota."""
        self.judge: Callable[[Call], None] = lambda _call: None
        """Called with each change before it is made, without effect: to check how a client writes."""
        self._writer = Writer(self.store, self.time, random.Random(seed))
        self.controllers = Controllers(self._writer)
        self._settles = settles
        self._ownership = Ownership()
        self._kinds = {(kind.prefix, kind.plural): kind for kind in (*kinds.BUILTIN, *extra)}
        self._forgotten: dict[tuple[str, str], Kind] = {}
        default = {"metadata": {"name": "default", "uid": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}}
        about = {"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}}
        self.store.put(NAMESPACES, Key("", "default"), about | default, 0.0)

    @property
    def admission(self) -> list[Admission]:
        """Hooks that are called with each change before it is stored: they can deny or change it, like webhooks."""
        return self._writer.admission

    def transport(self, client: str = "client") -> FakeTransport:
        """Return a connection for one client, as a separate process would have."""
        return FakeTransport(self, client)

    def target(self, path: str, *, forgotten: bool = False) -> tuple[Kind, Key, str]:
        """Return the target of a path: kind, object (without a name: all) and subresource.

        `forgotten`: also for a kind that is no longer served.
        """
        found = self._find(path, forgotten=forgotten)
        return found.kind, found.key, found.subresource

    def forget(self, plural: str) -> Kind:
        """Stop serving the kind: its objects stay in the store, but are not visible."""
        kind = self._forgotten[self.kind(plural).prefix, plural] = self.kind(plural)
        del self._kinds[kind.prefix, plural]
        return kind

    def serve(self, kind: Kind) -> None:
        """Serve the kind from now on."""
        self._kinds[kind.prefix, kind.plural] = kind
        self._forgotten.pop((kind.prefix, kind.plural), None)

    def serve_also(self, kind: Kind, version: str) -> None:
        """Serve the same objects in another version of their group as well."""
        self._kinds[f"/apis/{kind.group}/{version}", kind.plural] = kind

    def withdraw(self, plural: str, version: str) -> None:
        """Stop serving the kind in this version; other versions stay."""
        del self._kinds[f"/apis/{self.kind(plural).group}/{version}", plural]

    def serves(self, plural: str) -> bool:
        """Return whether the kind is served now."""
        return any(kind.plural == plural for kind in self._kinds.values())

    def kind(self, plural: str) -> Kind:
        """Return a kind, whether or not it is served."""
        every = (*self._kinds.values(), *self._forgotten.values())
        return next(kind for kind in every if kind.plural == plural)

    def objects(self, plural: str) -> list[Object]:
        """Return all objects of a kind in the store, visible or not, for oracles."""
        return list(self.store.items(self.kind(plural)).values())

    def log_of(self, name: str, namespace: str) -> Log:
        """Return the log of a pod's container; the test writes it, as the kubelet would."""
        return self.logs.setdefault(Key(namespace, name), Log(now=self._writer.exact_stamp))

    def answer(self, request: KubeRequest, view: View | None = None, lag: int = 0) -> Answer:
        """Execute a request without streaming."""
        try:
            if (served := self._served(request.path)) is not None:
                return Answer(200, msgspec.json.encode(served))
            target = self._find(request.path)
            self._authorize(target, request)
            body = self._execute(target, request, view or View(), lag)
            if self._settles:
                self.controllers.settle()
            return Answer(
                201 if request.method == "POST" and not target.subresource else 200, msgspec.json.encode(body)
            )
        except Refusal as no:
            return no.answer()

    def _served(self, path: str) -> Object | None:
        """Return the served versions or kinds for the path of a group or version."""
        path = _decoded(path)
        if not is_discovery(path):
            return None
        if path.count("/") == 2 and path.startswith("/apis/"):
            versions = dict.fromkeys(prefix for prefix, _ in self._kinds if prefix.startswith(f"{path}/"))
            if not versions:
                raise Refusal(404, "the server could not find the requested resource")
            listed = [{"groupVersion": prefix.removeprefix("/apis/")} for prefix in versions]
            return {"kind": "APIGroup", "name": path.removeprefix("/apis/"), "versions": listed}
        found = [kind for (prefix, _), kind in self._kinds.items() if prefix == path]
        if not found:
            raise Refusal(404, "the server could not find the requested resource")
        lines = [{"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced} for kind in found]
        lines += [{**line, "name": f"{line['name']}/status"} for line in lines]
        return {"kind": "APIResourceList", "groupVersion": path.split("/", 2)[2], "resources": lines}

    def _authorize(self, target: _Target, request: KubeRequest) -> None:
        """An impersonated user has only its own permissions, and none in a namespace that does not exist."""
        user = request.headers.get("Impersonate-User")
        verb = rights.verb(request.method, named=bool(target.name))
        there = self.store.get(NAMESPACES, Key("", target.namespace)) is not None
        if user is None or (there and (user, verb, target.kind.qualified) in self.rights):
            return
        raise rights.forbidden(user, verb, target.kind, target.name, f'in the namespace "{target.namespace}"')

    def refusal(self, request: KubeRequest, user: str) -> Answer | None:
        """Return the refusal for a client without permission; None if it has it."""
        if (refused := self.refuses(request)) is not None:
            return refused.answer()
        if not self.denied or is_discovery(request.path):
            return None
        try:
            target = self._find(request.path)
        except Refusal as no:
            return no.answer()
        verb = rights.verb(request.method, named=bool(target.name), watches="watch" in request.query)
        if (verb, target.kind.qualified) not in self.denied:
            return None
        return rights.forbidden(user, verb, target.kind, target.name, "at the cluster scope").answer()

    def _execute(self, target: _Target, request: KubeRequest, view: View, lag: int) -> Any:
        match request.method:
            case "GET":
                at = view.version if not lag else max(1, (view.version or self.store.version) - lag)
                if not target.name:
                    return reading.page(self.store, target.kind, target.namespace, request, at)
                found = self.store.get(target.kind, target.key, at=at)
                if found is None:
                    raise not_found(target.kind.qualified, target.name)
                version = request.path.split("/")[3] if target.kind.group else target.kind.version
                return (
                    {**found, "apiVersion": f"{target.kind.group}/{version}"}
                    if version != target.kind.version
                    else found
                )
            case "POST" if target.name:
                return self._act(target, _body(request))
            case "POST":
                return self._create(target, request, _body(request))
            case "PUT":
                return self._update(target, request, _body(request), patch=False)
            case "PATCH" if request.content_type == "application/apply-patch+yaml":
                return self._apply(target, request, _body(request))
            case "PATCH":
                self._is_status(target)
                check_type(target.kind, request.content_type)
                current = self.store.get(target.kind, target.key)
                if current is None:
                    raise not_found(target.kind.qualified, target.name)
                patch = msgspec.json.decode(request.body)
                new = patched(target.kind, current, patch, request.content_type)
                return self._update(target, request, new, patch=True)
            case "DELETE" if target.name:
                # As in the real server, options in the query count only without a body.
                options = _body(request) if request.body else {"dryRun": ["All"] if _dry(request) else []}
                return self._writer.delete(target.kind, target.key, options, dry_run=bool(options.get("dryRun")))
        raise Refusal(405, "the server does not allow this method on the requested resource")

    def _create(self, target: _Target, request: KubeRequest, body: Object) -> Object:
        new = self._writer.create(target.kind, target.namespace, body, dry_run=_dry(request))
        if not _dry(request):
            self._ownership.wrote(request.query.get("fieldManager", "unknown"), None, new)
        return new

    def _update(self, target: _Target, request: KubeRequest, body: Object, *, patch: bool) -> Object:
        status = self._is_status(target)
        old = self.store.get(target.kind, target.key)
        if target.subresource == pods.EPHEMERAL and old is not None:
            sent = {key: value for key, value in body["metadata"].items() if key in ("uid", "resourceVersion")}
            added = body["spec"].get(pods.FIELD, [])
            body = old | {"metadata": old["metadata"] | sent, "spec": old["spec"] | {pods.FIELD: added}}
        new = self._writer.update(
            target.kind,
            target.key,
            body,
            status=status,
            patch=patch,
            dry_run=_dry(request),
            adds=target.subresource == pods.EPHEMERAL,
        )
        if not _dry(request):
            self._ownership.wrote(request.query.get("fieldManager", "unknown"), old, new)
        return new

    def _apply(self, target: _Target, request: KubeRequest, wish: Object) -> Object:
        manager, force = request.query.get("fieldManager"), request.query.get("force") == "true"
        if not manager:
            raise Refusal(400, "fieldManager is required for apply patch")
        old = self.store.get(target.kind, target.key)
        dry = _dry(request)
        if old is None:
            if target.subresource or wish.get("metadata", {}).get("uid"):
                raise not_found(target.kind.qualified, target.name)
            start = {"metadata": {"name": target.name}}
            wanted, paths = self._ownership.applied(manager, target.kind, start, wish, force=force)
            new = self._writer.create(target.kind, target.namespace, wanted, dry_run=dry)
        else:
            sent = {key: value for key, value in wish.get("metadata", {}).items() if key in ("uid", "resourceVersion")}
            wanted, paths = self._ownership.applied(manager, target.kind, old, wish, force=force)
            wanted = wanted | {"metadata": wanted["metadata"] | sent}
            status = self._is_status(target)
            new = self._writer.update(target.kind, target.key, wanted, status=status, patch=True, dry_run=dry)
        if not dry:
            self._ownership.claim(manager, new["metadata"]["uid"], old, new, paths)
        return new

    def _act(self, target: _Target, body: Object) -> Object:
        """Binding and eviction of pods."""
        if target.kind is PODS and target.subresource == "binding":
            self._writer.bind(target.key, body["target"]["name"])
            return {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        if target.kind is PODS and target.subresource == "eviction":
            return self._writer.evict(target.key, body.get("deleteOptions", {}))
        raise Refusal(404, "the server could not find the requested resource")

    def _is_status(self, target: _Target) -> bool:
        if target.kind is PODS and target.subresource == pods.EPHEMERAL:
            return False  # `_update` restricts the changes
        if target.subresource not in ("", "status") or (target.subresource and not target.kind.status):
            if target.kind.custom:  # the value for a kind with all defined versions served
                raise not_found(target.kind.qualified, target.name)
            raise Refusal(404, "the server could not find the requested resource")
        return bool(target.subresource)

    def _find(self, path: str, *, forgotten: bool = False) -> _Target:
        parts = _decoded(path).strip("/").split("/")
        depth = 2 if parts[0] == "api" else 3
        prefix, rest = "/" + "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.get((prefix, rest[0])) or (self._forgotten.get((prefix, rest[0])) if forgotten else None)
        if kind is None or (namespace and not kind.namespaced):
            raise Refusal(404, "the server could not find the requested resource")
        name, subresource = (*rest[1:], "", "")[:2]
        return _Target(kind, namespace, name, subresource)

    def chunks(self, request: KubeRequest, view: View) -> AsyncIterator[bytes]:
        """Return the body of a stream: a watch, or a pod's log."""
        target = self._find(request.path)
        if target.subresource == "log":
            if self.store.get(PODS, target.key) is None:
                raise not_found("pods", target.name)
            return self.log_of(target.name, target.namespace).read(
                follow=request.query.get("follow") == "true", timestamps=request.query.get("timestamps") == "true"
            )
        return reading.watch(self.store, target.kind, target.namespace, request.query, view, self.time)


class FakeTransport:
    """The connection of one client. `latency` is in seconds each way; `view` is the state that it may see."""

    def __init__(self, cluster: FakeCluster, client: str) -> None:
        self.cluster = cluster
        self.client = client
        self.view = View()
        self.latency = 0.0
        self.dead = False

    def freeze(self) -> None:
        """Reads and watches return the current state until `thaw`, like a stale API server; writes succeed."""
        self.view.version = self.cluster.store.version

    def thaw(self) -> None:
        self.view.version = None

    async def send(self, request: KubeRequest) -> Answer:
        fault = self._call(request)
        try:
            async with asyncio.timeout(request.timeout):
                await asyncio.sleep(self.latency)
                return await self._carry_out(request, fault)
        except TimeoutError as late:
            raise LostError("no answer in time") from late

    async def _carry_out(self, request: KubeRequest, fault: Fault | None) -> Answer:
        harm = fault.harm if fault else None
        match harm:
            case Harm.CRASH_BEFORE:
                raise self._die()
            case Harm.LOST_REQUEST:
                raise LostError("the connection broke")
            case Harm.UNREACHABLE:
                raise NotSentError("connection refused")
            case Harm.CONFLICT:
                return Refusal(409, "the object has been modified").answer()
            case Harm.TROUBLE_BEFORE:
                return Refusal(500, "etcdserver: request timed out").answer()
            case Harm.THROTTLE:
                busy = b"Too many requests, please try again later.\n"  # plain text, like the real server
                return Answer(429, busy, {"retry-after": str(fault.retry_after)})
            case Harm.GONE if "continue" in request.query:
                return reading.expired(0).answer()
        if (refused := self.cluster.refusal(request, self.client)) is not None:
            return refused
        answer = self.cluster.answer(request, self.view, fault.lag if harm is Harm.STALE else 0)
        match harm:
            case Harm.CRASH_AFTER:
                raise self._die()
            case Harm.LOST_ANSWER:
                raise LostError("the connection broke")
            case Harm.TROUBLE_AFTER:
                return Refusal(500, "etcdserver: request timed out").answer()
        await asyncio.sleep(self.latency)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, request: KubeRequest) -> AsyncIterator[Stream]:
        fault = self._call(request)
        await asyncio.sleep(self.latency)
        if fault and fault.harm is Harm.UNREACHABLE:
            raise NotSentError("connection refused")
        if fault and fault.harm is Harm.TROUBLE_BEFORE:
            refused = Refusal(500, "dial tcp 10.0.0.7:10250: connection refused").answer()
            yield Stream(refused.status, _once(refused.body))
            return
        if (denied := self.cluster.refusal(request, self.client)) is not None:
            yield Stream(denied.status, _once(denied.body))
            return
        try:
            chunks = self.cluster.chunks(request, self.view)
        except Refusal as no:
            yield Stream(no.code, _once(no.answer().body))
            return
        async with contextlib.aclosing(self._harmed(chunks, fault)) as harmed:
            yield Stream(200, harmed)

    async def _harmed(self, chunks: AsyncIterator[bytes], fault: Fault | None) -> AsyncIterator[bytes]:
        harm = fault.harm if fault else None
        count = 0
        while True:
            if fault and count == fault.after:
                if harm is Harm.BREAK:
                    raise LostError("the connection broke")
                if harm is Harm.GONE:
                    yield msgspec.json.encode({"type": "ERROR", "object": reading.expired(0).status()}) + b"\n"
                    return
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            if self.dead:
                raise Crash(self.client)
            count += 1
            yield chunk

    async def renew_credentials(self) -> bool:
        return False

    async def close(self) -> None:
        """Do nothing: no resource is open."""

    def _call(self, request: KubeRequest) -> Fault | None:
        if self.dead:
            raise Crash(self.client)
        cluster = self.cluster
        write = None
        if request.method != "GET":
            cluster.writes += 1
            write = cluster.writes
        call = Call(self.client, len(cluster.calls) + 1, write, request)
        cluster.calls.append(call)
        if write is not None:
            cluster.judge(call)
        return cluster.faults(call)

    def _die(self) -> Crash:
        self.dead = True
        return Crash(self.client)


def _decoded(path: str) -> str:
    """Return the target of a request. As in the real server, the path is decoded before it is split."""
    return unquote(path.partition("#")[0].partition("?")[0])


def is_discovery(path: str) -> bool:
    """Return whether the request is for the kinds of a version or the versions of a group."""
    parts = _decoded(path).strip("/").split("/")
    return len(parts) in ((2,) if parts[0] == "api" else (2, 3))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _body(request: KubeRequest) -> Any:
    try:
        body = msgspec.json.decode(request.body)
    except msgspec.DecodeError as fault:
        raise Refusal(400, f"the object provided is unrecognized: {fault}") from fault
    if not isinstance(body, dict):
        raise Refusal(400, "the object provided is no object")
    return body


def _dry(request: KubeRequest) -> bool:
    return request.query.get("dryRun") == "All"
