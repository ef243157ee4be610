from __future__ import annotations

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
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line in an empty folder, with a home where nothing runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    found = Cli(tmp_path / "home", folder, [])
    yield found
    found.close()


@pytest.fixture
def served(cli: Cli) -> Iterator[Cli]:
    """As `cli`, with the real server running in the home."""
    server = cli.start("up", "--port", "0")
    said = server.stderr.readline().decode()
    assert "is up at" in said, said
    yield cli
    for name in cli.sandboxes():  # a step that still runs would outlive the server
        assert cli("sandbox", "delete", name).code == 0
    server.terminate()
    assert (server.wait(30), server.stderr.read().decode()) == (0, "")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where scripts write that they ran."""
    return tmp_path / "journal"
