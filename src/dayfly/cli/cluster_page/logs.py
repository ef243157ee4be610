"""The addresses of a sandbox's logs: those that are kept, and one that is followed as long as somebody looks at it."""

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
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.cluster_page.handler import Side

# So long after the last question nobody looks any more; the page asks every 20 seconds.
_LOOKED_AT_S = 60.0


class _Open:
    """The logs of one sandbox, while somebody looks at them."""

    def __init__(self, logs: ClusterLogs) -> None:
        self.logs = logs
        self.closing: asyncio.TimerHandle | None = None


class LogPages:
    """Of all sandboxes that are watched."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._open: dict[str, _Open] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """All of them."""
        one, serve = "/orgs/{org}/sandboxes/{name}", self._side.serve
        return [serve(one + "/attempts", GET=self.attempts), serve(one + "/log", GET=self.log)]

    async def close(self) -> None:
        """Follow nothing any more."""
        for uid in list(self._open):
            self._let_go(uid)
        await asyncio.gather(*self._ending)

    async def attempts(self, request: Request) -> Any:
        """Which there are or will be."""
        found = await self._side.living(request.path_params["name"])
        there = await self._logs(found).there(found, now())
        return [{key: each[key] for key in ("unit", "attempt", "size", "sealed")} for each in there]

    async def log(self, request: Request) -> Any:
        """A piece of one attempt's log, from `offset` on; at the end of one that still grows, after at most `wait`."""
        name, unit = request.path_params["name"], request.query_params.get("unit", "")
        attempt, offset = read_number(request, "attempt", 0, least=1), read_number(request, "offset", 0)
        loop = asyncio.get_running_loop()
        until = loop.time() + read_wait(request)
        while True:
            found = await self._side.living(name)
            logs = self._logs(found)
            info = await logs.one(found, unit, attempt, now())
            if info is None:
                raise self._none(logs, unit, attempt)
            data = logs.text(unit, attempt, offset)[:MAX_LOG_BYTES]
            begin = max(offset, info["cut"])
            sealed = info["sealed"] and begin + len(data) >= info["size"]
            data = data if sealed else cut_incomplete_character(data)
            left = until - loop.time()
            if data or sealed or left <= 0:
                break
            await logs.grown(unit, attempt, offset, left)
        return describe_chunk(unit, attempt, begin, data, sealed=sealed)

    def _none(self, logs: ClusterLogs, unit: str, attempt: int) -> RequestError:
        """There is none, or not for whoever asks."""
        said = logs.refused.get((unit, attempt))
        return (
            RequestError(403, said) if said else RequestError(400, f"no log of attempt {attempt} of {quote(unit)} yet")
        )

    def _logs(self, found: Any) -> ClusterLogs:
        """Those of a sandbox, from now on for as long as somebody asks."""
        meta, loop = found["metadata"], asyncio.get_running_loop()
        if meta["uid"] not in self._open:
            self._open[meta["uid"]] = _Open(ClusterLogs(self._side.client, meta["namespace"], say=None))
        ours = self._open[meta["uid"]]
        if ours.closing:
            ours.closing.cancel()
        ours.closing = loop.call_later(_LOOKED_AT_S, self._let_go, meta["uid"])
        return ours.logs

    def _let_go(self, uid: str) -> None:
        ours = self._open.pop(uid)
        if ours.closing:
            ours.closing.cancel()
        ending = asyncio.get_running_loop().create_task(ours.logs.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
