"""A host that does no work: an offered run is ready immediately, a stopped one has ended. Its link is the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.link import run_queries, wire
from dayfly.link.dialer import Dialer, LastSeen
from dayfly.link.envelope import Session, SessionRequest
from dayfly.link.host_end import HostEnd
from dayfly.link.http import HttpConnection, HttpResponse
from dayfly.link.wire import Verdict
from dayfly.plan.reasons import Reason
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import HistoryEntry, LogInfo, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.spec.lifecycle import Lifecycle, Unit

# The response to a long poll without messages.
NOTHING = b'{"messages":[]}'


class Counted:
    """The agent's real transport to its server. It counts responses, all bytes, and bytes of those with messages."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = HttpConnection(url, token)
        self.bytes = self.letters = self.polls = 0

    async def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        found = await self._connection.request(method, path, query, body, seconds=seconds)
        self.bytes += len(found.body)
        if (method, path) == ("GET", "messages"):
            self.polls += 1
            self.letters += len(found.body) if found.body != NOTHING else 0
        return found

    async def close(self) -> None:
        await self._connection.close()


class Noted:
    """The last seen position, in memory; an operator keeps it in a Secret."""

    def __init__(self) -> None:
        self.seen = LastSeen()

    async def load(self) -> None:
        """Do nothing, because the position is in memory."""

    async def save(self, seen: LastSeen) -> None:
        self.seen = seen


class IdleHost:
    """An implementation of `link.host_interface.Host` for one cluster."""

    routes = False
    pools = parents = False
    is_remote = True
    cursor = Noted

    def __init__(self, url: str, token: str, number: int) -> None:
        self.end = HostEnd(self)
        self.connection = Counted(url, token)
        self.dial = Dialer(
            self.connection, self.cursor(), lambda: SessionRequest(cluster_uid=f"uid-{number}"), self.end, self._meet
        )
        self._session = 0
        self._versions: dict[str, int] = {}
        self._units: dict[str, tuple[tuple[str, str], ...]] = {}
        self._ready: dict[str, bool] = {}
        self._over: dict[str, RunReport] = {}

    def turn(self, uid: str) -> None:
        """Change the readiness of one of its sandboxes."""
        self._ready[uid] = not self._ready[uid]
        self._versions[uid] += 1
        self.end.report_change(uid)

    def _meet(self, session: Session) -> None:
        self._session = session.session

    # --- calls by the link --------------------------------------------------------------------------------------------

    def begin_session(self) -> int:
        return self._session

    def living_runs(self) -> list[str]:
        return list(self._ready)

    def unacknowledged_ends(self) -> list[str]:
        return list(self._over)

    def version(self, uid: str) -> int:
        return self._versions.get(uid, 1)

    def run_status(self, uid: str) -> wire.RunStatus | None:
        report = self._report(uid)
        return wire.RunStatus(uid=uid, seq=self.version(uid), report=report) if report else None

    def has_ended(self, uid: str) -> bool:
        return uid in self._over

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Accept every document."""

    async def offer(self, offer: wire.Offer) -> Verdict:
        if offer.uid in self._over:
            return Verdict.OVER
        if offer.uid not in self._ready:
            if not offer.birth:
                return Verdict.UNKNOWN
            steps = tuple((d.resource, unit.name) for d in offer.documents for unit in d.pre_start)
            self._units[offer.uid], self._ready[offer.uid], self._versions[offer.uid] = steps, True, 2
            self.end.report_change(offer.uid)
        return Verdict.TAKEN

    async def stop(self, uid: str, request: EndRequest, *, known: bool) -> Verdict:
        if uid in self._ready:
            self._finish(uid)
            self.end.report_end(uid)
            return Verdict.TAKEN
        if uid not in self._over and known:
            return Verdict.UNKNOWN
        self._finish(uid)
        return Verdict.OVER

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        self._finish(uid)
        return Verdict.OVER

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        return Verdict.TAKEN if uid in self._ready else Verdict.UNKNOWN

    async def lease(self, uid: str, until: int) -> Verdict:
        return Verdict.TAKEN if uid in self._ready else Verdict.UNKNOWN

    async def acknowledge(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._over.pop(uid, None)
            self._versions.pop(uid, None)

    async def answer_query(self, query: wire.RunQuery) -> wire.Answer:
        return run_queries.answer(self, query)

    def values(self, uid: str) -> tuple[Value, ...]:
        return ()

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        return ()

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        return ()

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        return None

    def log_times(self, uid: str, unit: str, attempt: int) -> tuple[()]:
        return ()

    def _finish(self, uid: str) -> None:
        self._ready.pop(uid, None)
        self._units.pop(uid, None)
        self._versions[uid] = self.version(uid) + 1
        said = "every delete step has succeeded; nothing is left"
        self._over[uid] = RunReport(
            uid=uid, phase=Phase.CLEANED, ready=False, reason=Reason.CLEANED, message=said, done=1, total=1, units=()
        )

    def _report(self, uid: str) -> RunReport | None:
        if uid in self._over:
            return self._over[uid]
        if uid not in self._ready:
            return None
        ready, steps = self._ready[uid], self._units[uid]
        words = ("succeeded", "", "") if ready else ("running", Reason.RUNNING, "attempt 2 has been running for 4 s")
        units = tuple(
            UnitReport(
                id=f"{resource}/{name}", resource=resource, name=name, event="preStart", kind="exec", attempt=1,
                **dict(zip(("state", "reason", "message"), words, strict=True)),
            )
            for resource, name in steps
        )  # fmt: skip
        return RunReport(
            uid=uid,
            phase=Phase.OPEN,
            ready=ready,
            reason=Reason.READY if ready else Reason.RESOURCES_PENDING,
            message="All desired workloads are available."
            if ready
            else "db/provision: attempt 2 has been running for 4 s",
            about="" if ready else "db/provision",
            done=len(units) if ready else 0,
            total=len(units),
            units=units,
        )
