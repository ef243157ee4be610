"""Answers to queries for a run's outputs, history and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dayfly.link import wire
from dayfly.spec import log_times
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dayfly.link.host_interface import RunDataHost


class LogSource(Protocol):
    """One log of a run."""

    def read(self, offset: int, limit: int) -> bytes:
        """Return its bytes from `offset`."""

    def times(self) -> Sequence[log_times.TimeEntry]:
        """Return the times of its lines; empty if they are unknown."""


def read_piece(
    query: wire.LogQuery, there: tuple[LogInfo, ...], source: Callable[[tuple[str, int]], LogSource]
) -> wire.LogBytes:
    """Return the requested piece of a log; `there` are the existing logs."""
    found = [info for info in there if info.unit == query.unit and query.attempt in (0, info.attempt)]
    if not found:
        return wire.LogBytes(**query.address, logs=there)
    info = max(found, key=lambda info: info.attempt)
    log_, offset = source((info.unit, info.attempt)), query.offset
    entries = log_.times() if query.times or query.since else ()
    if query.since:
        offset = max(offset, log_times.first_line_since(entries, query.since, info.size, log_.read))
    data = log_.read(offset, query.limit)
    times = log_times.entries_between(entries, offset, offset + len(data)) if query.times and data else ()
    return wire.LogBytes(**query.address, info=info, data=data, offset=offset, times=log_times.flatten(times))


def answer(host: RunDataHost, query: wire.RunQuery) -> wire.Answer:
    """Answer for a host that has all data at hand."""
    match query:
        case wire.ValuesQuery(uid=uid):
            return wire.Values(**query.address, values=host.values(uid))
        case wire.HistoryQuery(uid=uid):
            return wire.History(**query.address, entries=host.history(uid))
        case wire.LogsQuery(uid=uid):
            return wire.Logs(**query.address, logs=host.logs(uid))
        case wire.LogQuery(uid=uid):
            # Read the size before the bytes: a sealed log has no bytes beyond it.
            there = host.logs(uid)
            return read_piece(query, there, lambda key: _Log(host, uid, *key))


class _Log(NamedTuple):
    host: RunDataHost
    uid: str
    unit: str
    attempt: int

    def read(self, offset: int, limit: int) -> bytes:
        return self.host.read_log(self.uid, self.unit, self.attempt, offset=offset, limit=limit) or b""

    def times(self) -> Sequence[log_times.TimeEntry]:
        return self.host.log_times(self.uid, self.unit, self.attempt)
