"""Endpoints below a sandbox or route group: its report, what blocks it, its outputs, logs and history.

For a week they also serve a run that has ended, except its outputs. If several runs had the name, the current one is
meant, or else the one that ended last; the query parameter `uid` selects another one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote as quote_url
from urllib.parse import urlencode

from dayfly.link.host_state import NO_REPORT_VERSION
from dayfly.link.server_end import NO_ANSWER
from dayfly.plan.history import leftovers_in_history
from dayfly.plan.why import explain_dropped_records, find_obstacles, units_without_output
from dayfly.server.access import callers
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_flag, read_number, read_text, read_time, read_wait, rfc3339
from dayfly.server.records import tombstones
from dayfly.server.runs.run_states import report_form
from dayfly.spec import log_times
from dayfly.spec.errors import quote
from dayfly.spec.host_errors import HostSilentError
from dayfly.spec.lifecycle import workload_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link, Links
    from dayfly.link.wire import LogBytes
    from dayfly.server.access.scopes import Scope
    from dayfly.server.db.store import Store
    from dayfly.server.http.shared_slots import LongPollSlots
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.records.tombstones import Tombstone
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.report import RunReport
    from dayfly.spec.run_data import LogInfo

MAX_LOG_BYTES = 256 * 1024
# Another process writes the log files and cannot notify the server.
LOG_POLL_INTERVAL_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSubject:
    """The run that a request is about. After its end it has a tombstone and no record."""

    known: RunRecord[Any] | Tombstone
    scope: Scope
    link: Link | None
    record: RunRecord[Any] | None
    tombstone: Tombstone | None

    @property
    def uid(self) -> str:
        return self.known.uid

    @property
    def name(self) -> str:
        return self.known.name


class _LogOptions(NamedTuple):
    """Whether an answer has the times of lines, and the time of its first line in Unix milliseconds (0: all lines)."""

    timestamps: bool
    since: int


class Reports:
    """The endpoints that read the runs of one kind."""

    def __init__(
        self, store: Store, links: Links, service: RunService[Any], closing: asyncio.Event, slots: LongPollSlots
    ) -> None:
        self._store = store
        self._links = links
        self._kind = service.kind
        self._service = service
        self._closing = closing
        self._slots = slots

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        one = f"/orgs/{{org}}/{self._kind.plural}/{{name}}/"
        handlers = {
            "report": self.report,
            "why": self.why,
            "outputs": self.outputs,
            "attempts": self.attempts,
            "log": self.log,
            "logs": self.logs,
            "history": self.history,
        }
        if not self._kind.has_steps:
            del handlers["outputs"]  # those of a member belong to its holder
        return [serve(one + name, GET=handler) for name, handler in handlers.items()]

    async def report(self, request: Request) -> Any:
        """Return the newest report; with `after` and `wait`, wait for one that is newer than that version."""
        after, seconds = read_number(request, "after", 0), read_wait(request)
        subject = await self._subject(request)
        if seconds and subject.link is not None and subject.record is not None:
            who = callers.get_caller(request)
            with self._slots.acquire(who.org, who.key_id, seconds):
                await self._wait_unless_closing(subject.link.state.wait_for_change(subject.uid, after, seconds))
            # The run may have ended during the wait.
            subject = await self._subject(request)
        report, endpoints, version = await self._read_report(subject)
        return report_form(subject.known, report, endpoints, version)

    async def why(self, request: Request) -> Any:
        subject = await self._subject(request)
        report, _, _ = await self._read_report(subject)
        name, tombstone = f"{self._kind.prefix}{subject.name}", subject.tombstone
        if report is not None:
            is_local = subject.link is not None and not subject.link.shared
            left = await self._read_leftovers(subject) if report.abandon is not None and not report.units else None
            return find_obstacles(report, name, await self._read_mute_units(subject), left, ids=is_local) or {}
        return (
            explain_dropped_records(name, abandoned=bool(tombstone.abandoned), ended_at=tombstone.ended_at)
            if tombstone is not None
            else {}
        )

    async def _read_leftovers(self, subject: ReportSubject) -> tuple[str, ...] | None:
        """Return the create steps that may have left something after the end; None if the host has no history."""
        with contextlib.suppress(*NO_ANSWER):
            if subject.link is not None and (moves := await subject.link.history(subject.uid)):
                return leftovers_in_history(moves)
        return None

    async def outputs(self, request: Request) -> Any:
        """Return all outputs. Values of sensitive ones are left out with `masked`, and always from agents."""
        subject = await self._subject(request)
        if subject.record is None:
            raise RequestError(404, self._kind.not_found)
        found, masked = [], read_flag(request, "masked")
        for value in await subject.link.values(subject.uid) if subject.link else ():
            resource, _, step = value.unit.rpartition("/")
            text, encoding = encode_text(b"" if masked and value.sensitive else value.value)
            place = {"resource": resource, "step": step, "output": value.output}
            found.append({**place, "value": text, "encoding": encoding, "sensitive": value.sensitive})
            if value.sensitive and subject.link is not None and subject.link.shared:
                found[-1]["withheld"] = True  # the host has sent an empty value instead, which is not the output
        return found

    async def attempts(self, request: Request) -> Any:
        subject = await self._subject(request)
        return list(await self._logs(subject))

    async def history(self, request: Request) -> Any:
        subject = await self._subject(request)
        return list(await subject.link.history(subject.uid)) if subject.link else []

    async def log(self, request: Request) -> Any:
        """Return a part of one attempt's log, from `offset` on. At the end of an open log, wait up to `wait` seconds.

        `sinceTime` selects the lines since then; `timestamps` adds the times of lines.
        """
        subject, who = await self._subject(request), callers.get_caller(request)
        with self._slots.acquire(who.org, who.key_id, read_wait(request)):
            return await self._read_log(request, subject)

    async def _read_log(self, request: Request, subject: ReportSubject) -> Any:
        unit = request.query_params.get("unit", "")
        attempt, offset = read_number(request, "attempt", 0, least=1), read_number(request, "offset", 0)
        options = _LogOptions(read_flag(request, "timestamps"), read_time(request, "sinceTime"))
        loop = asyncio.get_running_loop()
        until = loop.time() + read_wait(request)
        while True:
            started = loop.time()
            info, found = await self._read_chunk(subject, unit, attempt, offset, options)
            data, begin = found.data, max(found.offset, offset)
            is_end = info.sealed and begin + len(data) >= info.size
            if not is_end:
                data = cut_incomplete_character(data)
            is_late = loop.time() >= until or self._closing.is_set()
            if data or is_end or is_late:
                break
            # A slow host is queried less often.
            await asyncio.sleep(max(LOG_POLL_INTERVAL_S, loop.time() - started))
        times = [{"offset": at, "time": rfc3339(ms)} for at, ms in log_times.entries_from(found.times)]
        extra = {"times": times} if options.timestamps else {}
        return {**describe_chunk(unit, info.attempt, begin, data, sealed=is_end), **extra}

    async def logs(self, request: Request) -> Any:
        """Return the logs of the newest attempts of a resource, one of its steps, or a fork."""
        subject = await self._subject(request)
        query = request.query_params
        resource, step, workload = (query.get(name, "") for name in ("resource", "step", "workload"))
        options = _LogOptions(read_flag(request, "timestamps", default=True), read_time(request, "sinceTime"))
        newest = {info.unit: info for info in await self._logs(subject)}
        available = _list_logs({_parameters(unit) for unit in newest})
        if query.get("container", "main") not in ("", "main"):
            raise RequestError(400, "query parameter container: a step's only container is main")
        if bool(resource or step) == bool(workload):
            raise RequestError(
                400, f"name either workload, or resource and perhaps step, or the step of a hook; {available}"
            )
        found = [unit for unit in newest if _is_selected(unit, resource, step, workload)]
        if not found:
            wanted = {"resource": resource, "step": step, "workload": workload}
            raise RequestError(
                400, f"no log of {_query({name: value for name, value in wanted.items() if value})}; {available}"
            )
        return [{"container": "main", "logs": await self._read_lines(subject, newest[unit], options)} for unit in found]

    async def _subject(self, request: Request) -> ReportSubject:
        who, name = callers.get_caller(request), request.path_params["name"]
        uid = read_text(request, "uid")
        record = await self._service.find(who, name)
        if record is not None and uid not in ("", record.uid):
            record = None
        tombstone: Tombstone | None = None
        if record is None:
            org_store = self._store.for_org(who.org)
            ended = await org_store.look_up(lambda rows: tombstones.find(rows, self._kind, name, uid))
            tombstone = callers.keep_visible(who, ended)
        known: RunRecord[Any] | Tombstone | None = record or tombstone
        if known is None:
            raise RequestError(404, self._kind.not_found)
        return ReportSubject(
            known=known,
            scope=who.scope,
            link=self._links.get(who.org, known.cluster),
            record=record,
            tombstone=tombstone,
        )

    async def _read_report(self, subject: ReportSubject) -> tuple[RunReport | None, list[dict[str, Any]], int]:
        """Return report, endpoints and version of a run."""
        if subject.record is not None:
            state = (await self._service.query_states([subject.record], subject.scope))[subject.uid]
            return state.report, state.endpoints, state.version or NO_REPORT_VERSION
        if subject.link is None:
            return None, [], 0
        found, silence = await subject.link.query_statuses([subject.uid])
        if silence:
            raise HostSilentError(silence)
        last = found.get(subject.uid)
        return (last.report, [], last.seq) if last else (None, [], 0)

    async def _wait_unless_closing(self, waiting: Any) -> None:
        """Wait until it is done or the server closes."""
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _logs(self, subject: ReportSubject) -> tuple[LogInfo, ...]:
        return await subject.link.logs(subject.uid) if subject.link else ()

    async def _read_mute_units(self, subject: ReportSubject) -> set[str]:
        """Return the units whose last attempt has ended with an empty log; none if the host does not answer."""
        try:
            return units_without_output(await self._logs(subject))
        except NO_ANSWER:
            return set()

    async def _read_chunk(
        self, subject: ReportSubject, unit: str, attempt: int, offset: int, options: _LogOptions
    ) -> tuple[LogInfo, LogBytes]:
        """Return a part of the log of an attempt; attempt 0 is the newest."""
        available: tuple[LogInfo, ...] = ()
        if subject.link is not None:
            position = {"offset": offset, "limit": MAX_LOG_BYTES, "since": options.since}
            found = await subject.link.read_log(subject.uid, unit, attempt, times=options.timestamps, **position)
            if found.info is not None:
                return found.info, found
            available = found.logs
        if attempts := [str(info.attempt) for info in available if info.unit == unit]:
            text = f"no log of attempt {attempt} of {quote(unit)}; there are logs of its attempts {', '.join(attempts)}"
            raise RequestError(400, text)
        raise RequestError(400, f"no log of {quote(unit)}; {_list_logs({info.unit for info in available})}")

    async def _read_lines(self, subject: ReportSubject, info: LogInfo, options: _LogOptions) -> list[dict[str, str]]:
        """Return the last part of a log, with one message for each line."""
        start = max(info.size - MAX_LOG_BYTES, 0)
        _, found = await self._read_chunk(subject, info.unit, info.attempt, start, options)
        splitter = log_times.LineSplitter()
        cut = [
            *splitter.feed(max(found.offset, start), found.data, log_times.entries_from(found.times)),
            *splitter.flush(),
        ]
        lines = [(ms, line.removesuffix(b"\r").decode(errors="replace")) for ms, line in cut]
        if not options.timestamps:
            return [{"message": line} for _, line in lines]
        return [{"message": line, "time": rfc3339(ms) if ms else ""} for ms, line in lines]


def _is_selected(unit: str, resource: str, step: str, workload: str) -> bool:
    """Return whether the query parameters of `logs` select that unit."""
    if baseline := workload_of(unit):
        return bool(workload) and baseline.name == workload
    owner, _, name = unit.rpartition("/")
    return not workload and owner == resource and step in ("", name)


def _parameters(unit: str) -> str:
    """Return the query parameters of `logs` for a unit."""
    if baseline := workload_of(unit):
        return _query({"workload": baseline.name})
    resource, _, step = unit.rpartition("/")
    return _query({"resource": resource, "step": step} if resource else {"step": step})


def _query(parameters: dict[str, str]) -> str:
    return urlencode(parameters, safe="/:@", quote_via=quote_url)


def _list_logs(logs: Collection[str]) -> str:
    return f"there are logs of {', '.join(sorted(logs))}" if logs else "there are no logs yet"


def encode_text(data: bytes) -> tuple[str, str]:
    """Return the bytes as text, and its encoding: `utf-8` or `base64`."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def describe_chunk(unit: str, attempt: int, offset: int, data: bytes, *, sealed: bool) -> dict[str, Any]:
    """Return a part of a log in the API."""
    text, encoding = encode_text(data)
    position = {"unit": unit, "attempt": attempt, "offset": offset, "next": offset + len(data)}
    return {**position, "sealed": sealed, "data": text, "encoding": encoding}


def cut_incomplete_character(data: bytes) -> bytes:
    """Remove an incomplete UTF-8 character from the end, whose rest has not been written yet."""
    for back in range(1, min(3, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if length > back else data
        if lead < 0x80:
            break
    return data
