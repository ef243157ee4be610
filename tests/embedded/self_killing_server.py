"""A server as a separate process that runs one sandbox from birth to end, and kills itself at a given write.

Its only argument is JSON: `home`, `runner`, `journal`, `uid` of the run, and `die_at`. It also has either `isolation`
(empty for that of the machine) or `engine` and `image` of the steps. At the ledger's hook call with the number `die_at`
it sends itself SIGKILL (0: never). A second start continues. It exits with 0 when the run has ended.
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

LISTEN = "import os,socket as s;l=s.create_server(('127.0.0.1',int(os.environ['PORT'])))\nwhile 1:l.accept()"


def journal(name, work="true"):
    """Return a script that logs its start and its end."""
    return f'echo "+ {name} $DAYFLY_ATTEMPT" >> "$JOURNAL"; {work}; c=$?; echo "- {name}" >> "$JOURNAL"; exit $c'


def database(folder):
    """Two steps with cleanup. Without namespaces, their outputs are in the folder of this life."""
    return doc.resource(
        "db",
        create=[
            doc.step("make", journal("make", f"printf u > {folder}/u; sleep 0.05"), outputs=[("url", f"{folder}/u")]),
            doc.step(
                "seed",
                journal("seed", f'sleep 0.02; printf s > {folder}/s; [ "$(grep -c "^+ seed" "$JOURNAL")" -gt 1 ]'),
                inputs=["url=make.url"],
                outputs=[("ok", f"{folder}/s")],
                idempotent=True,
                limit=9,
                backoff_ms=20,
            ),
        ],
        delete=[doc.step("drop", journal("drop"), inputs=["url=make.url"], backoff_ms=20)],
    )


def cache():
    """A consumer of the database, which is cleaned up before the database."""
    return doc.resource(
        "cache",
        create=[doc.step("fill", journal("fill"), inputs=["ok=db:seed.ok"], outputs=[])],
        delete=[doc.step("clear", journal("clear"), inputs=["url=db:make.url"], backoff_ms=20)],
    )


def hooks():
    """Hooks after the start, and before the end."""
    return doc.hooks(
        post_start=[doc.step("warm", journal("warm"))], pre_stop=[doc.step("drain", journal("drain"), backoff_ms=20)]
    )


FORK = doc.fork(inputs=["url=db:make.url"], env=[doc.set_env("URL", input="url")])
OVER = ("ResourceFailed", "HookFailed")
SECONDS, SECONDS_OF_CONTAINERS = 30, 150


async def main(home, runner, journal, uid, die_at, isolation="", engine="", image=""):
    doc.step.__kwdefaults__["image"] = image
    patience = SECONDS_OF_CONTAINERS if engine else SECONDS
    machine = Machine(Path(home).parent, runner)
    machine.journal = Path(journal)
    machine.options = {name: value for name, value in (("isolation", isolation), ("engine", engine)) if value}
    count = 0

    def hook(name):
        nonlocal count
        count += 1
        if count == die_at:
            if name == "before commit":
                time.sleep(0.03)  # wait for work in the background of the write
            os.kill(os.getpid(), signal.SIGKILL)

    host = await machine.up(start=False, hook=hook)
    command = ("/bin/sh", "-c", 'echo "+ app $URL" >> "$JOURNAL"; exec python3 -S -c "$CODE"')
    await machine.baseline(command=command, env={"CODE": LISTEN})
    host.start()
    outputs = machine.journal.parent / "outputs"
    outputs.mkdir(exist_ok=True)
    await host.offer(doc.offer(database(outputs), cache(), hooks(), uid=uid, forks=[FORK]))
    if not host.has_ended(uid):
        await until(
            lambda: (seen := host.report(uid)).ready or seen.closed or seen.reason in OVER, "its start", patience
        )
        await machine.delete(uid)
        await until(lambda: host.has_ended(uid), "its end", patience)
    await machine.down()


asyncio.run(main(**json.loads(sys.argv[1])))
