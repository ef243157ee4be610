"""Group commit without a database."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dayfly.lib.group_commit import CommitOutcome, GroupCommit


class Groups:
    """Records each group of writes; the first one waits until `go` is set."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def commit(self, writes):
        self.seen.append(list(writes))
        if not self.begun.is_set():
            self.begun.set()
            self.go.wait(60)
        return [CommitOutcome(write.upper()) for write in writes]


async def test_write_cancelled_while_waiting_is_skipped():
    groups = Groups()
    commits = GroupCommit(groups.commit, "commits", 8)
    first = commits.submit("first")
    await asyncio.to_thread(groups.begun.wait, 60)
    cancelled, kept = commits.submit("cancelled"), commits.submit("kept")
    cancelled.cancel()
    groups.go.set()
    assert [await first, await kept] == ["FIRST", "KEPT"]
    assert groups.seen == [["first"], ["kept"]]
    commits.close()


async def test_close_commits_pending_writes_and_refuses_others():
    groups = Groups()
    commits = GroupCommit(groups.commit, "commits", 8)
    futures = [commits.submit("a"), commits.submit("b")]
    groups.go.set()
    commits.close()
    commits.close()
    assert await asyncio.gather(*futures) == ["A", "B"]
    with pytest.raises(RuntimeError):
        commits.submit("c")
