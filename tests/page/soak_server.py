"""A server in a separate process with a requested number of changes; `test_soak` controls it with one JSON line each.

So its memory can be measured without that of the test and the browser.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

from tests.page.browser import link_of  # noqa: E402 - found beside this script
from tests.server import specs  # noqa: E402 - found beside this script
from tests.server.client import Client, serving  # noqa: E402 - found beside this script
from tests.server.fake_host import FakeHost  # noqa: E402 - found beside this script

from dayfly.server.api import changes  # noqa: E402 - found beside this script
from dayfly.server.http import event_stream  # noqa: E402 - found beside this script
from dayfly.spec.report import UnitReport  # noqa: E402 - found beside this script

MANY, UNIT = 120, "mydb/provision"
STATES = ("running", "retrying", "succeeded", "failed")


def main() -> None:
    changes.POLL_INTERVAL_S, event_stream.MAX_EVENTS = (
        0.05,
        MANY - 20,
    )  # a day in minutes: a client that disconnects shortly misses too many events, and reconnects
    host = FakeHost()
    with serving(Path(sys.argv[1]), {"local": host}) as client:
        day = Day(client, host)
        answer({"links": [link_of(client), link_of(client)], "url": f"http://127.0.0.1:{client.port}"})
        for line in sys.stdin:
            answer(day.on(**json.loads(line)))


class Day:
    """Sandboxes that change, come and go; the first of them has a log that grows."""

    def __init__(self, client: Client, host: FakeHost) -> None:
        self.client, self.host, self.told, self.born = client, host, 0, 0
        client.put("resource-plugins/db", specs.plugin())
        client.put("sandboxes/a-log", specs.sandbox())
        (self.first,) = host.offers
        host.log_data[self.first, UNIT, 1] = (b"a line like any other of this log\n" * 15_000, False)
        for _ in range(MANY):
            self.bear()

    def bear(self) -> None:
        self.client.put(f"sandboxes/{name(self.born)}", specs.empty(labels={"n": f"label-{self.born}"}))
        self.born += 1

    def on(self, changes: int) -> dict[str, Any]:
        """Make changes, each in another row of the list; return the memory of this process."""
        living = [uid for uid in self.host.offers if uid != self.first]
        for n in range(changes):
            self.told += 1
            self.host.say(
                living[n % len(living)], ready=n % 3 == 0, reason="ResourcesPending", message=f"at {self.told}"
            )
            if n % 50 == 0:
                self.grow()
        for uid in living[: changes // 100]:
            self.client.delete(f"sandboxes/{self.host.offers[uid].name}")
            self.host.finish(uid)
            self.bear()
        self.grow()
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        rss = re.search(r"^VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert rss is not None
        return {"told": self.told, "newest": name(self.born - 1), "rss": int(rss[1]) * 1024}

    def grow(self) -> None:
        data, _ = self.host.log_data[self.first, UNIT, 1]
        self.host.log_data[self.first, UNIT, 1] = (data + f"line {self.told}\n".encode(), False)
        unit = UnitReport(
            id=UNIT,
            resource="mydb",
            name="provision",
            event="preStart",
            kind="exec",
            state=STATES[self.told // 50 % 2],
            attempt=1,
            message=f"at {self.told}",
        )
        self.host.say(self.first, ready=False, reason="ResourcesPending", message=f"at {self.told}", units=(unit,))


def name(born: int) -> str:
    """The last that was born is the first of the list."""
    return f"sb-{99_999 - born}"


def answer(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
