"""A server as a separate process whose sandboxes claim members of one pool, and which kills itself.

Its only argument is JSON. It continues where a killed server stopped, and exits with 0 when all sandboxes, the pool and
all members have ended.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.embedded import documents as doc
from tests.embedded.machine import Machine
from tests.embedded.pool_documents import pool, pooled, sandbox, template

from dayfly.spec.run import EndRequest

POLL_S = 0.03
STOP = EndRequest(at=1, reason="Deleted")


def _log(word):
    return f'echo "{word} $DAYFLY_RESOURCE_ID" >> "$JOURNAL"'


MEMBER = template([doc.step("make", _log("make"))], [doc.step("drop", _log("drop"), backoff_ms=20)])


async def _wait(found):
    while not found():  # noqa: ASYNC110 - the host has no event for this
        await asyncio.sleep(POLL_S)


def _is_settled(host, uid):
    report = host.report(uid)
    has_failed = any(unit.state == "failed" for unit in report.units)
    return host.has_ended(uid) or report.ready or report.closed or has_failed


async def _claim(host, name):
    await host.offer(sandbox(name, pooled("db", MEMBER)))
    await _wait(lambda: _is_settled(host, name))
    await host.stop(name, STOP)
    await _wait(lambda: host.has_ended(name))


async def main(home, runner, journal, total, workers, ready, die_at):
    machine = Machine(Path(home).parent, runner)
    machine.journal = Path(journal)
    writes = 0

    def hook(_name):
        nonlocal writes
        writes += 1
        if writes == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    host = await machine.up(hook=hook)
    with machine.database() as db:
        ended = {uid for (uid,) in db.execute("SELECT uid FROM ended")}
    if "p" not in ended:
        await host.offer(pool("p", MEMBER, ready))
    names = iter([name for name in (f"s{number}" for number in range(total)) if name not in ended])

    async def work():
        for name in names:
            await _claim(host, name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
    await host.stop("p", STOP)
    await _wait(lambda: host.has_ended("p"))
    with machine.database() as db:
        await _wait(lambda: db.execute("SELECT count(*) FROM run").fetchone() == (0,))
    await machine.down()


asyncio.run(main(**json.loads(sys.argv[1])))
