"""The REST API as an ASGI application, and its server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from dayfly.lib import http_server
from dayfly.lib.tasks import background, cancel_and_wait
from dayfly.link.server_end import Links
from dayfly.page import files
from dayfly.server.access.callers import LOCAL, FirstMatch
from dayfly.server.admin.audit import Audit
from dayfly.server.admin.clusters import Clusters
from dayfly.server.admin.clusters import names as names_of_agent_clusters
from dayfly.server.admin.keys import ApiKeys, StoredKeys
from dayfly.server.admin.page_sessions import PageSessions
from dayfly.server.api.changes import Changes
from dayfly.server.api.overview import OverviewApi
from dayfly.server.api.pool_metrics import PoolMetrics
from dayfly.server.api.reports import Reports
from dayfly.server.api.routing_rules import RoutingRulesApi
from dayfly.server.api.usage_api import UsageApi
from dayfly.server.catalog.baseline_api import BaselineApi
from dayfly.server.catalog.baselines import LocalBaselines
from dayfly.server.catalog.plugins import PluginApi
from dayfly.server.events.cloud_event_publisher import CloudEventPublisher, EventReceiver
from dayfly.server.http import tls
from dayfly.server.http.auth_middleware import AuthMiddleware, Secure
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import refuse
from dayfly.server.http.rate_limit import RateLimit
from dayfly.server.http.route_table import API, describe_unsupported
from dayfly.server.http.shared_slots import CALLERS_SHARE, LongPollSlots
from dayfly.server.http.tls import CertificateReloader
from dayfly.server.leaks.leak_check_api import LeakCheckApi
from dayfly.server.leaks.leak_sync import LeakSync
from dayfly.server.records.run_records import read_entries
from dayfly.server.runs.agent_sessions import AgentSessions, SessionKeys
from dayfly.server.runs.group_strategy import GroupStrategy
from dayfly.server.runs.group_sweep import GroupSweep
from dayfly.server.runs.pool_endpoints import PoolEndpoints
from dayfly.server.runs.pool_strategy import PoolStrategy
from dayfly.server.runs.reset_endpoint import ResetEndpoint
from dayfly.server.runs.run_secrets import SecretStores
from dayfly.server.runs.run_service import RunService
from dayfly.server.runs.sandbox_strategy import SandboxStrategy
from dayfly.server.runs.session_sweep import SessionSweep
from dayfly.server.sync.agents.agent_api import AgentApi
from dayfly.server.sync.agents.agent_service import AgentService
from dayfly.server.sync.host_sync import HostSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from dayfly.lib.tasks import ChangeNotifier
    from dayfly.link.transport import HostTransport
    from dayfly.server.access.callers import Keys
    from dayfly.server.catalog.baselines import BaselineHost
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.http.tls import Certificate
    from dayfly.server.runs.run_secrets import SecretStore

COLLECTIONS = "orgs, keys, clusters, resource-plugins, resourcepools, leakchecks, workloads, sandboxes and routegroups"


def create_app(
    store: Store,
    hosts: Mapping[str, HostTransport],
    *,
    org: str = LOCAL,
    keys: Keys | None = None,
    version: str,
    loopback: bool = True,
    tls: bool = False,
    rate: float | RateLimit = 0,
    agents: AgentService | None = None,
    receiver: EventReceiver | None = None,
    secret_stores: Mapping[str, SecretStore] = {},
    baseline_hosts: Collection[BaselineHost] = (),
) -> Starlette:
    """Create the application.

    Args:
        store: The open store. The caller closes it after the application has stopped.
        hosts: The local hosts by cluster. A host may serve several clusters.
        org: The organisation of the local hosts.
        keys: Further keys that are not in the store.
        version: The version of the server.
        loopback: Whether it only listens on loopback. Then requests with another host name are refused.
        tls: Whether it uses TLS.
        rate: Requests per second of each key, or the limiter itself; 0 for no limit. Requests above it wait.
        agents: The mailboxes of clusters with agents; by default new ones.
        receiver: The receiver of CloudEvents.
        secret_stores: The secret stores of local hosts by cluster. Ignored without `loopback`.
        baseline_hosts: The local hosts whose forks derive from declared baselines.
    """
    closing, local = asyncio.Event(), LocalBaselines(store, org, baseline_hosts)
    secrets = SecretStores(store, org, secret_stores if loopback else {})
    services = _Services(
        store, _create_links(org, hosts, store.notifier), agents or AgentService(store), secrets, receiver
    )
    publisher = services.create_publisher(receiver) if receiver else None
    clusters = Clusters(store, {org: hosts}, version)
    stored_keys = StoredKeys(store)
    all_keys = FirstMatch(*([keys] if keys else []), stored_keys, SessionKeys(store, stored_keys))
    sessions = PageSessions(store, all_keys, tls=tls)
    routes = [
        *sessions.routes(),
        *clusters.routes(),
        *_stored_object_routes(store, local),
        *services.routes(closing),
        *_page_routes(),
    ]
    auth = Middleware(
        AuthMiddleware,
        keys=all_keys,
        sessions=sessions,
        loopback=loopback,
        rate=_create_rate_limit(rate, closing),
        read_change_marker=store.read_change_marker,
    )
    app = _starlette(routes, auth, lambda _app: services.background_tasks(local, publisher), tls=tls)
    app.state.closing, app.state.sync, app.state.clusters, app.state.org = closing, services.sync, clusters, org
    app.state.secrets, app.state.baselines = secrets, local
    return app


class _Services:
    """The services for sandboxes, route groups and resource pools, and their synchronisation with hosts."""

    def __init__(
        self,
        store: Store,
        links: Links,
        agents: AgentService,
        secrets: SecretStores,
        receiver: EventReceiver | None,
    ) -> None:
        self._store, self._links, self._agents = store, links, agents
        agents.set_links(links)
        self.sync = HostSync(store, links)
        self._sandboxes = RunService(store, links, self.sync, SandboxStrategy(store, links, self.sync, secrets))
        self._strategy = GroupStrategy(store, links, self.sync)
        self._groups = RunService(store, links, self.sync, self._strategy)
        self._pools = RunService(store, links, self.sync, PoolStrategy(store, links, self.sync))
        self._session_sweep = SessionSweep(store, self._sandboxes)
        self._leak_sync = LeakSync(store, links, receiver)
        self._sweep = GroupSweep(store, links, self.sync, self._groups, self._strategy)

    def create_publisher(self, receiver: EventReceiver) -> CloudEventPublisher:
        """Return the publisher of events about these sandboxes and pools."""
        return CloudEventPublisher(self._store, self._links, self.sync, self._sandboxes, self._pools, receiver)

    def routes(self, closing: asyncio.Event) -> Iterator[Route]:
        """Return the HTTP routes."""
        store, links, services = self._store, self._links, (self._sandboxes, self._groups)
        yield from RoutingRulesApi(store, links, self.sync).routes()
        yield from OverviewApi(store, links, *services, self._pools, self._strategy, self.sync.problem).routes()
        yield from Changes(store, links, *services, self._pools, self._strategy, closing).routes()
        slots = LongPollSlots(CALLERS_SHARE)
        yield from PoolEndpoints(store, self.sync, self._pools).routes()
        yield from PoolMetrics(store, self._pools).routes()
        yield from LeakCheckApi(store, links, self._leak_sync).routes()
        yield from ResetEndpoint(store, self.sync, self._sandboxes).routes()
        for service in (*services, self._pools):
            yield from service.routes()
            yield from Reports(store, links, service, closing, slots).routes()
        yield from UsageApi(store).routes()
        yield from AgentApi(self._agents).routes()

    @contextlib.asynccontextmanager
    async def background_tasks(
        self, local: LocalBaselines, publisher: CloudEventPublisher | None
    ) -> AsyncIterator[None]:
        """Run the background tasks while requests are served."""
        await self._agents.load_mailboxes()
        works = {"sync": self.sync.run(), "baselines": local.run()}
        works |= {"groups": self._sweep.run(), "agents": self._agents.run()}
        works |= {"agent sessions": self._session_sweep.run(), "leak checks": self._leak_sync.run()}
        works |= {"events": publisher.run()} if publisher else {}
        tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
        try:
            yield
        finally:
            await cancel_and_wait(*tasks)


def _starlette(routes: list[Route], auth: Middleware, lifespan: Callable[[Starlette], Any], *, tls: bool) -> Starlette:
    """Return the application, with the API's error format for exceptions and unknown paths."""
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Secure), auth] if tls else [auth],
        exception_handlers={Exception: _handle_exception},
        lifespan=lifespan,
    )
    app.router.default = NotFoundApp()  # the pattern of the last route does not match paths with a newline
    return app


async def _handle_exception(_request: Request, fault: Exception) -> Response:
    """Answer an exception outside of all handlers."""
    return refuse(fault)


def _create_rate_limit(rate: float | RateLimit, closing: asyncio.Event) -> RateLimit | None:
    """Return the rate limit. When the server closes, requests stop waiting and are answered."""

    async def pause(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await closing.wait()

    return (RateLimit(rate, pause=pause) if rate else None) if isinstance(rate, int | float) else rate


def _create_links(org: str, hosts: Mapping[str, HostTransport], notifier: ChangeNotifier) -> Links:
    """Return the links to local hosts."""
    links = Links(notifier)
    links.add(org, hosts)
    return links


def _stored_object_routes(store: Store, local: LocalBaselines) -> Iterator[Route]:
    """Return the routes of objects without runs."""
    for each in (ApiKeys(store), AgentSessions(store), Audit(store), PluginApi(store), BaselineApi(store, local)):
        yield from each.routes()


def _page_routes() -> Iterator[Route]:
    """Return the routes of the page's files, of redirects to them, and of all unknown paths."""
    page = files.PageFiles()
    yield Route("/", _Root())
    for prefix in ("", files.AT):  # clients may use either as the address of the dashboard
        yield Route(prefix + files.DASHBOARD + "/{name}", _SandboxLink())
    yield Route(files.AT, page)
    yield Route(files.AT + "/{path:path}", page)
    yield Route("/{path:path}", NotFoundApp())


async def read_used_clusters(store: Store, org: str) -> set[str]:
    """Return the clusters without an agent that stored sandboxes, groups and pools name; a local host must serve them.

    Raises:
        StoreError: the store cannot be read.
    """

    def work(rows: Rows) -> set[str]:
        return {each.cluster for each in read_entries(rows)} - names_of_agent_clusters(rows)

    return await store.for_org(org).read(work)


async def prepare(app: Starlette) -> None:
    """Store the clusters of local hosts, send them the stored baselines, and delete secrets without a sandbox.

    Local hosts need this before they start to work. Further calls do nothing.

    Raises:
        StoreError: the store cannot be read or written.
    """
    clusters: Clusters = app.state.clusters
    await clusters.list_known(app.state.org)
    local: LocalBaselines = app.state.baselines
    await local.catch_up()
    secrets: SecretStores = app.state.secrets
    await secrets.delete_orphans()


async def serve(
    app: Starlette,
    sockets: list[socket.socket],
    *,
    stop: asyncio.Event | None = None,
    certificate: Certificate | None = None,
) -> None:
    """Serve an application of `create_app` until `stop` is set or this task is cancelled; then stop gracefully.

    The caller handles signals. The sockets are bound and listening; they are closed at the end.
    """
    context = tls.create_context(certificate) if certificate else None
    async with contextlib.AsyncExitStack() as stack:
        if context and certificate:
            await stack.enter_async_context(background(CertificateReloader(context, certificate).run(), "certificate"))
        ending = app.state.closing.set
        await http_server.serve(app, sockets, stop=stop or asyncio.Event(), ending=ending, lifespan="on", tls=context)


class _Root:
    """Redirects browsers from `/` to the page."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (files.redirect_to_page if files.accepts_html(Request(scope)) else NotFoundApp())(scope, receive, send)


class _SandboxLink:
    """Redirects to the page from the sandbox URL that Signadot's command line prints."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["method"] in ("GET", "HEAD")
        await (files.redirect_to_sandbox if is_read else NotFoundApp())(scope, receive, send)


class NotFoundApp:
    """Answers all unknown paths with an error."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if what := describe_unsupported(scope["path"]):
            fault = RequestError(501, f"Dayfly has no {what}; this server has {COLLECTIONS}")
        else:
            text = f"no such address: {scope['method']} {scope['path']}; this server has {COLLECTIONS} under {API}"
            fault = RequestError(404, text)
        await refuse(fault)(scope, receive, send)
