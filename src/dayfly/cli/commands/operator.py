"""`dayfly operator`: run the operator of a cluster, in its Deployment or from a checkout against a context."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.command_classes import verb
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from dayfly.execute.gateway.preview import PreviewGateway
    from dayfly.link.http import ServerConnection
    from dayfly.operator.cluster.route_kinds import RoutingSettings
    from dayfly.operator.extensions import AgentFactory, Receivers
    from dayfly.operator.main import ProcessIdentity
    from dayfly.operator.pods.namespaces import RunnerConfigMap
    from dayfly.spec.routing.routing_keys import Forms

_SYSTEM = "dayfly-system"


@verb("operator")
@click.option(
    "--context", metavar="NAME", help="A context of the kubeconfig. In a pod, the default is its service account."
)
@click.option(
    "--runner",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_RUNNER",
    help="The runner program for the pods of steps. Default: $DAYFLY_RUNNER, or the one in the package.",
)
@click.option("--port", default=8080, show_default=True, help="The port of /healthz, /readyz and /metrics.")
@click.option(
    "--lease/--no-lease", default=True, show_default=True, help="Only one of several replicas works at a time."
)
@click.option(
    "--lease-seconds",
    type=click.IntRange(3, 300),
    default=15,
    envvar="DAYFLY_LEASE_SECONDS",
    help="The time until another replica replaces one that has died; the same for all replicas. "
    "Default: $DAYFLY_LEASE_SECONDS, or 15.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1.0),
    envvar="DAYFLY_RATE",
    help="The maximum number of requests a second to the API server. Default: $DAYFLY_RATE, or 1000, which is more "
    "than an operator needs; the API server limits its clients itself.",
)
@click.option(
    "--fallback-image",
    metavar="IMAGE",
    default="",
    envvar="DAYFLY_FALLBACK_IMAGE",
    help="An image that every node has or can pull without a secret. The runner uses it to prove that a step whose "
    "image is missing has never started. Default: $DAYFLY_FALLBACK_IMAGE, or the operator's image.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=20,
    envvar="DAYFLY_STEPS",
    help="The maximum number of concurrent create steps for the sandboxes of a namespace, and of delete steps. The "
    "annotation dayfly.dev/steps of a namespace overrides it. Default: $DAYFLY_STEPS, or 20.",
)
@click.option(
    "--ephemeral-storage",
    metavar="QUANTITY",
    default="2Gi",
    envvar="DAYFLY_EPHEMERAL_STORAGE",
    help="The default limit of ephemeral storage for a step (files outside volumes, emptyDir volumes, logs), unless "
    "its podTemplateOverlay sets a limit. 0 sets no limit. Default: $DAYFLY_EPHEMERAL_STORAGE, or 2Gi.",
)
@click.option(
    "--webhook-image",
    metavar="IMAGE",
    default="",
    envvar="DAYFLY_WEBHOOK_IMAGE",
    help="An image with Dayfly, which sends webhooks. Default: $DAYFLY_WEBHOOK_IMAGE, or the operator's image.",
)
@options.allow_webhook
@click.option(
    "--state-port",
    type=click.IntRange(0, 65535),
    default=0,
    envvar="DAYFLY_STATE_PORT",
    help="The port that serves Terraform states to steps, the same as that of the Service dayfly-state. 0 serves no "
    "states. Default: $DAYFLY_STATE_PORT, or 0.",
)
@click.option(
    "--server-url",
    metavar="URL",
    default="",
    envvar="DAYFLY_SERVER_URL",
    help="A server whose sandboxes run in this cluster. The operator connects to the server, never the other way "
    "round. Default: $DAYFLY_SERVER_URL.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_TOKEN_FILE",
    help="A file with the token of this cluster for the server. Default: $DAYFLY_TOKEN_FILE.",
)
@click.option(
    "--server-ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_SERVER_CA",
    help="CA certificates for the server, instead of those of this machine. Default: $DAYFLY_SERVER_CA.",
)
@click.option(
    "--agent-namespace",
    "agent_namespaces",
    metavar="ORG=NAMESPACE",
    multiple=True,
    envvar="DAYFLY_AGENT_NAMESPACE",
    help="The namespace for the sandboxes of an organisation of the server. Repeatable. Default: "
    "$DAYFLY_AGENT_NAMESPACE, separated by spaces.",
)
@click.option(
    "--routing-header",
    "routing_headers",
    metavar="NAME",
    multiple=True,
    envvar="DAYFLY_ROUTING_HEADER",
    help="Another header whose whole value may be a routing key, in addition to baggage and the usual headers. "
    "Repeatable. Default: $DAYFLY_ROUTING_HEADER, separated by spaces.",
)
@click.option(
    "--routing-query",
    metavar="NAME",
    default="",
    envvar="DAYFLY_ROUTING_QUERY",
    help="A query parameter whose value may be a routing key. Default: $DAYFLY_ROUTING_QUERY.",
)
@click.option(
    "--istio",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    envvar="DAYFLY_ISTIO",
    help="Whether to route requests to forks with Istio's VirtualServices: auto means only if the Gateway API is not "
    "installed. Default: $DAYFLY_ISTIO, or auto.",
)
@click.option(
    "--preview-gateway",
    metavar="NAMESPACE/NAME",
    default="",
    envvar="DAYFLY_PREVIEW_GATEWAY",
    help="A Gateway at which each endpoint of a sandbox gets its own address. Default: $DAYFLY_PREVIEW_GATEWAY.",
)
@click.option(
    "--preview-domain",
    metavar="URL",
    default="",
    envvar="DAYFLY_PREVIEW_DOMAIN",
    help="The domain of these addresses, such as https://preview.example.com: all names in it must resolve to that "
    "Gateway. Default: $DAYFLY_PREVIEW_DOMAIN.",
)
@options.events_to(of="this cluster's sandboxes", envvar="DAYFLY_EVENTS_TO")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log messages of this level and above.",
)
def command(
    context: str | None,
    runner: Path | None,
    port: int,
    lease: bool,
    lease_seconds: int,
    rate: float | None,
    fallback_image: str,
    steps: int,
    ephemeral_storage: str,
    webhook_image: str,
    webhooks: tuple[str, ...],
    state_port: int,
    server_url: str,
    token_file: Path | None,
    server_ca: Path | None,
    agent_namespaces: tuple[str, ...],
    routing_headers: tuple[str, ...],
    routing_query: str,
    istio: str,
    preview_gateway: str,
    preview_domain: str,
    events_to: str | None,
    log_level: str,
) -> None:
    """Run the operator in the foreground until SIGTERM or Ctrl-C. Logs are JSON lines on stderr."""
    try:
        from dayfly.operator.main import ProcessIdentity
        from dayfly.operator.monitoring import json_log
    except ImportError as error:
        raise installed.missing_extra("operator", error) from None
    program = _read_runner(runner)
    json_log.to_stderr(log_level)
    pod = os.environ.get("POD_NAME", "")
    name = pod or f"{socket.gethostname()}-{os.getpid()}"
    namespace = os.environ.get("POD_NAMESPACE") or _SYSTEM
    allowed = options.parse_webhook_servers(webhooks)
    identity = ProcessIdentity(
        name,
        namespace,
        port,
        lease_seconds if lease else 0,
        pod,
        fallback_image,
        steps,
        webhook_image,
        allowed,
        state_port=state_port,
        routing=_routing(
            options.parse_routing_forms(routing_headers, routing_query),
            istio,
            _preview_gateway(preview_gateway, preview_domain),
        ),
        ephemeral_storage=_storage_limit(ephemeral_storage),
    )
    server = _ServerConnection.parse(server_url, token_file, server_ca, agent_namespaces) if server_url else None
    asyncio.run(_operate(context, program, identity, rate, server, _receivers(events_to, allowed)))


def _storage_limit(text: str) -> str:
    """Return the limit that the option sets; empty for 0, which sets none."""
    from dayfly.execute.pod.policy.rows import quantity

    for place, problem in quantity()(text, "--ephemeral-storage"):
        raise DayflyError(Exit.USAGE, f"{place}: {problem}", "use a quantity such as 2Gi, or 0 for no limit")
    return "" if text == "0" else text


def _read_runner(runner: Path | None) -> RunnerConfigMap:
    """Return the runner program for the pods of steps."""
    from dayfly.operator.pods.namespaces import RunnerConfigMap

    runner = runner or installed.packaged_runner()
    if runner is None:
        raise DayflyError(
            Exit.USAGE, "no runner program is named", "build one with runner/build.sh OUT x86_64, and add --runner OUT"
        )
    try:
        return RunnerConfigMap.from_program(runner.read_bytes())
    except OSError as error:
        raise DayflyError(
            Exit.USAGE, f"cannot read the runner program {runner}: {error.strerror}", "see --runner"
        ) from None


def _receivers(events_to: str | None, allowed: frozenset[str]) -> Receivers:
    from dayfly.execute import tracing
    from dayfly.operator.extensions import Receivers
    from dayfly.operator.status.sandbox_events import ClusterEventReceiver

    receiver = None
    if events_to:
        from dayfly.cli import event_receiver

        to = event_receiver.parse_receiver(events_to, allowed)
        receiver = ClusterEventReceiver(event_receiver.Poster(to), to.address.url)
    return Receivers(receiver, tracing.from_environment(os.environ, installed.install_advice("otel")))


def _routing(forms: Forms, istio: str, edge: PreviewGateway | None) -> RoutingSettings:
    from dayfly.operator.cluster.route_kinds import Istio, RoutingSettings

    return RoutingSettings(forms, Istio(istio), edge)


def _preview_gateway(gateway: str, domain: str) -> PreviewGateway | None:
    from dayfly.execute.gateway.preview import read_edge
    from dayfly.spec.errors import SpecError

    try:
        return read_edge(gateway, domain)
    except SpecError as error:
        wanted = "use both: --preview-gateway NAMESPACE/NAME --preview-domain https://preview.example.com"
        raise DayflyError(Exit.USAGE, str(error), wanted) from None


class _ServerConnection(NamedTuple):
    """The options of the server to connect to."""

    url: str
    token: str
    authority: str
    bound: dict[str, str]

    @classmethod
    def parse(
        cls, url: str, token_file: Path | None, authority: Path | None, namespaces: tuple[str, ...]
    ) -> _ServerConnection:
        if token_file is None:
            raise DayflyError(Exit.USAGE, "--server-url needs the token of the cluster", "add --token-file FILE")
        try:
            token = token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DayflyError(Exit.USAGE, f"cannot read the token {token_file}: {error}", "see --token-file") from None
        if not token.isascii() or not token.isprintable() or not token:
            raise DayflyError(
                Exit.USAGE,
                f"{token_file} contains no token",
                "it must contain one line, the token that the server printed",
            )
        pairs = [each.partition("=") for each in namespaces]
        if not pairs or not all(org and namespace for org, _, namespace in pairs):
            wanted = "add --agent-namespace ORG=NAMESPACE for each organisation"
            raise DayflyError(Exit.USAGE, "--server-url needs namespaces for sandboxes", wanted)
        if any(org == "cluster" for org, _, _ in pairs):
            # Grants use this name for plugins that were published in the cluster itself.
            wanted = "use an organisation with another name"
            raise DayflyError(Exit.USAGE, "the name cluster is reserved, also for organisations", wanted)
        return cls(url, token, str(authority or ""), {org: namespace for org, _, namespace in pairs})

    def connect(self, home: str) -> tuple[AgentFactory, ServerConnection]:
        """Return a factory for the agent, and its connection."""
        from dayfly.link.http import HttpConnection
        from dayfly.operator.agent.agent import Agent

        try:
            connection = HttpConnection(self.url, self.token, self.authority)
        except (ValueError, OSError) as error:
            raise DayflyError(Exit.USAGE, f"--server-url: {error}", "see dayfly operator --help") from None
        return lambda cluster, admit: Agent(cluster, connection, self.bound, home, admit), connection


async def _operate(
    context: str | None,
    runner: RunnerConfigMap,
    identity: ProcessIdentity,
    rate: float | None,
    server: _ServerConnection | None,
    receivers: Receivers,
) -> None:
    from dayfly.kube.auth import CredentialsError, load
    from dayfly.kube.client import KubeClient, Limits
    from dayfly.kube.server_clock import ClockTransport, ServerClock
    from dayfly.kube.transport import HttpTransport
    from dayfly.operator.hooks.extension import HooksExtension
    from dayfly.operator.leaks.extension import LeaksExtension
    from dayfly.operator.main import operate
    from dayfly.operator.pools.extension import PoolsExtension
    from dayfly.operator.route_groups.extension import RouteGroupsExtension
    from dayfly.operator.sandboxes.extension import SandboxesExtension

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        credentials = await load(context=context)
    except CredentialsError as error:
        raise DayflyError(Exit.FAILED, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG") from None
    agents, connection = server.connect(identity.namespace) if server else (None, None)
    clock = ServerClock()
    transport = ClockTransport(HttpTransport(credentials), clock)
    client = KubeClient(transport, Limits(rate=rate, burst=math.ceil(rate)) if rate else None)
    try:
        await operate(
            client,
            runner,
            identity,
            stop,
            SandboxesExtension,
            HooksExtension,
            RouteGroupsExtension,
            PoolsExtension,
            LeaksExtension.using,
            agent=agents,
            receivers=receivers,
            now=clock.now,
        )
    except OSError as error:
        sys.stderr.flush()
        raise DayflyError(
            Exit.FAILED, f"cannot listen on port {identity.port}: {error.strerror}", "see --port"
        ) from None
    finally:
        if receivers.tracer is not None:
            await asyncio.to_thread(receivers.tracer.close)
        await client.close()
        if connection is not None:
            await connection.close()
