"""Protocols of the operator's optional parts. The command line decides which ones a process has."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dayfly.execute.tracing import Tracer
from dayfly.kube.events import Recorder
from dayfly.operator.agent.leak_orders import ServedChecks
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.leaks.ledger_facts import AskServer
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.status.sandbox_events import ClusterEventReceiver
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxNotReadyError, SandboxStatusWriter
from dayfly.operator.targets.adapter import Adapter
from dayfly.operator.targets.sandbox import ControlPlane
from dayfly.operator.targets.targets import Targets
from dayfly.spec.lifecycle import Lifecycle, Unit
from dayfly.spec.resource_token import ResourceToken


class SandboxExtension(Protocol):
    """Creates runs for Sandboxes. Without it, existing runs continue but no new ones begin."""

    def applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        """Return which generation of a Sandbox's spec its run uses."""

    def on_run_end(self) -> None:
        """Handle the end of a run."""

    def reset(self) -> None:
        """Forget all state that only an active operator keeps current: another process is active now."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


SandboxExtensionFactory = Callable[[ClusterWatches, SandboxStatusWriter], SandboxExtension]


class Extension(Protocol):
    """Creates runs for LifecycleHooks or RouteGroups. Without it, these objects stay as they are."""

    @property
    def frozen_count(self) -> int:
        """Number of objects that are not processed any longer."""

    def reset(self) -> None:
        """Forget all state that only an active operator keeps current: another process is active now."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


class LeaksExtension(Extension, Protocol):
    """The leak checks of this cluster."""

    @property
    def served(self) -> ServedChecks:
        """The checks that servers have made."""

    def ask(self, server: AskServer, /) -> None:
        """Ask a server for the resources that other clusters of its organisation have made."""


class AgentExtension(ControlPlane, Protocol):
    """Creates the sandboxes of a server in this cluster. Without it, existing ones stay as they are."""

    async def run(self) -> None:
        """Communicate with the server until cancelled."""

    def why_waiting(self, seen: SandboxObject, /) -> SandboxNotReadyError | None:
        """Return why a Sandbox of the server does not start."""

    def use_registry(self, registry: ResourceRegistry, /) -> None:
        """Make resource tokens with the key that the server gives."""

    async def query_resources(self, tokens: Sequence[ResourceToken], /) -> dict[str, str] | None:
        """Return the states of resources of other clusters, by ID; None if the server does not answer."""

    def serve_leak_checks(self, checks: ServedChecks, /) -> None:
        """Let the server make leak checks."""

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return gauges for the metrics."""


class Receivers(NamedTuple):
    """Receivers outside of the cluster: for CloudEvents and for traces."""

    receiver: ClusterEventReceiver | None = None
    tracer: Tracer | None = None


ExtensionFactory = Callable[[ClusterWatches, Targets, Recorder], Extension]
LeaksFactory = Callable[[ResourceRegistry], Callable[[ClusterWatches, Targets, Recorder], LeaksExtension]]
Admit = Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]
AgentFactory = Callable[[ClusterWatches, Admit], AgentExtension]
AdapterFactories = Sequence[Callable[[ClusterWatches], Adapter]]
"""Adapters for kinds of targets other than Sandboxes."""
