"""The server, the runners, or both are killed at every write and at any moment; what ran is in the scripts' journal.

`make test` kills at a fifth of the writes and of the moments, others with each commit.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from embedded.conftest import processes
from embedded.machine import work_of
from share import SHARE

MOST_WRITES = 400
AT_ONCE = 3
TRIES = 50
PARTS = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Life:
    """One home whose server is started until its run is over."""

    def __init__(self, folder: Path, runner: str, isolation: str = "") -> None:
        folder.mkdir()
        self.home, self.journal = folder / "home", folder / "journal"
        self.runner, self.isolation = runner, isolation

    async def start(self, die_at=0):
        told = {"home": self.home, "runner": self.runner, "journal": self.journal, "isolation": self.isolation}
        argument = json.dumps({**told, "die_at": die_at}, default=str)
        path = os.pathsep.join(["src", "tests"])
        self.server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "embedded.mortal", argument, env={**os.environ, "PYTHONPATH": path}
        )
        return self.server

    async def run(self, die_at=0):
        """Start it once; true if it came to the end of the run."""
        server = await self.start(die_at)
        code = await server.wait()
        assert code in (0, -signal.SIGKILL), f"the server ended with {code}"
        return code == 0

    @property
    def work(self):
        return work_of(self.home)

    def runners(self):
        """Process ids of the runners that have started a step."""
        with contextlib.suppress(FileNotFoundError):
            for marker in self.work.glob("*/marker"):
                with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
                    yield int(marker.read_text().split("\n")[1])

    def check(self, *, only_servers):
        """What must hold however often anything was killed."""
        lines = [line.split()[:2] for line in self.journal.read_text().splitlines()]
        starts = [name for sign, name in lines if sign == "+"]
        at = {(sign, name): n for n, (sign, name) in enumerate(lines)}
        first = {}
        for n, (sign, name) in enumerate(lines):
            first.setdefault((sign, name), n)
        for name in ("make", "fill", "warm"):
            assert starts.count(name) <= 1, f"{name} ran twice"
        alive = False
        for sign, name in lines:
            if name == "seed" and only_servers:
                assert alive == (sign == "-"), "two attempts of an idempotent step at once, or an end without a start"
                alive = sign == "+"
        if only_servers:
            assert [starts.count(name) for name in ("make", "seed", "fill", "warm")] == [1, 2, 1, 1]
            order = ["make", "seed", "fill", "app", "warm", "drain", "clear", "drop"]
            assert sorted(order, key=lambda name: first["+", name]) == order
        for step, undo in (("make", "drop"), ("seed", "drop"), ("fill", "clear")):
            for sign in "+-":
                assert at.get((sign, step), -1) < first.get(("+", undo), len(lines)), f"{undo} before {sign} {step}"
        if "make" in starts:
            assert "drop" in starts, "nobody removed what was made"
        if "fill" in starts:
            assert at["-", "clear"] < first["+", "drop"], "drop came before whoever reads it was cleaned up"
        self._nothing_is_left()

    def _nothing_is_left(self):
        assert not processes(str(self.journal)), "processes are left"
        assert not self.work.exists(), f"left: {list(self.work.iterdir())}"
        database = sqlite3.connect(self.home / "ledger.db")
        with contextlib.closing(database):
            assert database.execute("SELECT count(*) FROM run").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM output").fetchone() == (0,)
            rows = database.execute("SELECT unit, move, reason FROM history ORDER BY rowid").fetchall()
        assert rows[-1][1:] == ("Finish", "cleaned")

    async def clear(self):
        with contextlib.suppress(ProcessLookupError):
            self.server.kill()
        await self.server.wait()
        for process in processes(str(self.journal)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.work)


async def in_turns(numbers, one):
    """Do `one(number)` for each, a few at a time, until one of them says stop."""
    rest, going = iter(numbers), True

    async def worker():
        nonlocal going
        for number in rest:
            if not going:
                return
            if not await one(number):
                going = False

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def test_the_server_is_killed_at_each_of_its_writes(tmp_path, runner, played):
    survived = []

    async def one(number):
        life = Life(tmp_path / f"{number}", runner)
        try:
            whole = await life.run(die_at=number)
            if not whole:
                assert await life.run()
            life.check(only_servers=True)
        finally:
            await life.clear()
        if whole:
            survived.append(number)
        return not whole

    share = SHARE.of(range(1, MOST_WRITES), PARTS, "writes")
    await in_turns(share, one)
    # Before and after: eight steps, nine attempts of them, each with a claim and a record.
    assert survived, "it never came to its end"
    played("lives on the embedded host, killed at a write", sum(number <= min(survived) for number in share))
    assert min(survived) > 30, "fewer writes than there are claims and records: the hook is not called"


@pytest.mark.parametrize("victims", ["servers", "runners", "both"])
async def test_anything_is_killed_at_any_moment(tmp_path, runner, victims, played):
    async def one(seed):
        dice = random.Random(f"{victims} {seed}")
        life = Life(tmp_path / f"{seed}", runner, isolation="none" if seed % 2 else "")
        try:
            over = False
            for deaths in range(12):
                # After a few deaths it may live, or a slow machine would never see the end.
                over = await _life(life, dice, victims if deaths < 4 else "nobody")
                if over:
                    break
            assert over, "it does not come to its end"
            life.check(only_servers=victims == "servers")
        except AssertionError as fault:
            said = life.journal.read_text() if life.journal.exists() else ""
            raise AssertionError(f"seed {seed}: {fault}\n{said}") from fault
        finally:
            await life.clear()
        return True

    tries = TRIES if victims == "servers" else TRIES // 2
    share = SHARE.of(range(tries), PARTS, f"kills of {victims}")
    played("lives on the embedded host, server and runners killed at any moment", len(share))
    await in_turns(share, one)


async def _life(life, dice, victims):
    """Start the server and kill until it has ended; true if it came to the end of the run."""
    server = await life.start()
    ended = asyncio.ensure_future(server.wait())
    for _ in range(0 if victims == "nobody" else dice.randint(1, 3)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), dice.uniform(0.0, 0.9))
        if victims in ("runners", "both"):
            for pid in life.runners():
                if dice.random() < 0.7:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    if victims in ("servers", "both") and not ended.done():
        # Not by asyncio's own: it reaps one that has just ended, and whoever waits for it is then told 255.
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
    code = await ended
    assert code in (0, -signal.SIGKILL), f"the server ended with {code}"
    return code == 0
