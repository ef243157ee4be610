"""Sandboxes, route groups and pools of `AsyncClient`, and the methods that all have."""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from dayfly.client import secret_values, sources, waiting
from dayfly.client.errors import InvalidError
from dayfly.client.follower import Follower
from dayfly.client.interface import (
    PoolsInterface,
    RouteGroupsInterface,
    RunsInterface,
    SandboxesInterface,
    SteppedRunsInterface,
)
from dayfly.client.types import (
    Attempt,
    Blocker,
    LogPiece,
    LogTime,
    Move,
    Output,
    Outputs,
    Pool,
    PoolExplanation,
    Report,
    RouteGroup,
    Sandbox,
)
from dayfly.spec.errors import SpecError
from dayfly.spec.report import expects_more
from dayfly.spec.scalars import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from dayfly.client.changes import Change
    from dayfly.client.json_client import JsonClient
    from dayfly.client.secret_values import Secrets
    from dayfly.client.sources import Source, Variables

T = TypeVar("T", bound=Sandbox | RouteGroup | Pool)

_POLL_INTERVAL_S = 0.3
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AsyncRuns(RunsInterface, Generic[T]):
    """Sandboxes, route groups or pools of one server."""

    form: type[T]
    plural: ClassVar[str]
    kind: ClassVar[str]
    prefix: ClassVar[str] = ""
    streams: ClassVar[bool] = False

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def get(self, name: str) -> T:
        return await self._json.get(self.form, self.plural, name)

    async def list(self, *, label: str = "") -> tuple[T, ...]:
        found: tuple[T, ...] = await self._json.get(tuple[self.form, ...], self.plural, label=label or None)  # type: ignore[name-defined]  # a type that is a value
        return found

    async def delete(self, name: str) -> None:
        await self._done("DELETE", name)

    async def wait_ready(
        self, name: str, *, timeout: float = 300, on_report: Callable[[Report], None] | None = None
    ) -> T:
        await waiting.until_ready(self._run(name), timeout, on_report)
        return await self.get(name)

    async def wait_gone(
        self, name: str, *, timeout: float = 600, on_report: Callable[[Report], None] | None = None
    ) -> str:
        return await waiting.until_gone(self._run(name), timeout, on_report)

    async def follow(self, name: str = "", *, poll: float = 1.0) -> AsyncIterator[Change[T]]:
        async def read() -> Iterable[tuple[str, T]]:
            found = [await self.get(name)] if name else await self.list()
            return [(each.name, each) for each in found]

        path = self._json.org_path(self.plural, name, "changes") if name else self._json.org_path("changes")
        follower = Follower(self._json, self.form, path if self.streams else "", read, name, poll)
        async for change in follower.changes():
            yield change

    async def report(self, name: str, *, after: int | None = None, wait: int = 0) -> Report:
        return await self._run(name).report(after, wait, None)

    async def why(self, name: str) -> Blocker | None:
        found = await self._json.get(Blocker, self.plural, name, "why")
        return found if found.subject else None

    async def attempts(self, name: str) -> tuple[Attempt, ...]:
        return await self._json.get(tuple[Attempt, ...], self.plural, name, "attempts")

    async def log(self, name: str, unit: str, *, attempt: int | None = None) -> str:
        data = await self._log(name, unit, attempt)
        return data.decode(errors="replace")

    async def logs(
        self,
        name: str,
        unit: str = "",
        *,
        follow: bool = False,
        timestamps: bool = False,
        since: dt.datetime | dt.timedelta | None = None,
    ) -> AsyncIterator[LogPiece]:
        when = {"timestamps": "true" if timestamps else None, "sinceTime": _since_time(since)}
        offsets: dict[tuple[str, int], int] = {}
        first: dict[str, int] = {}
        while True:
            report = await self.report(name)
            states = [(each.state, each.event) for each in report.units if _is_of(each.id, unit)]
            more = follow and expects_more(report.phase, report.reason, states)
            found = [each for each in await self.attempts(name) if _is_of(each.unit, unit)]
            latest = {each.unit: each.attempt for each in found}
            for each in found:
                if each.attempt < first.setdefault(each.unit, latest[each.unit]):
                    continue
                more = more or (follow and not each.sealed)
                while (at := offsets.get((each.unit, each.attempt), 0)) < each.size:
                    piece = await self._piece(name, each.unit, each.attempt, at, **when)
                    if not piece.data:
                        break
                    offsets[each.unit, each.attempt] = piece.offset + len(piece.data)
                    yield piece
            if not more:
                return
            await self._json.io.pause(_POLL_INTERVAL_S)

    async def history(self, name: str) -> tuple[Move, ...]:
        return await self._json.get(tuple[Move, ...], self.plural, name, "history")

    async def abandon(self, name: str, reason: str, *, force: bool = False) -> None:
        await self._done("POST", name, "abandon", body={"reason": reason, "force": force})

    async def _apply(self, wish: sources.LoadedSource, more: dict[str, Any]) -> T:
        if not wish.name:
            raise InvalidError([SpecError("the name is missing", ("name",))])
        with sources.errors_with_places(wish.document):
            path = self._json.org_path(self.plural, wish.name)
            return await self._json.request_as(self.form, "PUT", path, body={**wish.body, **more})

    async def _done(
        self, method: str, name: str, *what: str, body: Any = None, form: Any = None, **options: Any
    ) -> Any:
        path = self._json.org_path(self.plural, name, *what)
        return await self._json.request_as(form or dict[str, Any], method, path, body=body, **options)

    def _run(self, name: str) -> waiting.WaitedRun:
        return waiting.WaitedRun(self._json, self.prefix + name)

    async def _log(self, name: str, unit: str, attempt: int | None) -> bytes:
        piece = await self._piece(name, unit, attempt, 0)
        data = piece.data
        # The log may grow faster than it is read, so the size is requested only once.
        there = await self.attempts(name) if data else ()
        size = max((each.size for each in there if (each.unit, each.attempt) == (unit, piece.attempt)), default=0)
        while piece.data and len(data) < size:
            piece = await self._piece(name, unit, piece.attempt, len(data))
            data += piece.data
        return data

    async def _piece(self, name: str, unit: str, attempt: int | None, offset: int, **when: str | None) -> LogPiece:
        query: dict[str, object] = {"unit": unit, "attempt": attempt, "offset": offset, **when}
        found = await self._json.get(_Piece, self.plural, name, "log", **query)
        data = base64.b64decode(found.data) if found.encoding == "base64" else found.data.encode()
        return LogPiece(unit=found.unit, attempt=found.attempt, offset=found.offset, data=data, times=found.times)


class AsyncSteppedRuns(AsyncRuns[T], SteppedRunsInterface):
    """Sandboxes or route groups of one server."""

    async def outputs(self, name: str) -> Outputs:
        return Outputs(await self._json.get(tuple[Output, ...], self.plural, name, "outputs"))

    async def retry(self, name: str, unit: str = "") -> dict[str, int]:
        body = {"unit": unit} if unit else {}
        found = await self._done("POST", name, "retry", body=body, form=_Retried)
        return {each.unit: each.attempt for each in found.retried}

    async def extend(self, name: str, *, seconds: int = 0, until: dt.datetime | None = None) -> T:
        body: dict[str, Any] = {"seconds": seconds} if seconds else {}
        if until is not None:
            body = {"until": _format_time("until", until, "seconds")}
        extended: T = await self._done("POST", name, "extend", body=body, form=self.form)
        return extended


class AsyncSandboxes(AsyncSteppedRuns[Sandbox], SandboxesInterface):
    """The sandboxes of one server."""

    form, plural, kind, streams = Sandbox, "sandboxes", "sandbox", True

    async def apply(
        self,
        source: Source,
        *,
        variables: Variables | None = None,
        lease: int | None = None,
        secrets: Secrets | None = None,
    ) -> Sandbox:
        more: dict[str, Any] = {} if lease is None else {"lease": {"seconds": lease}}
        if secrets:
            more["secrets"] = secret_values.check(secrets, self._json.address.url)
        return await self._apply(sources.read(source, variables or {}, self.kind), more)

    async def lease(self, name: str, seconds: int) -> None:
        await self._done("PUT", name, "lease", body={"seconds": seconds})

    async def reset(self, name: str, resource: str) -> str:
        found: _Replaced = await self._done("POST", name, "reset", body={"resource": resource}, form=_Replaced)
        return found.replaced


class AsyncRouteGroups(AsyncSteppedRuns[RouteGroup], RouteGroupsInterface):
    """The route groups of one server. `follow` polls, as the server has no stream of them."""

    form, plural, kind, prefix = RouteGroup, "routegroups", "route group", names.GROUP

    async def apply(self, source: Source, *, variables: Variables | None = None) -> RouteGroup:
        return await self._apply(sources.read(source, variables or {}, self.kind), {})


class AsyncPools(AsyncRuns[Pool], PoolsInterface):
    """The pools of one server. `follow` polls, as the server has no stream of them."""

    form, plural, kind, prefix = Pool, "resourcepools", "pool", names.POOL

    async def apply(self, source: Source, *, variables: Variables | None = None) -> Pool:
        return await self._apply(sources.read(source, variables or {}, self.kind), {})

    async def pause(self, name: str) -> Pool:
        return await self._control(name, "pause")

    async def resume(self, name: str) -> Pool:
        return await self._control(name, "resume")

    async def drain(self, name: str) -> Pool:
        return await self._control(name, "drain")

    async def explain(self, name: str) -> PoolExplanation:
        return await self._json.get(PoolExplanation, self.plural, name, "explain")

    async def _control(self, name: str, action: str) -> Pool:
        controlled: Pool = await self._done("POST", name, action, body={}, form=Pool)
        return controlled


class _RetriedUnit(msgspec.Struct):
    unit: str
    attempt: int


class _Retried(msgspec.Struct):
    retried: tuple[_RetriedUnit, ...]


class _Replaced(msgspec.Struct):
    replaced: str


class _Piece(msgspec.Struct):
    unit: str
    attempt: int
    offset: int
    data: str
    encoding: str = "utf-8"
    times: tuple[LogTime, ...] = ()


def _format_time(name: str, moment: dt.datetime, precision: str) -> str:
    """Return a time in the format of the server.

    Raises:
        InvalidError: the time has no zone, or is out of range.
    """
    if moment.tzinfo is None:
        example = "datetime.now(UTC) + timedelta(hours=2)"
        raise InvalidError([SpecError(f"`{name}` has no time zone; write e.g. {example}")])
    try:
        return moment.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    except OverflowError:
        raise InvalidError([SpecError(f"the year of `{name}` is not between 1 and 9999")]) from None


def _since_time(since: dt.datetime | dt.timedelta | None) -> str | None:
    """Return the start time in the format of the server; None for all lines, also for a time before 1970."""
    if isinstance(since, dt.timedelta):
        now = dt.datetime.now(dt.UTC)
        if since >= now - _EPOCH:
            return None
        since = now - max(since, dt.timedelta())  # no line is in the future
    return None if since is None else _format_time("since", since, "milliseconds")


def _is_of(unit: str, chosen: str) -> bool:
    return not chosen or unit == chosen or unit.startswith(f"{chosen}/")
