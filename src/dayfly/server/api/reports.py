"""Dayfly's own additions below a sandbox or route group: its report, what holds it up, its outputs, logs and history.

All answer for a sandbox that has ended too, for a week, except what it takes with it: its outputs. Of several that had
one name the living one is told of, else the one that ended last, unless `uid` in the query says which is meant.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote as quote_url
from urllib.parse import urlencode

import msgspec

from dayfly.link.host_state import NOTHING_YET
from dayfly.link.server_end import NO_ANSWER
from dayfly.plan.history import leftovers_in_history
from dayfly.plan.why import records_dropped, units_without_output, why
from dayfly.server.access import callers
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import chosen, flag, moment, rfc3339, serve, wait_seconds, whole_number
from dayfly.server.records import tombstones
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
    from dayfly.server.http.long_poll_slots import LongPollSlots
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.records.tombstones import Tombstone
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.report import RunReport
    from dayfly.spec.run_data import LogInfo

MOST_LOG_BYTES = 256 * 1024
# Logs are files that another process writes: there is nobody to wait for, so one looks again.
LOOK_AGAIN_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A sandbox that somebody asks about, living or ended. `record` is None for one that has ended."""

    uid: str
    name: str
    routing_key: str
    cluster: str
    scope: Scope
    link: Link | None
    record: RunRecord[Any] | None
    trace: Tombstone | None


class _When(NamedTuple):
    """Whether it is to be told when a log was printed, and from when on it is read (0: from its beginning)."""

    told: bool
    since: int


class Reports:
    """The addresses that only tell."""

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
        """All of them."""
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
        return [serve(one + name, GET=handler) for name, handler in handlers.items()]

    async def report(self, request: Request) -> Any:
        """The newest report; with `after` and `wait`, one that is newer than that version, if it comes in time."""
        after, seconds = whole_number(request, "after", 0), wait_seconds(request)
        subject = await self._subject(request)
        if subject.link is not None and subject.record is not None:
            who = callers.caller(request)
            with self._slots.one(who.org, who.key_id, seconds):
                await self._unless_closing(subject.link.state.wait_for_change(subject.uid, after, seconds))
            # What was waited for may be its end.
            subject = await self._subject(request)
        report, found, version = await self._told(subject)
        return {
            **(msgspec.to_builtins(report) if report else {}),
            "uid": subject.uid,
            "name": subject.name,
            "cluster": subject.cluster,
            "routingKey": subject.routing_key,
            "version": version,
            "endpoints": found,
        }

    async def why(self, request: Request) -> Any:
        subject = await self._subject(request)
        report, _, _ = await self._told(subject)
        name, trace = f"{self._kind.prefix}{subject.name}", subject.trace
        if report is not None:
            ours = subject.link is not None and not subject.link.shared
            left = await self._left(subject) if report.abandon is not None and not report.units else None
            return why(report, name, await self._mute(subject), left, ids=ours) or {}
        return (
            records_dropped(name, abandoned=bool(trace.given_up), ended_at=trace.ended_at) if trace is not None else {}
        )

    async def _left(self, subject: Subject) -> tuple[str, ...] | None:
        """Return the create steps that may have left something after the end; None if the host has no history."""
        with contextlib.suppress(*NO_ANSWER):
            if subject.link is not None and (moves := await subject.link.history(subject.uid)):
                return leftovers_in_history(moves)
        return None

    async def outputs(self, request: Request) -> Any:
        """All; with `masked` in the query without what is in the sensitive ones, which may be withheld in any case."""
        subject = await self._subject(request)
        if subject.record is None:
            raise RequestError(404, self._kind.not_found)
        found, masked = [], flag(request, "masked")
        for value in await subject.link.values(subject.uid) if subject.link else ():
            resource, _, step = value.unit.rpartition("/")
            text, encoding = text_of(b"" if masked and value.sensitive else value.value)
            place = {"resource": resource, "step": step, "output": value.output}
            found.append({**place, "value": text, "encoding": encoding, "sensitive": value.sensitive})
            if value.sensitive and subject.link is not None and subject.link.shared:
                # What came instead is empty: nobody is to take it for the value.
                found[-1]["withheld"] = True
        return found

    async def attempts(self, request: Request) -> Any:
        subject = await self._subject(request)
        return list(await self._logs(subject))

    async def history(self, request: Request) -> Any:
        subject = await self._subject(request)
        return list(await subject.link.history(subject.uid)) if subject.link else []

    async def log(self, request: Request) -> Any:
        """A piece of one attempt's log, from `offset`; at the end of one that still grows, after at most `wait`.

        With `sinceTime` from the first line on that is no older; with `timestamps` it is told when it was printed.
        """
        subject, who = await self._subject(request), callers.caller(request)
        with self._slots.one(who.org, who.key_id, wait_seconds(request)):
            return await self._read_log(request, subject)

    async def _read_log(self, request: Request, subject: Subject) -> Any:
        unit = request.query_params.get("unit", "")
        attempt, offset = whole_number(request, "attempt", 0, least=1), whole_number(request, "offset", 0)
        when = _When(flag(request, "timestamps"), moment(request, "sinceTime"))
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds(request)
        while True:
            asked = loop.time()
            info, found = await self._piece(subject, unit, attempt, offset, when)
            data, begin = found.data, max(found.offset, offset)
            whole = info.sealed and begin + len(data) >= info.size
            if not whole:
                data = whole_characters(data)
            late = loop.time() >= until or self._closing.is_set()
            if data or whole or late:
                break
            # A host that is far away is asked less often.
            await asyncio.sleep(max(LOOK_AGAIN_S, loop.time() - asked))
        times = [{"offset": at, "time": rfc3339(ms)} for at, ms in log_times.entries_from(found.times)]
        told = {"times": times} if when.told else {}
        return {**piece(unit, info.attempt, begin, data, sealed=whole), **told}

    async def logs(self, request: Request) -> Any:
        """The newest attempts' logs of a resource, one of its steps or a fork, in the public API's form."""
        subject = await self._subject(request)
        query = request.query_params
        resource, step, workload = (query.get(name, "") for name in ("resource", "step", "workload"))
        when = _When(flag(request, "timestamps", default=True), moment(request, "sinceTime"))
        newest = {info.unit: info for info in await self._logs(subject)}
        there = _there_is({_parameters(unit) for unit in newest})
        if query.get("container", "main") not in ("", "main"):
            raise RequestError(400, "query parameter container: a step's only container is main")
        if bool(resource or step) == bool(workload):
            raise RequestError(
                400, f"name either workload, or resource and perhaps step, or the step of a hook; {there}"
            )
        found = [unit for unit in newest if _is_meant(unit, resource, step, workload)]
        if not found:
            wanted = {"resource": resource, "step": step, "workload": workload}
            raise RequestError(
                400, f"no log of {_query({name: said for name, said in wanted.items() if said})}; {there}"
            )
        return [{"container": "main", "logs": await self._lines(subject, newest[unit], when)} for unit in found]

    async def _subject(self, request: Request) -> Subject:
        who, name = callers.caller(request), request.path_params["name"]
        uid = chosen(request, "uid")
        record = await self._service.find(who, name)
        if record is not None and uid not in ("", record.uid):
            record = None
        trace: Tombstone | None = None
        if record is None:
            trace = callers.seen(
                who, await self._store.of(who.org).read(lambda rows: tombstones.find(rows, self._kind, name, uid))
            )
        known: RunRecord[Any] | Tombstone | None = record or trace
        if known is None:
            raise RequestError(404, self._kind.not_found)
        return Subject(
            uid=known.uid,
            name=known.name,
            routing_key=known.routing_key,
            cluster=known.cluster,
            scope=who.scope,
            link=self._links.of(who.org, known.cluster),
            record=record,
            trace=trace,
        )

    async def _told(self, subject: Subject) -> tuple[RunReport | None, list[dict[str, Any]], int]:
        """Its report, endpoints and version."""
        if subject.record is not None:
            told = (await self._service.states([subject.record], subject.scope))[subject.uid]
            return told.report, told.endpoints, told.version or NOTHING_YET
        if subject.link is None:
            return None, [], 0
        found, silent = await subject.link.look([subject.uid])
        if silent:
            raise HostSilentError(silent)
        last = found.get(subject.uid)
        return (last.report, [], last.seq) if last else (None, [], 0)

    async def _unless_closing(self, waiting: Any) -> None:
        """Wait for it, but not once the server closes."""
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _logs(self, subject: Subject) -> tuple[LogInfo, ...]:
        return await subject.link.logs(subject.uid) if subject.link else ()

    async def _mute(self, subject: Subject) -> set[str]:
        """The units whose last attempt has ended and printed nothing, as far as their host tells."""
        try:
            return units_without_output(await self._logs(subject))
        except NO_ANSWER:
            return set()

    async def _piece(
        self, subject: Subject, unit: str, attempt: int, offset: int, when: _When
    ) -> tuple[LogInfo, LogBytes]:
        """A piece of one log, or of that of the newest attempt for attempt 0."""
        there: tuple[LogInfo, ...] = ()
        if subject.link is not None:
            where = {"offset": offset, "limit": MOST_LOG_BYTES, "since": when.since}
            found = await subject.link.read_log(subject.uid, unit, attempt, times=when.told, **where)
            if found.info is not None:
                return found.info, found
            there = found.logs
        if attempts := [str(info.attempt) for info in there if info.unit == unit]:
            text = f"no log of attempt {attempt} of {quote(unit)}; there are logs of its attempts {', '.join(attempts)}"
            raise RequestError(400, text)
        raise RequestError(400, f"no log of {quote(unit)}; {_there_is({info.unit for info in there})}")

    async def _lines(self, subject: Subject, info: LogInfo, when: _When) -> list[dict[str, str]]:
        """The last part of a log, a message for each line."""
        start = max(info.size - MOST_LOG_BYTES, 0)
        _, found = await self._piece(subject, info.unit, info.attempt, start, when)
        lines = log_times.LineCutter()
        cut = [*lines.feed(max(found.offset, start), found.data, log_times.entries_from(found.times)), *lines.end()]
        said = [(ms, line.removesuffix(b"\r").decode(errors="replace")) for ms, line in cut]
        if not when.told:
            return [{"message": line} for _, line in said]
        return [{"message": line, "time": rfc3339(ms) if ms else ""} for ms, line in said]


def _is_meant(unit: str, resource: str, step: str, workload: str) -> bool:
    """Whether the parameters of `logs` name that unit."""
    if of := workload_of(unit):
        return bool(workload) and of.name == workload
    whose, _, name = unit.rpartition("/")
    return not workload and whose == resource and step in ("", name)


def _parameters(unit: str) -> str:
    """The unit as `logs` takes it."""
    if of := workload_of(unit):
        return _query({"workload": of.name})
    resource, _, step = unit.rpartition("/")
    return _query({"resource": resource, "step": step} if resource else {"step": step})


def _query(parameters: dict[str, str]) -> str:
    return urlencode(parameters, safe="/:@", quote_via=quote_url)


def _there_is(logs: Collection[str]) -> str:
    return f"there are logs of {', '.join(sorted(logs))}" if logs else "there are no logs yet"


def text_of(data: bytes) -> tuple[str, str]:
    """The bytes as text and how to read it: `utf-8` as it stands, or `base64`."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def piece(unit: str, attempt: int, offset: int, data: bytes, *, sealed: bool) -> dict[str, Any]:
    """A part of a log as clients know it."""
    text, encoding = text_of(data)
    place = {"unit": unit, "attempt": attempt, "offset": offset, "next": offset + len(data)}
    return {**place, "sealed": sealed, "data": text, "encoding": encoding}


def whole_characters(data: bytes) -> bytes:
    """The bytes without the beginning of a character at their end, whose rest is still to come."""
    for back in range(1, min(3, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if length > back else data
        if lead < 0x80:
            break
    return data
