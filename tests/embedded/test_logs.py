"""Which logs there are, and which of them are kept; what else lies there is nobody's attempt."""

import pytest

from embedded import documents as doc


@pytest.mark.parametrize(
    "name", [".r.a.1.log.swp", ".r.a.1.log", "r.a.1.log~", "notes", "notes.txt", "r.a.x.log", "r.a.0.log"]
)
async def test_what_people_leave_beside_logs_is_no_log(machine, name):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    (machine.home / "logs/u" / name).write_text("a copy, or what an editor keeps")
    assert [(info.unit, info.attempt, info.size) for info in machine.host.logs("u")] == [("r/a", 1, 5)]


async def test_what_people_leave_in_the_work_folder_keeps_no_server_from_starting(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    await machine.down()
    for name in ("copies", "copies.of.yesterday", ".trash.r.1"):
        (machine.work / name).mkdir()
    await machine.up()
    await machine.ready()
