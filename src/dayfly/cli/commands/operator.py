"""`dayfly operator`: the operator of a cluster, as its Deployment runs it; from a checkout too, against any context."""

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


@click.command("operator")
@click.option("--context", metavar="NAME", help="A context of the kubeconfig; inside a pod its own account is used.")
@click.option(
    "--runner",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_RUNNER",
    help="The runner program that is put into steps' pods. Default: $DAYFLY_RUNNER, or what came with the package.",
)
@click.option("--port", default=8080, show_default=True, help="Where /healthz, /readyz and /metrics answer.")
@click.option("--lease/--no-lease", default=True, show_default=True, help="Let one of several replicas do the work.")
@click.option(
    "--lease-seconds",
    type=click.IntRange(3, 300),
    default=15,
    show_default=True,
    envvar="DAYFLY_LEASE_SECONDS",
    help="How soon another replica takes the place of one that has died; the same for all of them. "
    "Or set $DAYFLY_LEASE_SECONDS.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1.0),
    envvar="DAYFLY_RATE",
    help="The most requests a second to the API server. Default: $DAYFLY_RATE, or 1000, which is more than one "
    "operator needs; the API server limits its clients itself.",
)
@click.option(
    "--fallback-image",
    metavar="IMAGE",
    default="",
    envvar="DAYFLY_FALLBACK_IMAGE",
    help="An image that every node has or can pull without a secret: in it the runner proves that a step whose own "
    "image is missing never began. Default: $DAYFLY_FALLBACK_IMAGE, or the operator's own.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=20,
    envvar="DAYFLY_STEPS",
    help="How many steps of one namespace's sandboxes run at once, and as many again that clean up, unless its "
    "annotation dayfly.dev/steps says otherwise. Default: $DAYFLY_STEPS, or 20.",
)
@click.option(
    "--ephemeral-storage",
    metavar="QUANTITY",
    default="2Gi",
    show_default=True,
    envvar="DAYFLY_EPHEMERAL_STORAGE",
    help="How much of its node's disk a step may fill (files outside volumes, emptyDir volumes, logs) unless its "
    "podTemplateOverlay sets another limit. 0 sets no limit. Or set $DAYFLY_EPHEMERAL_STORAGE.",
)
@click.option(
    "--webhook-image",
    metavar="IMAGE",
    default="",
    envvar="DAYFLY_WEBHOOK_IMAGE",
    help="An image with Dayfly in it, from which webhooks are sent. Default: $DAYFLY_WEBHOOK_IMAGE, or the operator's "
    "own.",
)
@options.allow_webhook
@click.option(
    "--state-port",
    type=click.IntRange(0, 65535),
    default=0,
    envvar="DAYFLY_STATE_PORT",
    help="Where Terraform states are served to steps, the same as the port of the Service dayfly-state. Default: "
    "$DAYFLY_STATE_PORT, or 0: they are not.",
)
@click.option(
    "--server-url",
    metavar="URL",
    default="",
    envvar="DAYFLY_SERVER_URL",
    help="A server whose sandboxes run in this cluster; the operator dials it, and nothing dials in. Or set "
    "$DAYFLY_SERVER_URL.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_TOKEN_FILE",
    help="A file with the cluster's token there. Or set $DAYFLY_TOKEN_FILE.",
)
@click.option(
    "--server-ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="DAYFLY_SERVER_CA",
    help="Certificates to trust there, rather than this machine's. Or set $DAYFLY_SERVER_CA.",
)
@click.option(
    "--agent-namespace",
    "agent_namespaces",
    metavar="ORG=NAMESPACE",
    multiple=True,
    envvar="DAYFLY_AGENT_NAMESPACE",
    help="Where the sandboxes of an organisation of the server live. Or set $DAYFLY_AGENT_NAMESPACE.",
)
@click.option(
    "--routing-header",
    "routing_headers",
    metavar="NAME",
    multiple=True,
    envvar="DAYFLY_ROUTING_HEADER",
    help="A further header whose whole value may be a routing key, beside baggage and the usual ones. Or set "
    "$DAYFLY_ROUTING_HEADER.",
)
@click.option(
    "--routing-query",
    metavar="NAME",
    default="",
    envvar="DAYFLY_ROUTING_QUERY",
    help="A parameter of the query whose value may be a routing key. Or set $DAYFLY_ROUTING_QUERY.",
)
@click.option(
    "--istio",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    envvar="DAYFLY_ISTIO",
    help="Whether Istio's VirtualServices lead requests to forks: where the Gateway API is not installed (auto), or "
    "wherever Istio is. Or set $DAYFLY_ISTIO.",
)
@click.option(
    "--preview-gateway",
    metavar="NAMESPACE/NAME",
    default="",
    envvar="DAYFLY_PREVIEW_GATEWAY",
    help="A Gateway at which each endpoint of a sandbox has an address of its own. Or set $DAYFLY_PREVIEW_GATEWAY.",
)
@click.option(
    "--preview-domain",
    metavar="URL",
    default="",
    envvar="DAYFLY_PREVIEW_DOMAIN",
    help="The domain below which these addresses are, as https://preview.example.com: all names there lead to that "
    "Gateway. Or set $DAYFLY_PREVIEW_DOMAIN.",
)
@options.events_to(of="this cluster's sandboxes", envvar="DAYFLY_EVENTS_TO")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
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
    """Run the operator in the foreground until it is asked to end (SIGTERM, Ctrl-C). Logs are JSON lines on stderr."""
    try:
        from dayfly.operator.main import ProcessIdentity
        from dayfly.operator.monitoring import json_log
    except ImportError as error:
        message = f"the operator's part is not installed ({error.name} is missing)"
        raise DayflyError(Exit.FAILED, message, installed.operators_part()) from None
    program = _program(runner)
    json_log.to_stderr(log_level)
    pod = os.environ.get("POD_NAME", "")
    identity = pod or f"{socket.gethostname()}-{os.getpid()}"
    namespace = os.environ.get("POD_NAMESPACE") or _SYSTEM
    allowed = options.webhook_servers(webhooks)
    place = ProcessIdentity(
        identity,
        namespace,
        port,
        lease_seconds if lease else 0,
        pod,
        fallback_image,
        steps,
        webhook_image,
        allowed,
        state_port=state_port,
        routing=_routing(_forms(routing_headers, routing_query), istio, _edge(preview_gateway, preview_domain)),
        ephemeral_storage=_storage_limit(ephemeral_storage),
    )
    dialled = _Dialled.of(server_url, token_file, server_ca, agent_namespaces) if server_url else None
    asyncio.run(_operate(context, program, place, rate, dialled, _receivers(events_to, allowed)))


def _storage_limit(text: str) -> str:
    """Return the limit that the option sets; empty for 0, which sets none."""
    from dayfly.execute.pod.policy.rows import quantity

    for place, problem in quantity()(text, "--ephemeral-storage"):
        raise DayflyError(Exit.USAGE, f"{place}: {problem}", "give a quantity such as 2Gi, or 0 for no limit")
    return "" if text == "0" else text


def _program(runner: Path | None) -> RunnerConfigMap:
    """What is put into steps' pods."""
    from dayfly.operator.pods.namespaces import RunnerConfigMap

    runner = runner or installed.packaged_runner()
    if runner is None:
        raise DayflyError(
            Exit.USAGE, "no runner program is named", "build one: runner/build.sh OUT x86_64, and give --runner OUT"
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

        to = event_receiver.receiver(events_to, allowed)
        receiver = ClusterEventReceiver(event_receiver.Poster(to), to.address.url)
    return Receivers(receiver, tracing.from_environment(os.environ, installed.part("otel")))


def _routing(forms: Forms, istio: str, edge: PreviewGateway | None) -> RoutingSettings:
    from dayfly.operator.cluster.route_kinds import Istio, RoutingSettings

    return RoutingSettings(forms, Istio(istio), edge)


def _edge(gateway: str, domain: str) -> PreviewGateway | None:
    from dayfly.execute.gateway.preview import read_edge
    from dayfly.spec.errors import SpecError

    try:
        return read_edge(gateway, domain)
    except SpecError as error:
        wanted = "give both: --preview-gateway NAMESPACE/NAME --preview-domain https://preview.example.com"
        raise DayflyError(Exit.USAGE, str(error), wanted) from None


def _forms(headers: tuple[str, ...], query: str) -> Forms:
    from dayfly.spec.errors import SpecError
    from dayfly.spec.routing.routing_keys import check_forms

    try:
        return check_forms(headers, query)
    except SpecError as error:
        wanted = "see --routing-header and --routing-query"
        raise DayflyError(Exit.USAGE, str(error), wanted) from None


class _Dialled(NamedTuple):
    """A server, as the options name it."""

    url: str
    token: str
    authority: str
    bound: dict[str, str]

    @classmethod
    def of(cls, url: str, token_file: Path | None, authority: Path | None, namespaces: tuple[str, ...]) -> _Dialled:
        if token_file is None:
            raise DayflyError(Exit.USAGE, "--server-url needs the cluster's token", "give --token-file FILE")
        try:
            token = token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DayflyError(Exit.USAGE, f"cannot read the token {token_file}: {error}", "see --token-file") from None
        if not token.isascii() or not token.isprintable() or not token:
            raise DayflyError(
                Exit.USAGE, f"{token_file} contains no token", "it must be one line, as the server printed it"
            )
        pairs = [each.partition("=") for each in namespaces]
        if not pairs or not all(org and namespace for org, _, namespace in pairs):
            wanted = "say where an organisation's sandboxes live: --agent-namespace ORG=NAMESPACE"
            raise DayflyError(Exit.USAGE, "--server-url needs a namespace for them", wanted)
        if any(org == "cluster" for org, _, _ in pairs):
            # Grants call whoever publishes in this cluster itself so.
            wanted = "name the organisation otherwise at the server"
            raise DayflyError(Exit.USAGE, "no organisation may be called cluster here", wanted)
        return cls(url, token, str(authority or ""), {org: namespace for org, _, namespace in pairs})

    def agents(self, home: str) -> tuple[AgentFactory, ServerConnection]:
        """Who dials it, and the connection."""
        from dayfly.link.http import HttpWay
        from dayfly.operator.agent.agent import Agent

        try:
            way = HttpWay(self.url, self.token, self.authority)
        except (ValueError, OSError) as error:
            raise DayflyError(Exit.USAGE, f"--server-url: {error}", "see dayfly operator --help") from None
        return lambda cluster, admit: Agent(cluster, way, self.bound, home, admit), way


async def _operate(
    context: str | None,
    runner: RunnerConfigMap,
    place: ProcessIdentity,
    rate: float | None,
    dialled: _Dialled | None,
    receivers: Receivers,
) -> None:
    from dayfly.kube.auth import CredentialsError, load
    from dayfly.kube.client import Client, Limits
    from dayfly.kube.server_clock import Dated, ServerClock
    from dayfly.kube.transport import HttpTransport
    from dayfly.operator.hooks.extension import HooksExtension
    from dayfly.operator.main import operate
    from dayfly.operator.route_groups.extension import Groups
    from dayfly.operator.sandboxes.extension import SandboxesExtension

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        credentials = await load(context=context)
    except CredentialsError as error:
        raise DayflyError(Exit.FAILED, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG") from None
    agents, way = dialled.agents(place.namespace) if dialled else (None, None)
    clock = ServerClock()
    transport = Dated(HttpTransport(credentials), clock)
    client = Client(transport, Limits(rate=rate, burst=math.ceil(rate)) if rate else None)
    try:
        await operate(
            client, runner, place, stop, SandboxesExtension, HooksExtension, Groups, agents, receivers, clock.now
        )
    except OSError as error:
        sys.stderr.flush()
        raise DayflyError(Exit.FAILED, f"cannot answer on port {place.port}: {error.strerror}", "see --port") from None
    finally:
        if receivers.tracer is not None:
            await asyncio.to_thread(receivers.tracer.close)
        await client.close()
        if way is not None:
            await way.close()
