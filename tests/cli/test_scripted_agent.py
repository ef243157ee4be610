"""A scripted agent starts with an empty repository, and ends with a program that uses a private database of a pool."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import httpx2
import pytest
from tests.cli.command import COMMAND
from tests.cli.test_mcp import Agent, connect, connect_http, create_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.command import Cli

pytestmark = pytest.mark.slow
MAX_CALLS = 3
PLUGIN = r"""
kind: ResourcePlugin
name: db
spec:
  description: A private SQLite database with customers.
  create:
  - name: make
    script: |
      #!/usr/bin/env python3
      import os, pathlib, sqlite3
      file = pathlib.Path("FOLDER", os.environ["DAYFLY_RESOURCE_ID"] + ".db")
      with sqlite3.connect(file) as database:
          database.executescript("CREATE TABLE customer (name TEXT); INSERT INTO customer VALUES ('Ada')")
      pathlib.Path("/tmp/path").write_text(str(file))
    outputs: [{name: path, valueFromPath: /tmp/path, sensitive: true}]
  delete:
  - name: drop
    script: |
      #!/bin/sh
      rm -f "FOLDER/$DAYFLY_RESOURCE_ID.db"
---
kind: ResourcePool
name: warm
spec: {cluster: local, plugin: db, ready: 1}
"""
# The program of the agent.
PROGRAM = """
import os, sqlite3
with sqlite3.connect(f"file:{os.environ['DB_MAKE_PATH']}?mode=rw", uri=True) as database:
    database.execute("INSERT INTO customer VALUES ('Grace')")
    print(*(name for (name,) in database.execute("SELECT name FROM customer ORDER BY name")))
"""


class Repository:
    """The empty repository of an agent, with a shell."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        folder.mkdir()
        self.run("git init --quiet")

    def run(self, command: str) -> str:
        """Run a command of the shell, and return its output."""
        done = subprocess.run(
            ["sh", "-ec", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run_program(self, use: str) -> str:
        """Write the program, and run it after a command that sets its variables."""
        (self.folder / "app.py").write_text(PROGRAM)
        return self.run(f"{use}; python3 app.py")


@pytest.fixture
def databases(served: Cli, tmp_path: Path) -> Path:
    """The folder of the databases. The pool has one ready member."""
    folder = tmp_path / "databases"
    folder.mkdir()
    served.write("pool.yaml", PLUGIN.replace("FOLDER", str(folder)))
    assert served("apply", "-f", "pool.yaml").code == 0
    assert served("wait", "pool/warm").code == 0
    return folder


def files(folder: Path) -> list[str]:
    return [str(file) for file in folder.iterdir()]


async def request_database(agent: Agent) -> dict[str, str]:
    """Find a plugin, create a sandbox and return the answer of `connect`."""
    (found,) = (await agent.call("find", need="sqlite database"))["untrusted_data"]["plugins"]
    made = await agent.call("create", name="db", resources=[{"name": "db", "plugin": found["plugin"]}])
    connected: dict[str, str] = await agent.call("connect", sandbox=made["sandbox"])
    assert agent.calls <= MAX_CALLS
    return connected


async def test_agent_on_stdio_gets_a_connected_database(
    served: Cli, databases: Path, tmp_path: Path, played: Callable[..., None]
):
    repository = Repository(tmp_path / "repository", dict(os.environ))
    async with connect(served, create_key(served)) as agent:
        began = time.monotonic()
        connected = await request_database(agent)
        printed = repository.run_program(connected["use"])
        played("tool calls of a scripted agent", agent.calls, f"{time.monotonic() - began:.2f} s to its first query")
        assert printed == "Ada Grace"
        (listed,) = (await agent.call("list"))["sandboxes"]
        assert listed["fromPool"] == ["db"]
        mine = repository.run(f'{connected["use"]}; echo "$DB_MAKE_PATH"')
    assert served("wait", listed["sandbox"], "--for", "deleted", "--timeout", "60s").code == 0
    assert mine not in files(databases), "the database of an agent that has ended is left"


async def test_agent_over_http_gets_a_connected_database(served: Cli, databases: Path, tmp_path: Path):
    key = create_key(served)
    program = served.folder / served.write("bin/dayfly", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key['DAYFLY_API_KEY']}"}) as http:
        started = await http.post(f"{key['DAYFLY_URL']}/api/v2/orgs/local/sessions", json={})
    session = started.json()
    environment = served.environment(DAYFLY_API_KEY=session["key"], PATH=f"{program.parent}:{os.environ['PATH']}")
    repository = Repository(tmp_path / "repository", environment)
    process = served.start("mcp", "--http", "127.0.0.1:0", env=served.environment())
    url = process.stderr.readline().decode().split()[-1]
    async with connect_http(url, Authorization=f"Bearer {session['key']}") as agent:
        connected = await request_database(agent)
        assert session["key"] not in json.dumps(connected)
        path = repository.run(connected["command"])
        assert repository.run_program(f"set -a; . {shlex.quote(path)}; set +a; rm {shlex.quote(path)}") == "Ada Grace"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {session['key']}"}) as http:
        await http.delete(f"{key['DAYFLY_URL']}/api/v2/orgs/local/sessions/{session['name']}")
    assert served("wait", f"{session['name']}-db", "--for", "deleted", "--timeout", "60s").code == 0
    assert len(files(databases)) <= 1, "only a member of the pool may be left"
