"""What the operator must know of a kind of target: one adapter for each, and nobody else asks for a plural's name."""

from typing import Any, NamedTuple, Protocol

from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.world import TargetState
from dayfly.spec.lifecycle import Target


class Seen(NamedTuple):
    """A target as a cache has it, which may be behind."""

    meta: AnnotatedMeta
    spec: dict[str, Any]


class Times(NamedTuple):
    """When a run is to end by itself, in unix milliseconds; 0 for never."""

    expires_at: int = 0
    lease_until: int = 0


class Adapter(Protocol):
    """One kind of target. Deletion, finalizer and what people annotate are the same for all."""

    kind: str
    plural: str
    speaks: bool
    """Whether status, resources and logs are spoken of it, in its namespace."""
    removes: bool
    """Whether the target goes with its run. If not, it lives on."""

    def cached(self, target: Target, /) -> Seen | None:
        """The very object, if a cache has it; else it is asked for, its metadata alone."""

    def times(self, run: RunObject, seen: Seen, /) -> Times:
        """How long its owner wants the run."""

    async def state(self, run: RunObject, /) -> TargetState | None:
        """How far it has come if it starts and stops by itself; None if that is what its kept units do.

        Of a closed run by a quorum read, no earlier than the ledger was read (`plan.world.TargetState`).
        """


class Anything:
    """A target of which no more is known than that it is there: whoever posts such runs is another front."""

    kind = plural = ""
    speaks = removes = False

    def cached(self, _target: Target) -> Seen | None:
        return None

    def times(self, _run: RunObject, _seen: Seen) -> Times:
        return Times()

    async def state(self, _run: RunObject) -> TargetState | None:
        return None
