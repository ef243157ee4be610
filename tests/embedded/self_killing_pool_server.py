"""A server as a separate process with a pool and two sandboxes, from their birth to their end, which kills itself.

Its only argument is JSON, as that of `self_killing_server`. One sandbox takes the member of the pool, the other one the
next member or a new one. A second start continues. It exits with 0 when all have ended.
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
from tests.embedded.pool_documents import pool, pooled, sandbox, template

from dayfly.spec.run import EndRequest

SECONDS = 30
STOP = EndRequest(at=1, reason="Deleted")


def log_line(sign):
    return f'echo "{sign} $DAYFLY_RESOURCE_ID $URL" >> "$JOURNAL"'


def database(folder):
    url = f"{folder}/url"
    return template(
        [
            doc.step("make", f"{log_line('make')}; printf u > {url}; sleep 0.02", outputs=[("url", url)]),
            doc.step("seed", log_line("seed"), inputs=["url=make.url"]),
        ],
        [doc.step("drop", log_line("drop"), inputs=["url=make.url"], backoff_ms=20)],
    )


def box(name, member):
    grant = doc.step("grant", log_line(f"grant {name}"), inputs=["url=make.url"])
    revoke = doc.step("revoke", log_line(f"revoke {name}"), inputs=["url=make.url"], backoff_ms=20)
    return sandbox(name, pooled("db", member, [grant], [revoke]))


async def main(home, runner, journal, die_at, isolation="", **_others):
    machine = Machine(Path(home).parent, runner)
    machine.journal = Path(journal)
    machine.options = {"isolation": isolation} if isolation else {}
    count = 0

    def hook(name):
        nonlocal count
        count += 1
        if count == die_at:
            if name == "before commit":
                time.sleep(0.03)  # wait for work in the background of the write
            os.kill(os.getpid(), signal.SIGKILL)

    host = await machine.up(hook=hook)
    outputs = machine.journal.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    member = database(outputs)

    async def settled(uid):
        await until(
            lambda: host.has_ended(uid) or host.report(uid).ready or host.report(uid).closed, f"{uid} to start", SECONDS
        )

    await host.offer(pool("p", member, 1))
    await settled("p")
    for name in ("a", "b"):
        await host.offer(box(name, member))
    for name in ("a", "b"):
        await settled(name)
    await host.stop("a", STOP)
    await host.stop("p", STOP)
    await host.stop("b", STOP)
    for uid in ("a", "b", "p"):
        await until(lambda: host.has_ended(uid), f"{uid} to end", SECONDS)  # noqa: B023 - used at once
    with machine.database() as db:
        await until(lambda: db.execute("SELECT count(*) FROM run").fetchone() == (0,), "all members to end", SECONDS)
    await machine.down()


asyncio.run(main(**json.loads(sys.argv[1])))
