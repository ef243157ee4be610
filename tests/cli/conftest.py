from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli.command import Cli
from dayfly.cli import runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def program() -> str:
    """The runner, built once, so that no test waits for it."""
    return runner.find()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line in an empty folder, with a home where nothing runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Cli(tmp_path / "home", folder)


@pytest.fixture
def served(cli: Cli) -> Iterator[Cli]:
    """As `cli`, with the real server running in the home."""
    server = cli.start("up", "--port", "0", stderr=subprocess.PIPE)
    assert b"is up at" in server.stderr.readline()
    yield cli
    server.terminate()
    with contextlib.closing(server.stderr), contextlib.closing(server.stdout):
        code, said = server.wait(30), server.stderr.read().decode()
        assert (code, said) == (0, "")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where scripts write that they ran."""
    return tmp_path / "journal"
