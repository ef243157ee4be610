"""The server has no free descriptor for a moment: it repeats what failed, and loses nothing."""

import errno
import os

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.execute.process import run as process
from dayfly.execute.process.launch import ProcessStarter

SLOW = 'echo + >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; printf v > /tmp/v'


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("dayfly.embedded.attempts.DISK_RETRY_S", 0.01)


@pytest.fixture
def refuse(monkeypatch):
    """Make a function fail once at its next call; return the list that records it."""

    def refuse_once(owner, name):
        real, refused = getattr(owner, name), []

        def refusing(*arguments, **more):
            if refused:
                return real(*arguments, **more)
            refused.append(arguments)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(owner, name, refusing)
        return refused

    return refuse_once


async def offer(machine):
    step = doc.step("a", SLOW, outputs=[("v", "/tmp/v")])
    await machine.host.offer(doc.offer(doc.resource("r", [step], [doc.step("z", 'echo z >> "$JOURNAL"')])))


async def ends(machine):
    machine.journal.with_name("journal.go").touch()
    await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    await machine.finish()
    assert machine.lines() == ["+", "z"]


@pytest.mark.parametrize("what", ["observe", "read_output"])
async def test_scarce_descriptors_at_the_end_of_a_step_lose_nothing(machine, refuse, what):
    await offer(machine)
    await machine.wrote("+")
    refused = refuse(process.AttemptFolder, what)
    await ends(machine)
    assert refused


async def test_scarce_descriptors_at_the_start_of_a_step_lose_nothing(machine, refuse):
    refused = refuse(os, "pidfd_open")
    await offer(machine)
    await machine.wrote("+")
    assert refused
    await ends(machine)


async def test_scarce_descriptors_do_not_prevent_a_cancel(machine, refuse):
    refuse(os, "pidfd_open")
    await offer(machine)
    await machine.wrote("+")
    await machine.finish()
    assert machine.lines() == ["+", "z"]


async def test_scarce_descriptors_during_adoption_lose_nothing(machine, refuse, monkeypatch):
    monkeypatch.setattr("dayfly.embedded.engine.DEFECT_RETRY_S", 0.01)
    await offer(machine)
    await machine.wrote("+")
    await machine.down()
    refused = refuse(os, "pidfd_open")
    await machine.up()
    await until(lambda: refused, "the refusal")
    await ends(machine)


async def test_scarce_descriptors_during_container_start_lose_nothing(machine, refuse, monkeypatch):
    """The step is then known to run, so a delete can end it."""
    monkeypatch.setattr(ProcessStarter, "is_slow", True)
    refused = refuse(process.AttemptFolder, "observe")
    await offer(machine)
    await machine.wrote("+")
    await machine.said("r/a", "Running")
    assert refused
    await machine.finish()
    assert machine.lines() == ["+", "z"]
