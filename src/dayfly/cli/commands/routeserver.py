"""`dayfly routeserver`: serve routing rules to programs that route requests or messages themselves."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from typing import TYPE_CHECKING, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import SERVER
from dayfly.cli.command_classes import verb
from dayfly.cli.local import server_process
from dayfly.cli.local.server_process import listen_on
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from dayfly.routeserver.rule_store import RuleStore


@verb("routeserver")
@options.server
@click.option("--context", metavar="NAME", help="Read the cluster of this context of the kubeconfig.")
@click.option(
    "--in-cluster", is_flag=True, help="Read the cluster in which this runs, with the service account of its pod."
)
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only sandboxes of this namespace of the cluster.")
@click.option(
    "--listen",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Every program that can reach this address may read the rules.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=7778, show_default=True, help="The port for REST.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=7777, show_default=True, help="The port for gRPC.")
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
    """Serve routing rules to programs (consumers of queues, your own proxies): the fork of each routing key.

    No API key is needed: every program that can connect sees the names and routing keys of all sandboxes. The rules
    come from the server of this home, that of --server, or a cluster.
    """
    server = ctx.meta.get(SERVER, "")
    if sum((bool(context), in_cluster, bool(server))) > 1:
        raise DayflyError(Exit.USAGE, "--server, --context and --in-cluster cannot be combined", "use one of them")
    if namespace and not (context or in_cluster):
        raise DayflyError(Exit.USAGE, "-n needs a cluster", "add --context NAME or --in-cluster")
    source = _Source(server, context, namespace, is_cluster=bool(context) or in_cluster)
    _check_installed(source)
    server_process.log_warnings()
    with listen_on(listen, port, "choose another with --listen HOST and --port") as sock:
        asyncio.run(_serve(sock, listen, grpc_port, source))


class _Source(NamedTuple):
    """The server or cluster from which the rules are read."""

    server: str
    context: str | None
    namespace: str
    is_cluster: bool

    @contextlib.asynccontextmanager
    async def update(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        """Keep the store up to date while the context lasts. Yield the task that updates it.

        Raises:
            DayflyError: the server or context does not exist.
        """
        async with self._watch_cluster(store) if self.is_cluster else self._follow_server(store) as task:
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.wait([task])

    @contextlib.asynccontextmanager
    async def _follow_server(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        from dayfly.client import AsyncClient
        from dayfly.routeserver import api_source

        async with AsyncClient(server=self.server) as client:
            await client.version()
            yield asyncio.create_task(api_source.follow(store, client))

    @contextlib.asynccontextmanager
    async def _watch_cluster(self, store: RuleStore) -> AsyncIterator[asyncio.Task[None]]:
        from dayfly.kube.auth import CredentialsError, load
        from dayfly.kube.client import KubeClient
        from dayfly.kube.transport import HttpTransport
        from dayfly.routeserver.cluster_source import ClusterRuleWatcher

        try:
            credentials = await load(context=self.context)
        except CredentialsError as error:
            raise DayflyError(
                Exit.FAILED, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG"
            ) from None
        client = KubeClient(HttpTransport(credentials))
        try:
            yield asyncio.create_task(ClusterRuleWatcher(client, store, self.namespace).run())
        finally:
            await client.close()


async def _serve(sock: socket.socket, host: str, grpc_port: int, source: _Source) -> None:
    from dayfly.lib.http_server import serve
    from dayfly.routeserver import grpc_server, rest
    from dayfly.routeserver.rule_store import RuleStore
    from dayfly.server.access.callers import is_loopback_name

    stop, store = server_process.stop_on_signals(), RuleStore()
    async with source.update(store) as updating, _grpc(grpc_server.serve(store, host, grpc_port), host) as got:
        updating.add_done_callback(lambda _: stop.set())
        at = f"[{host}]" if ":" in host else host
        show.print_message(f"routing rules: http://{at}:{sock.getsockname()[1]}{rest.PATH}, gRPC at {at}:{got}")
        await serve(rest.application(store, loopback=is_loopback_name(at)), [sock], stop=stop)
        if updating.done():
            await updating


@contextlib.asynccontextmanager
async def _grpc(serving: contextlib.AbstractAsyncContextManager[int], host: str) -> AsyncIterator[int]:
    try:
        async with serving as port:
            yield port
    except OSError:
        message = f"{host}: the port for gRPC cannot be used"
        raise DayflyError(Exit.FAILED, message, "choose another with --grpc-port") from None


def _check_installed(source: _Source) -> None:
    """Report a missing extra before anything starts."""
    try:
        importlib.import_module("dayfly.routeserver.grpc_server")
        if source.is_cluster:
            importlib.import_module("dayfly.kube.transport")
    except ImportError as error:
        raise installed.missing_extra("operator" if source.is_cluster else "routing", error) from None
