"""Waiting for a run: until it is ready, or until it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.client import subject
from dayfly.client.errors import DayflyError, FailedError, NotFoundError, WaitTimeoutError
from dayfly.client.types import Report
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dayfly.client.connection import Io
    from dayfly.client.types import Unit

_LONG_POLL_S = 20
_AGAIN_S = 0.1
_TAIL_LINES = 20


class Run(Protocol):
    """What is waited for, and how it is asked."""

    subject: str
    """As commands name it."""
    io: Io

    async def report(self, after: int | None, wait: int, patience: float) -> Report:
        """How it stands; with `after`, once there is a newer report than that, or `wait` seconds are over."""

    async def exists(self) -> bool:
        """Whether it is still there for those who look."""

    async def log(self, unit: str, attempt: int) -> bytes:
        """What an attempt has printed."""


async def until_ready(run: Run, seconds: float, tell: Callable[[Report], None] | None) -> Report:
    """Wait until it is ready.

    Raises:
        NotFoundError: there is no such thing.
        FailedError: it failed, or is being deleted.
        WaitTimeoutError: it is not ready in time.
    """
    uid, name = "", run.subject
    report: Report | None = None
    async for report in _reports(run, seconds):
        if report.uid != (uid := uid or report.uid):
            message = f"{name} was deleted, and the {subject.kind(name)} of that name that exists now is another one"
            raise FailedError(message, f"see: dayfly get {subject.verb(name)} {subject.bare(name)}", "Deleted")
        if tell is not None:
            tell(report)
        if report.ready:
            return report
        if report.reason in FAILED:
            raise await _failure(run, report)
        if report.closed is not None or report.phase != "open":
            closed = report.closed
            why = (closed and (closed.message or closed.reason)) or report.message
            raise FailedError(f"{name} is being deleted: {why}", f"follow it with: dayfly why {name}", report.reason)
    assert report is not None, "there is always a first report"
    still = f"{name} is not ready after {seconds:g} s, and is still being worked on"
    message = f"{still}: {report.reason}: {report.message}"
    raise WaitTimeoutError(message, f"see: dayfly why {name}", report.reason)


async def until_gone(run: Run, seconds: float, tell: Callable[[Report], None] | None) -> str:
    """Wait until it is gone; how it ended, cleaned or abandoned.

    Raises:
        WaitTimeoutError: it is still there after that time.
    """
    uid, name, last = "", run.subject, None
    try:
        async for report in _reports(run, seconds):
            if report.uid != (uid := uid or report.uid):
                return "cleaned"
            last = report
            if tell is not None:
                tell(report)
            if report.is_over and not await run.exists():
                return report.phase
    except NotFoundError:
        return last.phase if last is not None and last.is_over else "cleaned"
    assert last is not None, "there is always a first report"
    nobody = "" if last.closed else f", and nobody has deleted it ({last.reason})"
    because = f": {last.reason}: {last.message}" if last.closed else ""
    message = f"{name} is still {'being deleted' if last.closed else 'there'} after {seconds:g} s{because}{nobody}"
    raise WaitTimeoutError(message, f"see: dayfly why {name}", last.reason)


async def _reports(run: Run, seconds: float) -> AsyncIterator[Report]:
    """Each report, until the time is over. A server that is away for a while is waited for as well."""
    deadline = run.io.now() + seconds
    version: int | None = None
    uid = ""
    while True:
        asked = run.io.now()
        left = max(deadline - asked, 0)
        wait = int(min(_LONG_POLL_S, left)) if version is not None else 0
        report = await run.report(version, wait, left)
        stale = (report.uid, report.version) == (uid, version)  # another one of that name has numbers of its own
        uid, version = report.uid, report.version
        if not stale or report.is_over:
            yield report
        now = run.io.now()
        if now >= deadline:
            return
        if report.is_over or (stale and now - asked < _AGAIN_S):
            await run.io.pause(min(_AGAIN_S, deadline - now))  # it answers at once and has nothing new


async def _failure(run: Run, report: Report) -> FailedError:
    """What failed, with the end of its log."""
    failed = next((unit for unit in report.units if unit.state == "failed"), None)
    message = f"{run.subject}: {report.reason}: {report.message}"
    if failed is None:
        return FailedError(message, f"read: dayfly logs {run.subject}", report.reason)
    log = await _tail(run, failed)
    advice = f"read: dayfly logs {run.subject} {failed.id.replace('/', ' ', 1)}" if log != "" else "it printed nothing"
    return FailedError(message, advice, report.reason, unit=failed.id, log=log or "")


async def _tail(run: Run, unit: Unit) -> str | None:
    try:
        text = (await run.log(unit.id, unit.attempt)).decode(errors="replace")
    except DayflyError:
        return None  # that it failed is the news
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
