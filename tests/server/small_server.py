"""A server in a separate process with a fake host. It kills itself at the step in the environment.

DIE_AT is `<before|after> <offer|stop|abandon|archive>`: before or after that call takes effect.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from tests.server.client import KEY
from tests.server.fake_host import FakeHost

from dayfly.server.access import callers
from dayfly.server.app import create_app, serve
from dayfly.server.db.store import Store
from dayfly.server.records import tombstones

WHEN, _, CALL = os.environ.get("DIE_AT", "").partition(" ")


def die(when: str, call: str) -> None:
    if (when, call) == (WHEN, CALL):
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(FakeHost):
    """The fake host, whose calls may kill the process."""

    async def offer(self, offer):
        die("before", "offer")
        verdict = await super().offer(offer)
        die("after", "offer")
        return verdict

    async def stop(self, uid, request, *, known):
        die("before", "stop")
        found = await super().stop(uid, request, known=known)
        die("after", "stop")
        return found

    async def abandon(self, uid, request):
        die("before", "abandon")
        found = await super().abandon(uid, request)
        die("after", "abandon")
        return found

    async def end_by_files(self):
        """End a run when the test creates a file, since the test is another process."""
        while True:
            for uid in [uid for uid in self.offers if (self.file.parent / f"end-{uid}").exists()]:
                self.finish(uid)
            await asyncio.sleep(0.01)


def mortal_archive(rows, record, now, archive=tombstones.archive, **more):
    die("before", "archive")
    archive(rows, record, now, **more)
    die("after", "archive")


async def main(home: Path, listener: socket.socket) -> None:
    tombstones.archive = mortal_archive
    store = Store.open(os.environ.get("STORE") or home / "control.db")
    host = Dying(home / "host.json")
    app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
    print(listener.getsockname()[1], flush=True)
    await asyncio.gather(serve(app, [listener]), host.end_by_files())


asyncio.run(main(Path(sys.argv[1]), socket.create_server(("127.0.0.1", 0))))
