"""The parts that an operator may have or not, as its process knows them; who puts it together says which (`cli`)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dayfly.execute.tracing import Tracer
from dayfly.kube.events import Recorder
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.status.sandbox_events import Receiver
from dayfly.operator.status.sandbox_status import Heeded, SandboxStatus, WaitingError
from dayfly.operator.targets.adapter import Adapter
from dayfly.operator.targets.sandbox import Server
from dayfly.operator.targets.targets import Targets
from dayfly.spec.lifecycle import Lifecycle, Unit


class Front(Protocol):
    """Who makes runs of what people wish for; whoever has none takes the runs further that are there."""

    def heeded(self, seen: SandboxObject) -> Heeded:
        """Which of its owner's wishes the run of a Sandbox goes by."""

    def ended(self) -> None:
        """A run is over."""

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


Fronts = Callable[[Cluster, SandboxStatus], Front]


class Wing(Protocol):
    """Who makes runs for LifecycleHooks, or for RouteGroups; without one theirs stay as they are."""

    @property
    def frozen(self) -> int:
        """How many objects there are of which nothing is done any more."""

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""


class Agent(Server, Protocol):
    """Who brings a control plane's sandboxes here; whoever has none leaves those that are there as they are."""

    async def run(self) -> None:
        """Talk to the control plane, until cancelled."""

    def why_waiting(self, seen: SandboxObject, /) -> WaitingError | None:
        """Why one of its Sandboxes does not begin."""

    def figures(self) -> dict[str, Callable[[], float]]:
        """For whoever watches over the operator."""


class Heralds(NamedTuple):
    """Whom else than its cluster an operator tells, if anybody: a receiver of events, a collector of traces."""

    receiver: Receiver | None = None
    tracer: Tracer | None = None


Wings = Callable[[Cluster, Targets, Recorder], Wing]
Admit = Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]
Agents = Callable[[Cluster, Admit], Agent]
Kinds = Sequence[Callable[[Cluster], Adapter]]
"""Of targets, beside Sandboxes."""
