"""A server as a separate process with children of a shared parent, from their birth to their end, which kills itself.

Its only argument is JSON, as that of `self_killing_server`. The variable CHILDREN is the number of children. They join
and leave at the same time, except the first one, which exists before the others join and after they have left. A second
start continues. It exits with 0 when all have ended.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until
from tests.embedded.parent_documents import parent, with_parent
from tests.embedded.pool_documents import sandbox

from dayfly.spec.run import EndRequest

SECONDS = 240
POLL_INTERVAL_S = 0.1  # shorter intervals for hundreds of children would take the time that the server needs
STOP = EndRequest(at=1, reason="Deleted")


def log_line(sign):
    return f'echo "{sign} $DAYFLY_RESOURCE_ID $URL" >> "$JOURNAL"'


def child(folder):
    """Return the document of a resource with a parent. The output of the parent has its resource ID."""
    url = f"{folder}/url"
    start = doc.step("start", f'{log_line("start")}; printf %s "$DAYFLY_RESOURCE_ID" > {url}', outputs=[("url", url)])
    stop = doc.step("stop", log_line("stop"), inputs=["url=start.url"], backoff_ms=20)
    clone = doc.step("clone", log_line("clone"), inputs=["url=parent.start.url"])
    drop = doc.step("drop", log_line("drop"), inputs=["url=parent.start.url"], backoff_ms=20)
    return with_parent(doc.resource("db", [clone], [drop]), parent([start], [stop], capacity=1_000))


async def main(home, runner, journal, die_at, isolation="", **_others):
    machine = Machine(Path(home).parent, runner)
    machine.journal = Path(journal)
    machine.options = {"isolation": isolation} if isolation else {}
    count = 0

    def hook(_name):
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    host = await machine.up(hook=hook)
    outputs = machine.journal.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    made = child(outputs)
    names = [f"c{number}" for number in range(int(os.environ["CHILDREN"]))]

    async def wait(name, done):
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, host.report(name)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def begin(name):
        await host.offer(sandbox(name, made))
        await wait(name, lambda: host.has_ended(name) or host.report(name).ready or host.report(name).closed)

    async def end(name):
        await host.stop(name, STOP)
        await wait(name, lambda: host.has_ended(name))

    async def live(name):
        await begin(name)
        await end(name)

    await begin(names[0])
    await asyncio.gather(*map(live, names[1:]))
    await end(names[0])
    with machine.database() as db:
        await until(lambda: db.execute("SELECT count(*) FROM run").fetchone() == (0,), "the parent to end", SECONDS)
    await machine.down()


asyncio.run(main(**json.loads(sys.argv[1])))
