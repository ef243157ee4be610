"""What a control plane asks of one log: a piece of it, from a place or a time on, and when that was printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.link import wire
from dayfly.spec import log_times
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LogSource(Protocol):
    """One log, wherever it lies."""

    def read(self, offset: int, limit: int) -> bytes:
        """Its bytes from `offset`."""

    def times(self) -> Sequence[log_times.Entry]:
        """When it was printed; empty where nobody knows."""


def piece(
    question: wire.AskLog, there: tuple[LogInfo, ...], source: Callable[[tuple[str, int]], LogSource]
) -> wire.LogBytes:
    """What is asked for of one log, of those that are there."""
    found = [info for info in there if info.unit == question.unit and question.attempt in (0, info.attempt)]
    if not found:
        return wire.LogBytes(**question.address, logs=there)
    info = max(found, key=lambda info: info.attempt)
    log_, offset = source((info.unit, info.attempt)), question.offset
    entries = log_.times() if question.times or question.since else ()
    if question.since:
        offset = max(offset, log_times.since(entries, question.since, info.size, log_.read))
    data = log_.read(offset, question.limit)
    told = log_times.within(entries, offset, offset + len(data)) if question.times and data else ()
    return wire.LogBytes(**question.address, info=info, data=data, offset=offset, times=log_times.flat(told))
