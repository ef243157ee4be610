"""A turn that loses every race for the ledger reports that it must run again."""

import asyncio

import msgspec

from dayfly.execute.turn import MAX_ROUNDS, RETRY_AFTER_MS, Scene, turn
from dayfly.plan.sealed import seal
from dayfly.plan.world import World
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Run, State, UnitRecord

TARGET = Target(kind="Sandbox", name="sb", uid="u")
UNIT = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n"))


class Contended:
    """A host whose ledger is always changed by another replica first."""

    def __init__(self) -> None:
        self.refused = 0

    async def observe(self, run):
        documents = (Lifecycle(target=TARGET, pre_start=(UNIT,)),)
        plan = seal(documents)
        return Scene(plan=plan, world=World(run=Run(uid=run, target=TARGET, plan=plan.digest)), now=1_000)

    async def commit(self, scene, moves):
        self.refused += 1
        return False

    async def perform(self, scene, effect):
        raise AssertionError("no effect rests on a move that was refused")


def test_a_turn_that_loses_every_race_asks_to_look_again_soon():
    host = Contended()
    decision = asyncio.run(turn("u", host))
    assert host.refused == MAX_ROUNDS
    assert decision is not None
    assert decision.wake_at == 1_000 + RETRY_AFTER_MS


class Quiet(Contended):
    """A host whose run waits for one of its steps."""

    async def observe(self, run):
        scene = await super().observe(run)
        units = {"make": UnitRecord(attempt=1, state=State.CLAIMED, claimed_at=1)}
        return msgspec.structs.replace(scene, world=World(run=msgspec.structs.replace(scene.world.run, units=units)))


def test_nothing_is_written_where_nothing_has_moved():
    host = Quiet()
    decision = asyncio.run(turn("u", host))
    assert host.refused == 0
    assert [wait.unit for wait in decision.waits] == ["make"]
