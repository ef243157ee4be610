"""Answers to queries for a run's outputs, history and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dayfly.link import wire
from dayfly.spec import log_times
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dayfly.link.host_interface import KeepingHost


class LogSource(Protocol):
    """One log of a run."""

    def read(self, offset: int, limit: int) -> bytes:
        """Return its bytes from `offset`."""

    def times(self) -> Sequence[log_times.Entry]:
        """Return the times of its lines; empty if they are unknown."""


def piece(
    question: wire.AskLog, there: tuple[LogInfo, ...], source: Callable[[tuple[str, int]], LogSource]
) -> wire.LogBytes:
    """Return the requested piece of a log; `there` are the existing logs."""
    found = [info for info in there if info.unit == question.unit and question.attempt in (0, info.attempt)]
    if not found:
        return wire.LogBytes(**question.address, logs=there)
    info = max(found, key=lambda info: info.attempt)
    log_, offset = source((info.unit, info.attempt)), question.offset
    entries = log_.times() if question.times or question.since else ()
    if question.since:
        offset = max(offset, log_times.first_line_since(entries, question.since, info.size, log_.read))
    data = log_.read(offset, question.limit)
    times = log_times.entries_between(entries, offset, offset + len(data)) if question.times and data else ()
    return wire.LogBytes(**question.address, info=info, data=data, offset=offset, times=log_times.flatten(times))


def found(host: KeepingHost, question: wire.RunQuestion) -> wire.Answer:
    """Answer for a host that has all data at hand."""
    match question:
        case wire.AskValues(uid=uid):
            return wire.Values(**question.address, values=host.values(uid))
        case wire.AskHistory(uid=uid):
            return wire.History(**question.address, entries=host.history(uid))
        case wire.AskLogs(uid=uid):
            return wire.Logs(**question.address, logs=host.logs(uid))
        case wire.AskLog(uid=uid):
            # Read the size before the bytes: a sealed log has no bytes beyond it.
            there = host.logs(uid)
            return piece(question, there, lambda key: _Log(host, uid, *key))


class _Log(NamedTuple):
    host: KeepingHost
    uid: str
    unit: str
    attempt: int

    def read(self, offset: int, limit: int) -> bytes:
        return self.host.read_log(self.uid, self.unit, self.attempt, offset=offset, limit=limit) or b""

    def times(self) -> Sequence[log_times.Entry]:
        return self.host.log_times(self.uid, self.unit, self.attempt)
