"""The server is killed while children of a shared parent begin and end; the scripts' journal shows what ran."""

import asyncio
import collections
import contextlib
import random
import sqlite3

import pytest
from tests.embedded.killed_server import Life, killed_at_writes
from tests.processes import processes
from tests.selection import SELECTION

MOST_WRITES = 200
PARTS = 10
HOLDERS = 200 if SELECTION.is_complete else 60
MOST_DEATHS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class ParentLife(Life):
    """A home with children of a shared parent."""

    server_module = "tests.embedded.self_killing_parent_server"

    async def check(self, *, only_servers):
        """Check that the parent was created once and deleted once, and not while it had a child."""
        assert only_servers
        at = collections.defaultdict(list)  # by step and resource ID, the lines
        for number, line in enumerate(self.lines()):
            step, identity, *url = line.split()
            assert step == "start" or url, f"without the output of the parent: {line}"
            at[step, identity].append(number)
        ((server, (start,)),) = ((name[1], lines) for name, lines in at.items() if name[0] == "start")
        ((stopped, stops),) = ((name[1], lines) for name, lines in at.items() if name[0] == "stop")
        assert stopped == server
        for (step, identity), lines in at.items():
            assert step != "clone" or len(lines) == 1, f"{identity} was created twice"
            assert step != "clone" or at.get(("drop", identity)), f"{identity} is left"
            assert start <= lines[0], f"{step} {identity} before its parent"
            assert step == "stop" or lines[-1] < stops[0], f"{step} {identity} after the end of its parent"
        self.children = sum(step == "clone" for step, _ in at)
        self._check_ledger()

    def _check_ledger(self):
        assert not processes(str(self.journal)), "processes are left"
        assert not self.work.exists(), f"left: {list(self.work.iterdir())}"
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db")) as database:
            for table in ("run", "output", "parent", "hold"):
                assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


async def test_parent_survives_a_kill_at_each_write(tmp_path, runner, played, monkeypatch):
    monkeypatch.setenv("CHILDREN", "3")
    share = SELECTION.sample(range(1, MOST_WRITES), PARTS, "writes of parents")
    survived = await killed_at_writes(tmp_path, share, runner, ParentLife)
    assert survived, "the runs never ended"
    played("lives of a shared parent, killed at a write", sum(number <= min(survived) for number in share))
    assert min(survived) > 15, "fewer writes than there are claims and records: the hook is not called"


async def test_parent_of_many_holders_survives_kills_at_random_moments(tmp_path, runner, played, monkeypatch):
    monkeypatch.setenv("CHILDREN", str(HOLDERS))
    dice = random.Random(SELECTION.seed)
    life = ParentLife(tmp_path / "life", runner)
    deaths, is_whole = 0, False
    try:
        while not is_whole and deaths < MOST_DEATHS:
            server = await life.start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(dice.uniform(1, 5)):
                    await server.wait()
            is_whole = server.returncode == 0
            if not is_whole:
                server.kill()
                await server.wait()
                deaths += 1
        assert is_whole or await life.run()
        await life.check(only_servers=True)
    finally:
        await life.clear()
    assert life.children == HOLDERS
    played(f"kills of a server with {HOLDERS} holders of one parent", deaths)
