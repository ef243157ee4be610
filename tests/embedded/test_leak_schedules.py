"""Random schedules against a fake cloud: two homes delete only their own orphans, whenever their server is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import pytest
from tests.embedded.machine import work_of
from tests.embedded.self_killing_leak_server import HOMES, Account, play
from tests.processes import processes
from tests.selection import SELECTION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.context import ForkServerContext
    from multiprocessing.process import BaseProcess
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SCHEDULES, ONE_IN, AT_ONCE = 1_000, 250, 2
MOST_WRITES, MOST_KILLS = 120, 4


class Life:
    """One schedule, whose server is killed at random writes and started again until its end."""

    def __init__(self, folder: Path, runner: str, seed: int) -> None:
        self.folder, self.runner, self.seed = folder, runner, seed
        self.kills, self._dice = 0, random.Random(f"{seed} kills")
        folder.mkdir()

    def start(self, servers: ForkServerContext) -> BaseProcess:
        die_at = self._dice.randint(1, MOST_WRITES) if self.kills < MOST_KILLS else 0
        server = servers.Process(target=play, args=(self.folder, self.runner, self.seed, die_at))
        server.start()
        return server

    def has_ended(self, code: int | None) -> bool:
        """Check the schedule after the end of its server, and return whether it has no further step."""
        account = Account(self.folder, self.seed)
        try:
            account.check()
            assert code in (0, -signal.SIGKILL), f"the schedule has failed with exit code {code}"
            assert code or not account.left(), f"orphans are left: {account.left()}"
        except AssertionError as fault:
            raise AssertionError(f"seed {self.seed}, after {self.kills} kills: {fault}\n{account.state}") from fault
        self.kills += bool(code)
        return not code

    def clear(self) -> None:
        """Kill the steps that killed servers have left, and delete all folders."""
        for home in HOMES:
            for process in processes(str(self.folder / home / "journal")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            shutil.rmtree(work_of(self.folder / home / "home"), ignore_errors=True)
        shutil.rmtree(self.folder)


def play_all(lives: Iterable[Life]) -> None:
    """Play schedules, some at once. One thread starts and awaits all servers."""
    servers = multiprocessing.get_context("forkserver")
    servers.set_forkserver_preload([play.__module__])
    waiting = [*lives]
    running: dict[int, tuple[Life, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                life = waiting.pop(0)
                server = life.start(servers)
                running[server.sentinel] = life, server
            for sentinel in wait(list(running)):
                life, server = running.pop(sentinel)
                server.join()
                if life.has_ended(server.exitcode):
                    life.clear()
                else:
                    waiting.insert(0, life)
    finally:
        for life, server in running.values():
            server.kill()
            server.join()
            life.clear()


def test_two_homes_delete_only_their_orphans_when_killed(tmp_path, runner, played):
    seeds = SELECTION.sample(range(SCHEDULES), ONE_IN, "schedules of leak checks")
    lives = [Life(tmp_path / str(seed), runner, seed) for seed in seeds]
    play_all(lives)
    kills = sum(life.kills for life in lives)
    assert kills >= len(seeds), "too few servers were killed: the hook is not called"
    said = f"orphans left, foreign items deleted, live items as orphans: 0; {kills} kills"
    played("schedules of leak checks against a fake cloud", len(seeds), said)
