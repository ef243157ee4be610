"""The routes of a sandbox's logs. A growing log is followed while a browser requests it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.cli.backends.cluster_objects import now
from dayfly.server.api.reports import MAX_LOG_BYTES, cut_incomplete_character, describe_chunk
from dayfly.server.http.errors import RequestError
from dayfly.server.http.request_data import read_number, read_wait
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.cluster_page.handler import PageContext

# Following ends this long after the last request. The page sends a request every 20 seconds.
_IDLE_TIMEOUT_S = 60.0


class _FollowedLogs:
    """The logs of one sandbox while a browser requests them."""

    def __init__(self, logs: ClusterLogs) -> None:
        self.logs = logs
        self.closing: asyncio.TimerHandle | None = None


class LogRoutes:
    """The routes of the logs of one kind: `plural` is its name in paths, and `find` returns an object by its name."""

    def __init__(self, context: PageContext, plural: str, find: Callable[[str], Awaitable[Any]]) -> None:
        self._context, self._plural, self._find = context, plural, find
        self._open: dict[str, _FollowedLogs] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """Return the routes."""
        path, serve = f"/orgs/{{org}}/{self._plural}/{{name}}", self._context.serve
        return [serve(path + "/attempts", GET=self.attempts), serve(path + "/log", GET=self.log)]

    async def close(self) -> None:
        """Stop following all logs."""
        for uid in list(self._open):
            self._stop_following(uid)
        await asyncio.gather(*self._ending)

    async def attempts(self, request: Request) -> Any:
        """Return the existing and pending logs."""
        found = await self._find(request.path_params["name"])
        logs = await self._logs(found).list_logs(found, now())
        return [{key: each[key] for key in ("unit", "attempt", "size", "sealed")} for each in logs]

    async def log(self, request: Request) -> Any:
        """Return a piece of a log from `offset` on. At the end of a growing log, wait at most `wait` seconds."""
        name, unit = request.path_params["name"], request.query_params.get("unit", "")
        attempt, offset = read_number(request, "attempt", 0, least=1), read_number(request, "offset", 0)
        loop = asyncio.get_running_loop()
        until = loop.time() + read_wait(request)
        while True:
            found = await self._find(name)
            logs = self._logs(found)
            info = await logs.follow_one(found, unit, attempt, now())
            if info is None:
                raise self._not_found_error(logs, unit, attempt)
            data = logs.text(unit, attempt, offset)[:MAX_LOG_BYTES]
            begin = max(offset, info["cut"])
            sealed = info["sealed"] and begin + len(data) >= info["size"]
            data = data if sealed else cut_incomplete_character(data)
            left = until - loop.time()
            if data or sealed or left <= 0:
                break
            await logs.wait_for_growth(unit, attempt, offset, left)
        return describe_chunk(unit, attempt, begin, data, sealed=sealed)

    def _not_found_error(self, logs: ClusterLogs, unit: str, attempt: int) -> RequestError:
        """Return the error for a log that does not exist, or that the user may not read."""
        if reason := logs.refused.get((unit, attempt)):
            return RequestError(403, reason)
        return RequestError(400, f"no log of attempt {attempt} of {quote(unit)} yet")

    def _logs(self, found: Any) -> ClusterLogs:
        """Return the logs of a sandbox, and restart their idle timeout."""
        meta, loop = found["metadata"], asyncio.get_running_loop()
        if meta["uid"] not in self._open:
            self._open[meta["uid"]] = _FollowedLogs(ClusterLogs(self._context.client, meta["namespace"], report=None))
        followed = self._open[meta["uid"]]
        if followed.closing:
            followed.closing.cancel()
        followed.closing = loop.call_later(_IDLE_TIMEOUT_S, self._stop_following, meta["uid"])
        return followed.logs

    def _stop_following(self, uid: str) -> None:
        followed = self._open.pop(uid)
        if followed.closing:
            followed.closing.cancel()
        ending = asyncio.get_running_loop().create_task(followed.logs.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
