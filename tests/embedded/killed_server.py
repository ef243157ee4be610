"""Lives of one home whose server is a separate process, with kills, and the promises that must hold afterwards.

With containers, steps run in `IMAGE` with an engine that belongs to the life. It is a wrapper of podman that mounts the
journal's folder in each container. It waits while there is a file `hold`. The file `fatal` makes it kill itself a
number of seconds after it first ran a given step.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
from pathlib import Path

from tests.embedded.machine import until, work_of
from tests.embedded.test_containers import IMAGE
from tests.processes import processes

AT_ONCE = 3
MOST_DEATHS = 4  # Later lives are not killed, or a slow machine would never finish.
ENGINE = """\
#!/bin/sh
[ "$1" = run ] || exec podman "$@"
while [ -e {folder}/hold ]; do sleep 0.02; done
if [ -e {folder}/fatal ] && mkdir "{folder}/died${{4%.*}}" 2>/dev/null; then
    (sleep "$(cat {folder}/fatal)"; kill -KILL $$) >/dev/null 2>&1 &
fi
shift
exec podman run --volume {seen}:{seen} --env JOURNAL={journal} "$@"
"""


class Life:
    """One home whose server is started until its run has ended. `server_module` is the program of the server."""

    server_module = "tests.embedded.self_killing_server"

    def __init__(self, folder: Path, runner: str, isolation: str = "", *, contained: bool = False) -> None:
        self.home, self.seen, self.engine = folder / "home", folder / "seen", folder / "bin/podman"
        self.journal, self.hold, self.fatal = self.seen / "journal", folder / "hold", folder / "fatal"
        self.uid = f"u{folder.name}"  # Concurrent lives share podman, so container names are unique
        self.runner, self.isolation, self.contained = runner, isolation, contained
        # Whether a process that removed a container for the last server was killed.
        self.kept_from_removing = False
        self.seen.mkdir(parents=True)
        self.engine.parent.mkdir()
        self.install()

    def install(self) -> None:
        """Install the engine wrapper."""
        self.engine.write_text(ENGINE.format(folder=self.hold.parent, seen=self.seen, journal=self.journal))
        self.engine.chmod(stat.S_IRWXU)

    async def start(self, die_at=0):
        self.kept_from_removing = False
        told = {"home": self.home, "runner": self.runner, "journal": self.journal, "uid": self.uid}
        more = {"engine": self.engine, "image": IMAGE} if self.contained else {"isolation": self.isolation}
        argument = json.dumps({**told, **more, "die_at": die_at}, default=str)
        path = os.pathsep.join(["src", ".", *filter(None, [os.environ.get("PYTHONPATH")])])
        self.server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self.server_module, argument, env={**os.environ, "PYTHONPATH": path}
        )
        return self.server

    async def run(self, die_at=0):
        """Start the server once; return whether the run has ended."""
        server = await self.start(die_at)
        return _whole(await server.wait())

    async def killed(self, victims, dice):
        """Start the server and kill processes at random moments, the server last; return whether the run has ended."""
        server = await self.start()
        ended = asyncio.ensure_future(server.wait())
        for _ in range(dice.randint(1, 3) if victims else 0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(dice.uniform(0.0, 0.9)):
                    await asyncio.shield(ended)
            for victim in victims - {"servers"}:
                await VICTIMS[victim](self, dice)
        if "servers" in victims and not ended.done():
            # Not asyncio's subprocess: it reaps a process that has just ended, and another waiter gets code 255.
            _kill(server.pid)
        return _whole(await ended)

    @property
    def work(self):
        return work_of(self.home)

    def runners(self):
        """Return the process IDs of runners that have started a step."""
        with contextlib.suppress(FileNotFoundError):
            for marker in self.work.glob("*/marker"):
                with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
                    yield int(marker.read_text().split("\n")[1])

    def clients(self):
        """Return the engine processes between the server and a container, with their commands."""
        mark = f"dayfly-{self.uid}.".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                program, *words = (entry / "cmdline").read_bytes().split(b"\0")
                if program == b"podman" and any(word.startswith(mark) for word in words):
                    yield int(entry.name), words[0]

    async def containers(self):
        """Return the container names of this life. podman cannot list them while it removes one."""
        asked = ("ps", "--all", "--filter", f"name=^dayfly-{self.uid}[.]", "--format", "{{.Names}}")
        code, said = await podman(*asked)
        return said.split() if not code else [f"podman: {said}"]

    def history(self):
        """Return the history of the ledger, newest last: unit, move, reason, message."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db")) as database:
            return database.execute("SELECT unit, move, reason, message FROM history ORDER BY rowid").fetchall()

    def lines(self):
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    async def wrote(self, words):
        """Wait for a line with this prefix."""
        await until(lambda: any(line.startswith(words) for line in self.lines()), lambda: f"{words}: {self.lines()}")

    async def check(self, *, only_servers):
        """Check the promises that must hold after any kills."""
        lines = [
            line.split()[:2] for line in self.lines()
        ]  # no records if the server was killed before the first write
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
            assert "drop" in starts, "a resource was not removed"
        if "fill" in starts:
            assert at["-", "clear"] < first["+", "drop"], "drop came before the cleanup of its readers"
        await self._nothing_is_left()

    async def _nothing_is_left(self):
        assert not processes(str(self.journal)), "processes are left"
        assert not self.work.exists(), f"left: {list(self.work.iterdir())}"
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db")) as database:
            assert database.execute("SELECT count(*) FROM run").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM output").fetchone() == (0,)
        _, move, reason, _ = self.history()[-1]
        assert (move, reason) == ("Finish", "cleaned")
        if self.contained:
            await self._no_containers()

    async def _no_containers(self):
        """Return whether no containers are left, after podman has removed the last one."""
        left, deadline = await self.containers(), asyncio.get_running_loop().time() + 30
        while left and asyncio.get_running_loop().time() < deadline:
            left = await self.containers()
        assert not left, f"containers are left: {left}"

    async def clear(self):
        with contextlib.suppress(ProcessLookupError):
            self.server.kill()
        await self.server.wait()
        for process in processes(str(self.journal)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self.contained and (left := await self.containers()):
            await podman("rm", "--force", "--time", "0", "--ignore", *left)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.work)


def _whole(code):
    assert code in (0, -signal.SIGKILL), f"the server ended with {code}"
    return code == 0


async def podman(*arguments):
    """Return the exit code and the output."""
    pipe = asyncio.subprocess.PIPE
    asked = await asyncio.create_subprocess_exec(
        "podman", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asked.communicate()
    return asked.returncode, said.decode()


async def in_turns(numbers, one):
    """Run `one(number)` for each number, some concurrently, until one returns stop."""
    rest, going = iter(numbers), True

    async def worker():
        nonlocal going
        for number in rest:
            if not going:
                return
            if not await one(number):
                going = False

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def killed_at_writes(folder, numbers, runner, make=Life, **how):
    """Run a life for each of these writes, at which the server dies; return the numbers beyond the last write."""
    survived = []

    async def one(number):
        life = make(folder / f"{number}", runner, **how)
        try:
            whole = await life.run(die_at=number)
            if not whole:
                assert await life.run()
            await life.check(only_servers=True)
        finally:
            await life.clear()
        if whole:
            survived.append(number)
        return not whole

    await in_turns(numbers, one)
    return survived


async def killed_at_moments(folder, seeds, runner, victims, *, contained=False):
    """Run a life for each seed, which kills these processes at random moments."""

    async def one(seed):
        dice = random.Random(f"{sorted(victims)} {seed}")
        isolation = "none" if seed % 2 else ""
        life = Life(folder / f"{seed}", runner, isolation, contained=contained)
        try:
            over = False
            for deaths in range(12):
                if over := await life.killed(victims if deaths < MOST_DEATHS else set(), dice):
                    break
            assert over, "the run does not end"
            if life.kept_from_removing and life.work.exists():
                # After the last try, the next server removes the rest.
                assert await life.run()
            await life.check(only_servers=victims == {"servers"})
        except AssertionError as fault:
            raise AssertionError("\n".join([f"seed {seed}: {fault}", *life.lines()])) from fault
        finally:
            await life.clear()
        return True

    await in_turns(seeds, one)


async def _runners(life, dice):
    for pid in life.runners():
        if dice.random() < 0.7:
            _kill(pid)


async def _clients(life, dice):
    for pid, does in [*life.clients()]:
        if dice.random() < 0.7:
            life.kept_from_removing = life.kept_from_removing or does == b"rm"
            _kill(pid)


async def _containers(life, _dice):
    if left := await life.containers():
        await podman("kill", *left)  # some may have ended, or not have started


VICTIMS = {"runners": _runners, "clients": _clients, "containers": _containers}


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
