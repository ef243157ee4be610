"""`dayfly up`: server and host of one home in one process. This file only puts them together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import CLUSTER, ServerClient
from dayfly.cli.local import server_process, temporary_server
from dayfly.cli.local.server_process import listening
from dayfly.cli.output import show
from dayfly.client.address import ORGANISATION, Address
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from starlette.applications import Starlette

    from dayfly.client.files import Wished
    from dayfly.execute.tracing import Tracer
    from dayfly.link.transport import HostTransport
    from dayfly.server.catalog.baselines import BaselineHost
    from dayfly.server.db.store import Store
    from dayfly.server.events.cloud_event_publisher import EventReceiver
    from dayfly.server.runs.run_secrets import SecretStore
    from dayfly.spec.routing.routing_keys import Forms

_ADDRESS = "127.0.0.1"
_PORT = 7850
LONGEST_CLUSTER = 255


class _UpOptions(NamedTuple):
    """What the command line asks of a server."""

    home: Home
    key: str
    runner: str
    parallel: int
    engine: str
    baselines: list[Wished]
    clusters: tuple[str, ...]
    webhooks: frozenset[str]
    receiver: EventReceiver | None
    tracer: Tracer | None
    proxy: str
    forms: Forms
    while_used: bool


@click.command("up")
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="0 takes a free one.")
@click.option("--detach", is_flag=True, help="Return once it answers; it keeps running in the background.")
@click.option(
    "--parallel", type=click.IntRange(1, 1024), default=16, show_default=True, help="The most steps to run at once."
)
@click.option(
    "--engine",
    type=click.Choice(["process", "podman", "docker"]),
    default="process",
    show_default=True,
    help="Run steps as processes of this machine, or in containers of their images.",
)
@options.a_file("--baseline", "baselines", help="Declare the baselines in this file. Repeatable.")
@click.option("--cluster", "clusters", multiple=True, metavar="NAME", help="Also serve as this cluster. Repeatable.")
@options.allow_webhook
@options.events_to(of="sandboxes")
@click.option("--routing", is_flag=True, help="Route requests to forks by their routing key. Needs Envoy.")
@click.option(
    "--routing-header", "headers", multiple=True, metavar="NAME", help="Another header that may hold a routing key."
)
@click.option(
    "--routing-query", "query", default="", metavar="NAME", help="A query parameter that may hold a routing key."
)
@click.option("--while-used", is_flag=True, hidden=True, help="End once no process uses it and no sandbox is left.")
@click.option("--background", is_flag=True, hidden=True, help="Return once it answers, as a child of no process.")
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

    It stays in the foreground until Ctrl-C or `dayfly down`. Running steps then continue, and the next server takes
    them over.

    A sandbox names the cluster that it is for. This machine serves as `local`, as each --cluster, and as the clusters
    of the sandboxes that it already has.
    """
    home = Home.find()
    if wrong := [name for name in clusters if not 0 < len(name.encode()) <= LONGEST_CLUSTER or not name.isprintable()]:
        message = f"{wrong[0]!r} is not the name of a cluster"
        raise DayflyError(Exit.USAGE, message, "write it as the sandbox's file does")
    servers = options.webhook_servers(webhooks)
    receiver = _receiver(events_to, servers, home)
    forms, proxy = _forms(headers, query), _proxy(routing=routing)
    declared = _baselines(baselines)
    containers = _containers(engine)
    _check_free(home)
    if detach:
        words = ["--port", str(port), "--parallel", str(parallel), "--engine", engine]
        words += [*_host_options(clusters, servers, events_to), *_routing_options(forms, routing=routing)]
        _detach(home, [*words, *(["--while-used"] if while_used else [])], baselines, declared)
        return
    report_ready = server_process.fork() if background else lambda: None  # before anything starts a thread
    from dayfly.execute import tracing

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    wish = _UpOptions(
        home=home,
        key=home.make_key(),
        runner=installed.find_runner(),
        parallel=parallel,
        engine=containers,
        baselines=declared,
        clusters=clusters,
        webhooks=servers,
        receiver=receiver,
        tracer=tracing.from_environment(os.environ, installed.part("otel")),
        proxy=proxy,
        forms=forms,
        while_used=while_used,
    )
    advice = "choose another with --port N, or any free one with --port 0"
    with listening(_ADDRESS, port, advice, called=f"port {port}") as sock:
        asyncio.run(_serve(wish, sock, report_ready))


def _host_options(clusters: tuple[str, ...], webhooks: frozenset[str], events_to: str | None) -> list[str]:
    """Return the options that give another `dayfly up` the same clusters, webhook servers and event receiver."""
    words = [f"--cluster={name}" for name in clusters]
    words += [f"--allow-webhook={each}" for each in sorted(webhooks)]
    return [*words, *([f"--events-to={events_to}"] if events_to else [])]


def _routing_options(forms: Forms, *, routing: bool) -> list[str]:
    """Return the options that give another `dayfly up` the same routing."""
    headers = [f"--routing-header={each}" for each in forms.headers]
    return [*headers, "--routing-query", forms.query, *(["--routing"] if routing else [])]


def _detach(home: Home, words: list[str], baselines: tuple[str, ...], declared: list[Wished]) -> None:
    """Start it with these words as a process of its own, which declares what is in files as well."""
    from dayfly.client.files import STANDARD_INPUT

    named = [each for each in baselines if each != STANDARD_INPUT and (Path(each).is_file() or Path(each).is_dir())]
    files = [word for name in named for word in ("--baseline", str(Path(name).absolute()))]
    client = server_process.start(home, [*words, *files])
    if len(named) < len(baselines):  # no process can read standard input or a pipe again
        _declare(client.address, declared)
    show.talk(f"dayfly is up at {client.address.url} (process {home.server_process()}, log {home.log})")


def _check_free(home: Home) -> None:
    if (pid := home.server_process()) is not None:
        message = f"a server (process {pid}) is already running in {home.path}"
        raise DayflyError(Exit.FAILED, message, "stop it with: dayfly down, or choose another DAYFLY_HOME")


async def _serve(wish: _UpOptions, sock: socket.socket, report_ready: Callable[[], None]) -> None:
    from dayfly.embedded.host import EmbeddedHost
    from dayfly.embedded.ledger import LedgerError
    from dayfly.embedded.startup import HomeBusyError
    from dayfly.execute.state.handler import serve as serve_states
    from dayfly.server import app as control
    from dayfly.server.db.store import Store, StoreError

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # what nohup has us ignore stays ignored
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        host = await EmbeddedHost.open(
            wish.home.path,
            runner=wish.runner,
            parallel=wish.parallel,
            engine=wish.engine,
            webhooks=wish.webhooks,
            serve=serve_states,
            proxy=wish.proxy,
            forms=wish.forms,
            tracer=wish.tracer,
        )
    except HomeBusyError as fault:
        raise DayflyError(Exit.FAILED, str(fault)) from None
    except LedgerError as fault:
        raise DayflyError(Exit.FAILED, f"the ledger of {wish.home.path} cannot be used: {fault}") from None
    try:
        store = Store.open(wish.home.store)
        try:
            names = {CLUSTER, *wish.clusters, *await control.read_used_clusters(store, ORGANISATION)}
            hosts = dict.fromkeys(sorted(names), host.end)
            app = _application(wish, store, hosts, dict.fromkeys(names, host.secrets), host)
            await control.prepare(app)
            host.start()
            serving = asyncio.create_task(control.serve(app, [sock], stop=stop))
            try:
                with _told(wish.home, f"http://{_ADDRESS}:{sock.getsockname()[1]}") as url:
                    await asyncio.to_thread(_declare, Address(url, wish.key), wish.baselines)
                    show.talk(f"dayfly is up at {url} (process {os.getpid()}, home {wish.home.path}); Ctrl-C stops it")
                    report_ready()
                    async with _ending_with_its_users(wish, store, stop):
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
        if wish.tracer is not None:
            await asyncio.to_thread(wish.tracer.close)


@contextlib.asynccontextmanager
async def _ending_with_its_users(wish: _UpOptions, store: Store, stop: asyncio.Event) -> AsyncIterator[None]:
    """Within this, a server that was started for some commands stops once none runs and no sandbox is left."""
    from dayfly.server import app as control
    from dayfly.server.db.store import StoreError

    async def is_idle() -> bool:
        try:
            return not await control.read_used_clusters(store, ORGANISATION)
        except StoreError:  # unknown, as on a full disk: the next poll may find out
            return False

    if not wish.while_used:
        yield
        return
    watching = asyncio.create_task(temporary_server.stop_when_unused(wish.home, is_idle, stop))
    try:
        yield
    finally:
        watching.cancel()


def _application(
    wish: _UpOptions,
    store: Store,
    hosts: Mapping[str, HostTransport],
    secrets: Mapping[str, SecretStore],
    baselines: BaselineHost,
) -> Starlette:
    """The API, which listens on loopback alone."""
    from dayfly import __version__
    from dayfly.server import app as control
    from dayfly.server.access.callers import single

    return control.create_app(
        store,
        hosts,
        org=ORGANISATION,
        keys=single(wish.key),
        version=__version__,
        receiver=wish.receiver,
        secret_stores=secrets,
        baseline_hosts=(baselines,),
    )


def _receiver(url: str | None, allowed: frozenset[str], home: Home) -> EventReceiver | None:
    if not url:
        return None
    from dayfly.cli import event_receiver

    return event_receiver.told(url, allowed, f"urn:dayfly:{socket.gethostname()}:{home.path}")


def _forms(headers: tuple[str, ...], query: str) -> Forms:
    """Where else than in the usual headers requests carry a key."""
    from dayfly.spec.errors import SpecError
    from dayfly.spec.routing.routing_keys import check_forms

    try:
        return check_forms(headers, query)
    except SpecError as fault:
        raise DayflyError(Exit.USAGE, str(fault), "name another one") from None


def _proxy(*, routing: bool) -> str:
    """The Envoy that leads requests to forks; empty where none does."""
    if not routing:
        return ""
    from dayfly.embedded.routes import envoy

    program = envoy.find()
    if not program:
        raise DayflyError(Exit.FAILED, "no Envoy is installed", installed.part("routing"))
    return program


def _containers(engine: str) -> str:
    """The path of the program that runs containers; empty where steps are processes."""
    if engine == "process":
        return ""
    program = shutil.which(engine)
    if program is None:
        raise DayflyError(Exit.FAILED, f"{engine} is not installed", "install it, or start without --engine")
    return program


def _baselines(files: tuple[str, ...]) -> list[Wished]:
    if not files:
        return []
    from dayfly.client import files as reading

    found = reading.load(files, ())
    for wished in found:
        if wished.kind != "baseline":
            raise wished.document.error(f"is a {wished.kind}, not a baseline; apply it with: {wished.apply_command}")
    return found


def _declare(address: Address, baselines: list[Wished]) -> None:
    if not baselines:
        return
    from dayfly.cli import apply_spec

    client = ServerClient(address)
    for wished in baselines:
        apply_spec.hand_over(client, wished)
    client.close()


@contextlib.contextmanager
def _told(home: Home, url: str) -> Iterator[str]:
    """The home says where its server is, as long as it is there."""
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
