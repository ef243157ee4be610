"""The runs of leak checks: each executes one document, and its result is in its ledger and its logs."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.embedded.ledger import StoredRun
from dayfly.execute.process.run import AttemptFolder, delete_logs
from dayfly.lib.clock import now_ms
from dayfly.plan.leaks.listing import MAX_LISTING_BYTES
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetIntent
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import API_VERSION, LEAK_CHECK_KIND, Lifecycle, LifecycleEvent, Target, digest, unit_id
from dayfly.spec.report import FAILED
from dayfly.spec.run import EndRequest, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.embedded.engine import Engine
    from dayfly.spec.report import RunReport

_TIMEOUT_S: Final = 3_600.0
_END_TIMEOUT_S: Final = 120.0
_POLL_INTERVAL_S: Final = 1.0
_FINAL: Final = FAILED | {Reason.REFUSED}
_TAIL_BYTES: Final = 400
# By this prefix, the host recognises these runs after their end. The UIDs of other runs are or begin with UUIDs.
_UID_PREFIX: Final = "leak"


class LeakRuns:
    """Creates runs for leak checks and waits for them. The host calls `on_change` for all of its runs."""

    def __init__(self, engine: Engine, report: Callable[[str], RunReport | None]) -> None:
        self._engine = engine
        self._report = report
        self._waiting: dict[str, asyncio.Event] = {}

    def on_change(self, uid: str) -> bool:
        """Note that a run has changed or ended. Return whether it is of a leak check, so that no server knows it."""
        event = self._waiting.get(uid)
        if event is not None:
            event.set()
        return is_leak_run(uid)

    def living(self) -> list[Run]:
        """Return the runs of leak checks that have not ended."""
        found = []
        for uid in self._engine.reader.live_uids():
            with contextlib.suppress(RunDamagedError):
                stored = self._engine.reader.load(uid)
                if stored is not None and stored.run.target.kind == LEAK_CHECK_KIND:
                    found.append(stored.run)
        return found

    async def execute(
        self, check: str, document: Lifecycle, permit: Callable[[], bool] = lambda: True
    ) -> tuple[str, list[bytes]]:
        """Run the steps of a document. Return the error, empty for success, and what each step printed.

        Args:
            check: The name of the check.
            document: The document, whose steps are create steps.
            permit: Called in the transaction that creates the run, before its first claim. It returns whether the run
                is still right.
        """
        uid = f"{_UID_PREFIX}{uuid.uuid4().hex}"
        target = Target(api_version=API_VERSION, kind=LEAK_CHECK_KIND, name=check, uid=uid)
        run = Run(uid=uid, target=target, plan=digest((document,)), born_at=now_ms())
        stored = StoredRun(run=run, name=check, documents=(document,), forks=(), intent=TargetIntent())
        event = self._waiting[uid] = asyncio.Event()
        try:
            if not await self._engine.writer.run(lambda: permit() and self._engine.ledger.create(stored)):
                return "the check or the run of the resource has changed", []
            self._engine.wake(uid)
            error = await self._wait_until_done(uid, event)
            printed = self._read_logs(uid, document)
            # If this host stops first, its successor ends the run.
            await self.end(uid)
        finally:
            self._waiting.pop(uid, None)
        if error:
            tail = b"".join(printed)[-_TAIL_BYTES:].decode(errors="replace").strip()
            return f"{error}: {tail}" if tail else error, printed
        delete_logs(self._engine.attempts.storage, uid)
        return "", printed

    async def request_end(self, uid: str) -> None:
        """Request the end of a run."""
        ledger, request = (
            self._engine.ledger,
            EndRequest(at=now_ms(), reason=Reason.DELETED, message="its work has ended"),
        )

        def write() -> None:
            stored = ledger.load(uid)
            if stored is not None and stored.intent.stop is None:
                ledger.set_intent(uid, msgspec.structs.replace(stored.intent, stop=request))

        await self._engine.writer.run(write)
        self._engine.reload(uid)

    async def end(self, uid: str) -> None:
        """End a run, and wait a limited time until it is gone."""
        event = self._waiting.setdefault(uid, asyncio.Event())
        try:
            await self.request_end(uid)
            deadline = asyncio.get_running_loop().time() + _END_TIMEOUT_S
            while self._engine.reader.load(uid) is not None and asyncio.get_running_loop().time() < deadline:
                await _wait(event)
        finally:
            self._waiting.pop(uid, None)

    async def _wait_until_done(self, uid: str, event: asyncio.Event) -> str:
        deadline = asyncio.get_running_loop().time() + _TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            report = self._report(uid)
            if report is None:
                return "its run was ended"
            if report.ready:
                return ""
            if report.reason in _FINAL:
                return report.message
            await _wait(event)
        return "it has not ended within an hour"

    def _read_logs(self, uid: str, document: Lifecycle) -> list[bytes]:
        """Return what each step has printed, at most a little more than a list may have."""
        stored = self._engine.reader.load(uid)
        if stored is None:
            return []
        printed = []
        for unit in document.units(LifecycleEvent.PRE_START):
            name = unit_id(document.resource, unit.name)
            folder = AttemptFolder(self._engine.attempts.storage, uid, name, stored.run.unit(name).attempt)
            printed.append(folder.read_log(0, MAX_LISTING_BYTES + 1) or b"")
        return printed


def is_leak_run(uid: str) -> bool:
    """Return whether the run with this UID is of a leak check, also after its end."""
    return uid.startswith(_UID_PREFIX)


async def _wait(event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_POLL_INTERVAL_S):
            await event.wait()
    event.clear()
