"""One executor for each kind of unit, behind one protocol; a host is a registry from kind to executor.

Whoever adds a kind writes its executor for a host, in a folder of its own, and names it in that host's registry. The
engine is told of a kind no more than what is here: it has units that are done *once* and units that are *kept*, and it
is the document that says which. What a host looks at in one turn (`V_contra`) is the host's own.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from dayfly.lib.tasks import attempt_all
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import AttemptKey, Fact, Objection
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Lifecycle, LifecycleEvent, Unit, kept_id, unit_id

V_contra = TypeVar("V_contra", contravariant=True)
OfUnit = Prepare | Launch | Fence | Recall | Cancel | Release
"""The effects that are an executor's business."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor knows of a run's units of its kind.

    `objections` are why units cannot be taken at this moment; `outputs` the values that belong to ends among the facts;
    `made` names what living attempts have made, for kinds of which the claim cannot. `definitions` names what defines
    the kinds of objects that units are about to make, as NAME/UID.
    """

    facts: Mapping[AttemptKey, Fact] = {}
    objections: Mapping[str, Objection] = {}
    outputs: Mapping[AttemptKey, Mapping[str, bytes]] = {}
    made: Mapping[AttemptKey, str] = {}
    definitions: Mapping[str, str] = {}


class Executor(Protocol[V_contra]):
    """How units of one kind are done and seen on one host. What comes of an effect is a fact of a later turn."""

    kind: str
    gated: bool
    """Whether an attempt is prepared behind a gate before it is claimed."""

    def admit(self, name: str, unit: Unit, /) -> None:
        """Refuse what this host cannot run, before anything is sealed.

        Raises:
            RefusedError: it cannot be run here, whatever happens.
        """

    async def observe(self, view: V_contra, /) -> None:
        """Find out what is not known yet of the attempts that the ledger speaks of."""

    def known(self, view: V_contra, /) -> Known:
        """What is known, without asking anybody."""

    async def prepare(self, view: V_contra, effect: Prepare, /) -> None:
        """Make an attempt ready behind its gate."""

    async def launch(self, view: V_contra, effect: Launch, /) -> None:
        """Let a claimed attempt go."""

    async def fence(self, view: V_contra, effect: Fence, /) -> None:
        """See to it that an attempt never starts, or find that it has."""

    async def recall(self, view: V_contra, effect: Recall, /) -> None:
        """Have an attempt that cannot start say itself that it did not."""

    async def cancel(self, view: V_contra, effect: Cancel, /) -> None:
        """Ask a running attempt to end, and force it after its grace."""

    async def release(self, view: V_contra, effect: Release, /) -> None:
        """The ledger has the result: the evidence may vanish."""

    async def keep(self, view: V_contra, /) -> None:
        """After a turn: bring what is kept to how it is wished for."""

    async def clear(self, view: V_contra, /) -> None:
        """The run is over: take away what nobody will ask for any more."""

    async def close(self) -> None:
        """The host's process ends: look at nothing any more. What runs goes on."""


class Registry(Generic[V_contra]):
    """The kinds of one host."""

    def __init__(
        self, *executors: Executor[V_contra], secrets: bool = False, refusals: tuple[type[Exception], ...] = ()
    ) -> None:
        """`secrets`: whether the host can be given what stands in no document. `refusals`: what one kind may meet that
        says nothing of the others, as a right that the host has no more.
        """
        self._secrets = secrets
        self._refusals = refusals
        self._by_kind = {executor.kind: executor for executor in executors}

    def add(self, executor: Executor[V_contra]) -> None:
        """Have the host run one more kind."""
        self._by_kind[executor.kind] = executor

    def find(self, kind: str) -> Executor[V_contra] | None:
        """The executor of that kind, if there is one."""
        return self._by_kind.get(kind)

    def concerned(self, _view: V_contra, /) -> Iterable[Executor[V_contra]]:
        """Those who may know anything of what is looked at: all, unless a host can tell."""
        return self._by_kind.values()

    @property
    def gated(self) -> frozenset[str]:
        """The kinds of which an attempt is prepared before it is claimed."""
        return frozenset(kind for kind, executor in self._by_kind.items() if executor.gated)

    def admit(self, documents: tuple[Lifecycle, ...], kept: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run.

        Raises:
            RefusedError: the first thing that it cannot run.
        """
        for document in documents:
            if not self._secrets and (problem := messages.secrets_not_available(document.secrets())):
                raise DocumentsRefusedError(f"{document.resource}: {problem}")
            for unit in (unit for event in LifecycleEvent for unit in document.units(event)):
                self._admit(unit_id(document.resource, unit.name), unit)
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
        """Find out what is not known yet.

        With `failed`, a kind that cannot be observed is reported to it, and unless it raises the others go on.
        """
        for executor in self.concerned(view):
            try:
                await executor.observe(view)
            except Exception as error:
                if failed is None:
                    raise
                failed(executor.kind, error)

    def known(self, view: V_contra, plan: Plan, unseen: Mapping[str, Known] = MappingProxyType({})) -> Known:
        """What all of them know. What was sealed elsewhere and cannot be run here waits, and says so.

        `unseen` has what is assumed of the kinds that could not be observed.
        """
        facts: dict[AttemptKey, Fact] = {}
        outputs: dict[AttemptKey, Mapping[str, bytes]] = {}
        made: dict[AttemptKey, str] = {}
        definitions: dict[str, str] = {}
        every: tuple[SealedStep | KeptStep, ...] = (*plan.steps.values(), *plan.kept.values())
        objections = {
            step.id: Objection(reason=Reason.UNSUPPORTED_KIND, message=self._unsupported(step.unit))
            for step in every
            if step.unit.kind not in self._by_kind
        }
        every_kind = [unseen.get(each.kind) or each.known(view) for each in self.concerned(view)]
        for known in every_kind:
            facts |= known.facts
            outputs |= known.outputs
            made |= known.made
            definitions |= known.definitions
            objections |= known.objections
        return Known(facts=facts, objections=objections, outputs=outputs, made=made, definitions=definitions)

    async def perform(self, view: V_contra, kind: str, effect: OfUnit) -> None:
        """Bring an effect about, or begin to. Nothing was ever let go of a kind that this host does not know."""
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
        """After a turn: bring what is kept to how it is wished for."""
        await attempt_all((executor.keep(view) for executor in self._by_kind.values()), self._refusals)

    async def clear(self, view: V_contra) -> None:
        """The run is over."""
        await attempt_all((executor.clear(view) for executor in self._by_kind.values()), self._refusals)

    async def close(self) -> None:
        """The host's process ends."""
        for executor in self._by_kind.values():
            await executor.close()


_WORK: dict[str, str] = {
    Kind.EXEC: "a script",
    Kind.WEBHOOK: "a request",
    Kind.OBJECT: "a manifest",
    Kind.FORK: "a baseline",
    Kind.ROUTE: "a baseline",
    Kind.PREVIEW: "a target",
}


def _check_work(name: str, unit: Unit) -> None:
    """Refuse a unit of one of our kinds that does not say what is to be done."""
    if (work := _WORK.get(unit.kind)) and getattr(unit, unit.kind) is None:
        raise DocumentsRefusedError(f"{name}: a unit of kind {unit.kind} needs {work}, and this one has none")
