"""The parts that an operator may have or not, as its process knows them; who puts it together says which (`cli`)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dayfly.execute.tracing import Tracer
from dayfly.kube.events import Recorder
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.status.sandbox_events import ClusterEventReceiver
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxNotReadyError, SandboxStatusWriter
from dayfly.operator.targets.adapter import Adapter
from dayfly.operator.targets.sandbox import ControlPlane
from dayfly.operator.targets.targets import Targets
from dayfly.spec.lifecycle import Lifecycle, Unit


class SandboxExtension(Protocol):
    """Who makes runs of what people wish for; whoever has none takes the runs further that are there."""

    def applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        """Which of its owner's wishes the run of a Sandbox goes by."""

    def ended(self) -> None:
        """A run is over."""

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


Fronts = Callable[[ClusterWatches, SandboxStatusWriter], SandboxExtension]


class Extension(Protocol):
    """Who makes runs for LifecycleHooks, or for RouteGroups; without one theirs stay as they are."""

    @property
    def frozen(self) -> int:
        """How many objects there are of which nothing is done any more."""

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


class AgentExtension(ControlPlane, Protocol):
    """Who brings a server's sandboxes here; whoever has none leaves those that are there as they are."""

    async def run(self) -> None:
        """Talk to the server, until cancelled."""

    def why_waiting(self, seen: SandboxObject, /) -> SandboxNotReadyError | None:
        """Why one of its Sandboxes does not begin."""

    def figures(self) -> dict[str, Callable[[], float]]:
        """For whoever watches over the operator."""


class Heralds(NamedTuple):
    """Whom else than its cluster an operator tells, if anybody: a receiver of events, a collector of traces."""

    receiver: ClusterEventReceiver | None = None
    tracer: Tracer | None = None


ExtensionFactory = Callable[[ClusterWatches, Targets, Recorder], Extension]
Admit = Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]
Agents = Callable[[ClusterWatches, Admit], AgentExtension]
Kinds = Sequence[Callable[[ClusterWatches], Adapter]]
"""Of targets, beside Sandboxes."""
