"""The REST API as one ASGI application, and how it is served."""

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
from dayfly.lib.tasks import background, cancel
from dayfly.link.server_end import Links
from dayfly.page import files
from dayfly.server.access.callers import LOCAL, First
from dayfly.server.admin.audit import Audit
from dayfly.server.admin.clusters import Clusters
from dayfly.server.admin.clusters import names as for_agents
from dayfly.server.admin.keys import ApiKeys, StoredKeys
from dayfly.server.admin.page_sessions import PageSessions
from dayfly.server.api.changes import Changes
from dayfly.server.api.overview import OverviewApi
from dayfly.server.api.reports import Reports
from dayfly.server.api.routing_rules import RoutingRulesApi
from dayfly.server.catalog.baseline_api import Workloads
from dayfly.server.catalog.baselines import LocalBaselines
from dayfly.server.catalog.plugins import PluginApi
from dayfly.server.events.cloud_event_publisher import CloudEventPublisher, EventReceiver
from dayfly.server.http import tls
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import AuthMiddleware, Secure, refuse
from dayfly.server.http.long_poll_slots import CALLERS_SHARE, LongPollSlots
from dayfly.server.http.rate_limit import Rate
from dayfly.server.http.route_table import API
from dayfly.server.http.tls import Renewal
from dayfly.server.http.unsupported_routes import foreign
from dayfly.server.records.run_records import read_entries
from dayfly.server.runs.group_strategy import GroupStrategy
from dayfly.server.runs.group_sweep import GroupSweep
from dayfly.server.runs.run_secrets import SecretStores
from dayfly.server.runs.run_service import RunService
from dayfly.server.runs.sandbox_strategy import SandboxStrategy
from dayfly.server.sync.agents.agents import Agents
from dayfly.server.sync.host_sync import HostSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from dayfly.lib.tasks import ChangeNotifier
    from dayfly.link.transport import HostTransport
    from dayfly.server.access.callers import Keys
    from dayfly.server.catalog.baselines import BaselineHost
    from dayfly.server.db.store import Store
    from dayfly.server.http.tls import Certificate
    from dayfly.server.runs.run_secrets import SecretStore

FAMILIES = "orgs, keys, clusters, resource-plugins, workloads, sandboxes and routegroups"
# Requests end by themselves when the server closes; this is for one that does not.


def create_app(
    store: Store,
    hosts: Mapping[str, HostTransport],
    *,
    org: str = LOCAL,
    keys: Keys | None = None,
    version: str,
    loopback: bool = True,
    tls: bool = False,
    rate: float | Rate = 0,
    agents: Agents | None = None,
    receiver: EventReceiver | None = None,
    secret_stores: Mapping[str, SecretStore] = {},
    baseline_hosts: Collection[BaselineHost] = (),
) -> Starlette:
    """The API over a store and the hosts that do the work.

    Args:
        store: Open; it stays the caller's, who closes it after the application has stopped.
        hosts: The way to each of the server's own, by the name of the cluster that it serves; one may serve several.
        org: Whose these hosts are.
        keys: Knows keys beside those that the store holds.
        version: Of this server, for those who ask.
        loopback: Whether it listens on loopback alone; then requests that call it by another name are refused.
        tls: Whether it is served by TLS.
        rate: How many requests a second each key may make, beyond which they wait; 0 for any number.
        agents: The way to hosts that dial in, if another one than usual.
        receiver: Who is sent CloudEvents.
        baseline_hosts: Those of the server's own hosts whose forks derive from baselines that are declared here.
        secret_stores: Where hosts keep secrets, by the names of their clusters; only for a server on loopback.
    """
    agents = agents or Agents(store)
    links = _linked(org, hosts, agents, store.notifier)
    sync = HostSync(store, links)
    closing, local = asyncio.Event(), LocalBaselines(store, org, baseline_hosts)
    kept = SecretStores(store, org, secret_stores if loopback else {})
    sandboxes = RunService(store, links, sync, SandboxStrategy(store, links, sync, kept))
    strategy = GroupStrategy(store, links, sync)
    groups = RunService(store, links, sync, strategy)
    sweep = GroupSweep(store, links, sync, groups, strategy)
    publisher = CloudEventPublisher(store, links, sync, sandboxes, receiver) if receiver else None
    clusters = Clusters(store, {org: hosts}, version)
    known = First(keys, StoredKeys(store)) if keys else StoredKeys(store)
    sessions = PageSessions(store, known, tls=tls)
    routes = [
        *sessions.routes(),
        *clusters.routes(),
        *_kept_routes(store, local),
        *RoutingRulesApi(store, links, sync).routes(),
        *OverviewApi(store, links, sandboxes, groups, strategy).routes(),
        *Changes(store, links, sandboxes, groups, strategy, closing).routes(),
        *_run_routes(store, links, (sandboxes, groups), closing),
        *agents.routes(),
        *_page_routes(),
    ]
    bound = _bound(rate, closing)
    auth = Middleware(AuthMiddleware, keys=known, sessions=sessions, loopback=loopback, rate=bound, mark=store.mark)
    app = _starlette(routes, auth, lambda _app: _at_work(agents, sync, local, sweep, publisher), tls=tls)
    app.state.closing, app.state.sync, app.state.clusters, app.state.org = closing, sync, clusters, org
    app.state.secrets, app.state.baselines = kept, local
    return app


def _starlette(routes: list[Route], auth: Middleware, lifespan: Callable[[Starlette], Any], *, tls: bool) -> Starlette:
    """Return the application, which answers errors and unknown addresses in the shape of the API."""
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Secure), auth] if tls else [auth],
        exception_handlers={Exception: _refused},
        lifespan=lifespan,
    )
    app.router.default = Nowhere()  # no pattern of a route has a line's end in it
    return app


async def _refused(_request: Request, fault: Exception) -> Response:
    """The answer to a fault outside of all handlers."""
    return refuse(fault)


def _bound(rate: float | Rate, closing: asyncio.Event) -> Rate | None:
    """The limit of requests; none waits for it once the server closes."""

    async def pause(seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await closing.wait()

    return (Rate(rate, pause=pause) if rate else None) if isinstance(rate, int | float) else rate


def _linked(org: str, hosts: Mapping[str, HostTransport], agents: Agents, notifier: ChangeNotifier) -> Links:
    """The ways to hosts of this process, and to those that dial in."""
    links = Links(notifier)
    links.add(org, hosts)
    agents.join(links)
    return links


def _kept_routes(store: Store, local: LocalBaselines) -> Iterator[Route]:
    """Of what an organisation has beside what lives."""
    for each in (ApiKeys(store), Audit(store), PluginApi(store), Workloads(store, local)):
        yield from each.routes()


def _run_routes(
    store: Store, links: Links, services: Iterable[RunService[Any]], closing: asyncio.Event
) -> Iterator[Route]:
    """Of sandboxes and route groups, and their reports."""
    slots = LongPollSlots(CALLERS_SHARE)
    for service in services:
        yield from service.routes()
        yield from Reports(store, links, service, closing, slots).routes()


def _page_routes() -> Iterator[Route]:
    """The page's files, the way to them, and what answers at every other address."""
    page = files.PageFiles()
    yield Route("/", _Door())
    for start in ("", files.AT):  # with either as the address of the dashboard
        yield Route(start + files.DASHBOARD + "/{name}", _Link())
    yield Route(files.AT, page)
    yield Route(files.AT + "/{path:path}", page)
    yield Route("/{path:path}", Nowhere())


@contextlib.asynccontextmanager
async def _at_work(
    agents: Agents, sync: HostSync, local: LocalBaselines, sweep: GroupSweep, publisher: CloudEventPublisher | None
) -> AsyncIterator[None]:
    """What goes on beside requests, as long as they are served."""
    await agents.begin()
    works = {"sync": sync.run(), "baselines": local.run(), "groups": sweep.run(), "agents": agents.run()}
    works |= {"events": publisher.run()} if publisher else {}
    keeping = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        yield
    finally:
        await cancel(*keeping)


async def inhabited_clusters(store: Store, org: str) -> set[str]:
    """The clusters of the sandboxes and groups that the store holds: somebody has to serve them.

    Not those that were added for an agent: they are served, or wait, and what runs there is unknown to anybody else.

    Raises:
        StoreError: the store cannot be read.
    """
    return await store.of(org).read(lambda rows: {each.cluster for each in read_entries(rows)} - for_agents(rows))


async def prepare(app: Starlette) -> None:
    """Write down which clusters there are, and hand the stored baselines to the hosts of `create_app`'s application.

    Secrets of sandboxes that were never written are forgotten.

    For a host that wants to know what its forks derive from before it begins to work; a later call has nothing to do.

    Raises:
        StoreError: the store cannot be read or written.
    """
    clusters: Clusters = app.state.clusters
    await clusters.known(app.state.org)
    local: LocalBaselines = app.state.baselines
    await local.catch_up()
    secrets: SecretStores = app.state.secrets
    await secrets.drop_unwished()


async def serve(
    app: Starlette,
    sockets: list[socket.socket],
    *,
    stop: asyncio.Event | None = None,
    certificate: Certificate | None = None,
) -> None:
    """Serve an application of `create_app` until `stop` is set, or this task is cancelled; then end gracefully.

    Signals are the caller's business. The sockets are bound and listening; they are closed at the end.
    """
    context = tls.context(certificate) if certificate else None
    async with contextlib.AsyncExitStack() as stack:
        if context and certificate:
            await stack.enter_async_context(background(Renewal(context, certificate).run(), "certificate"))
        ending = app.state.closing.set
        await http_server.serve(app, sockets, stop=stop or asyncio.Event(), ending=ending, lifespan="on", tls=context)


class _Door:
    """`/`: browsers are led to the page."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (files.lead if files.shows_pages(Request(scope)) else Nowhere())(scope, receive, send)


class _Link:
    """A link to a sandbox, as Signadot's command line prints it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["method"] in ("GET", "HEAD")
        await (files.lead_to_sandbox if is_read else Nowhere())(scope, receive, send)


class Nowhere:
    """Answers at every address that nobody else has."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if what := foreign(scope["path"]):
            fault = RequestError(501, f"Dayfly has no {what}; this server has {FAMILIES}")
        else:
            text = f"no such address: {scope['method']} {scope['path']}; this server has {FAMILIES} under {API}"
            fault = RequestError(404, text)
        await refuse(fault)(scope, receive, send)
