"""The adapter of a kind of target: all that the operator must know of the kind.

To add a kind, write its adapter and hand it to `Targets.add`. That starts its watch and the queueing of its runs, and
includes it in sweeps and status reports. `rights` returns the RBAC rule that the operator needs for it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.objects import AnnotatedMeta, ApiResource
from dayfly.operator.cluster.caches import has_finalizer
from dayfly.operator.cluster.objects import (
    RETRY_ANNOTATION,
    TARGET_FINALIZER,
    LeakCheckObject,
    PoolMemberObject,
    ResourcePoolObject,
    RouteGroupObject,
    RunObject,
    SandboxObject,
    parse_retries,
)
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetState
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest


class UndecidableError(Exception):
    """Nothing can be decided for a run now. `reason` is a `Reason`; the text says what a user can do."""

    reason: str = Reason.PLAN_LOST


class KindLostError(UndecidableError):
    """The API server no longer serves the kind of a target, so it is unknown whether the target still exists."""

    reason = Reason.KIND_NOT_SERVED


class BlockedError(UndecidableError):
    """A run cannot start: the API server rejects a request or does not answer, and the operator retries."""

    reason = Reason.BLOCKED


class CachedTarget(NamedTuple):
    """A target as a cache has it. The cache may be behind."""

    meta: AnnotatedMeta
    spec: dict[str, Any]


class Times(NamedTuple):
    """When a run ends by itself, in unix milliseconds; 0 means never."""

    expires_at: int = 0
    lease_until: int = 0


class StatusReporter(Protocol):
    """Reports the state of a run to the owner of its target."""

    async def report_status(self, scene: Scene, report: RunReport, /, *, hindrance: str = "") -> float:
        """Report the state; return the seconds until it must be reported again, 0 if that is not needed.

        `hindrance` is an error that keeps the operator from continuing the run, whatever its steps do.
        """

    async def report_frozen(self, run: RunObject, why: UndecidableError, /) -> None:
        """Report why the operator does nothing for the run."""


class Adapter(StatusReporter, Protocol):
    """One kind of target. Deletion, finalizer and our annotations are the same for all kinds."""

    resource: ApiResource[Any]
    """The kind, and the type of its objects, which are watched and kept in `cache`."""
    cache: Cache[Any]
    has_resources: bool
    """Whether Resources are stored next to it, in its namespace."""
    has_logs: bool
    """Whether logs of its steps are stored next to it, in its namespace."""
    removes: bool
    """Whether the target is deleted at the end of its run."""
    log_limit: int
    """Up to which size the whole output of each step is read and passed to `keep_output`; 0 for none."""

    def keep_output(self, run: RunObject, unit: str, output: bytes | None, /) -> None:
        """Process the whole output of a step, before its result is recorded; None if it cannot be read."""

    def as_cached(self, item: Any, /) -> CachedTarget:
        """Convert an object of the cache."""

    def on_change(self, change: ObjectChange[Any], /) -> bool:
        """Process a change of an object; return whether its runs must take a turn because of it."""

    def on_run_missing(self, item: Any, /) -> None:
        """Process an object that has our finalizer and no known run."""

    def get_times(self, run: RunObject, seen: CachedTarget, /) -> Times:
        """Return how long the target's owner wants the run."""

    async def get_end_request(self, run: RunObject, /) -> EndRequest | None:
        """Return why the run must end although its target stays; None if it need not."""

    def get_retries(self, run: RunObject, seen: CachedTarget, /) -> Mapping[str, int]:
        """Return the attempts of units whose back-off ends because a person asks for it."""

    async def confirm_gone(self, run: RunObject, missing: errors.NotFound | errors.NotServed, /) -> None:
        """Return if the error `missing`, which a read of the target has raised, proves that the target is gone.

        Raises:
            KindLostError: it proves nothing.
        """

    async def permits(self, run: RunObject, /) -> bool | None:
        """Return whether the run may start at all; None if that is unknown now.

        This is called before the first claim of a run, when its target has our finalizer, unless that is being deleted
        and the run has no holder. False deletes the run, and releases its target.
        """

    async def is_awaited(self, run: RunObject, /) -> bool:
        """Return whether the ledger of an ended run must stay because another run has not observed the end yet."""

    async def record_end(self, run: RunObject, /) -> bool:
        """Record the end for the target's owner; return whether the ledger must stay as long as the target.

        It must stay if the target would otherwise get a new run.
        """

    async def read_fields(self, run: RunObject, /) -> dict[str, Any] | None:
        """Return the target as it is now, for inputs from its fields; None if it is gone or steps may not read it."""

    async def build_hold_patch(self, run: RunObject, meta: AnnotatedMeta, /) -> dict[str, Any]:
        """Return what else to set together with our finalizer, as a merge patch of the target's version in `meta`."""

    async def remove_hold(self, run: RunObject, /) -> bool:
        """Undo that patch once nothing is left to do before the target stops; return False if another run needs it."""

    async def read_state(self, run: RunObject, /) -> TargetState | None:
        """Return how far the target has come if it starts and stops by itself; None if the run's kept units do that.

        For a closed run this is a quorum read, no earlier than the read of the ledger (`plan.world.TargetState`).
        """


class BaseAdapter:
    """An adapter with defaults: targets stay after their run, nothing is stored next to them, nothing is reported."""

    has_resources = has_logs = removes = False
    log_limit = 0

    def __init__(self, resource: ApiResource[Any]) -> None:
        self.resource = resource
        self.cache: Cache[Any] = Cache()

    def keep_output(self, _run: RunObject, _unit: str, _output: bytes | None) -> None:
        """Ignore it."""

    def as_cached(self, item: Any) -> CachedTarget:
        return CachedTarget(item.metadata, {})

    def on_change(self, _change: ObjectChange[Any]) -> bool:
        return True

    def on_run_missing(self, _item: Any) -> None:
        """Do nothing: the component that has set the finalizer creates the run."""

    def get_times(self, _run: RunObject, _seen: CachedTarget) -> Times:
        return Times()

    async def get_end_request(self, _run: RunObject) -> EndRequest | None:
        return None

    def get_retries(self, _run: RunObject, seen: CachedTarget) -> Mapping[str, int]:
        return parse_retries((seen.meta.annotations or {}).get(RETRY_ANNOTATION, ""))

    async def confirm_gone(self, run: RunObject, missing: errors.NotFound | errors.NotServed) -> None:
        """Accept "not found" as proof, and "kind not served" not."""
        if isinstance(missing, errors.NotServed):
            target, kind = run.ledger.target, self.resource
            definition = f"{kind.plural}.{kind.group}"
            raise KindLostError(messages.kind_lost(target.kind, target.api_version, definition, proves=False))

    async def permits(self, _run: RunObject) -> bool | None:
        return True

    async def is_awaited(self, _run: RunObject) -> bool:
        return False

    async def record_end(self, _run: RunObject) -> bool:
        return False

    async def read_fields(self, _run: RunObject) -> dict[str, Any] | None:
        return None

    async def build_hold_patch(self, _run: RunObject, _meta: AnnotatedMeta) -> dict[str, Any]:
        return {}

    async def remove_hold(self, _run: RunObject) -> bool:
        return True

    async def read_state(self, _run: RunObject) -> TargetState | None:
        return None

    async def report_status(self, _scene: Scene, _report: RunReport, *, hindrance: str = "") -> float:  # noqa: ARG002 - reports nothing
        return 0.0

    async def report_frozen(self, _run: RunObject, _why: UndecidableError) -> None:
        """Report nothing."""


class UnknownKind(BaseAdapter):
    """The adapter of a kind that has none, or none yet. Its state is unknown, so units that depend on it wait."""

    async def read_state(self, _run: RunObject) -> TargetState:
        return TargetState(message=f"this operator does not know the kind {self.resource.kind}")


def rights(adapter: Adapter) -> dict[str, list[str]]:
    """Return the rule of a ClusterRole that the operator needs for such targets."""
    verbs = ["get", "list", "watch", "patch", *(["delete"] if adapter.removes else [])]
    return {"apiGroups": [adapter.resource.group], "resources": [adapter.resource.plural], "verbs": verbs}


def restarts_ttl_on_update(spec: dict[str, Any]) -> bool:
    """Return whether the time to live of a Sandbox or RouteGroup restarts with each change of its spec."""
    ttl = spec.get("ttl")
    return isinstance(ttl, dict) and ttl.get("offsetFrom") == "updatedAt"


def is_own_change(
    change: ObjectChange[SandboxObject]
    | ObjectChange[RouteGroupObject]
    | ObjectChange[ResourcePoolObject]
    | ObjectChange[PoolMemberObject]
    | ObjectChange[LeakCheckObject],
) -> bool:
    """Return whether only the status has changed or our finalizer was added: the operator does that itself."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    finalizers = old.metadata.finalizers
    if has_finalizer(new.metadata, TARGET_FINALIZER) and not has_finalizer(old.metadata, TARGET_FINALIZER):
        finalizers = [*(finalizers or ()), TARGET_FINALIZER]
    version = new.metadata.resource_version
    before = msgspec.structs.replace(old.metadata, resource_version=version, finalizers=finalizers)
    return (before, old.spec) == (new.metadata, new.spec)
