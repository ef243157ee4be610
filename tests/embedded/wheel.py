"""The wheel of the embedded host, with all that it leans on in a test's hands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec

from dayfly.embedded import alarms, engine
from dayfly.embedded.attempt_executor import AttemptExecutor
from dayfly.embedded.attempts import Key
from dayfly.embedded.clock import Gap
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Phase, Request, Run, UnitRecord

NOW = 1_000_000
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"))
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),))
KEY = Key("u", "db/make", 1)


class Steps(AttemptExecutor):
    """Adopts what it is told to."""

    kind = "exec"
    fault: OSError | None = None

    def __init__(self) -> None:
        self.adopted: list[str] = []

    def admit(self, name, unit, /):
        raise AssertionError("not asked")

    def order(self, live, key, unit):
        raise AssertionError("not asked")

    def adopt(self, live, name):
        self.adopted.append(name)
        if self.fault:
            raise self.fault


class Stored(msgspec.Struct):
    """A row, as far as the wheel looks at it."""

    run: Run
    name: str = "box"


class Live:
    """A run in memory."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored

    @property
    def run(self) -> Run:
        return self.stored.run

    def kind(self, name: str) -> str:
        return self.run.kind(name)


class Bench:
    """An engine with all that it leans on in the test's hands; `done` is what it asked for, in its order."""

    def __init__(self, monkeypatch) -> None:
        for module in (engine, alarms):
            monkeypatch.setattr(module, "now_ms", lambda: NOW)
        self.done: list[object] = []
        self.known: dict[str, Live] = {}
        self.places = 2
        self.lapsing = True
        self.gap: Gap | None = None
        self.told: dict[tuple[str, int], dict[str, bytes]] = {}
        self.after: Run | None = None
        self.fault: Exception | None = None
        self.steps = Steps()
        attempts = SimpleNamespace(
            busy=set(),
            place=None,
            facts=lambda uid: {KEY[1:]: Running(since=1)} if uid == "works" else {},
            tidy=lambda key: self.done.append(("tidy", key)),
            start_no_more=lambda: self.done.append("no more"),
            running_forks=lambda: [KEY, KEY._replace(run="v")],
            cancel=lambda key: self.done.append(("cancel", key.run)),
            no_forks=self._note("no forks"),
            drop_held=self._dropped,
            drop_all_held=self._note("none held"),
        )
        runs = SimpleNamespace(
            kept=self.known.get,
            keep=self.known.get,
            look=self.known.get,
            drop=lambda uid: self.done.append(("drop", uid)),
            refresh=lambda uid: self.done.append(("refresh", uid)),
            refresh_all=lambda: self.done.append("refresh all"),
        )
        scenes = SimpleNamespace(free=lambda: self.places, of=lambda live, slots: (live.run.uid, slots))
        executors = SimpleNamespace(
            close=self._note("closed"),
            observe=self._note("observed"),
            clear=self._note("cleared"),
            perform=self._performed,
            find=lambda kind: self.steps if kind == "exec" else None,
        )
        ledger = SimpleNamespace(
            commit=self._commit,
            dissolve=lambda run, name: self.done.append(("dissolved", run.uid, name)),
            extend_leases=lambda until: self.done.append(("extended", until)),
        )
        reader = SimpleNamespace(uids=lambda: list(self.known), lapsing=lambda _until: self.lapsing)
        ports = SimpleNamespace(keep_only=lambda known: self.done.append(("ports", known)))
        writer = SimpleNamespace(run=self._write)
        self.engine = engine.Engine(ledger, reader, writer, attempts, runs, scenes, executors, ports)
        self.engine._gaps = SimpleNamespace(seen=lambda: self.gap, heed=self._heed)
        self.woken: list[str] = []
        self.engine._queue.add = self.woken.append
        self.engine.on_change = lambda uid: self.done.append(("changed", uid))
        self.engine.on_end = lambda uid: self.done.append(("over", uid))

    def _note(self, word: str):
        async def note(*_):
            self.done.append(word)

        return note

    async def _dropped(self, keys):
        self.done.extend(("dropped", key) for key in keys)

    async def _performed(self, live, kind, effect):
        self.done.append(("performed", kind, effect.unit))

    async def _write(self, job):
        await asyncio.sleep(0)
        if self.fault:
            raise self.fault
        return job()

    def _commit(self, _run, _plan, moves, values, now):
        self.done.append(("commit", len(moves), values, now))
        return self.after

    def _heed(self, gap):
        self.done.append(("heeded", gap.ms))
        self.gap = None

    def live(self, uid: str = "u", *, closed: bool = False, **units: UnitRecord) -> Live:
        """A run that is known."""
        request = Request(at=1, reason="Deleted") if closed else None
        records = {f"db/{name}": each for name, each in units.items()}
        phase = Phase.CLOSED if closed else Phase.OPEN
        run = Run(uid=uid, target=TARGET, plan="", units=records, closed=request, phase=phase)
        found = self.known[uid] = Live(Stored(run=run))
        return found

    def alarm(self, uid: str = "u") -> int:
        """When it is to be woken; 0 if it is not."""
        return self.engine._alarms._set.get(uid, (0, None))[0]

    def scene(self, uid: str = "u") -> SimpleNamespace:
        return SimpleNamespace(world=SimpleNamespace(run=self.known[uid].run), plan=PLAN, now=7, outputs=self.told)
