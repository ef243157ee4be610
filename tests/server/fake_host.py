"""A scripted host that records the calls of the server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.link import run_queries, wire
from dayfly.link.host_end import HostEnd
from dayfly.link.host_interface import Host
from dayfly.link.wire import Offer, Verdict
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.report import PoolReport, RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import HistoryEntry, LogInfo, RunEndpoint, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from dayfly.spec.lifecycle import Lifecycle, Unit
    from dayfly.spec.workload import Workload


class WatchedEnd(HostEnd):
    """The real end of the link, which also counts orders in progress."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.under_way: set[asyncio.Future[None]] = set()
        self.to_server: Callable[[wire.AnyToServer], None] = lambda _: None

    def attach(self, receive: Callable[[wire.AnyToServer], None]) -> None:
        self.to_server = receive
        super().attach(receive)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way.add(done)

        async def watched() -> None:
            try:
                await work
            finally:
                self.under_way.discard(done)
                done.set_result(None)

        super().start_task(watched())


class FakeHost:
    """A scripted host with the real end of the link.

    Attributes:
        refuse: The error message of `admit`; empty to accept.
        on_admit: Called by `admit`, between the read and the write of a request.
        down: Whether each changing call raises HostUnavailableError.
        calls: Each changing call: its name and the run's UID.
        verdict_of_reset: The answer to each reset; None for that of a real host.
        missed: The calls while it was down.
        acknowledged: The runs whose end the server has acknowledged.
        file: A file for its state, so that it survives the process.
    """

    is_remote = False
    leak_checks = None
    routes = False
    pools = parents = False

    def __init__(self, file: Path | None = None) -> None:
        self.end = WatchedEnd(self)
        self.refuse = ""
        self.on_admit: Callable[[], object] = lambda: None
        self.down = False
        self.calls: list[tuple[str, str]] = []
        self.missed: list[tuple[str, str]] = []
        self.offers: dict[str, Offer] = {}
        self.closed: dict[str, EndRequest] = {}
        self.abandoned: dict[str, EndRequest] = {}
        self.leases: dict[str, int] = {}
        self.actions: list[tuple[str, str, str]] = []
        self.resets: list[tuple[str, str, str, str]] = []
        self.verdict_of_reset: Verdict | None = None
        self.acknowledged: set[str] = set()
        self.hurried: list[tuple[dict[str, int], str]] = []
        self.baselines: dict[tuple[str, str], Workload] = {}
        self.reports: dict[str, RunReport] = {}
        self.over: dict[str, RunReport] = {}
        self.ports: dict[str, tuple[RunEndpoint, ...]] = {}
        self.outputs: dict[str, tuple[Value, ...]] = {}
        self.log_data: dict[tuple[str, str, int], tuple[bytes, bool]] = {}
        self.times: dict[tuple[str, str, int], Sequence[tuple[int, int]]] = {}
        self.lines: dict[str, tuple[HistoryEntry, ...]] = {}
        self.versions: dict[str, int] = {}
        self.sessions = 0
        self.file = file
        self._loop: asyncio.AbstractEventLoop | None = None
        if file is not None and file.exists():
            known = json.loads(file.read_text())
            self.offers = {uid: msgspec.json.decode(offer, type=Offer) for uid, offer in known["offers"].items()}
            self.closed = {uid: EndRequest(at=1, reason=reason) for uid, reason in known["closed"].items()}
            self.over = {uid: _report(uid, Phase.CLEANED) for uid in known["over"]}

    # --- for tests ----------------------------------------------------------------------------------------------------

    def say(
        self,
        uid: str,
        *,
        ready: bool,
        reason: str,
        message: str,
        units: tuple[UnitReport, ...] = (),
        pool: PoolReport | None = None,
    ) -> None:
        """Set the report of a run or a pool."""
        report = _report(uid, Phase.CLOSED if uid in self.closed else Phase.OPEN)
        changes = {"ready": ready, "reason": reason, "message": message, "units": units, "pool": pool}
        self.reports[uid] = msgspec.structs.replace(report, **changes)
        self.versions[uid] = self.version(uid) + 1
        self._tell(self.end.report_change, uid)

    def finish(self, uid: str) -> None:
        """End a run."""
        # First, so that an offer that arrives at the same time in the link's thread finds the run ended.
        self._over(uid, Phase.CLEANED)
        del self.offers[uid]
        self._save()
        self._tell(self.end.report_end, uid)

    def receive(self, message: wire.AnyToHost) -> None:
        """Send a message to the host, from the thread of a test."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.end.send, message)

    def restart(self) -> None:
        """Start another session, from the thread of a test."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(lambda: self.end.attach(self.end.to_server))

    async def carried_out(self) -> None:
        """Wait until all received orders are carried out."""
        await asyncio.gather(*self.end.under_way)

    # --- calls of the link --------------------------------------------------------------------------------------------

    def begin_session(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.sessions += 1
        return self.sessions

    def living_runs(self) -> Iterable[str]:
        return list(self.offers)

    def unacknowledged_ends(self) -> Iterable[str]:
        return [uid for uid in self.over if uid not in self.acknowledged]

    def version(self, uid: str) -> int:
        return self.versions.get(uid, 1)

    def run_status(self, uid: str) -> wire.RunStatus | None:
        report = self.report(uid)
        if report is None:
            return None
        return wire.RunStatus(uid=uid, seq=self.version(uid), report=report, endpoints=self.ports.get(uid, ()))

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        self.on_admit()
        if self.refuse:
            raise DocumentsRefusedError(self.refuse)

    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        self.acknowledged |= set(uids)

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        self._write("retry", uid)
        self.hurried.append((dict(attempts), by))
        return self._known(uid)

    async def baseline(self, workload: Workload) -> None:
        self._write("baseline", f"{workload.namespace}/{workload.name}")
        self.baselines[workload.namespace, workload.name] = workload

    async def forget_baseline(self, workload: Workload) -> None:
        self._write("forget baseline", f"{workload.namespace}/{workload.name}")
        self.baselines.pop((workload.namespace, workload.name), None)

    async def offer(self, offer: Offer) -> Verdict:
        self._write("offer", offer.uid)
        await asyncio.sleep(0)
        if offer.uid in self.over or (offer.uid not in self.offers and not offer.birth):
            return self._known(offer.uid)
        self.offers[offer.uid] = offer
        if offer.uid in self.over:  # a test has changed it
            del self.offers[offer.uid]
            return self._known(offer.uid)
        if offer.lease_until:
            self.leases.setdefault(offer.uid, offer.lease_until)
        self._save()
        return Verdict.TAKEN

    async def stop(self, uid: str, request: EndRequest, *, known: bool) -> Verdict:
        self._write("stop", uid)
        if uid in self.offers:
            self.closed.setdefault(uid, request)
            self._save()
        elif not known:
            self._over(uid, Phase.CLEANED)
        return self._known(uid)

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        self._write("abandon", uid)
        self.abandoned.setdefault(uid, request)
        self.offers.pop(uid, None)
        report = msgspec.structs.replace(_report(uid, Phase.ABANDONED), reason=Reason.ABANDONED, abandon=request)
        self.over.setdefault(uid, report)
        self._over(uid, Phase.ABANDONED)
        return Verdict.OVER

    async def lease(self, uid: str, until: int) -> Verdict:
        self._write("lease", uid)
        if uid in self.closed:
            return Verdict.CLOSED
        if uid in self.offers:
            self.leases[uid] = until
        return self._known(uid)

    async def reset(self, uid: str, resource: str, member: str, by: str) -> Verdict:
        self._write("reset", uid)
        if uid in self.closed:
            return Verdict.CLOSED
        self.resets.append((uid, resource, member, by))
        return self.verdict_of_reset or self._known(uid)

    async def control_pool(self, uid: str, action: wire.PoolAction, by: str) -> Verdict:
        self._write(action, uid)
        if uid in self.closed:
            return Verdict.CLOSED
        self.actions.append((uid, action, by))
        return self._known(uid)

    def report(self, uid: str) -> RunReport | None:
        if uid in self.over:
            return self.over[uid]
        if uid not in self.offers:
            return None
        report = self.reports.get(uid) or _report(uid, Phase.OPEN)
        if uid in self.closed and report.phase is Phase.OPEN:
            message = "db/drop: attempt 1 has been running for 4 s"
            changes = {"phase": Phase.CLOSED, "ready": False, "reason": Reason.DELETING, "message": message}
            report = msgspec.structs.replace(report, closed=self.closed[uid], **changes)
        return report

    def has_ended(self, uid: str) -> bool:
        return uid in self.over

    async def answer_query(self, query: wire.RunQuery) -> wire.Answer:
        return run_queries.answer(self, query)

    def values(self, uid: str) -> tuple[Value, ...]:
        return self.outputs.get(uid, ())

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        return self.lines.get(uid, ())

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        return tuple(
            LogInfo(unit=unit, attempt=attempt, size=len(data), sealed=sealed)
            for (run, unit, attempt), (data, sealed) in sorted(self.log_data.items())
            if run == uid
        )

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        found = self.log_data.get((uid, unit, attempt))
        return found[0][offset : offset + limit] if found else None

    def log_times(self, uid: str, unit: str, attempt: int) -> Sequence[tuple[int, int]]:
        return self.times.get((uid, unit, attempt), ())

    def _known(self, uid: str) -> Verdict:
        if uid in self.over:
            return Verdict.OVER
        return Verdict.TAKEN if uid in self.offers else Verdict.UNKNOWN

    def _over(self, uid: str, phase: Phase) -> None:
        self.over.setdefault(uid, _report(uid, phase))
        self.versions[uid] = self.version(uid) + 1
        self._save()

    def _tell(self, what: Callable[[str], None], uid: str) -> None:
        """Wake the event loop from the thread of a test."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(what, uid)

    def _write(self, call: str, subject: str) -> None:
        if self.down:
            self.missed.append((call, subject))
            raise HostUnavailableError("No space left on device")
        self.calls.append((call, subject))

    def _save(self) -> None:
        if self.file is None:
            return
        known = {
            "offers": {uid: msgspec.json.encode(offer).decode() for uid, offer in self.offers.items()},
            "closed": {uid: request.reason for uid, request in self.closed.items()},
            "over": list(self.over),
        }
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(known))
        fresh.replace(self.file)


class Encoded:
    """The transport to a host with encoded messages."""

    def __init__(self, end: HostEnd) -> None:
        self._end = end

    def attach(self, receive: Callable[[wire.AnyToServer], None]) -> None:
        self._end.attach(lambda message: receive(wire.decode_to_server(wire.encode(message))))

    def send(self, message: wire.AnyToHost) -> None:
        self._end.send(wire.decode_to_host(wire.encode(message)))


# The type checker checks here that the fake implements the protocol.
_: type[Host] = FakeHost


def _report(uid: str, phase: Phase) -> RunReport:
    """Return the report of a run that is ready, or has ended."""
    if phase in (Phase.CLEANED, Phase.ABANDONED):
        reason, message = Reason.CLEANED, "every delete step has succeeded; nothing is left"
    else:
        reason, message = Reason.READY, "All desired workloads are available."
    ready = reason is Reason.READY
    return RunReport(uid=uid, phase=phase, ready=ready, reason=reason, message=message, done=1, total=1, units=())


def uid_of(host: FakeHost) -> str:
    """Return the UID of the only offered sandbox."""
    (uid,) = host.offers
    return uid
