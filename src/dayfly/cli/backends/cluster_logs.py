"""Logs of a cluster's sandbox: live from the pods of steps that run, and what the operator has kept of the others.

Live ones need the right to `pods/log` where the steps run, which not everybody has who may see a Sandbox. For what the
operator has kept, StepLogs beside the Sandbox, the right to view its namespace is enough.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.cli.backends.protocol import Piece
from dayfly.cli.output.show import talk
from dayfly.execute.pod import names
from dayfly.execute.pod.logs import Splitter
from dayfly.kube import errors
from dayfly.lib.tasks import cancel
from dayfly.operator.cluster.objects import STEP_LOGS
from dayfly.spec import log_times
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.cli.backends.protocol import When
    from dayfly.kube.client import Client
    from dayfly.spec.log_times import Entry

# The operator writes down what has ended within seconds; after so many there is nothing more to come.
_COMING_MS = 25_000
_AGAIN_S = 0.5
# The splitter keeps the end of what it is fed; in pieces of this size it keeps all.
_PIECE = 32 * 1024
# Of a log that goes on and on the last part is kept: a step may print more than whoever looks has memory for.
_KEPT = 8 * 1024 * 1024

Key = tuple[str, int]


class _Live:
    """One running step's log, as far as it has come."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.cut = 0  # how much of its beginning is not kept
        self.ended = False
        self.times: list[Entry] = []
        self.news = asyncio.Event()
        self._splitter = Splitter(timed=True)

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the pod's log: the runner's own lines are no part of what the step printed."""
        for start in range(0, len(chunk), _PIECE):
            self._splitter.feed(chunk[start : start + _PIECE])
            self._take()

    def end(self) -> None:
        """Nothing more comes."""
        self._splitter.end()
        self._take()
        self.ended = True
        self.news.set()

    def restart(self) -> None:
        """It comes again from its beginning: the connection broke."""
        self.text.clear()
        self.cut = 0
        self.times.clear()
        self._splitter = Splitter(timed=True)

    def _take(self) -> None:
        self.text += self._splitter.tail
        self._splitter.tail.clear()
        self.times += self._splitter.times
        self._splitter.times.clear()
        if len(self.text) > _KEPT:
            half = len(self.text) - _KEPT // 2
            del self.text[:half]
            self.cut += half
            told = sum(at <= self.cut for at, _ in self.times)  # the last of these is that of the first line kept
            del self.times[: max(told - 1, 0)]
        self.news.set()


class ClusterLogs:
    """The logs of one sandbox, asked for again and again while they grow.

    What cannot be shown while it runs is said once by `say`, if there is one, and is in `refused`.
    """

    def __init__(self, client: Client, namespace: str, say: Callable[[str], None] | None = talk) -> None:
        self._client = client
        self._namespace = namespace
        self._say = say
        self.refused: dict[Key, str] = {}
        self._live: dict[Key, _Live] = {}
        self._given_up: set[Key] = set()  # logs that cannot be had live, or not any more
        self._kept: dict[Key, bytes] = {}
        self._times: dict[Key, tuple[Entry, ...]] = {}
        self._cut: dict[Key, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def text(self, unit: str, attempt: int, offset: int = 0) -> bytes:
        """What is known of a log that `attempts` has told of, from `offset` on."""
        key = unit, attempt
        if live := self._live.get(key):
            return bytes(live.text[max(offset - live.cut, 0) :])
        return self._kept.get(key, b"")[max(offset - max(self._cut.get(key, 0), 0), 0) :]

    def piece(self, unit: str, attempt: int, offset: int, when: When) -> Piece:
        """What `text` gives, and when it was printed."""
        key, start = (unit, attempt), max(self._cut.get((unit, attempt), 0), 0)
        live = self._live.get(key)
        entries = live.times if live else [(at + start, ms) for at, ms in self._times.get(key, ())]
        if when.since:
            size = self._info(key)["size"]
            read = partial(self._bytes, unit, attempt)
            offset = max(offset, log_times.first_line_since(entries, when.since, size, read))
        return Piece(offset, self.text(unit, attempt, offset), entries)

    def _bytes(self, unit: str, attempt: int, offset: int, limit: int) -> bytes:
        return self.text(unit, attempt, offset)[:limit]

    async def close(self) -> None:
        """Follow nothing any more."""
        await cancel(*self._tasks)

    async def attempts(
        self, fetch: Callable[[], Awaitable[Any]], now: Callable[[], int], *, follow: bool
    ) -> list[dict[str, Any]]:
        """All logs of the sandbox that `fetch` gives (None: it is gone), as `port.Host` has them.

        Without `follow`, logs of running steps are read as far as they have come, and what has only just ended is
        waited for until the operator has written it down.
        """
        while True:
            sandbox = await fetch()
            if sandbox is None:
                await asyncio.wait(self._tasks, timeout=_AGAIN_S)
                return [{**self._info(key), "sealed": True} for key in self._live.keys() | self._kept.keys()]
            await self._look(sandbox)
            units = _units(sandbox)
            await self._listen(units, follow=follow)
            coming = [unit for unit in units if self._comes(unit, now())]
            if follow or not coming:
                break
            await asyncio.sleep(_AGAIN_S)
        return self._sorted(units, coming)

    async def there(self, sandbox: Any, at: int) -> list[dict[str, Any]]:
        """All logs that there are or will be, without following any; as `attempts` has them."""
        await self._look(sandbox)
        units = _units(sandbox)
        known = self._live.keys() | self._kept.keys()
        runs = [unit for unit in units if unit.get("pod") and (unit["id"], unit.get("attempt", 0)) not in known]
        return self._sorted(units, [*runs, *(unit for unit in units if unit not in runs and self._comes(unit, at))])

    async def one(self, sandbox: Any, unit: str, attempt: int, at: int) -> dict[str, Any] | None:
        """One of them, followed from now on if it grows; None if there is none."""
        key = unit, attempt
        if key not in self._kept and key not in self._live:
            await self._look(sandbox)
            asked = [each for each in _units(sandbox) if (each["id"], each.get("attempt", 0)) == key]
            await self._listen(asked, follow=True)
            if any(self._comes(each, at) for each in asked):
                return _yet(asked[0])
        return self._info(key) if key in self._live or key in self._kept else None

    async def grown(self, unit: str, attempt: int, offset: int, seconds: float) -> None:
        """Until there is more of a log than so much, or it is sealed; at most so long."""
        live = self._live.get((unit, attempt))
        if live is None:
            # It was refused, or what is kept of it has yet to be written.
            await asyncio.sleep(min(_AGAIN_S, seconds))
        elif not live.ended and live.cut + len(live.text) <= offset:
            live.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.news.wait(), seconds)

    async def kept(self, sandbox: Any) -> list[LogInfo]:
        """The logs that have ended and that the operator has kept; none if whoever asks may not know."""
        with contextlib.suppress(errors.Forbidden):
            await self._look(sandbox)
        found = [self._info(key) for key in sorted(self._kept)]
        return [LogInfo(unit=each["unit"], attempt=each["attempt"], size=each["size"], sealed=True) for each in found]

    def _sorted(self, units: list[Any], coming: list[Any]) -> list[dict[str, Any]]:
        order = {unit["id"]: number for number, unit in enumerate(units)}
        found = [self._info(key) for key in self._live.keys() | self._kept.keys()]
        found += [_yet(unit) for unit in coming]
        return sorted(found, key=lambda info: (order.get(info["unit"], len(order)), info["attempt"]))

    def _info(self, key: Key) -> dict[str, Any]:
        live = self._live.get(key)
        cut = self._cut.get(key, 0) if live is None else live.cut
        size = max(cut, 0) + len(self.text(*key))
        return {"unit": key[0], "attempt": key[1], "size": size, "sealed": live is None or live.ended, "cut": cut}

    def _comes(self, unit: Any, now: int) -> bool:
        """Whether the log of a step that has ended is still to be written down."""
        key, ended = (unit["id"], unit.get("attempt", 0)), milliseconds(unit.get("endedAt"))
        running = unit["state"] in ("running", "unknown")
        known = key in self._kept or key in self._live
        return (
            bool(ended)
            and unit["kind"] in ("exec", "webhook")
            and not running
            and not known
            and now - ended < _COMING_MS
        )

    async def _look(self, sandbox: Any) -> None:
        """Read what the operator has written down."""
        meta = sandbox["metadata"]
        label = f"{names.RUN_LABEL}={names.run_name(meta['name'], meta['uid'])}"
        for bundle in (await self._client.list_all(STEP_LOGS, self._namespace, labels=label)).items:
            if bundle.spec.sandbox.uid != meta["uid"]:
                continue
            for log in bundle.spec.logs:
                key = log.unit, log.attempt
                if key not in self._live and key not in self._kept:
                    text = base64.b64decode(log.text) if log.encoding == "base64" else log.text.encode()
                    self._kept[key] = text
                    self._times[key] = log_times.entries_from(log.times)
                    self._cut[key] = log.size - len(text) if log.size else -1 if text else 0

    async def _listen(self, units: list[Any], *, follow: bool) -> None:
        """Read the logs of running steps, or begin to follow them."""
        for unit in units:
            key = unit["id"], unit.get("attempt", 0)
            if key in self._live or key in self._given_up or not unit.get("pod"):
                continue
            live = self._live[key] = _Live()
            task = asyncio.create_task(self._pour(key, unit["pod"], live, follow=follow))
            self._tasks.append(task)
            if not follow:
                await task

    async def _pour(self, key: Key, pod: str, live: _Live, *, follow: bool) -> None:
        namespace, _, name = pod.partition("/")
        while True:
            try:
                async for chunk in self._client.log(name, namespace, container="main", follow=follow, timestamps=True):
                    live.feed(chunk)
            except errors.Forbidden as error:
                advice = "it can be read here within seconds of its end"
                said = f"{key[0]}: its log cannot be shown while it runs: {error.message}; {advice}"
                if self._say and not self._given_up:
                    self._say(said)
                self.refused[key] = said
                self._give_up(key)
            except errors.NotFound:
                self._give_up(key)  # its pod is gone: what the operator has kept is there soon
            except errors.ApiError:
                # Its container is not there yet, or the connection broke.
                if follow:
                    await asyncio.sleep(_AGAIN_S)
                    live.restart()
                    continue
            else:
                if follow:
                    live.end()
            return

    def _give_up(self, key: Key) -> None:
        self._given_up.add(key)
        self._live.pop(key).news.set()


def _units(sandbox: Any) -> list[Any]:
    found: list[Any] = (sandbox.get("status") or {}).get("units") or []
    return found


def _yet(unit: Any) -> dict[str, Any]:
    """A log of which nothing is here yet."""
    return {"unit": unit["id"], "attempt": unit["attempt"], "size": 0, "sealed": False, "cut": 0}
