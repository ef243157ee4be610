"""The port for states: the lifetime of a certificate, and retries if the port is not available."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kube.fake import rest, run

from dayfly.execute.state import handler
from dayfly.operator.states import authority, state_server
from dayfly.operator.states.state_server import CERTIFICATE_MAX_AGE_S

DAY = 24 * 3600.0


class Port:
    """Access to states at an address, and a port; it records how they are used."""

    namespace, client = "dayfly-system", None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, taken: bool = False) -> None:
        self.address, self.taken = "10.0.0.1", taken
        self.fault: Exception | None = None
        self.forgotten = 0
        self.certified: list[tuple[float, list[str]]] = []
        self.servers: list[str] = []
        monkeypatch.setattr(state_server, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time()))
        monkeypatch.setattr(state_server, "use_certificate", lambda _context, names: self.certified.append(names))
        monkeypatch.setattr(handler, "serve", self.serve)
        monkeypatch.setattr(state_server, "BoundedSocket", self.bind)
        monkeypatch.setattr(authority, "create_leaf", lambda _known, names: (asyncio.get_running_loop().time(), names))

    async def service_names(self) -> list[str]:
        return [self.address]

    async def authority(self) -> Any:
        return SimpleNamespace(keys=None)

    def forget_authority(self) -> None:
        self.forgotten += 1

    def bind(self, _port: int) -> None:
        if self.taken:
            raise OSError("taken")

    async def serve(self, *_: Any, stop: asyncio.Event, **__: Any) -> None:
        self.servers.append("begun")
        if self.fault:
            raise self.fault
        await stop.wait()
        self.servers.append("ended")


def serving(monkeypatch: pytest.MonkeyPatch, story: Any, *, taken: bool = False) -> None:
    async def main() -> None:
        port = Port(monkeypatch, taken=taken)
        async with state_server.serve_states(port, 8443, lambda: 0):
            await story(port)
        assert port.servers[-2:] == ["begun", "ended"], "it ends with the block"

    run(main())


class TestServing:
    def test_certificate_is_renewed_in_time_or_with_the_address(self, monkeypatch):
        monkeypatch.setattr(state_server, "CHECK_INTERVAL_S", DAY)

        async def story(port: Port):
            await rest(CERTIFICATE_MAX_AGE_S + DAY + 1)
            await rest(2 * DAY)
            assert port.certified == [(0.0, ["10.0.0.1"]), (CERTIFICATE_MAX_AGE_S + DAY, ["10.0.0.1"])]
            port.address = "10.0.0.2"
            await rest(DAY)
            assert port.certified[2:] == [(CERTIFICATE_MAX_AGE_S + 4 * DAY, ["10.0.0.2"])]
            assert port.servers == ["begun"], "the port stays"

        serving(monkeypatch, story)

    def test_server_that_ends_or_has_no_port_is_started_again(self, monkeypatch):
        async def story(port: Port):
            await rest(1)
            assert port.servers == []
            port.taken = False
            port.fault = OSError("taken since")
            await rest(state_server.CHECK_INTERVAL_S)
            assert port.servers == ["begun"]
            port.fault = None
            await rest(state_server.CHECK_INTERVAL_S)
            assert port.servers == ["begun", "begun"]

        serving(monkeypatch, story, taken=True)

    def test_an_authority_that_signs_nothing_is_said_and_read_again(self, monkeypatch, caplog):
        async def story(port: Port):
            def broken(*_: Any) -> bytes:
                raise authority.BrokenAuthorityError("no PEM")

            with monkeypatch.context() as breaking:
                breaking.setattr(authority, "create_leaf", broken)
                await rest(state_server.CHECK_INTERVAL_S + 1)
            assert (port.servers, port.forgotten) == ([], 2)
            await rest(state_server.CHECK_INTERVAL_S)
            assert port.servers == ["begun"]

        serving(monkeypatch, story)
        assert [record.getMessage() for record in caplog.records] == ["states are not served: no PEM"] * 2
