"""The server's leak checks in this cluster. A server may do with them only what its plugins may do in this cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from dayfly.link import wire
from dayfly.operator.agent import admission
from dayfly.operator.agent.api_errors import OPERATOR, unavailable_on_error
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.leak_check import LeakCheck, check_leak_check
from dayfly.spec.lifecycle import LEAK_CHECK_TARGET, STEP_KINDS, Lifecycle, LifecycleEvent
from dayfly.spec.scalars import kube_names, semver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dayfly.link.wire import Verdict
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.lifecycle import Unit
    from dayfly.spec.resource_token import ResourceToken

    Admit = Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]

_OTHER_EVENTS: Final = (LifecycleEvent.POST_START, LifecycleEvent.PRE_STOP, LifecycleEvent.POST_STOP)


class ServedChecks(Protocol):
    """The LeakChecks that servers have made in this cluster. Each method may raise `errors.ApiError`."""

    async def put(self, org: str, order: wire.PutLeakCheck) -> Verdict: ...
    async def drop(self, org: str, order: wire.DropLeakCheck) -> Verdict: ...
    async def sweep(self, org: str, order: wire.SweepLeaks) -> Verdict: ...
    def reports(self, org: str) -> tuple[LeakReport, ...]: ...
    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]: ...


class ServerSession(Protocol):
    """The organisation of the session with the server, and the namespace that is bound to it; empty if none is."""

    org: str

    @property
    def namespace(self) -> str: ...


class LeakOrders:
    """The leak checks of the host (`link.host_interface.LeakHost`)."""

    def __init__(self, session: ServerSession, checks: ServedChecks, admit: Admit) -> None:
        self._session = session
        self._checks = checks
        self._admit = admit

    @property
    def grant_command(self) -> str:
        role = "dayfly-agent-leaks"
        return f"kubectl create clusterrolebinding {role} --clusterrole {role} --serviceaccount {OPERATOR}"

    @unavailable_on_error
    async def execute(self, order: wire.LeakOrder) -> Verdict:
        org = self._session.org
        match order:
            case wire.PutLeakCheck():
                self._check_order(order)
                return await self._checks.put(org, order)
            case wire.DropLeakCheck():
                return await self._checks.drop(org, order)
            case wire.SweepLeaks():
                self._check_deletions(order.deletes)
                return await self._checks.sweep(org, order)

    def reports(self) -> tuple[LeakReport, ...]:
        return self._checks.reports(self._session.org)

    @unavailable_on_error
    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        return await self._checks.resource_states(tokens)

    def _check_order(self, order: wire.PutLeakCheck) -> None:
        """Refuse a check that no server compiles.

        Raises:
            DocumentsRefusedError: for the first problem.
        """
        if not self._session.namespace:
            org = self._session.org
            raise DocumentsRefusedError(
                f"no namespace of the cluster is bound to the organisation {org}: its administrator can start the "
                f"operator with --agent-namespace {org}=NAMESPACE"
            )
        if not kube_names.is_object(order.name):
            raise DocumentsRefusedError(
                f"{quote(order.name)} cannot be the name of a LeakCheck in a cluster: use lower-case letters"
            )
        try:
            check_leak_check(LeakCheck(name=order.name, spec=order.spec), ("name",))
            name = semver.split_reference(order.spec.plugin, ("spec", "plugin"))[0]
        except SpecError as fault:
            raise DocumentsRefusedError(str(fault)) from None
        self._check_document(order.inventory)
        self._check_deletions(order.deletes)
        if {each.origin.plugin for each in (order.inventory, *order.deletes.values())} != {name}:
            raise DocumentsRefusedError(f"the documents of the check must be of its plugin {name}")

    def _check_deletions(self, deletes: dict[str, Lifecycle]) -> None:
        for plugin, document in deletes.items():
            self._check_document(document)
            origin = document.origin
            if plugin != semver.join_name(origin.plugin, origin.version):
                raise DocumentsRefusedError(f"the document that deletes {plugin} has the delete steps of {origin.name}")

    def _check_document(self, document: Lifecycle) -> None:
        """Refuse a document that is not of a published plugin of the organisation, or has more than steps to run."""
        if document.origin.inline:
            raise DocumentsRefusedError("a leak check needs a published plugin")
        admission.check_run((document,), self._session.org)
        has_more = any(document.units(event) for event in _OTHER_EVENTS) or document.template or document.sharing
        if document.target != LEAK_CHECK_TARGET or document.resource_id != "" or has_more:
            raise DocumentsRefusedError(
                "a document of a leak check has only create steps, and no target or resource ID"
            )
        if not document.pre_start or any(unit.kind not in STEP_KINDS for unit in document.pre_start):
            raise DocumentsRefusedError("a leak check has only scripts and webhooks")
        self._admit((document,), ())
