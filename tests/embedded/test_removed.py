"""Files of the host are deleted while steps run: a missing file proves nothing."""

import shutil

from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.processes import processes

from dayfly.execute.process import run as process

SLOW = 'echo "+ $DAYFLY_ATTEMPT" >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'


def slow():
    step = doc.step("a", f'{SLOW}; echo "- $DAYFLY_ATTEMPT" >> "$JOURNAL"')
    return doc.resource("r", [step], [doc.step("z", 'echo z >> "$JOURNAL"')])


async def begun(machine):
    """Start a step; return its folder."""
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    [folder] = machine.folders()
    return folder


async def adopted(machine):
    """Return the folder of a step of an earlier server."""
    folder = await begun(machine)
    await machine.down()
    await machine.up()
    await machine.said("r/a", "Running")
    return folder


async def goes_on(machine):
    """Let the only step end."""
    machine.journal.with_name("journal.go").touch()
    await machine.wrote("- 1")
    assert machine.lines() == ["+ 1", "- 1"]


async def test_the_folder_of_an_adopted_step(machine):
    shutil.rmtree(await adopted(machine))
    await goes_on(machine)
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    assert machine.unit("r/a").attempt == 1


async def test_the_folder_of_a_step_while_there_is_no_server(machine):
    """Only the folder of this attempt is deleted; its log shows that there was one."""
    folder = await begun(machine)
    await machine.down()
    shutil.rmtree(folder)
    await machine.up()
    assert "folder was removed" in (await machine.reason("OutcomeUnknown")).message
    await goes_on(machine)


async def test_removed_folder_of_a_killed_runner_has_unknown_outcome(machine, monkeypatch):
    """The holder of the lock cannot be found, so only its deadline determines its end."""
    monkeypatch.setattr("dayfly.embedded.attempts.POLL_INTERVAL_S", 0.5)
    monkeypatch.setattr(process.AttemptFolder, "open_runner_pidfd", lambda _: None)
    shutil.rmtree(await adopted(machine))
    assert "folder was removed" in (await machine.reason("OutcomeUnknown")).message
    await goes_on(machine)
    await until(lambda: not processes(str(machine.journal)))  # without any notification


async def test_the_work_folder_and_all_logs_under_a_living_server(machine):
    """As when a user of systemd logs out, or cleans up a disk."""
    await begun(machine)
    for folder in (machine.work, machine.home / "logs"):
        shutil.rmtree(folder)
    await goes_on(machine)
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    await machine.delete()
    await machine.gone()
    assert machine.lines() == ["+ 1", "- 1", "z"]

    later = doc.step("b", f"echo b; {SLOW.replace('go', 'later')}")
    await machine.host.offer(doc.offer(doc.resource("r", [later]), uid="later"))
    await until(lambda: machine.lines()[3:] == ["+ 1"], machine.lines)
    await machine.down()
    await machine.up()
    machine.journal.with_name("journal.later").touch()
    await machine.ready("later")
    assert machine.lines()[3:] == ["+ 1"]
    assert machine.log("r/b", uid="later") == b"b\n"


async def test_the_work_folder_of_a_fork_that_has_not_begun(machine):
    await machine.baseline()
    shutil.rmtree(machine.work)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    assert machine.host.run_status("u").endpoints


async def test_the_work_folder_of_a_fork_that_runs(machine):
    """The fork keeps running on its port, and no other port is reported."""
    await machine.baseline()
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    [before] = machine.host.run_status("u").endpoints
    shutil.rmtree(machine.work)
    assert machine.host.run_status("u").endpoints == (before,)

    of = {"kind": "Deployment", "namespace": "default", "name": "app"}
    source = {"fork": {"forkOf": of, "expression": "{{.Service.Port}}"}}
    await machine.baseline("peer", ("/bin/sh", "-c", 'echo "$APP" >> "$JOURNAL"; exec sleep 600'), port=None)
    forks = [doc.fork(), doc.fork("peer", env=[doc.set_env("APP", source=source)])]
    await machine.host.offer(doc.offer(forks=forks))
    await machine.wrote(str(before.port))


async def test_work_folder_that_others_can_write_to_starts_nothing(machine):
    machine.work.chmod(0o777)
    await machine.host.offer(doc.offer(slow()))
    assert "belongs to another user" in await machine.said("r/a", "WaitingToRetry")
    assert machine.lines() == []
