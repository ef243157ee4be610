"""`dayfly with` in this process, against a fake server on which everything succeeds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli import sample_specs
from tests.cli.fake_server import Fake

from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.verbs import run
from dayfly.client.home import Home


class FakeServer(Fake):
    """Makes each sandbox ready and deletes it on request. Responses of the test take priority."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[dict[str, Any]] = []
        self.lease: tuple[int, Any] = (200, {"seconds": 30})
        self.ready, self.deleted = True, False
        self.drops_leases = False  # ends the connection instead of an answer

    def take(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        status, answer = super().take(method, path, body)
        if status != 404:
            return status, answer
        of = {"name": path.split("/")[-2], "cluster": "local", "routingKey": "k", "endpoints": []}
        report = {**of, "uid": "u", "version": 1, "reason": "Ready", "message": "", "units": [], "ready": self.ready}
        match method, path.rpartition("/")[2]:
            case "GET", "clusters":
                return 200, [{"name": "local"}]
            case "GET", "sandboxes":
                return 200, []
            case "GET", "report":
                return 200, report | {"phase": "cleaned" if self.deleted else "open"}
            case "GET", "outputs":
                return 200, self.outputs
            case "PUT", "lease":
                if self.drops_leases:
                    raise ConnectionAbortedError
                return self.lease
            case "PUT", _:
                return 200, {}
            case "DELETE", _:
                self.deleted = True
                return 200, {}
        return status, answer

    def count(self, method: str, end: str = "") -> int:
        """Return the number of requests of a method whose path ends so."""
        return sum(asked == method and path.endswith(end) for asked, path, _ in self.asked)

    def applied(self) -> dict[str, Any]:
        """The body of the sandbox that was applied."""
        [body] = [body for method, path, body in self.asked if method == "PUT" and not path.endswith("/lease")]
        return body


@pytest.fixture
def fake_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home in which a server runs, if a test writes its address there."""
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DAYFLY_URL", raising=False)
    monkeypatch.setattr(Home, "is_left_behind", lambda _home: False)
    found = Home(tmp_path / "home")
    found.make()
    return found


def run_with(folder: Path, *words: str) -> int:
    """Run `dayfly with` for a plugin; `words` are more options, `--` and the command. Return its exit code."""
    plugin = folder / "plugin.yaml"
    plugin.write_text(sample_specs.plugin(folder / "journal"))
    clients, init = [], ServerClient.__init__

    def noting(self: ServerClient, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        clients.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ServerClient, "__init__", noting)
        try:
            return run(["with", "-f", str(plugin), *words])
        finally:
            for thread in threading.enumerate():
                if thread.name == "lease":
                    thread.join(10)
            for client in clients:  # the end of its process closes them
                client.close()
