from __future__ import annotations

import contextlib
import functools
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Cli, until
from tests.embedded.machine import work_of

from dayfly.cli import installed
from dayfly.client import Client, NotFoundError, RefusedError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


class SharedServerProcess:
    """A real server with a separate home. Tests share it, because starting and stopping one takes a second of CPU time."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._folder, self._cli = folder, Cli(self.home, folder, [])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have it running."""
        if self._process is not None:
            return
        with self._errors.open("wb") as errors:
            self._process = self._cli.start("up", "--port", "0", stderr=errors)
        until(lambda: self._said().endswith("\n") or self._process.poll() is not None)
        assert "is up at" in self._said(), self._said()

    def check(self) -> None:
        """Assert that the test left nothing, and that the server has printed only its address."""
        with Client(home=self.home) as client:
            for runs in (client.sandboxes, client.route_groups, client.pools):
                for each in runs.list():
                    with contextlib.suppress(NotFoundError):  # it has just gone by itself
                        runs.delete(each.name)
                    runs.wait_gone(each.name)
            for plugin in client.plugins.list(all_versions=True):
                until(functools.partial(_deleted, client, plugin.name))
            for baseline in client.baselines.list():
                client.baselines.delete(baseline.name, baseline.namespace)
        assert self._said().count("\n") == 1, self._said()

    def end(self) -> None:
        """Stop the server as a user does, and delete its home."""
        if self._process is not None:
            self._process.terminate()
            assert (self._process.wait(30), self._said().count("\n")) == (0, 1), self._said()
        self.drop()

    def drop(self) -> None:
        """Kill the server in any state."""
        self._cli.close()
        self._cli.started.clear()
        self._process = None
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def _errors(self) -> Path:
        return self._folder / "errors"

    def _said(self) -> str:
        return self._errors.read_text()


def _deleted(client: Client, plugin: str) -> bool:
    """A sandbox that is no longer listed may hold its plugin for a moment more."""
    try:
        client.plugins.delete(plugin)
    except RefusedError:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def program() -> str:
    """The runner, built once, so that no test waits for it."""
    return installed.find_runner()


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line in an empty folder, with a home where nothing runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    found = Cli(tmp_path / "home", folder, [])
    yield found
    found.close()
    # A server that ends beside sandboxes leaves it to the next one.
    shutil.rmtree(work_of(found.home), ignore_errors=True)


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServerProcess]:
    """The server that the tests of a worker have one after the other."""
    found = SharedServerProcess(tmp_path_factory.mktemp("shared_process"))
    yield found
    found.end()


@pytest.fixture
def served(cli: Cli, shared_process: SharedServerProcess) -> Iterator[Cli]:
    """As `cli`, with the real server running in the home: one without sandboxes, plugins and route groups."""
    shared_process.start()
    try:
        yield cli._replace(home=shared_process.home)
        shared_process.check()
    except BaseException:
        shared_process.drop()  # the next test needs an unchanged server
        raise


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The file to which scripts append their names."""
    return tmp_path / "journal"
