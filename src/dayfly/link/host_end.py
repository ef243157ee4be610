"""A host's end of the link, the same for each host: sessions, numbers, resent messages, and answers for errors.

`host_interface` declares what this end calls on the host. Orders may arrive twice and in any order, with the same
result. A later offer or lease of a run replaces an earlier one: the highest number counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from dayfly.link import wire
from dayfly.link.wire import Verdict
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError, RunDamagedError
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from dayfly.link.host_interface import Host
    from dayfly.spec.leak_report import LeakReport

# Seconds between two calls of `HostEnd.resend`.
RESEND_INTERVAL_S = 30.0
# The findings of all checks in an answer, which is one message of at most 8 MiB.
MAX_FINDINGS_BYTES = 4 << 20
# Deletions of a check in an answer. The server stores fewer at once, and then queries again.
MAX_SENT_DELETIONS = 200
NO_LEAK_CHECKS = "this host has no leak checks; upgrade it, or name another cluster in spec.cluster"

log = logging.getLogger(__name__)


class HostEnd:
    """One host's end of the link. The host calls `changed` and `ended`; a transport calls `attach` and `send`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._to_server: Callable[[wire.AnyToServer], None] | None = None
        self._session = 0
        self._count = 0
        # The highest number received. Births with a number up to the floor are rejected: their run may be forgotten.
        self._highest = 0
        self._floor = 0
        # By kind and run: the highest number of an offer or lease that the host has taken or is executing.
        self._newest: dict[tuple[str, str], int] = {}
        self._changed: set[str] = set()
        # Orders that failed, by kind and run.
        self._failing: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- messages of the server ---------------------------------------------------------------------------------------

    def attach(self, receive: Callable[[wire.AnyToServer], None]) -> None:
        """Begin a session whose messages are passed to `receive`, and end the one before."""
        self._to_server = receive
        self._session = self._host.begin_session()
        self._count, self._highest, self._floor = 0, 0, 0
        self._newest.clear()
        self._send_inventory()

    def send(self, message: wire.AnyToHost | wire.Unreadable) -> None:
        """Deliver a message to the host. It returns before an order is carried out."""
        if isinstance(message, wire.Hello):
            self._send_inventory()
            return
        if not self._session or message.session != self._session:
            self.send_heartbeat()  # the sender does not know this session
            return
        self._highest = max(self._highest, message.number)
        if isinstance(message, wire.Query):
            self.answer(message)
        elif isinstance(message, wire.Unreadable):
            self.reply(message, Verdict.REFUSED, f"it cannot read the message: {message.problem}")
        elif isinstance(message, wire.Acknowledge):
            self.start_task(self._acknowledge(message))
        else:
            self.start_task(self._carry_out(message))

    def _send_inventory(self) -> None:
        self.send_to_server(
            wire.Inventory(
                session=self._session,
                count=self._count,
                runs=tuple(map(self._status_without_report, self._host.living_runs())),
                ended=tuple(map(self._status_without_report, self._host.unacknowledged_ends())),
                routes=self._host.routes,
                pools=self._host.pools,
                parents=self._host.parents,
            )
        )

    async def _carry_out(self, order: wire.Order) -> None:
        if order.session != self._session:
            return  # another session has begun since
        if self._is_belated(order):
            self.reply(order, Verdict.UNAVAILABLE, "it may be of a run that is forgotten by now; offer it again")
            return
        key = _replacement_key(order)
        if key and order.number < self._newest.get(key, order.number):
            self.reply(order, Verdict.TAKEN)  # a later order of this kind has replaced it
            return
        if key:
            self._newest[key] = order.number
        verdict, problem = await self._try_order(order)
        if key and verdict is not Verdict.TAKEN and self._newest.get(key) == order.number:
            del self._newest[key]
        if verdict is Verdict.OVER:
            self._forget_failures(order.uid)
            self._send_end(order.uid, order if order.session == self._session else None)
        else:
            self.reply(order, verdict, problem, seq=self._host.version(order.uid))

    def _is_belated(self, order: wire.Order) -> bool:
        """Return whether the run may have ended and been forgotten before its offer arrived."""
        return isinstance(order, wire.Offer) and order.birth and order.number <= self._floor

    async def _try_order(self, order: wire.Order) -> tuple[Verdict, str]:
        """Execute an order. Return its verdict and, for an error, a message."""
        subject = type(order).__name__, getattr(order, "uid", "")
        try:
            verdict = await self.execute(order)
        except HostUnavailableError as fault:
            return Verdict.UNAVAILABLE, str(fault)
        except DocumentsRefusedError as fault:
            return Verdict.REFUSED, str(fault)
        except Exception:
            # The server resends the order, so its failure is logged only once.
            if subject not in self._failing:
                log.exception("%s %s failed", *subject)
            self._failing.add(subject)
            return Verdict.FAILED, "see the log of the host"
        self._failing.discard(subject)
        return verdict, ""

    async def execute(self, order: wire.Order) -> Verdict:
        """Pass an order to the host. Orders for the same run are executed one by one, in the order of their arrival."""
        async with self._locks.setdefault(order.uid, asyncio.Lock()):
            if isinstance(order, wire.LeakOrder):
                if self._host.leak_checks is None:
                    raise DocumentsRefusedError(NO_LEAK_CHECKS)
                return await self._host.leak_checks.execute(order)
            return await self._execute(order)

    async def _execute(self, order: wire.RunOrder) -> Verdict:
        host = self._host
        match order:
            case wire.Offer():
                if order.birth:
                    host.admit(order.documents, order.forks)
                return await host.offer(order)
            case wire.Stop(uid=uid, request=request, known=known):
                return await host.stop(uid, request, known=known)
            case wire.Abandon(uid=uid, request=request):
                return await host.abandon(uid, request)
            case wire.Retry(uid=uid, attempts=attempts, by=by):
                return await host.retry(uid, attempts, by)
            case wire.Lease(uid=uid, until=until):
                return await host.lease(uid, until)
            case wire.Reset(uid=uid, resource=resource, member=member, by=by):
                return await host.reset(uid, resource, member, by)
            case wire.ControlPool(uid=uid, action=action, by=by):
                return await host.control_pool(uid, action, by)

    async def _acknowledge(self, message: wire.Acknowledge) -> None:
        try:
            await self._host.acknowledge(message.uids)
        except HostUnavailableError as fault:
            log.warning("acknowledged ends cannot be recorded and are resent: %s", fault)

    def answer(self, query: wire.Query) -> None:
        """Answer a query: about documents and states at once, about anything else in a task."""
        if isinstance(query, wire.AdmissionQuery | wire.StatusQuery):
            self._answer_with(query, lambda: self._answer_about_state(query))
        elif isinstance(query, wire.LeaksQuery):
            self._answer_with(query, lambda: self._answer_about_leaks(query))
        else:
            self.start_task(self._answer_slow_query(query))

    def _answer_about_leaks(self, query: wire.LeaksQuery) -> wire.Leaks:
        checks = self._host.leak_checks
        reports = checks.reports() if checks is not None else ()
        wanted = [each for each in reports if not query.names or each.name in query.names]
        selected = [_select_fields(each, query) for each in wanted]
        return wire.Leaks(
            **query.address, reports=limit_findings(selected) if self._host.is_remote else tuple(selected)
        )

    async def _answer_slow_query(self, query: wire.RunQuery | wire.ResourcesQuery) -> None:
        try:
            if isinstance(query, wire.ResourcesQuery):
                answer = await self._answer_about_resources(query)
            else:
                answer = await self._host.answer_query(query)
        except Exception as fault:  # noqa: BLE001 - the answer says so
            self._send_failure(query, fault)
        else:
            self.send_to_server(answer)

    async def _answer_about_resources(self, query: wire.ResourcesQuery) -> wire.Answer:
        if self._host.leak_checks is None:
            raise DocumentsRefusedError(NO_LEAK_CHECKS)
        states = await self._host.leak_checks.resource_states(query.tokens)
        return wire.ResourceStates(**query.address, states=states)

    def _answer_with(self, query: wire.Query, find: Callable[[], wire.Answer]) -> None:
        """Send the answer that `find` returns, or a reply with its error."""
        try:
            answer = find()
        except Exception as fault:  # noqa: BLE001 - the answer says so
            self._send_failure(query, fault)
        else:
            self.send_to_server(answer)

    def _send_failure(self, query: wire.Query, fault: Exception) -> None:
        match fault:
            case HostUnavailableError():
                self.reply(query, Verdict.UNAVAILABLE, str(fault))
            case DocumentsRefusedError():
                self.reply(query, Verdict.REFUSED, str(fault))
            case _:
                log.error("%s failed", type(query).__name__, exc_info=fault)
                self.reply(query, Verdict.FAILED, "see the log of the host")

    def _answer_about_state(self, query: wire.AdmissionQuery | wire.StatusQuery) -> wire.Answer:
        match query:
            case wire.AdmissionQuery(documents=documents, forks=forks):
                self._host.admit(documents, forks)
                return wire.Reply(**query.address, verdict=Verdict.TAKEN)
            case wire.StatusQuery(uids=uids):
                runs = tuple(run for uid in uids if (run := self._read_status(uid)) is not None)
                return wire.RunStatuses(**query.address, runs=runs)

    def _read_status(self, uid: str) -> wire.RunStatus | None:
        """Return the state of a run; None for an unknown run.

        For a run that cannot be read, for example because its ledger is damaged, the state says so. Such a run must not
        prevent the answer about the others.
        """
        try:
            return self._host.run_status(uid)
        except RunDamagedError as fault:
            message = str(fault)
        except (HostUnavailableError, DocumentsRefusedError):
            raise
        except Exception:
            log.exception("cannot report the state of run %s", uid)
            message = "its state cannot be reported; see the log of the host"
        unread = RunReport(
            uid=uid, phase=Phase.OPEN, ready=False, reason=Reason.BLOCKED, message=message, done=0, total=0, units=()
        )
        return wire.RunStatus(uid=uid, seq=self._host.version(uid), report=unread)

    # --- what the host reports ----------------------------------------------------------------------------------------

    def report_change(self, uid: str) -> None:
        """Report that the run has changed. Several changes in one iteration of the event loop result in one message."""
        if not self._session:
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._send_changes)
        self._changed.add(uid)

    def report_end(self, uid: str) -> None:
        """Report that the run has ended. The host calls it once the end is durable."""
        self._changed.discard(uid)
        self._forget_failures(uid)
        for replaced in ("offer", "lease", "pool"):  # a late order is answered with the end
            self._newest.pop((replaced, uid), None)
        if self._session:
            self._send_end(uid)

    def _forget_failures(self, uid: str) -> None:
        """Forget which orders of an ended run failed: further ones are answered with the end."""
        self._failing = {each for each in self._failing if each[1] != uid}

    def reject_older_births(self) -> None:
        """Reject births with a number up to the highest received one. The host calls it before it forgets runs."""
        self._floor = self._highest

    def resend(self) -> None:
        """Resend messages that may have been lost: ends that are not acknowledged, and the count of reports."""
        if not self._session:
            return
        for uid in self._host.unacknowledged_ends():
            try:
                self._send_end(uid)
            except HostUnavailableError:
                raise
            except Exception:
                # A run that cannot be read must not block the ends of the others.
                log.exception("cannot report the end of run %s", uid)
        self.send_heartbeat()

    def send_heartbeat(self) -> None:
        """Send the count of reports, with which the server notices a lost one, and whether the host routes requests."""
        if self._session:
            self.send_to_server(wire.Heartbeat(session=self._session, count=self._count, routes=self._host.routes))

    async def run(self) -> None:
        """Call `resend` periodically, until cancelled."""
        while True:
            await asyncio.sleep(RESEND_INTERVAL_S)
            try:
                self.resend()
            except Exception:
                # The ledger may be unreadable for a moment. Later rounds must still resend lost messages.
                log.exception("cannot resend messages")

    async def close(self) -> None:
        """Send no further messages, and wait for orders that have begun."""
        self._to_server = None
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _send_changes(self) -> None:
        # Cleared first, so that the next change is reported even if this fails.
        changed, self._changed = self._changed, set()
        for uid in changed:
            try:
                run = self._changed_status(uid)
            except Exception:
                # A run that cannot be read must not block the others.
                log.exception("cannot report the state of run %s", uid)
                run = self._status_without_report(uid)
            self._count += 1
            self.send_to_server(wire.RunChanged(session=self._session, count=self._count, run=run))

    def _changed_status(self, uid: str) -> wire.RunStatus:
        """Return the status of a changed run, with its report if a query of the server would cross the network."""
        return (self._host.run_status(uid) if self._host.is_remote else None) or self._status_without_report(uid)

    def _status_without_report(self, uid: str) -> wire.RunStatus:
        return wire.RunStatus(uid=uid, seq=self._host.version(uid))

    def _send_end(self, uid: str, order: wire.Order | None = None) -> None:
        run = self._host.run_status(uid)
        if run is not None:
            self._count += 1
            address = order.address if order is not None else {"session": self._session}
            self.send_to_server(wire.RunEnded(**address, count=self._count, run=run))

    def reply(
        self, message: wire.Order | wire.Query | wire.Unreadable, verdict: Verdict, text: str = "", seq: int = 0
    ) -> None:
        # The reply has the session of the message. In another session, the number belongs to another message.
        self.send_to_server(wire.Reply(**message.address, verdict=verdict, message=text, seq=seq))

    def send_to_server(self, message: wire.AnyToServer) -> None:
        if self._to_server is not None:
            self._to_server(message)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _replacement_key(order: wire.Order) -> tuple[str, str] | None:
    """Return kind and run of an order that replaces earlier ones of this kind and run; None for other orders."""
    match order:
        case wire.Offer(uid=uid):
            # Offers of the same generation may have different routing keys, because these depend on route groups.
            return "offer", uid
        case wire.Lease(uid=uid):
            return "lease", uid
        case wire.ControlPool(uid=uid):
            return "pool", uid
    return None


def limit_findings(reports: Iterable[LeakReport]) -> tuple[LeakReport, ...]:
    """Return reports whose findings have together a limited size, so that the answer is not refused.

    A report beyond the limit has no findings, and no plan either: a person must have seen everything that one deletes.
    """
    kept, size = [], 0
    for each in reports:
        size += len(msgspec.json.encode(each.findings))
        is_too_long = size > MAX_FINDINGS_BYTES
        kept.append(msgspec.structs.replace(each, findings=(), plan="") if is_too_long else each)
    return tuple(kept)


def _select_fields(report: LeakReport, query: wire.LeaksQuery) -> LeakReport:
    """Return the part of a report that a query wants."""
    after = query.after
    new = [each for each in report.deletions if after is not None and each.sequence > after]
    deletions = tuple(new[:MAX_SENT_DELETIONS])
    return msgspec.structs.replace(report, findings=() if query.brief else report.findings, deletions=deletions)
