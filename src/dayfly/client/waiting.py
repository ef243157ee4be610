"""Waiting for a run: until it is ready, or until it is gone."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from dayfly.client import subject
from dayfly.client.errors import DayflyError, FailedError, NotFoundError, WaitTimeoutError
from dayfly.client.types import Attempt, Report
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dayfly.client.json_client import JsonClient

    OnReport = Callable[[Report], None]

_LONG_POLL_S = 20
_POLL_INTERVAL_S = 0.1
_TAIL_BYTES = 4096
_TAIL_LINES = 20


class WaitedRun:
    """A run that a caller waits for, and the server's endpoints for it.

    Args:
        client: The client of the server.
        name: The subject, as in commands: the name of a sandbox, or `routegroup/NAME`.
        is_patient: Whether requests are retried until the timeout while the server is unreachable.
        before: A prefix for commands in the advice of errors, such as `dayfly up --detach; `.
    """

    def __init__(self, client: JsonClient, name: str, *, is_patient: bool = True, before: str = "") -> None:
        self.subject = name
        self.io = client.io
        self.flags = client.flags
        self.before = before
        self._client = client
        self._is_patient = is_patient

    async def report(self, after: int | None, wait: int, patience: float | None) -> Report:
        """Return the report of the run.

        Args:
            after: The version of the last report; None for an answer at once.
            wait: Seconds that the server waits for a version newer than `after`.
            patience: Seconds for which a patient run retries the request; None for the default of the client.
        """
        path, query = self._path("report"), {"after": after, "wait": wait or None}
        allowed = patience if self._is_patient else None
        return await self._client.request_as(Report, "GET", path, query, longer=wait, patience=allowed)

    async def exists(self) -> bool:
        """Return whether the server still lists the object."""
        try:
            await self._client.request("GET", self._path())
        except NotFoundError:
            return False
        return True

    async def tail(self, unit: str, attempt: int) -> list[str] | None:
        """Return the last lines of the log of an attempt.

        The list is empty if the log is not text. The result is None if the log is empty or missing.
        """
        logs = self._client.decode(tuple[Attempt, ...], await self._client.send("GET", self._path("attempts")))
        size = max((each.size for each in logs if (each.unit, each.attempt) == (unit, attempt)), default=0)
        if not size:
            return None
        query = {"unit": unit, "attempt": attempt, "offset": max(size - _TAIL_BYTES, 0)}
        return _last_lines(await self._client.request("GET", self._path("log"), query), _TAIL_LINES)

    def _path(self, *path: str) -> str:
        return self._client.org_path(*subject.path(self.subject), *path)


async def until_ready(run: WaitedRun, seconds: float, on_report: OnReport | None, redraw_s: float = 0) -> Report:
    """Wait until the run is ready.

    Args:
        run: The run to wait for.
        seconds: The maximum time to wait.
        on_report: Called with each new report.
        redraw_s: Seconds without a new report after which `on_report` is called with the current one; 0 for never.

    Raises:
        NotFoundError: the sandbox or route group does not exist.
        FailedError: it failed, is being deleted, or was replaced by another one with its name.
        WaitTimeoutError: it is not ready in time.
    """
    uid, name = "", run.subject
    report: Report | None = None
    async for report, is_due in _reports(run, seconds, redraw_s):
        if report.uid != (uid := uid or report.uid):
            message = f"{name} was deleted, and the {subject.kind(name)} of that name that exists now is another one"
            see = f"see: dayfly get {subject.command(name)} {subject.bare_name(name)}{run.flags}"
            raise FailedError(message, see, "Deleted")
        if on_report is not None and is_due:
            on_report(report)
        if report.ready:
            return report
        if report.reason in FAILED:
            raise await _failure(run, report)
        if report.pool is not None and report.pool.paused:
            advice = f"see: dayfly pool get {subject.bare_name(name)}{run.flags}"
            raise FailedError(f"{name} is paused: {report.pool.paused}", advice, report.reason)
        if report.closed is not None or report.phase != "open":
            closed = report.closed
            why = (closed and (closed.message or closed.reason)) or report.message
            advice = f"follow it with: dayfly why {name}{run.flags}"
            raise FailedError(f"{name} is being deleted: {why}", advice, report.reason)
    assert report is not None, "there is always a first report"
    still = f"{name} is not ready after {seconds:g} s, and is still being worked on"
    message = f"{still}: {report.reason}: {report.message}"
    raise WaitTimeoutError(message, f"see: dayfly why {name}{run.flags}", report.reason)


async def until_gone(
    run: WaitedRun,
    seconds: float,
    on_report: OnReport | None,
    redraw_s: float = 0,
    *,
    uid: str = "",
    requested: bool = False,
) -> str:
    """Wait until the run is gone; return how it ended, `cleaned` or `abandoned`.

    Args:
        run: The run to wait for.
        seconds: The maximum time to wait.
        on_report: As for `until_ready`.
        redraw_s: As for `until_ready`.
        uid: The UID of the run; another object with the same name means that the run is gone. Empty: the UID of the
            first report.
        requested: Whether the deletion has been requested, even if no report shows it yet.

    Raises:
        WaitTimeoutError: it still exists after that time.
    """
    name, last = run.subject, None
    try:
        async for report, is_due in _reports(run, seconds, redraw_s):
            if report.uid != (uid := uid or report.uid):
                return "cleaned"
            last = report
            if on_report is not None and is_due:
                on_report(report)
            if report.is_over and not await run.exists():
                return report.phase
    except NotFoundError:
        return last.phase if last is not None and last.is_over else "cleaned"
    assert last is not None, "there is always a first report"
    requested = requested or last.closed is not None
    unrequested = "" if requested else f", and its deletion has not been requested ({last.reason})"
    because = f": {last.reason}: {last.message}" if requested else ""
    message = f"{name} is still {'being deleted' if requested else 'there'} after {seconds:g} s{because}{unrequested}"
    raise WaitTimeoutError(message, f"see: dayfly why {name}{run.flags}", last.reason)


async def _reports(run: WaitedRun, seconds: float, redraw_s: float) -> AsyncIterator[tuple[Report, bool]]:
    """Yield reports until the timeout, each with whether to show it: it is new, or `redraw_s` seconds have passed."""
    deadline = run.io.now() + seconds
    version: int | None = None
    uid = ""
    while True:
        requested_at = run.io.now()
        left = max(deadline - requested_at, 0)
        wait = int(min(redraw_s or _LONG_POLL_S, left)) if version is not None else 0
        report = await run.report(version, wait, left)
        stale = (report.uid, report.version) == (uid, version)  # versions of another object with the name are unrelated
        uid, version = report.uid, report.version
        yield report, bool(redraw_s) or not stale
        now = run.io.now()
        if now >= deadline:
            return
        if report.is_over or (stale and now - requested_at < _POLL_INTERVAL_S):
            await run.io.pause(min(_POLL_INTERVAL_S, deadline - now))  # the server did not wait for a change


async def _failure(run: WaitedRun, report: Report) -> FailedError:
    """Return the error for a failed run, with the end of the log of the failed unit."""
    failed = next((unit for unit in report.units if unit.state == "failed"), None)
    message, read = f"{run.subject}: {report.reason}: {report.message}", f"read: {run.before}dayfly logs {run.subject}"
    if failed is None:
        return FailedError(message, f"{read}{run.flags}", report.reason)
    try:
        lines = await run.tail(failed.id, failed.attempt)
    except DayflyError:
        lines = []  # the failure itself is reported in any case
    advice = "it printed nothing" if lines is None else f"{read} {failed.id.replace('/', ' ', 1)}{run.flags}"
    return FailedError(message, advice, report.reason, unit=failed.id, log="\n".join(lines or ()))


def _last_lines(piece: Any, most: int) -> list[str]:
    """Return the last `most` lines of a piece of a log; an empty list if it is not text.

    If the piece starts in the middle of a character, the server encodes it as base64. That character is dropped.
    """
    if piece["encoding"] == "utf-8":
        return list(piece["data"].splitlines()[-most:])
    data = base64.b64decode(piece["data"])
    begins = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        return data[begins:].decode().splitlines()[-most:]
    except UnicodeDecodeError:
        return []
