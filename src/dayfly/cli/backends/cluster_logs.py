"""Logs of a sandbox in a cluster: live from the pods of running steps, and stored by the operator for ended steps.

Live logs need the right to get `pods/log` in the namespace of the pods, which not every viewer of a Sandbox has. Stored
logs are StepLogs in the namespace of the Sandbox, or of a pool member that it uses; the right to view that namespace is
enough.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.cluster_objects import MEMBER_DICTS
from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.cli.backends.protocol import LogPart
from dayfly.cli.output.show import print_message
from dayfly.execute.pod import names
from dayfly.execute.pod.logs import LogSplitter
from dayfly.kube import errors
from dayfly.lib.tasks import cancel_and_wait
from dayfly.operator.cluster.objects import STEP_LOGS
from dayfly.spec import log_times
from dayfly.spec.lifecycle import PARENT_PREFIX
from dayfly.spec.run_data import LogInfo
from dayfly.spec.shared_parent import MAX_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.cli.backends.protocol import LogTimeOptions
    from dayfly.kube.client import KubeClient
    from dayfly.spec.log_times import TimeEntry

# The operator stores the log of an ended step within seconds. Later than this, no log is expected.
_STORED_WITHIN_MS = 25_000
_POLL_INTERVAL_S = 0.5
# The splitter keeps only the end of each piece that it is fed. It keeps all of a piece of this size.
_PIECE_BYTES = 32 * 1024
# Only the last part of a long log is kept, to limit memory.
_MAX_LIVE_BYTES = 8 * 1024 * 1024

Key = tuple[str, int]


class _LiveLog:
    """The log of a running step, as far as it was received."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.cut = 0  # bytes dropped from the beginning
        self.ended = False
        self.times: list[TimeEntry] = []
        self.changed = asyncio.Event()
        self._splitter = LogSplitter(timed=True)

    def feed(self, chunk: bytes) -> None:
        """Add the next piece of the pod's log, without the lines of the runner."""
        for start in range(0, len(chunk), _PIECE_BYTES):
            self._splitter.feed(chunk[start : start + _PIECE_BYTES])
            self._move_output()

    def end(self) -> None:
        """Mark the log as complete."""
        self._splitter.end()
        self._move_output()
        self.ended = True
        self.changed.set()

    def restart(self) -> None:
        """Drop everything: after a broken connection the log is read again from its beginning."""
        self.text.clear()
        self.cut = 0
        self.times.clear()
        self._splitter = LogSplitter(timed=True)

    def _move_output(self) -> None:
        self.text += self._splitter.tail
        self._splitter.tail.clear()
        self.times += self._splitter.times
        self._splitter.times.clear()
        if len(self.text) > _MAX_LIVE_BYTES:
            half = len(self.text) - _MAX_LIVE_BYTES // 2
            del self.text[:half]
            self.cut += half
            dropped = sum(
                at <= self.cut for at, _ in self.times
            )  # the last of these is the time of the first kept line
            del self.times[: max(dropped - 1, 0)]
        self.changed.set()


class ClusterLogs:
    """The logs of one sandbox, read repeatedly while they grow.

    If the user may not read live logs, `report` is called once with the reason. `refused` has the reason of each log.
    """

    def __init__(
        self, client: KubeClient, namespace: str, report: Callable[[str], None] | None = print_message
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._report = report
        self._reported: set[str] = set()
        self.refused: dict[Key, str] = {}
        self._live: dict[Key, _LiveLog] = {}
        self._not_live: set[Key] = set()  # logs that cannot be read live
        self._stored: dict[Key, bytes] = {}
        self._times: dict[Key, tuple[TimeEntry, ...]] = {}
        self._cut: dict[Key, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def text(self, unit: str, attempt: int, offset: int = 0) -> bytes:
        """Return the known part of a log from `offset` on. `attempts` must have listed the log."""
        key = unit, attempt
        if live := self._live.get(key):
            return bytes(live.text[max(offset - live.cut, 0) :])
        return self._stored.get(key, b"")[max(offset - max(self._cut.get(key, 0), 0), 0) :]

    def chunk(self, unit: str, attempt: int, offset: int, times: LogTimeOptions) -> LogPart:
        """Return what `text` returns, and when it was printed."""
        key, start = (unit, attempt), max(self._cut.get((unit, attempt), 0), 0)
        live = self._live.get(key)
        entries = live.times if live else [(at + start, ms) for at, ms in self._times.get(key, ())]
        if times.since:
            size = self._info(key)["size"]
            read = partial(self._bytes, unit, attempt)
            offset = max(offset, log_times.first_line_since(entries, times.since, size, read))
        return LogPart(offset, self.text(unit, attempt, offset), entries)

    def _bytes(self, unit: str, attempt: int, offset: int, limit: int) -> bytes:
        return self.text(unit, attempt, offset)[:limit]

    async def close(self) -> None:
        """Stop following logs."""
        await cancel_and_wait(*self._tasks)

    async def attempts(
        self, fetch: Callable[[], Awaitable[Any]], now: Callable[[], int], *, follow: bool
    ) -> list[dict[str, Any]]:
        """Return all logs of the sandbox that `fetch` returns (None: it is deleted), as in `protocol.Backend`.

        Without `follow`, the logs of running steps are read to their current end. The logs of steps that have just
        ended are awaited until the operator has stored them.
        """
        while True:
            sandbox = await fetch()
            if sandbox is None:
                await asyncio.wait(self._tasks, timeout=_POLL_INTERVAL_S)
                return [{**self._info(key), "sealed": True} for key in self._live.keys() | self._stored.keys()]
            await self._read_stored(sandbox)
            units = _units(sandbox)
            await self._read_live(units, follow=follow)
            pending = [unit for unit in units if self._is_pending(unit, now())]
            if follow or not pending:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
        return self._sorted(units, pending)

    async def list_logs(self, sandbox: Any, at: int) -> list[dict[str, Any]]:
        """Return all existing and pending logs, as `attempts` does, without following any."""
        await self._read_stored(sandbox)
        units = _units(sandbox)
        known = self._live.keys() | self._stored.keys()
        runs = [unit for unit in units if unit.get("pod") and (unit["id"], unit.get("attempt", 0)) not in known]
        return self._sorted(
            units, [*runs, *(unit for unit in units if unit not in runs and self._is_pending(unit, at))]
        )

    async def follow_one(self, sandbox: Any, unit: str, attempt: int, at: int) -> dict[str, Any] | None:
        """Return one log, and follow it from now on if it grows; None if it does not exist."""
        key = unit, attempt
        if key not in self._stored and key not in self._live:
            await self._read_stored(sandbox)
            found = [each for each in _units(sandbox) if (each["id"], each.get("attempt", 0)) == key]
            await self._read_live(found, follow=True)
            if any(self._is_pending(each, at) for each in found):
                return _empty_log(found[0])
        return self._info(key) if key in self._live or key in self._stored else None

    async def wait_for_growth(self, unit: str, attempt: int, offset: int, seconds: float) -> None:
        """Wait until a log is longer than `offset` or complete, at most `seconds`."""
        live = self._live.get((unit, attempt))
        if live is None:
            # It cannot be read live, or the operator has not stored it yet.
            await asyncio.sleep(min(_POLL_INTERVAL_S, seconds))
        elif not live.ended and live.cut + len(live.text) <= offset:
            live.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await live.changed.wait()

    async def list_stored(self, sandbox: Any) -> list[LogInfo]:
        """Return the logs that the operator has stored; none if the user may not read them."""
        with contextlib.suppress(errors.Forbidden):
            await self._read_stored(sandbox)
        found = [self._info(key) for key in sorted(self._stored)]
        return [LogInfo(unit=each["unit"], attempt=each["attempt"], size=each["size"], sealed=True) for each in found]

    def _sorted(self, units: list[Any], pending: list[Any]) -> list[dict[str, Any]]:
        order = {unit["id"]: number for number, unit in enumerate(units)}
        found = [self._info(key) for key in self._live.keys() | self._stored.keys()]
        found += [_empty_log(unit) for unit in pending]
        return sorted(found, key=lambda info: (order.get(info["unit"], len(order)), info["attempt"]))

    def _info(self, key: Key) -> dict[str, Any]:
        live = self._live.get(key)
        cut = self._cut.get(key, 0) if live is None else live.cut
        size = max(cut, 0) + len(self.text(*key))
        return {"unit": key[0], "attempt": key[1], "size": size, "sealed": live is None or live.ended, "cut": cut}

    def _is_pending(self, unit: Any, now: int) -> bool:
        """Whether a step has ended and the operator has not stored its log yet."""
        key, ended = (unit["id"], unit.get("attempt", 0)), milliseconds(unit.get("endedAt"))
        running = unit["state"] in ("running", "unknown")
        known = key in self._stored or key in self._live
        return (
            bool(ended)
            and unit["kind"] in ("exec", "webhook")
            and not running
            and not known
            and now - ended < _STORED_WITHIN_MS
        )

    async def _read_stored(self, sandbox: Any) -> None:
        """Read the logs that the operator has stored, also of members and parents that it uses or consists of."""
        for member in sandbox.get("members") or ():
            await self._read_member(member, f"{member['metadata']['name']}/")
        if "members" in sandbox:
            return
        await self._read_target(sandbox["metadata"])
        await self._read_held(sandbox)

    async def _read_member(self, member: Any, prefix: str, depth: int = 0) -> None:
        await self._read_target(member["metadata"], prefix)
        await self._read_held(member, prefix, depth)

    async def _read_held(self, holder: Any, prefix: str = "", depth: int = 0) -> None:
        """Read the logs of the members and parents that a holder has, and of the parents that these have.

        Others may have changed a status, so the depth is limited to that of a valid chain.
        """
        for below, named in _held_members(holder, prefix) if depth < MAX_LEVELS else ():
            namespace, _, name = named.rpartition("/")
            try:
                seen = await self._client.find(MEMBER_DICTS, name, namespace or self._namespace)
                if seen is not None:
                    await self._read_member(seen, below, depth + 1)
            except errors.Forbidden as error:
                if not namespace:
                    raise
                self._report_once(f"{below}: its logs are in namespace {namespace}, which you may not view: {error}")

    def _report_once(self, message: str) -> None:
        if self._report and message not in self._reported:
            self._reported.add(message)
            self._report(message)

    async def _read_target(self, meta: Any, prefix: str = "") -> None:
        """Read the logs of a Sandbox, or of a PoolMember with a prefix instead of the resource of its units."""
        uid, namespace = meta["uid"], meta.get("namespace") or self._namespace
        label = f"{names.RUN_LABEL}={names.run_name(meta['name'], uid)}"
        for bundle in (await self._client.list_all(STEP_LOGS, namespace, labels=label)).items:
            if bundle.spec.sandbox.uid != uid:
                continue
            for log in bundle.spec.logs:
                unit = _rename(log.unit, prefix) if prefix else log.unit
                key = unit, log.attempt
                if key not in self._live and key not in self._stored:
                    text = base64.b64decode(log.text) if log.encoding == "base64" else log.text.encode()
                    self._stored[key] = text
                    self._times[key] = log_times.entries_from(log.times)
                    self._cut[key] = log.size - len(text) if log.size else -1 if text else 0

    async def _read_live(self, units: list[Any], *, follow: bool) -> None:
        """Read the logs of running steps, or start following them."""
        for unit in units:
            key = unit["id"], unit.get("attempt", 0)
            if key in self._live or key in self._not_live or not unit.get("pod"):
                continue
            live = self._live[key] = _LiveLog()
            task = asyncio.create_task(self._read_pod_log(key, unit["pod"], live, follow=follow))
            self._tasks.append(task)
            if not follow:
                await task

    async def _read_pod_log(self, key: Key, pod: str, live: _LiveLog, *, follow: bool) -> None:
        namespace, _, name = pod.partition("/")
        while True:
            try:
                async for chunk in self._client.log(name, namespace, container="main", follow=follow, timestamps=True):
                    live.feed(chunk)
            except errors.Forbidden as error:
                advice = "its log is available seconds after it has ended"
                reason = f"{key[0]}: its log cannot be shown while it runs: {error.message}; {advice}"
                if self._report and not self._not_live:
                    self._report(reason)
                self.refused[key] = reason
                self._drop_live(key)
            except errors.NotFound:
                self._drop_live(key)  # the pod is deleted: the operator stores its log soon
            except errors.ApiError:
                # The container has not started yet, or the connection broke.
                if follow:
                    await asyncio.sleep(_POLL_INTERVAL_S)
                    live.restart()
                    continue
            else:
                if follow:
                    live.end()
            return

    def _drop_live(self, key: Key) -> None:
        self._not_live.add(key)
        self._live.pop(key).changed.set()


def _units(sandbox: Any) -> list[Any]:
    """Return the units of a sandbox. Those of a pool are the units of its members, each under the member's name."""
    found: list[Any] = (sandbox.get("status") or {}).get("units") or []
    for member in sandbox.get("members") or ():
        units = (member.get("status") or {}).get("units") or ()
        prefix = f"{member['metadata']['name']}/"
        found = [*found, *({**unit, "id": _rename(unit["id"], prefix)} for unit in units)]
    return found


def _rename(unit: str, prefix: str) -> str:
    return prefix + unit.rpartition("/")[2]


def _held_members(holder: Any, prefix: str) -> list[tuple[str, str]]:
    """Return the members and parents whose steps are units of a holder, each after the prefix of their units.

    `prefix` replaces the resource of the units; empty for a sandbox, which keeps it.
    """
    held = []
    for unit in _units(holder):
        above = prefix or unit["id"].rpartition("/")[0] + "/"
        if unit.get("member"):
            held.append((above, unit["member"]))
        elif unit.get("parent"):
            held.append((above + PARENT_PREFIX, unit["parent"]))
    return list(dict.fromkeys(held))


def _empty_log(unit: Any) -> dict[str, Any]:
    """Return a log without content yet."""
    return {"unit": unit["id"], "attempt": unit["attempt"], "size": 0, "sealed": False, "cut": 0}
