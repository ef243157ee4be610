"""(e) Memory of a server with ten thousand idle sandboxes."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.rows import Row, folder, show
from bench.servers import running

if TYPE_CHECKING:
    from bench.servers import Server

SANDBOXES = 10_000
WRITERS = 4
AIM_MB = 150
# The sync with hosts visits all sandboxes every few seconds. Its memory counts as idle memory.
SETTLE_S = 10
PLUGIN = {
    "name": "db",
    "spec": {
        "runner": {"image": "busybox"},
        "create": [
            {
                "name": "provision",
                "script": "#!/bin/sh\necho host >/tmp/host\n",
                "outputs": [{"name": "host", "valueFromPath": "/tmp/host"}],
            }
        ],
        "delete": [
            {
                "name": "drop",
                "script": "#!/bin/sh\n",
                "inputs": [{"name": "host", "valueFromStep": {"name": "provision", "output": "host"}}],
            }
        ],
    },
}
# One in ten has a provisioned resource: ended steps use no memory, and ten thousand steps would take minutes.
WITH_RESOURCE = 10
RESOURCES = [{"name": "db", "plugin": "db"}]


def measure(sandboxes: int = SANDBOXES) -> list[Row]:
    """Create sandboxes through the REST API until all are ready, list them once, and return the server's memory."""
    with folder() as place, running(place / "home") as server:
        empty = resident(server.pid)
        server.client().put("resource-plugins", "db", body=PLUGIN)
        writers = [threading.Thread(target=_apply, args=(server, sandboxes, each)) for each in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        _wait_until_ready(server, sandboxes)
        time.sleep(SETTLE_S)
        full = resident(server.pid)
    what = f"(e) memory of `dayfly up` with {sandboxes:,} idle sandboxes, created and listed with its REST API"
    return [
        Row(
            what,
            f"{full:.0f} MB",
            f"{empty:.0f} MB with none",
            f"{full:.0f} MB (+{(full - empty) * 1e6 / sandboxes:.0f} bytes a sandbox)",
            f"{AIM_MB} MB",
            full <= AIM_MB,
        )
    ]


def _apply(server: Server, sandboxes: int, first: int) -> None:
    client = server.client()
    for number in range(first, sandboxes, WRITERS):
        resources = RESOURCES if number % WITH_RESOURCE == 0 else []
        spec = {"cluster": "local", "description": f"number {number}", "resources": resources}
        client.put("sandboxes", f"idle-{number}", body={"spec": spec})


def _wait_until_ready(server: Server, sandboxes: int) -> None:
    client = server.client()
    while sum(sandbox["status"]["ready"] for sandbox in client.get("sandboxes")) < sandboxes:
        time.sleep(1)


def resident(pid: int) -> float:
    """Resident memory of a process in megabytes (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no VmRSS")


if __name__ == "__main__":
    show(measure)
