"""`dayfly up`: run the server and the host of one home in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import CLUSTER, ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.local import server_process, temporary_server
from dayfly.cli.local.server_process import listen_on
from dayfly.cli.output import show
from dayfly.client.address import ORGANISATION, Address
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from starlette.applications import Starlette

    from dayfly.client.files import LoadedDocument
    from dayfly.execute.tracing import Tracer
    from dayfly.link.transport import HostTransport
    from dayfly.server.catalog.baselines import BaselineHost
    from dayfly.server.db.store import Store
    from dayfly.server.events.cloud_event_publisher import EventReceiver
    from dayfly.server.runs.run_secrets import SecretStore
    from dayfly.spec.routing.routing_keys import Forms

_ADDRESS = "127.0.0.1"
_PORT = 7850
MAX_CLUSTER_NAME_BYTES = 255


class _UpOptions(NamedTuple):
    """The options of the server."""

    home: Home
    key: str
    runner: str
    parallel: int
    engine: str
    baselines: list[LoadedDocument]
    clusters: tuple[str, ...]
    webhooks: frozenset[str]
    receiver: EventReceiver | None
    tracer: Tracer | None
    proxy: str
    forms: Forms
    while_used: bool


@verb("up")
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="0 takes a free one.")
@click.option("-d", "--detach", is_flag=True, help="Return when it answers; it keeps running in the background.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="The maximum number of concurrent steps.",
)
@click.option(
    "--engine",
    type=click.Choice(["process", "podman", "docker"]),
    default="process",
    show_default=True,
    help="Run steps as processes of this machine, or in containers of their images.",
)
@options.file_option("--baseline", "baselines", help="Declare the baselines in this file. Repeatable.")
@click.option("--cluster", "clusters", multiple=True, metavar="NAME", help="Also serve this cluster name. Repeatable.")
@options.allow_webhook
@options.events_to(of="sandboxes")
@click.option("--routing", is_flag=True, help="Route requests to forks by their routing key. Needs Envoy.")
@click.option(
    "--routing-header", "headers", multiple=True, metavar="NAME", help="Another header that may contain a routing key."
)
@click.option(
    "--routing-query", "query", default="", metavar="NAME", help="A query parameter that may contain a routing key."
)
@click.option("--while-used", is_flag=True, hidden=True, help="Stop when no process uses it and no sandbox exists.")
@click.option("--background", is_flag=True, hidden=True, help="Return when it answers, without a parent process.")
def command(
    port: int,
    detach: bool,
    parallel: int,
    engine: str,
    baselines: tuple[str, ...],
    clusters: tuple[str, ...],
    webhooks: tuple[str, ...],
    events_to: str | None,
    routing: bool,
    headers: tuple[str, ...],
    query: str,
    *,
    while_used: bool,
    background: bool,
) -> None:
    """Run the server of this home: the API on 127.0.0.1, and the engine that runs steps on this machine.

    The server stays in the foreground until Ctrl-C or `dayfly down`. Running steps then continue, and the next server
    takes them over.

    A sandbox names its cluster. This machine serves the cluster `local`, each --cluster, and the clusters of the
    sandboxes that it already has.
    """
    installed.require_linux()
    home = Home.find()
    _check_cluster_names(clusters)
    servers = options.parse_webhook_servers(webhooks)
    receiver = _receiver(events_to, servers, home)
    forms, proxy = options.parse_routing_forms(headers, query), _proxy(routing=routing)
    declared = _baselines(baselines)
    containers = _containers(engine)
    if detach:
        words = ["--port", str(port), "--parallel", str(parallel), "--engine", engine]
        words += [*_host_options(clusters, servers, events_to), *_routing_options(forms, routing=routing)]
        _detach(home, [*words, *(["--while-used"] if while_used else [])], baselines, declared)
        return
    _check_free(home)
    # A fork comes before anything starts a thread.
    report_ready = server_process.continue_in_background() if background else lambda: None
    from dayfly.execute import tracing

    server_process.log_warnings()
    settings = _UpOptions(
        home=home,
        key=home.make_key(),
        runner=installed.find_runner(),
        parallel=parallel,
        engine=containers,
        baselines=declared,
        clusters=clusters,
        webhooks=servers,
        receiver=receiver,
        tracer=tracing.from_environment(os.environ, installed.install_advice("otel")),
        proxy=proxy,
        forms=forms,
        while_used=while_used,
    )
    advice = "choose another with --port N, or any free one with --port 0"
    with listen_on(_ADDRESS, port, advice, called=f"port {port}") as sock:
        asyncio.run(_serve(settings, sock, report_ready))


def _check_cluster_names(clusters: tuple[str, ...]) -> None:
    for name in clusters:
        if not 0 < len(name.encode()) <= MAX_CLUSTER_NAME_BYTES or not name.isprintable():
            message = f"{name!r} is not a valid name for a cluster"
            raise DayflyError(Exit.USAGE, message, "use the name in the sandbox's file")


def _host_options(clusters: tuple[str, ...], webhooks: frozenset[str], events_to: str | None) -> list[str]:
    """Return the options that give another `dayfly up` the same clusters, webhook servers and event receiver."""
    words = [f"--cluster={name}" for name in clusters]
    words += [f"--allow-webhook={each}" for each in sorted(webhooks)]
    return [*words, *([f"--events-to={events_to}"] if events_to else [])]


def _routing_options(forms: Forms, *, routing: bool) -> list[str]:
    """Return the options that give another `dayfly up` the same routing."""
    headers = [f"--routing-header={each}" for each in forms.headers]
    return [*headers, "--routing-query", forms.query, *(["--routing"] if routing else [])]


def _detach(home: Home, words: list[str], baselines: tuple[str, ...], declared: list[LoadedDocument]) -> None:
    """Start the server as a separate process, which also declares the baselines. A running server stays as it is."""
    from dayfly.client.files import STANDARD_INPUT

    if (pid := home.server_process()) is not None:
        show.print_message(f"dayfly is already up at {home.read(home.url)} (process {pid}); its options are unchanged")
        return
    named = [each for each in baselines if each != STANDARD_INPUT and (Path(each).is_file() or Path(each).is_dir())]
    files = [word for name in named for word in ("--baseline", str(Path(name).absolute()))]
    client = server_process.start(home, [*words, *files])
    if len(named) < len(baselines):  # another process cannot read standard input or a pipe again
        _declare(client.address, declared)
    show.print_message(f"dayfly is up at {client.address.url} (process {home.server_process()}, log {home.log})")


def _check_free(home: Home) -> None:
    if (pid := home.server_process()) is not None:
        message = f"a server (process {pid}) is already running in {home.path}"
        raise DayflyError(Exit.FAILED, message, "stop it with: dayfly down, or choose another DAYFLY_HOME")


async def _serve(settings: _UpOptions, sock: socket.socket, report_ready: Callable[[], None]) -> None:
    from dayfly.embedded.host import EmbeddedHost
    from dayfly.embedded.ledger import LedgerError
    from dayfly.embedded.startup import HomeBusyError
    from dayfly.execute.state.handler import serve as serve_states
    from dayfly.server import app as control
    from dayfly.server.db.store import Store, StoreError

    stop = server_process.stop_on_signals()
    try:
        host = await EmbeddedHost.open(
            settings.home.path,
            runner=settings.runner,
            parallel=settings.parallel,
            engine=settings.engine,
            webhooks=settings.webhooks,
            serve=serve_states,
            proxy=settings.proxy,
            forms=settings.forms,
            tracer=settings.tracer,
        )
    except HomeBusyError as fault:
        raise DayflyError(Exit.FAILED, str(fault)) from None
    except LedgerError as fault:
        raise DayflyError(Exit.FAILED, f"the ledger of {settings.home.path} cannot be used: {fault}") from None
    try:
        store = Store.open(settings.home.store)
        try:
            names = {CLUSTER, *settings.clusters, *await control.read_used_clusters(store, ORGANISATION)}
            hosts = dict.fromkeys(sorted(names), host.end)
            app = _application(settings, store, hosts, dict.fromkeys(names, host.secrets), host)
            await control.prepare(app)
            host.start()
            serving = asyncio.create_task(control.serve(app, [sock], stop=stop))
            try:
                with _publish_url(settings.home, f"http://{_ADDRESS}:{sock.getsockname()[1]}") as url:
                    await asyncio.to_thread(_declare, Address(url, settings.key), settings.baselines)
                    show.print_message(
                        f"dayfly is up at {url} (process {os.getpid()}, home {settings.home.path}); Ctrl-C stops it"
                    )
                    report_ready()
                    async with _stop_when_unused(settings, store, stop):
                        await serving
            finally:
                stop.set()
                await serving
        finally:
            store.close()
    except StoreError as fault:
        raise DayflyError(Exit.FAILED, str(fault)) from None
    finally:
        await host.close()
        if settings.tracer is not None:
            await asyncio.to_thread(settings.tracer.close)


@contextlib.asynccontextmanager
async def _stop_when_unused(settings: _UpOptions, store: Store, stop: asyncio.Event) -> AsyncIterator[None]:
    """With `--while-used`, stop the server once no command uses it and no sandbox exists."""
    from dayfly.server import app as control
    from dayfly.server.db.store import StoreError

    async def is_idle() -> bool:
        try:
            return not await control.read_used_clusters(store, ORGANISATION)
        except StoreError:  # unknown, as on a full disk: the next poll may find out
            return False

    if not settings.while_used:
        yield
        return
    watching = asyncio.create_task(temporary_server.stop_when_unused(settings.home, is_idle, stop))
    try:
        yield
    finally:
        watching.cancel()


def _application(
    settings: _UpOptions,
    store: Store,
    hosts: Mapping[str, HostTransport],
    secrets: Mapping[str, SecretStore],
    baselines: BaselineHost,
) -> Starlette:
    """Return the REST API."""
    from dayfly import __version__
    from dayfly.server import app as control
    from dayfly.server.access.callers import single_key

    return control.create_app(
        store,
        hosts,
        org=ORGANISATION,
        keys=single_key(settings.key, name=_user_name()),
        version=__version__,
        receiver=settings.receiver,
        secret_stores=secrets,
        baseline_hosts=(baselines,),
    )


def _user_name() -> str:
    """Return the name of the local user; a container may have users without one."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _receiver(url: str | None, allowed: frozenset[str], home: Home) -> EventReceiver | None:
    if not url:
        return None
    from dayfly.cli import event_receiver

    return event_receiver.build_receiver(url, allowed, f"urn:dayfly:{socket.gethostname()}:{home.path}")


def _proxy(*, routing: bool) -> str:
    """Return the path of Envoy; empty without `--routing`."""
    if not routing:
        return ""
    from dayfly.embedded.routes import envoy

    program = envoy.find_envoy()
    if not program:
        raise DayflyError(Exit.FAILED, "no Envoy is installed", installed.install_advice("routing"))
    return program


def _containers(engine: str) -> str:
    """Return the path of the container engine; empty if steps are processes."""
    if engine == "process":
        return ""
    program = shutil.which(engine)
    if program is None:
        raise DayflyError(Exit.FAILED, f"{engine} is not installed", "install it, or start without --engine")
    return program


def _baselines(files: tuple[str, ...]) -> list[LoadedDocument]:
    if not files:
        return []
    from dayfly.client import files as reading

    found = reading.load(files, ())
    for wished in found:
        if wished.kind != "baseline":
            raise wished.document.error(f"is a {wished.kind}, not a baseline; apply it with: {wished.apply_command}")
    return found


def _declare(address: Address, baselines: list[LoadedDocument]) -> None:
    if not baselines:
        return
    from dayfly.cli import apply_spec

    client = ServerClient(address)
    for wished in baselines:
        apply_spec.apply_one(client, wished)
    client.close()


@contextlib.contextmanager
def _publish_url(home: Home, url: str) -> Iterator[str]:
    """Store the URL in the home while the context lasts."""
    fresh = home.url.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_text(url + "\n", encoding="utf-8")
        fresh.replace(home.url)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    try:
        yield url
    finally:
        home.url.unlink(missing_ok=True)
