"""A step is made ready while its claim is written, and begins once that is durable: never before, and never twice."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from dayfly.embedded import attempt_sweeper, engine, holding
from dayfly.embedded.ledger import LedgerError
from dayfly.embedded.startup import isolation
from dayfly.execute.process.attempt_storage import open_place
from dayfly.execute.process.launch import Processes
from dayfly.execute.process.resident import Held, UnansweredError
from dayfly.execute.process.run import Folder
from dayfly.spec.run import OutputRecord, State, UnitRecord
from embedded import documents as doc
from embedded.kinds import Bench
from embedded.machine import until
from embedded.test_turns import Gate

STEP = doc.step("a", 'echo "$DAYFLY_ATTEMPT" >> "$JOURNAL"')


@pytest.fixture
async def held(machine, monkeypatch):
    """A machine whose host is up and takes no turns yet; `launchers` were held, `started` are attempts without one."""
    if isolation(machine.runner) == "none":
        pytest.skip("this machine grants no namespaces, so nothing is held")
    await machine.down()
    await machine.up(start=False)
    start, hold = Processes.start, Processes.hold
    machine.started, machine.launchers, machine.gates = [], [], []

    async def started(starter, folder, unit):
        machine.started.append(Path(folder.path).name)
        return await start(starter, folder, unit)

    def launched(starter, folder, unit):
        machine.launchers.append(hold(starter, folder, unit))
        return machine.launchers[-1]

    monkeypatch.setattr(Processes, "start", started)
    monkeypatch.setattr(Processes, "hold", launched)
    yield machine
    for gate in machine.gates:
        gate.open.set()


async def claiming(machine, monkeypatch, fault=None) -> Gate:
    """A run whose first claim is being written, and what delays that; its launcher, `pid`, stands at its gate."""
    await machine.host.offer(doc.offer(doc.resource("r", [STEP])))
    gate = Gate(monkeypatch, fault)
    machine.gates.append(gate)
    machine.host.start()
    await gate.reached.wait()
    (launcher,) = machine.launchers
    gate.pid = pid = await launcher.child
    await until(lambda: Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("45", "207"), "it to stand", 10)
    return gate


def is_there(pid: int) -> bool:
    """A dead child for whom nobody has waited is there too."""
    return Path(f"/proc/{pid}").exists()


def fresh(monkeypatch) -> None:
    """What is held does not grow old, however slow the machine is."""
    monkeypatch.setattr(holding, "HELD_MOST_S", 60)


async def test_held_step_starts_only_once_its_claim_is_durable(held, monkeypatch):
    fresh(monkeypatch)
    gate = await claiming(held, monkeypatch)
    (folder,) = held.folders()
    await asyncio.sleep(0.05)
    assert (folder / "order").exists()
    assert not (folder / "marker").exists()
    assert held.lines() == []
    assert ("Claim", "r/a", 1, "") not in held.history()
    gate.open.set()
    await held.ready()
    assert (held.lines(), held.started) == (["1"], [])


async def test_refused_claim_drops_the_launcher_and_retries_once(held, monkeypatch):
    fresh(monkeypatch)
    monkeypatch.setattr(engine, "LEDGER_AGAIN_S", 3600)
    gate = await claiming(held, monkeypatch, LedgerError("the ledger cannot be written: the disk is full"))
    gate.open.set()
    await until(lambda: not is_there(gate.pid) and not held.folders(), "it to be gone", 10)
    assert held.lines() == []
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))  # which wakes the run
    await held.ready()
    assert held.lines() == ["1"]
    assert [entry[:3] for entry in held.history() if entry[0] == "Claim"] == [("Claim", "r/a", 1)]
    await until(lambda: not held.folders(), "no folders", 10)


async def test_launcher_that_waited_too_long_is_replaced(held, monkeypatch):
    """Since then the machine may have changed."""
    monkeypatch.setattr(holding, "HELD_MOST_S", 0)
    gate = await claiming(held, monkeypatch)
    gate.open.set()
    await held.ready()
    assert (held.lines(), held.started) == (["1"], ["u.r.a.1"])
    assert ("Void", "r/a", 1, "Stalled") not in held.history()
    assert not is_there(gate.pid)


async def test_launcher_that_cannot_be_signalled_is_replaced(held, monkeypatch):
    """As where the kernel has no memory for the word."""
    fresh(monkeypatch)
    gate = await claiming(held, monkeypatch)
    (launcher,) = held.launchers

    def refuse():
        raise OSError(105, "No buffer space available")

    launcher.go = refuse
    gate.open.set()
    await held.ready()
    assert (held.lines(), held.started) == (["1"], ["u.r.a.1"])
    assert not is_there(gate.pid), "nor a child that nobody has waited for"


async def test_launcher_that_does_not_end_is_fenced(held, monkeypatch):
    """Its folder cannot be swept, so the step is not begun beside it."""
    monkeypatch.setattr(holding, "HELD_MOST_S", 0)
    monkeypatch.setattr(attempt_sweeper, "LAST_S", 0.05)
    gate = await claiming(held, monkeypatch)
    os.kill(gate.pid, signal.SIGSTOP)
    try:
        gate.open.set()
        await until(lambda: any(entry[0] == "Void" for entry in held.history()), held.history)
        await held.ready()
    finally:
        os.kill(gate.pid, signal.SIGCONT)
    assert held.lines() == ["2"]


class Odd:
    """A starter of whose held launchers something is not as it should be."""

    def __init__(self, monkeypatch, fault: Exception, *, now: bool) -> None:
        self._hold, self._fault, self._now = Processes.hold, fault, now
        self.asked = 0

        def hold(starter, folder, unit):
            return self._answered(starter, folder, unit)

        monkeypatch.setattr(Processes, "hold", hold)

    def _answered(self, starter, folder, unit):
        self.asked += 1
        if self.asked > 1:
            return self._hold(starter, folder, unit)
        if self._now:
            raise self._fault
        answer = asyncio.get_running_loop().create_future()
        answer.set_exception(self._fault)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        return Held(answer, ours, lambda: None)


@pytest.mark.parametrize("now", [True, False])
async def test_failed_hold_is_retried_after_the_claim(held, now, monkeypatch):
    odd = Odd(monkeypatch, OSError(11, "no more processes"), now=now)
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))
    held.host.start()
    await held.ready()
    assert (held.lines(), held.started, odd.asked) == (["1"], ["u.r.a.1"], 1)


async def test_launcher_without_an_answer_is_fenced(held, monkeypatch):
    Odd(monkeypatch, UnansweredError("the resident runner ended before it answered"), now=False)
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))
    held.host.start()
    await until(lambda: ("Void", "r/a", 1, "Stalled") in held.history(), held.history, 10)
    await held.ready()
    assert held.lines() == ["2"]


async def test_failed_turn_after_the_claim_drops_the_launcher(held, monkeypatch):
    fresh(monkeypatch)
    monkeypatch.setattr(engine, "DEFECT_AGAIN_S", 0.05)
    perform, failed = engine.Engine.perform, []

    async def fails_once(wheel, scene, effect):
        if not failed:
            failed.append(effect)
            raise ValueError("a defect")
        await perform(wheel, scene, effect)

    monkeypatch.setattr(engine.Engine, "perform", fails_once)
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))
    held.host.start()
    await held.ready()
    assert ("Void", "r/a", 1, "Stalled") in held.history()
    assert held.lines() == ["2"]
    await until(lambda: not held.folders(), "no folders", 10)


async def test_closing_server_starts_no_held_step(held, monkeypatch):
    """Nor does the next one, but once."""
    gate = await claiming(held, monkeypatch)
    ending = asyncio.create_task(held.down())
    await asyncio.sleep(0.05)
    gate.open.set()
    await asyncio.wait_for(ending, 30)
    await held.up()
    await held.ready()
    assert len(held.lines()) == 1


async def test_no_launcher_is_held_while_another_step_runs(held):
    """No processor is free to prepare anything."""
    slow = doc.step("s", 'until [ -e "$JOURNAL.go" ]; do sleep 0.01; done')
    await held.host.offer(doc.offer(doc.resource("r", [slow]), uid="other"))
    held.host.start()
    await until(lambda: held.unit("r/s", "other").state == "running", "it to run")
    before = len(held.started)
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))
    await held.ready()
    assert held.started[before:] == ["u.r.a.1"]
    held.journal.with_name("journal.go").touch()
    await held.ready("other")


async def test_an_order_that_lies_there_already_is_not_ours(held, monkeypatch):
    """An older ledger on newer folders: whoever was started by it may be at work, so it is looked at and fenced."""
    monkeypatch.setattr(engine, "DEFECT_AGAIN_S", 3600)  # it is none
    held.host.start()
    Folder(open_place(held.home), "u", "r/a", 1).write_order(b"of before")
    await held.host.offer(doc.offer(doc.resource("r", [STEP])))
    await held.ready()
    assert ("Void", "r/a", 1, "Stalled") in held.history()
    assert held.lines() == ["2"]


class TestWhichAreHeld:
    @pytest.fixture
    def bench(self, tmp_path):
        found = Bench(tmp_path)
        found.starter.can_hold = lambda _unit: True
        return found

    def hold(self, bench, *, attempt=1) -> list[str]:
        bench.steps.hold(bench.live, engine.UnitAttempt("u", "r/a", attempt))
        return [what for what, *_ in bench.attempts.done]

    def test_a_first_attempt(self, bench):
        assert self.hold(bench) == ["hold"]

    def test_not_one_that_is_tried_again(self, bench):
        """Logs of older ones may have to go, and that is to be said in its own."""
        assert self.hold(bench, attempt=2) == []

    def test_not_where_the_runner_has_no_time(self, bench):
        bench.starter.can_hold = lambda _unit: False
        assert self.hold(bench) == []

    def test_not_one_that_cannot_be_ordered(self, bench, monkeypatch):
        def full(_key):
            raise OSError(28, "no space")

        monkeypatch.setattr(bench.attempts, "begin", full)
        assert self.hold(bench) == []

    def test_step_with_an_absent_input_is_not_held(self, bench):
        """That is said in its log, and not before it is claimed."""
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        make, drop = doc.step("make", outputs=[("url", "/tmp/url")]), doc.step("a", inputs=["url=make.url"])
        bench.of(doc.resource("r", [make], [drop]), r__make=made)
        assert self.hold(bench) == []
        assert bench.attempts.at(engine.UnitAttempt("u", "r/a", 1)).log_size() is None

    def test_not_one_that_keeps_a_state(self, bench):
        """Who has claimed may open it, and nobody before."""
        unit = doc.step("a")
        bench.of(
            doc.resource("r", [msgspec.structs.replace(unit, exec=msgspec.structs.replace(unit.exec, state=True))])
        )
        assert self.hold(bench) == []

    def test_not_other_kinds(self, bench):
        bench.hooks.hold(bench.live, engine.UnitAttempt("u", "r/a", 1))
        assert bench.attempts.done == []
