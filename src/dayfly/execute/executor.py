"""The protocol of executors, and the registry of a host, which has one executor for each kind of unit.

A new kind needs an executor for each host, in its own folder, and an entry in the host's registry. The engine knows
nothing else about kinds: it distinguishes only units that are done *once* and units that are *kept* running, as the
document defines. `V_contra` is the host's type for the view of one turn.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from dayfly.execute.acquire.acquisition import find_template
from dayfly.lib.tasks import attempt_all
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import AttemptKey, Fact, UnitRefusal
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Lifecycle, LifecycleEvent, Unit, kept_id, unit_id

V_contra = TypeVar("V_contra", contravariant=True)
SLOTLESS_KINDS = frozenset({Kind.ACQUIRE})
"""The kinds whose attempts only wait for another run, and so use no slot of a host."""
UnitEffect = Prepare | Launch | Fence | Recall | Cancel | Release
"""The effects that executors perform."""


class Observations(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of an executor about the units of its kind in a run.

    `objections` are reasons why units cannot start now. `outputs` are the values of attempts that have ended in
    `facts`. `object_refs` has the reference of the object that a running attempt has created, for kinds whose claim
    does not contain it. `definitions` has the CustomResourceDefinitions of objects that units will create, as NAME/UID.
    """

    facts: Mapping[AttemptKey, Fact] = {}
    objections: Mapping[str, UnitRefusal] = {}
    outputs: Mapping[AttemptKey, Mapping[str, bytes]] = {}
    object_refs: Mapping[AttemptKey, str] = {}
    definitions: Mapping[str, str] = {}


class Executor(Protocol[V_contra]):
    """Observes and performs units of one kind on one host. The result of an effect is a fact of a later turn."""

    kind: str
    is_gated: bool
    """Whether an attempt is prepared behind a gate before it is claimed."""

    def admit(self, name: str, unit: Unit, /) -> None:
        """Refuse a unit that this host cannot run, before the document is sealed.

        Raises:
            DocumentsRefusedError: This host can never run the unit.
        """

    async def observe(self, view: V_contra, /) -> None:
        """Observe the attempts in the ledger whose state is not known yet."""

    def observations(self, view: V_contra, /) -> Observations:
        """Return what is known, without requests."""

    async def prepare(self, view: V_contra, effect: Prepare, /) -> None:
        """Prepare an attempt behind its gate."""

    async def launch(self, view: V_contra, effect: Launch, /) -> None:
        """Start a claimed attempt."""

    async def fence(self, view: V_contra, effect: Fence, /) -> None:
        """Ensure that an attempt never starts, or find that it has started."""

    async def recall(self, view: V_contra, effect: Recall, /) -> None:
        """Obtain proof that an attempt that cannot start has not started."""

    async def cancel(self, view: V_contra, effect: Cancel, /) -> None:
        """Request the end of a running attempt, and force it after its grace period."""

    async def release(self, view: V_contra, effect: Release, /) -> None:
        """Remove the evidence of an attempt after the ledger has its result."""

    async def keep(self, view: V_contra, /) -> None:
        """Bring kept units to their desired state after a turn."""

    async def clear(self, view: V_contra, /) -> None:
        """Remove everything that is no longer needed after the run has ended."""

    async def close(self) -> None:
        """Stop observing because the host's process ends. Running attempts continue."""


class Registry(Generic[V_contra]):
    """The executors of one host, by kind."""

    def __init__(
        self, *executors: Executor[V_contra], secrets: bool = False, refusals: tuple[type[Exception], ...] = ()
    ) -> None:
        """Initialize the registry.

        Args:
            executors: One executor for each kind.
            secrets: Whether the host accepts secret values, which are not part of documents.
            refusals: Errors that concern only one kind, such as a right that the host no longer has.
        """
        self._secrets = secrets
        self._refusals = refusals
        self._by_kind = {executor.kind: executor for executor in executors}

    def add(self, executor: Executor[V_contra]) -> None:
        """Add the executor of one more kind."""
        self._by_kind[executor.kind] = executor

    def find(self, kind: str) -> Executor[V_contra] | None:
        """Return the executor of a kind; None if there is none."""
        return self._by_kind.get(kind)

    def executors_for(self, _view: V_contra, /) -> Iterable[Executor[V_contra]]:
        """Return the executors that may have units in the view. By default all."""
        return self._by_kind.values()

    @property
    def gated_kinds(self) -> frozenset[str]:
        """The kinds whose attempts are prepared before they are claimed."""
        return frozenset(kind for kind, executor in self._by_kind.items() if executor.is_gated)

    def admit(self, documents: tuple[Lifecycle, ...], kept: tuple[Unit, ...]) -> None:
        """Refuse documents and kept units that this host cannot run.

        Raises:
            DocumentsRefusedError: This host cannot run the named unit.
        """
        for document in documents:
            if not self._secrets and (problem := messages.secrets_not_available(document.secrets())):
                raise DocumentsRefusedError(f"{document.resource}: {problem}")
            for unit in (unit for event in LifecycleEvent for unit in document.units(event)):
                self._admit(unit_id(document.resource, unit.name), unit)
            if (template := find_template(document)) is not None:
                self.admit(template.documents, ())
        for unit in kept:
            _check_work(unit.name, unit)
            self._admit(kept_id(unit), unit)

    def _admit(self, name: str, unit: Unit) -> None:
        _check_work(name, unit)
        executor = self._by_kind.get(unit.kind)
        if executor is None:
            raise DocumentsRefusedError(f"{name}: {self._unsupported(unit)}")
        executor.admit(name, unit)

    def _unsupported(self, unit: Unit) -> str:
        return messages.unsupported_kind(unit.kind, tuple(sorted(self._by_kind)))

    async def observe(self, view: V_contra, failed: Callable[[str, Exception], None] | None = None) -> None:
        """Let each executor observe.

        If one fails, `failed` is called with its kind, and the others continue unless `failed` raises.
        """
        for executor in self.executors_for(view):
            try:
                await executor.observe(view)
            except Exception as error:
                if failed is None:
                    raise
                failed(executor.kind, error)

    def observations(
        self, view: V_contra, plan: Plan, unseen: Mapping[str, Observations] = MappingProxyType({})
    ) -> Observations:
        """Return what all executors know. Units of unsupported kinds, which another host sealed, get an objection.

        `unseen` has the assumptions for kinds that could not be observed.
        """
        facts: dict[AttemptKey, Fact] = {}
        outputs: dict[AttemptKey, Mapping[str, bytes]] = {}
        made: dict[AttemptKey, str] = {}
        definitions: dict[str, str] = {}
        every: tuple[SealedStep | KeptStep, ...] = (*plan.steps.values(), *plan.kept.values())
        objections = {
            step.id: UnitRefusal(reason=Reason.UNSUPPORTED_KIND, message=self._unsupported(step.unit))
            for step in every
            if step.unit.kind not in self._by_kind
        }
        every_kind = [unseen.get(each.kind) or each.observations(view) for each in self.executors_for(view)]
        for known in every_kind:
            facts |= known.facts
            outputs |= known.outputs
            made |= known.object_refs
            definitions |= known.definitions
            objections |= known.objections
        return Observations(
            facts=facts, objections=objections, outputs=outputs, object_refs=made, definitions=definitions
        )

    async def perform(self, view: V_contra, kind: str, effect: UnitEffect) -> None:
        """Perform an effect, or begin to. Unsupported kinds are ignored, because they were never started."""
        executor = self._by_kind.get(kind)
        if executor is None:
            return
        match effect:
            case Prepare():
                await executor.prepare(view, effect)
            case Launch():
                await executor.launch(view, effect)
            case Fence():
                await executor.fence(view, effect)
            case Recall():
                await executor.recall(view, effect)
            case Cancel():
                await executor.cancel(view, effect)
            case Release():
                await executor.release(view, effect)

    async def keep(self, view: V_contra) -> None:
        """Bring kept units of all kinds to their desired state after a turn."""
        await attempt_all((executor.keep(view) for executor in self._by_kind.values()), self._refusals)

    async def clear(self, view: V_contra) -> None:
        """Remove everything that is no longer needed after the run has ended."""
        await attempt_all((executor.clear(view) for executor in self._by_kind.values()), self._refusals)

    async def close(self) -> None:
        """Close all executors because the host's process ends."""
        for executor in self._by_kind.values():
            await executor.close()


_WORK: dict[str, str] = {
    Kind.EXEC: "a script",
    Kind.WEBHOOK: "a request",
    Kind.OBJECT: "a manifest",
    Kind.FORK: "a baseline",
    Kind.ROUTE: "a baseline",
    Kind.PREVIEW: "a target",
    Kind.ACQUIRE: "a step",
}


def _check_work(name: str, unit: Unit) -> None:
    """Refuse a unit of a built-in kind whose field for that kind is missing."""
    if (work := _WORK.get(unit.kind)) and getattr(unit, unit.kind) is None:
        raise DocumentsRefusedError(f"{name}: a unit of kind {unit.kind} needs {work}, but has none")
