"""What the operator must know of a kind of target: one adapter for each, and nobody else asks for a plural's name.

Whoever adds a kind writes its adapter and hands it to `Targets.add`. Its watch, the queueing of its runs, what is swept
and what is spoken follow from there, and the rights that the operator needs for it are `rights`.
"""

from typing import Any, NamedTuple, Protocol

from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import Cache, Change
from dayfly.kube.objects import AnnotatedMeta, Resource
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetState
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest


class UndecidableError(Exception):
    """Nothing may be decided of a run as things are; `reason` is one word, the text says what somebody can do."""

    reason: str = Reason.PLAN_LOST


class KindLostError(UndecidableError):
    """The kind of its target is not served any more, so nobody knows whether it is still there."""

    reason = Reason.KIND_NOT_SERVED


class HinderedError(UndecidableError):
    """A run cannot begin: the server says no, or says nothing, and is asked again."""

    reason = Reason.BLOCKED


class CachedTarget(NamedTuple):
    """A target as a cache has it, which may be behind."""

    meta: AnnotatedMeta
    spec: dict[str, Any]


class Times(NamedTuple):
    """When a run is to end by itself, in unix milliseconds; 0 for never."""

    expires_at: int = 0
    lease_until: int = 0


class StatusReporter(Protocol):
    """Who tells the owner of a target how its run stands."""

    async def tell(self, scene: Scene, report: RunReport, /, *, hindrance: str = "") -> float:
        """Say how it stands; seconds after which to ask again, 0 if all is said.

        `hindrance` is what keeps the operator from taking the run any further, whatever its steps are at.
        """

    async def freeze(self, run: RunObject, why: UndecidableError, /) -> None:
        """Say why nothing is done any more."""


class Adapter(StatusReporter, Protocol):
    """One kind of target. Deletion, finalizer and what people annotate are the same for all."""

    resource: Resource[Any]
    """The kind, and as what its objects are read: they are watched, and kept in `cache`."""
    cache: Cache[Any]
    copies: bool
    """Whether Resources and logs of its steps are kept beside it, in its namespace."""
    removes: bool
    """Whether the target goes with its run. If not, it lives on."""

    def seen(self, item: Any, /) -> CachedTarget:
        """One that the cache has."""

    def heard(self, change: Change[Any], /) -> bool:
        """One has come, changed or gone. Whether its runs are to be looked at for that."""

    def lost(self, item: Any, /) -> None:
        """One is held by our finalizer, and no run of it is known."""

    def times(self, run: RunObject, seen: CachedTarget, /) -> Times:
        """How long its owner wants the run."""

    async def dismissal(self, run: RunObject, /) -> EndRequest | None:
        """Why the run is to end while its target lives on."""

    async def vouch(self, run: RunObject, missing: errors.NotFound | errors.NotServed, /) -> None:
        """The server knows no such target: return only if that proves that it is gone.

        Raises:
            FrozenError: it proves nothing.
        """

    async def permits(self, run: RunObject, /) -> bool | None:
        """Asked before a run's first claim, once its target is held: whether it may begin at all; None: nobody can say.

        False takes the run away again, and its target is released.
        """

    async def stays(self, run: RunObject, /) -> bool:
        """Whether the ledger of a run that is over is kept as long as its target is there: else it would begin anew."""

    async def fields(self, run: RunObject, /) -> dict[str, Any] | None:
        """The target as it is now, for inputs that come from it; None if it is gone, or tells nobody anything."""

    async def grip(self, run: RunObject, meta: AnnotatedMeta, /) -> dict[str, Any]:
        """What else of the target is set together with our finalizer, as a merge patch of the version in `meta`."""

    async def loosen(self, run: RunObject, /) -> bool:
        """Take that away again, once nothing has to be done any more before it stops; false if another run needs it."""

    async def state(self, run: RunObject, /) -> TargetState | None:
        """How far it has come if it starts and stops by itself; None if that is what its kept units do.

        Of a closed run by a quorum read, no earlier than the ledger was read (`plan.world.TargetState`).
        """


class Plain:
    """What an adapter may begin with: nothing is kept beside its targets, they live on, and nothing is said of them."""

    copies = removes = False

    def __init__(self, resource: Resource[Any]) -> None:
        self.resource = resource
        self.cache: Cache[Any] = Cache()

    def seen(self, item: Any) -> CachedTarget:
        return CachedTarget(item.metadata, {})

    def heard(self, _change: Change[Any]) -> bool:
        return True

    def lost(self, _item: Any) -> None:
        """Whoever has set the finalizer knows."""

    def times(self, _run: RunObject, _seen: CachedTarget) -> Times:
        return Times()

    async def dismissal(self, _run: RunObject) -> EndRequest | None:
        return None

    async def vouch(self, run: RunObject, missing: errors.NotFound | errors.NotServed) -> None:
        """What the server does not find is gone. Where it serves no such kind nobody knows."""
        if isinstance(missing, errors.NotServed):
            target, kind = run.ledger.target, self.resource
            definition = f"{kind.plural}.{kind.group}"
            raise KindLostError(messages.kind_lost(target.kind, target.api_version, definition, proves=False))

    async def permits(self, _run: RunObject) -> bool | None:
        return True

    async def stays(self, _run: RunObject) -> bool:
        return False

    async def fields(self, _run: RunObject) -> dict[str, Any] | None:
        return None

    async def grip(self, _run: RunObject, _meta: AnnotatedMeta) -> dict[str, Any]:
        return {}

    async def loosen(self, _run: RunObject) -> bool:
        return True

    async def state(self, _run: RunObject) -> TargetState | None:
        return None

    async def tell(self, _scene: Scene, _report: RunReport, *, hindrance: str = "") -> float:  # noqa: ARG002 - said nowhere
        return 0.0

    async def freeze(self, _run: RunObject, _why: UndecidableError) -> None:
        """Nobody asks."""


class Unknown(Plain):
    """Of a kind that has no adapter, or not yet: how far it has come nobody can tell, so what depends on that waits."""

    async def state(self, _run: RunObject) -> TargetState:
        return TargetState(message=f"this operator does not know the kind {self.resource.kind}")


def rights(adapter: Adapter) -> dict[str, list[str]]:
    """What the operator must be granted to have such targets, as a rule of a ClusterRole."""
    verbs = ["get", "list", "watch", "patch", *(["delete"] if adapter.removes else [])]
    return {"apiGroups": [adapter.resource.group], "resources": [adapter.resource.plural], "verbs": verbs}
