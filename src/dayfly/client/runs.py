"""What lives and has a run: sandboxes and route groups. Everything that both have is written here, once."""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from dayfly.client import secret_values, sources, waiting
from dayfly.client.errors import InvalidError
from dayfly.client.follower import Follower
from dayfly.client.types import Attempt, Blocker, LogPiece, LogTime, Move, Output, Outputs, Report, RouteGroup, Sandbox
from dayfly.spec.errors import SpecError
from dayfly.spec.report import expects_more

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from dayfly.client.changes import Change
    from dayfly.client.json_client import JsonClient
    from dayfly.client.secret_values import Secrets
    from dayfly.client.sources import Source, Variables

T = TypeVar("T", bound=Sandbox | RouteGroup)

_POLL_S = 0.3
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AsyncRuns(Generic[T]):
    """Sandboxes, or route groups, of one server."""

    form: type[T]
    plural: ClassVar[str]
    kind: ClassVar[str]
    prefix: ClassVar[str] = ""
    streams: ClassVar[bool] = False

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def get(self, name: str) -> T:
        """As it stands.

        Raises:
            NotFoundError: there is none of that name.
        """
        return await self._json.get(self.form, self.plural, name)

    async def list(self, *, label: str = "") -> tuple[T, ...]:
        """All of them, by name; with `label` (`team=pay,!draft`) those that match."""
        found: tuple[T, ...] = await self._json.get(tuple[self.form, ...], self.plural, label=label or None)  # type: ignore[name-defined]  # a type that is a value
        return found

    async def delete(self, name: str) -> None:
        """Have it end, and return at once: `wait_gone` waits.

        Raises:
            NotFoundError: there is none of that name.
        """
        await self._done("DELETE", name)

    async def wait_ready(
        self, name: str, *, timeout: float = 300, on_report: Callable[[Report], None] | None = None
    ) -> T:
        """Wait until it is ready; as it stands then.

        Args:
            name: Of what is waited for.
            timeout: For how many seconds.
            on_report: Called with each new report.

        Raises:
            FailedError: it failed, with the end of the log of the step that did; or somebody deletes it.
            WaitTimeoutError: it is not ready in time. The work goes on.
        """
        await waiting.until_ready(self._run(name), timeout, on_report)
        return await self.get(name)

    async def wait_gone(
        self, name: str, *, timeout: float = 600, on_report: Callable[[Report], None] | None = None
    ) -> str:
        """Wait until it is gone; how it ended, `cleaned` or `abandoned`. One that is not there is gone.

        Raises:
            WaitTimeoutError: it is still there after that time. The work goes on.
        """
        return await waiting.until_gone(self._run(name), timeout, on_report)

    async def follow(self, name: str = "", *, poll: float = 1.0) -> AsyncIterator[Change[T]]:
        """All as it stands, then `synced`, and then what changes; of one name to its end.

        It goes on where it was when the server has been away, and misses nothing that is still so. Where no stream of
        events gets through, the server is asked every `poll` seconds.
        """

        async def read() -> Iterable[tuple[str, T]]:
            found = [await self.get(name)] if name else await self.list()
            return [(each.name, each) for each in found]

        path = self._json.below(self.plural, name, "changes") if name else self._json.below("changes")
        follower = Follower(self._json, self.form, path if self.streams else "", read, name, poll)
        async for change in follower.changes():
            yield change

    async def report(self, name: str, *, after: int | None = None, wait: int = 0) -> Report:
        """How each of its units stands; with `after`, a version, the answer waits for a newer one, `wait` seconds."""
        return await self._run(name).report(after, wait, None)

    async def why(self, name: str) -> Blocker | None:
        """What it waits for, down to the root, and what to do; None if nothing holds it up."""
        found = await self._json.get(Blocker, self.plural, name, "why")
        return found if found.subject else None

    async def outputs(self, name: str) -> Outputs:
        """All that its steps have handed over, sensitive values too."""
        return Outputs(await self._json.get(tuple[Output, ...], self.plural, name, "outputs"))

    async def attempts(self, name: str) -> tuple[Attempt, ...]:
        """The logs that there are; also of one that has ended, for a week."""
        return await self._json.get(tuple[Attempt, ...], self.plural, name, "attempts")

    async def log(self, name: str, unit: str, *, attempt: int | None = None) -> str:
        """What an attempt of a step or fork has printed so far: the latest one, if none is named.

        Raises:
            RefusedError: it has no such log; it names those that there are.
        """
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
        """The newest logs of a unit, of a resource's units, or of all.

        Args:
            name: Of what printed them.
            unit: Whose logs; empty for all.
            follow: Go on until nothing more can come.
            timestamps: Tell when they were printed, in the pieces' `times`.
            since: Leave out lines that are older than that, or were printed before then. Lines of which nobody knows
                the time stay.
        """
        when = {"timestamps": "true" if timestamps else None, "sinceTime": _moment(since)}
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
            await self._json.io.pause(_POLL_S)

    async def history(self, name: str) -> tuple[Move, ...]:
        """Every move of its ledger."""
        return await self._json.get(tuple[Move, ...], self.plural, name, "history")

    async def retry(self, name: str, unit: str = "") -> dict[str, int]:
        """Try again now what waits to be: one unit, or all; after which attempt each waited.

        Raises:
            ConflictError: nothing waits.
        """
        body = {"unit": unit} if unit else {}
        found = await self._done("POST", name, "retry", body=body, form=_Retried)
        return {each.unit: each.attempt for each in found.retried}

    async def extend(self, name: str, *, seconds: int = 0, until: dt.datetime | None = None) -> T:
        """Let it live so long from now, or until then, or for as long again as its `ttl` says; never shorter.

        Raises:
            ConflictError: it has no time to live.
        """
        body: dict[str, Any] = {"seconds": seconds} if seconds else {}
        if until is not None:
            body = {"until": _written("until", until, "seconds")}
        extended: T = await self._done("POST", name, "extend", body=body, form=self.form)
        return extended

    async def abandon(self, name: str, reason: str, *, force: bool = False) -> None:
        """Give its cleanup up, which is recorded with the reason: what it has may be left over.

        Raises:
            ConflictError: it is not being deleted, and `force` is not set.
        """
        await self._done("POST", name, "abandon", body={"reason": reason, "force": force})

    async def _apply(self, wish: sources.LoadedSource, more: dict[str, Any]) -> T:
        if not wish.name:
            raise InvalidError([SpecError("it has no name", ("name",))])
        with sources.placed(wish.document):
            path = self._json.below(self.plural, wish.name)
            return await self._json.ask(self.form, "PUT", path, body={**wish.body, **more})

    async def _done(
        self, method: str, name: str, *what: str, body: Any = None, form: Any = None, **options: Any
    ) -> Any:
        path = self._json.below(self.plural, name, *what)
        return await self._json.ask(form or dict[str, Any], method, path, body=body, **options)

    def _run(self, name: str) -> waiting.WaitedRun:
        return waiting.WaitedRun(self._json, self.prefix + name)

    async def _log(self, name: str, unit: str, attempt: int | None) -> bytes:
        piece = await self._piece(name, unit, attempt, 0)
        data = piece.data
        # It may come faster than it is read, so it is asked once how much there is.
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


class AsyncSandboxes(AsyncRuns[Sandbox]):
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
        """Make it, or change it, and return at once: `wait_ready` waits.

        Args:
            source: A wish as the API takes it, or a file or folder with exactly one.
            variables: Fill in `@{NAME}` in files.
            lease: Have it deleted so many seconds from now, if `lease` is not called before that.
            secrets: Values of params with `secret: true`, by resource and name: `{"db": {"password": ...}}`. They go to
                a server of this machine alone, and stand in no document.

        Raises:
            InvalidError: what is wrong, with its places; nothing was changed.
        """
        more: dict[str, Any] = {} if lease is None else {"lease": {"seconds": lease}}
        if secrets:
            more["secrets"] = secret_values.checked(secrets, self._json.address.url)
        return await self._apply(sources.read(source, variables or {}, self.kind), more)

    async def lease(self, name: str, seconds: int) -> None:
        """Have it live for so many seconds from now, at most 86,400, and be deleted then."""
        await self._done("PUT", name, "lease", body={"seconds": seconds})


class AsyncRouteGroups(AsyncRuns[RouteGroup]):
    """The route groups of one server. It has no stream of them: `follow` asks."""

    form, plural, kind, prefix = RouteGroup, "routegroups", "route group", "routegroup/"

    async def apply(self, source: Source, *, variables: Variables | None = None) -> RouteGroup:
        """Make it, or change it, and return at once: `wait_ready` waits.

        Args:
            source: A wish as the API takes it, or a file or folder with exactly one.
            variables: Fill in `@{NAME}` in files.

        Raises:
            InvalidError: what is wrong, with its places; nothing was changed.
        """
        return await self._apply(sources.read(source, variables or {}, self.kind), {})


class _RetriedUnit(msgspec.Struct):
    unit: str
    attempt: int


class _Retried(msgspec.Struct):
    retried: tuple[_RetriedUnit, ...]


class _Piece(msgspec.Struct):
    unit: str
    attempt: int
    offset: int
    data: str
    encoding: str = "utf-8"
    times: tuple[LogTime, ...] = ()


def _written(name: str, moment: dt.datetime, precision: str) -> str:
    """A moment as the server takes it.

    Raises:
        InvalidError: it has no zone, or no calendar has it.
    """
    if moment.tzinfo is None:
        example = "datetime.now(UTC) + timedelta(hours=2)"
        raise InvalidError([SpecError(f"`{name}` has no time zone; write e.g. {example}")])
    try:
        return moment.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    except OverflowError:
        raise InvalidError([SpecError(f"`{name}` is in no year from 1 to 9999")]) from None


def _moment(since: dt.datetime | dt.timedelta | None) -> str | None:
    """As the server takes it; None for all, also for what is longer ago than its clock goes back."""
    if isinstance(since, dt.timedelta):
        now = dt.datetime.now(dt.UTC)
        if since >= now - _EPOCH:
            return None
        since = now - max(since, dt.timedelta())  # nothing has been printed later than now
    return None if since is None else _written("since", since, "milliseconds")


def _is_of(unit: str, chosen: str) -> bool:
    return not chosen or unit == chosen or unit.startswith(f"{chosen}/")
