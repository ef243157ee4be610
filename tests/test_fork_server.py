"""Forked commands behave as commands in started interpreters."""

from __future__ import annotations

import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import fork_server

WRONG_FILE = b"kind: Sandbox\nname: box\nspec: {clustr: local}\n"
COMMANDS = [
    (["--version"], b""),
    (["explain", "sandbox.spec"], b""),
    (["schema", "plugin"], b""),
    (["no-such-verb"], b""),
    (["plan", "-f", "-"], WRONG_FILE),
    (["plan", "-f", "here.yaml"], b""),
    (["status"], b""),
]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "DAYFLY_HOME": str(folder / "home"), "COLUMNS": "90"}


def start(arguments: list[str], stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    command = [*fork_server.COMMAND, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, cwd=folder, env=environment(folder), timeout=60)
    return done.returncode, done.stdout, done.stderr


def fork(arguments: list[str], stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    done = fork_server.run(arguments, stdin=stdin, cwd=folder, env=environment(folder), timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("arguments", "stdin"), COMMANDS)
def test_forked_command_has_the_result_of_a_started_one(tmp_path: Path, arguments: list[str], stdin: bytes):
    (tmp_path / "here.yaml").write_bytes(WRONG_FILE)
    assert fork(arguments, stdin, tmp_path) == start(arguments, stdin, tmp_path)


def test_concurrent_commands_have_their_own_results(tmp_path: Path):
    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        found = list(pool.map(lambda each: fork(*each, tmp_path), COMMANDS))
    assert found == [fork(*each, tmp_path) for each in COMMANDS]


def test_command_is_killed_at_its_timeout(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        home = {
            **environment(tmp_path),
            "DAYFLY_URL": f"http://127.0.0.1:{mute.getsockname()[1]}",
            "DAYFLY_API_KEY": "k",
        }
        with pytest.raises(subprocess.TimeoutExpired):
            fork_server.run(["sandbox", "list"], stdin=b"", cwd=tmp_path, env=home, timeout=1)
        connection, _ = mute.accept()
        with connection:
            while connection.recv(1 << 16):  # its end: the process is gone
                pass


def test_cpu_time_of_forked_commands_is_counted(tmp_path: Path):
    before = fork_server.cpu_seconds()
    fork(["explain", "sandbox"], b"", tmp_path)
    assert fork_server.cpu_seconds() > before
