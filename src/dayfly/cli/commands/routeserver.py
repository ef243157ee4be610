"""`dayfly routeserver`: the routing rules for programs that ask themselves. This file only puts it together."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import SERVER
from dayfly.cli.local.server_process import listening
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from dayfly.routeserver.rule_store import RuleStore


@click.command("routeserver")
@options.server
@click.option("--context", metavar="NAME", help="Read the cluster of this context of the kubeconfig.")
@click.option("--in-cluster", is_flag=True, help="Read the cluster in which this runs, as its pod's account.")
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only the sandboxes of this namespace of it.")
@click.option("--listen", metavar="HOST", default="127.0.0.1", show_default=True, help="Who reaches it may ask.")
@click.option("--port", type=click.IntRange(0, 65535), default=7778, show_default=True, help="For REST.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=7777, show_default=True, help="For gRPC.")
@click.pass_context
def command(
    ctx: click.Context,
    context: str | None,
    in_cluster: bool,
    namespace: str,
    listen: str,
    port: int,
    grpc_port: int,
) -> None:
    """Tell programs (consumers of queues, your own proxies) which routing key leads to which fork.

    It asks for no key: anyone who can reach it sees the names and routing keys of all sandboxes. It reads the server of
    this home, or that of --server, or a cluster.
    """
    server = ctx.meta.get(SERVER, "")
    if sum((bool(context), in_cluster, bool(server))) > 1:
        raise DayflyError(Exit.USAGE, "--server, --context and --in-cluster exclude each other", "give one of them")
    if namespace and not (context or in_cluster):
        raise DayflyError(Exit.USAGE, "-n is for a cluster", "give --context NAME or --in-cluster too")
    source = _Source(server, context, namespace, of_cluster=bool(context) or in_cluster)
    _check_installed(source)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    with listening(listen, port, "choose another with --listen HOST and --port") as sock:
        asyncio.run(_serve(sock, listen, grpc_port, source))


class _Source(NamedTuple):
    """Whom the rules are read from."""

    server: str
    context: str | None
    namespace: str
    of_cluster: bool

    @contextlib.asynccontextmanager
    async def feeding(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        """Return the task that updates the store while the context lasts.

        Raises:
            DayflyError: there is no such server or context.
        """
        async with self._of_cluster(store) if self.of_cluster else self._of_api(store) as task:
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.wait([task])

    @contextlib.asynccontextmanager
    async def _of_api(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        from dayfly.client import AsyncClient
        from dayfly.routeserver import from_api

        async with AsyncClient(server=self.server) as client:
            await client.version()
            yield asyncio.create_task(from_api.follow(store, client))

    @contextlib.asynccontextmanager
    async def _of_cluster(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        from dayfly.kube.auth import CredentialsError, load
        from dayfly.kube.client import Client
        from dayfly.kube.transport import HttpTransport
        from dayfly.routeserver.from_cluster import ClusterRuleWatcher

        try:
            credentials = await load(context=self.context)
        except CredentialsError as error:
            raise DayflyError(
                Exit.FAILED, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG"
            ) from None
        client = Client(HttpTransport(credentials))
        try:
            yield asyncio.create_task(ClusterRuleWatcher(client, store, self.namespace).run())
        finally:
            await client.close()


async def _serve(sock: socket.socket, host: str, grpc_port: int, source: _Source) -> None:
    from dayfly.lib.http_server import serve
    from dayfly.routeserver import grpc_server, rest
    from dayfly.routeserver.rule_store import RuleStore
    from dayfly.server.access.callers import is_loopback_name

    stop, store = asyncio.Event(), RuleStore()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with source.feeding(store) as feeding, _grpc(grpc_server.serving(store, host, grpc_port), host) as got:
        feeding.add_done_callback(lambda _: stop.set())
        at = f"[{host}]" if ":" in host else host
        show.talk(f"routing rules: http://{at}:{sock.getsockname()[1]}{rest.PATH}, gRPC at {at}:{got}")
        await serve(rest.application(store, loopback=is_loopback_name(at)), [sock], stop=stop)
        if feeding.done():
            await feeding


@contextlib.asynccontextmanager
async def _grpc(serving: contextlib.AbstractAsyncContextManager[int], host: str) -> AsyncIterator[int]:
    try:
        async with serving as port:
            yield port
    except OSError:
        message = f"{host}: the port for gRPC cannot be had"
        raise DayflyError(Exit.FAILED, message, "choose another with --grpc-port") from None


def _check_installed(source: _Source) -> None:
    """Say at once, and how to come to it, what is not there."""
    try:
        importlib.import_module("dayfly.routeserver.grpc_server")
        if source.of_cluster:
            importlib.import_module("dayfly.kube.transport")
    except ImportError as error:
        message = f"the route server's part is not installed ({error.name} is missing)"
        raise DayflyError(
            Exit.FAILED, message, installed.part("operator" if source.of_cluster else "routing")
        ) from None
