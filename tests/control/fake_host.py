"""A host that does nothing but remember what it was told, and says what the test wants it to say."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec

from dayfly.control.port import Host, HostUnavailableError, RefusedError
from dayfly.plan.reasons import Reason
from dayfly.plan.status import Report, UnitReport
from dayfly.spec.run import Phase, Request
from dayfly.spec.wire import Endpoint, HistoryEntry, LogInfo, Offer, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dayfly.spec.lifecycle import Lifecycle, Unit
    from dayfly.spec.workload import Workload


class FakeHost:
    """Set its attributes to script it; look at them to see what it was told.

    Attributes:
        refuse: `admit` refuses with this sentence.
        on_admit: Called by `admit`, which is between the reading and the writing of a request.
        down: Everything that writes raises HostUnavailableError.
        calls: Every call that changes something: its name and the run's uid.
        file: Where what it knows is kept, so that it survives the process.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.refuse = ""
        self.on_admit: Callable[[], object] = lambda: None
        self.down = False
        self.calls: list[tuple[str, str]] = []
        self.offers: dict[str, Offer] = {}
        self.closed: dict[str, Request] = {}
        self.given_up: dict[str, Request] = {}
        self.leases: dict[str, int] = {}
        self.caught = 0
        self.hurried: list[tuple[dict[str, int], str]] = []
        self.baselines: dict[tuple[str, str], Workload] = {}
        self.reports: dict[str, Report] = {}
        self.over: dict[str, Report] = {}
        self.ports: dict[str, tuple[Endpoint, ...]] = {}
        self.outputs: dict[str, tuple[Value, ...]] = {}
        self.log_data: dict[tuple[str, str, int], tuple[bytes, bool]] = {}
        self.lines: dict[str, tuple[HistoryEntry, ...]] = {}
        self.versions: dict[str, int] = {}
        self.file = file
        if file is not None and file.exists():
            known = json.loads(file.read_text())
            self.offers = {uid: msgspec.json.decode(offer, type=Offer) for uid, offer in known["offers"].items()}
            self.closed = {uid: Request(at=1, reason=reason) for uid, reason in known["closed"].items()}
            self.over = {uid: _report(uid, Phase.CLEANED) for uid in known["over"]}

    # --- what tests do -----------------------------------------------------------------------------------------------

    def say(self, uid: str, *, ready: bool, reason: str, message: str, units: tuple[UnitReport, ...] = ()) -> None:
        """Let the run's report be this."""
        report = _report(uid, Phase.CLOSED if uid in self.closed else Phase.OPEN)
        changes = {"ready": ready, "reason": reason, "message": message, "units": units}
        self.reports[uid] = msgspec.structs.replace(report, **changes)
        self.versions[uid] = self.versions.get(uid, 0) + 1

    def finish(self, uid: str) -> None:
        """Let the run be over."""
        del self.offers[uid]
        self.over[uid] = _report(uid, Phase.CLEANED)
        self.versions[uid] = self.versions.get(uid, 0) + 1
        self._save()

    # --- the port ----------------------------------------------------------------------------------------------------

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        self.on_admit()
        if self.refuse:
            raise RefusedError(self.refuse)

    def caught_up(self) -> None:
        self.caught += 1

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> bool:
        self._write("retry", uid)
        self.hurried.append((dict(attempts), by))
        return uid in self.offers

    async def baseline(self, workload: Workload) -> None:
        self._write("baseline", f"{workload.namespace}/{workload.name}")
        self.baselines[workload.namespace, workload.name] = workload

    async def offer(self, offer: Offer) -> None:
        self._write("offer", offer.uid)
        await asyncio.sleep(0)
        if offer.uid not in self.over:
            self.offers[offer.uid] = offer
            if offer.lease_until:
                self.leases.setdefault(offer.uid, offer.lease_until)
        self._save()

    async def stop(self, uid: str, request: Request) -> bool:
        self._write("stop", uid)
        if uid not in self.offers:
            return False
        self.closed.setdefault(uid, request)
        self._save()
        return True

    async def abandon(self, uid: str, request: Request) -> bool:
        self._write("abandon", uid)
        if uid not in self.offers:
            return False
        self.given_up.setdefault(uid, request)
        self.finish(uid)
        return True

    async def lease(self, uid: str, until: int) -> bool:
        self._write("lease", uid)
        if uid not in self.offers or uid in self.closed:
            return False
        self.leases[uid] = until
        return True

    def report(self, uid: str) -> Report | None:
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

    def endpoints(self, uid: str) -> tuple[Endpoint, ...]:
        return self.ports.get(uid, ())

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

    async def changed(self, uid: str, version: int, seconds: float) -> int:
        deadline = asyncio.get_running_loop().time() + seconds
        # Tests speak from another thread, where no event of this loop may be set.
        while self.versions.get(uid, 0) <= version and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.versions.get(uid, 0)

    def _write(self, call: str, subject: str) -> None:
        if self.down:
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


# The type checker sees here whether the fake is still a host.
_: type[Host] = FakeHost


def _report(uid: str, phase: Phase) -> Report:
    """A run that is ready, or over."""
    if phase in (Phase.CLEANED, Phase.ABANDONED):
        reason, message = Reason.CLEANED, "every delete step has succeeded; nothing is left"
    else:
        reason, message = Reason.READY, "All desired workloads are available."
    ready = reason is Reason.READY
    return Report(uid=uid, phase=phase, ready=ready, reason=reason, message=message, done=1, total=1, units=())


def uid_of(host: FakeHost) -> str:
    """The one sandbox that it was offered."""
    (uid,) = host.offers
    return uid
