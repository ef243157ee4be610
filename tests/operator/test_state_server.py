"""The port for states, each rule alone: whose time is over, what an answer is called, and how long a certificate is used."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dayfly.execute.state.head import Answer
from dayfly.operator.states import authority, state_server
from dayfly.operator.states.state_server import ANEW_S, ANSWER_S, BODY_S, StateHandler
from kube.fake import rest, run

DAY = 24 * 3600.0


class Asked:
    """A request whose body comes in these pieces, and to its end after them or never."""

    method, path, headers, query = "POST", "/state/box-1/stack", {}, {}

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        self.content = self
        self._left = list(pieces)
        self._ends = ends

    def at_eof(self) -> bool:
        return self._ends and not self._left

    async def readany(self) -> bytes:
        if not self._left:
            await asyncio.Event().wait()
        return self._left.pop(0)


def served(answer: Answer | None = None, *, refusal: Answer | None = None, by: Any = None) -> StateHandler:
    """Serve callers of one run with that answer, or as `by` does; or refuse them all."""

    async def admit(*_: Any) -> Answer | None:
        return refusal

    async def handle(*_: Any) -> Answer | None:
        return answer

    handle = by or handle
    who = SimpleNamespace(run="box-1")
    return StateHandler(SimpleNamespace(identify=lambda *_: who, admit=admit, handle=handle))


class TestAnswering:
    @pytest.mark.parametrize(("pieces", "status"), [((b"x" * 10,), 200), ((b"x" * 10, b"y"), 413), ((b"x", b"y"), 200)])
    @pytest.mark.parametrize("small", [1, 10, 20])
    def test_a_body_is_taken_whole_or_not_at_all_in_whatever_pieces_it_comes(self, monkeypatch, small, pieces, status):
        monkeypatch.setattr(state_server, "SMALL", small)
        monkeypatch.setattr(state_server, "MAX_BODY", 10)

        async def story():
            taken = []

            async def handle(*told: Any) -> Answer:
                taken.append(told[-1])
                return Answer(200)

            assert (await served(by=handle).handle(Asked(*pieces))).status == status
            assert taken == ([b"".join(pieces)] if status == 200 else [])

        run(story())

    @pytest.mark.parametrize("begun", [(), (b"x" * 11,)], ids=["small", "large"])
    def test_whose_body_does_not_come_to_its_end_is_told_so_and_may_ask_again(self, monkeypatch, begun):
        monkeypatch.setattr(state_server, "SMALL", 10)

        async def story():
            app, loop = served(), asyncio.get_running_loop()
            for _ in range(2):
                began = loop.time()
                assert (await app.handle(Asked(*begun, ends=False))).status == 408
                assert loop.time() - began == BODY_S

        run(story())

    @pytest.mark.parametrize("size", [10, 11], ids=["small", "large"])
    @pytest.mark.parametrize(("takes", "status"), [(BODY_S + 1, 200), (ANSWER_S + 1, 503)])
    def test_of_a_slow_cluster_it_is_not_said_that_the_request_was(self, monkeypatch, size, takes, status):
        """Terraform asks again after a 503, and gives its state up after a 408."""
        monkeypatch.setattr(state_server, "SMALL", 10)

        async def story():
            async def handle(*_: Any) -> Answer:
                await asyncio.sleep(takes)
                return Answer(200)

            assert (await served(by=handle).handle(Asked(b"x" * size))).status == status

        run(story())

    @pytest.mark.parametrize(("json", "called"), [(True, "application/json"), (False, "text/plain")])
    def test_an_answer_says_what_it_is(self, json, called):
        async def story():
            answer = await served(Answer(423, b"{}", json=json)).handle(Asked(b"x"))
            assert (answer.status, answer.body, answer.content_type) == (423, b"{}", called)

        run(story())

    def test_of_what_is_refused_nobody_reads_the_rest(self):
        """What follows on that connection would be taken for another request."""

        async def story():
            assert (await served(Answer(200)).handle(Asked(b"x"))).keep_alive is not False
            answer = await served(refusal=Answer(401)).handle(Asked(b"x"))
            assert (answer.status, answer.keep_alive) == (401, False)

        run(story())


class Port:
    """Access to states at an address, and a port; what is done with them."""

    namespace, client = "dayfly-system", None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address, self.taken = "10.0.0.1", False
        self.forgotten = 0
        self.certified: list[tuple[float, list[str]]] = []
        self.runners: list[str] = []
        monkeypatch.setattr(state_server, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time()))
        monkeypatch.setattr(state_server, "certify", lambda _context, names: self.certified.append(names))
        monkeypatch.setattr(
            state_server, "web", SimpleNamespace(ServerRunner=lambda _: self, SockSite=lambda *_, **__: self)
        )
        monkeypatch.setattr(state_server, "BoundedSocket", lambda _port: None)
        monkeypatch.setattr(authority, "leaf", lambda _known, names: (asyncio.get_running_loop().time(), names))

    async def names(self) -> list[str]:
        return [self.address]

    async def authority(self) -> Any:
        return SimpleNamespace(keys=None)

    def forget(self) -> None:
        self.forgotten += 1

    async def setup(self) -> None:
        self.runners.append("made")

    async def start(self) -> None:
        if self.taken:
            raise OSError("taken")

    async def cleanup(self) -> None:
        self.runners.append("gone")


def serving(monkeypatch: pytest.MonkeyPatch, story: Any) -> None:
    async def main() -> None:
        port = Port(monkeypatch)
        async with state_server.serving(port, 8443, lambda: 0):
            await story(port)
        assert port.runners[-2:] == ["made", "gone"], "it ends with the block"

    run(main())


class TestServing:
    def test_a_certificate_is_made_anew_in_time_and_where_the_address_is_another(self, monkeypatch):
        monkeypatch.setattr(state_server, "LOOK_S", DAY)

        async def story(port: Port):
            await rest(ANEW_S + DAY + 1)
            await rest(2 * DAY)
            assert port.certified == [(0.0, ["10.0.0.1"]), (ANEW_S + DAY, ["10.0.0.1"])]
            port.address = "10.0.0.2"
            await rest(DAY)
            assert port.certified[2:] == [(ANEW_S + 4 * DAY, ["10.0.0.2"])]
            assert port.runners == ["made"], "the port stays"

        serving(monkeypatch, story)

    def test_of_a_try_that_could_not_have_the_port_nothing_is_left(self, monkeypatch):
        async def story(port: Port):
            port.taken = True
            await rest(1)
            assert port.runners == ["made", "gone"]
            port.taken = False
            await rest(state_server.LOOK_S)
            assert port.runners == ["made", "gone", "made"]

        serving(monkeypatch, story)

    def test_an_authority_that_signs_nothing_is_said_and_read_again(self, monkeypatch, caplog):
        async def story(port: Port):
            def broken(*_: Any) -> bytes:
                raise authority.BrokenAuthorityError("no PEM")

            with monkeypatch.context() as breaking:
                breaking.setattr(authority, "leaf", broken)
                await rest(state_server.LOOK_S + 1)
            assert (port.runners, port.forgotten) == ([], 2)
            await rest(state_server.LOOK_S)
            assert port.runners == ["made"]

        serving(monkeypatch, story)
        assert [record.getMessage() for record in caplog.records] == ["states are not served: no PEM"] * 2
