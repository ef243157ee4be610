"""Where states are kept and served, each rule alone: without a server, a step or a ledger."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.embedded import state_door, states
from dayfly.embedded.clock import now_ms
from dayfly.embedded.state_door import BODIES_AT_ONCE, BODY_S, StateDoor, _App, _body, _listen
from dayfly.embedded.states import StateFiles
from dayfly.execute.state import access
from dayfly.execute.state.head import Answer, DamagedError, Head, Holder, Version
from dayfly.execute.state.seal import MAX_BODY, digest
from dayfly.execute.state.service import MAX_LOCK, Found, FullError, Place
from dayfly.execute.state.service import Service as StateService
from dayfly.spec.run import Phase
from dayfly.spec.wire import RunDamagedError
from embedded.machine import until
from kube.fake import run

PLACE = Place("u", "db")
WHO = access.caller("u", "db", "db/make", 1)
VERSION = Version(number=1, at=1, holder=Holder(unit="db/make", attempt=1), size=1, digest="d", blob="b", chunks=3)
JSON = Answer(200, b"{}", json=True)


class Service:
    """Takes everything from `who`, and notes it."""

    def __init__(self, who=WHO, refusal=None, answer=JSON):
        self.who, self.refusal, self.answer, self.asked = who, refusal, answer, []

    def identify(self, path, given):
        assert (path, given) == ("/u/db", "Basic eA==")
        return self.who

    async def admit(self, _who, _method):
        return self.refusal

    async def handle(self, *asked):
        self.asked.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def ask(app, method="GET", body=b"", query=b""):
    """Status, headers and body."""
    sent = []
    scope = {"type": "http", "path": "/u/db", "method": method, "query_string": query}

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    await app({**scope, "headers": [(b"authorization", b"Basic eA==")]}, receive, send)
    start, rest = sent
    assert (start["type"], rest["type"]) == ("http.response.start", "http.response.body")
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(rest["body"])
    return start["status"], dict(start["headers"])[b"content-type"], rest["body"]


class TestApp:
    async def test_what_the_service_says_is_the_answer(self):
        service = Service()
        assert await ask(_App(service), "POST", b"state", b"a=b&ID=l%201") == (200, b"application/json", b"{}")
        assert service.asked == [(WHO, "POST", "l 1", b"state")]
        service.answer = Answer(404, b"none\n")
        assert await ask(_App(service)) == (404, b"text/plain; charset=utf-8", b"none\n")
        assert service.asked[-1] == (WHO, "GET", "", b"")

    async def test_of_whom_it_refuses_nothing_is_read(self):
        service = Service(refusal=Answer(403, b"no\n"))
        assert (await ask(_App(service), "POST", b"x" * (MAX_BODY + 1)))[::2] == (403, b"no\n")
        assert service.asked == []

    @pytest.mark.parametrize(
        ("method", "most"), [("POST", MAX_BODY), ("PUT", MAX_BODY), ("LOCK", MAX_LOCK), ("DELETE", MAX_LOCK)]
    )
    async def test_a_body_has_its_bound(self, method, most):
        service = Service()
        assert (await ask(_App(service), method, b"x" * most))[0] == 200
        assert (await ask(_App(service), method, b"x" * (most + 1)))[0] == 413
        assert len(service.asked) == 1

    async def test_what_the_disk_refuses_is_to_be_asked_again(self):
        status, kind, body = await ask(_App(Service(answer=OSError(28, "No space left on device"))))
        assert (status, kind) == (503, b"text/plain; charset=utf-8")
        assert body == b"it cannot be read or written now: No space left on device\n"

    async def test_of_a_run_that_cannot_be_read_it_is_told_which_it_is(self):
        said = "the record of run u cannot be read"
        asked = await ask(_App(Service(answer=RunDamagedError(said))))
        assert asked == (503, b"text/plain; charset=utf-8", f"{said}\n".encode())

    async def test_what_is_no_request_is_not_answered(self):
        await _App(Service())({"type": "lifespan"}, None, None)

    async def test_few_bodies_are_in_memory_at_once(self):
        go, begun = asyncio.Event(), []

        class Slow(Service):
            async def handle(self, *asked):
                begun.append(asked)
                await go.wait()
                return Answer(200)

        app = _App(Slow())
        asking = [asyncio.create_task(ask(app)) for _ in range(BODIES_AT_ONCE + 2)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(begun) == BODIES_AT_ONCE
        go.set()
        await asyncio.gather(*asking)
        assert len(begun) == len(asking)

    def test_who_stops_in_the_middle_of_a_body_keeps_nobody_else_from_his_state(self):
        """As many steps as there are places may be suspended, or mean it: the states of all others stood still."""

        async def stuck(app):
            sent = []
            scope = {"type": "http", "path": "/u/db", "method": "POST", "query_string": b""}
            scope["headers"] = [(b"authorization", b"Basic eA==")]
            told = iter([{"type": "http.request", "body": b"x", "more_body": True}])

            async def receive():
                if (message := next(told, None)) is None:
                    await asyncio.Event().wait()
                return message

            async def send(message):
                sent.append(message)

            await app(scope, receive, send)
            return sent[0]["status"]

        async def main():
            app = _App(Service())
            asking = [asyncio.create_task(stuck(app)) for _ in range(BODIES_AT_ONCE)]
            await asyncio.sleep(1)
            async with asyncio.timeout(3600):
                assert (await ask(app))[0] == 200
            assert asyncio.get_running_loop().time() == BODY_S
            assert await asyncio.gather(*asking) == [503] * BODIES_AT_ONCE

        run(main())


class TestBody:
    @staticmethod
    def of(*messages):
        waiting = iter(messages)

        async def receive():
            return next(waiting)

        return receive

    async def test_its_parts_are_one(self):
        more = {"type": "http.request", "body": b"a", "more_body": True}
        assert await _body(self.of(more, more, {"type": "http.request", "body": b"b"}), 3) == b"aab"
        assert await _body(self.of(more, more, {"type": "http.request", "body": b"b"}), 2) is None
        assert await _body(self.of(more, {"type": "http.request"}), 1) == b"a"

    async def test_whoever_is_gone_has_sent_none(self):
        with pytest.raises(ConnectionResetError, match="whoever asked is gone"):
            await _body(self.of({"type": "http.disconnect"}), 9)


class TestListening:
    def test_the_port_of_before_is_taken_again_while_old_connections_close(self):
        with _listen(0) as first:
            port = first.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                first.accept()[0].close()  # whoever closes first has the closing connection
        with _listen(port) as again:
            assert again.getsockname() == ("127.0.0.1", port)

    def test_another_where_somebody_has_it(self):
        with _listen(0) as other:
            port = other.getsockname()[1]
            with _listen(port) as found:
                assert found.getsockname()[1] > 1023
                assert found.getsockname()[1] != port

    def test_where_none_can_be_had_that_is_said(self, monkeypatch):
        monkeypatch.setattr(state_door, "HOST", "203.0.113.1")
        with pytest.raises(OSError, match="Cannot assign"):
            _listen(0)


class TestDoor:
    @pytest.fixture
    async def door(self, tmp_path):
        self.served, self.runs = [], ["u"]

        async def serve(app, sockets, *, stop):
            self.served.append((app, [each.getsockname()[1] for each in sockets]))
            await stop.wait()
            sockets[0].close()
            self.served.append("closed")

        def made():
            return StateDoor(tmp_path, SimpleNamespace(uids=lambda: self.runs), serve)

        found = self.door = made()
        yield found
        await found.close()

    async def begun(self):
        await asyncio.sleep(0)
        return len(self.served)

    async def test_it_is_opened_once_and_its_port_noted(self, door, tmp_path):
        told = door.variables(WHO)
        assert door.variables(WHO) == told
        assert await self.begun() == 1
        [port] = self.served[0][1]
        assert (tmp_path / "states" / "port").read_text() == str(port)
        assert f"http://127.0.0.1:{port}" in told["TF_HTTP_ADDRESS"]
        assert told["TF_HTTP_PASSWORD"] == access.token(states.keys(tmp_path), WHO)
        (tmp_path / "states" / "u").mkdir()
        door.clear(SimpleNamespace(uid="u", phase=Phase.CLEANED))
        assert not (tmp_path / "states" / "u").exists()
        await door.close()
        assert self.served[1:] == ["closed"]

    @pytest.mark.parametrize(
        ("noted", "runs", "opened"),
        [
            *((noted, ["u"], 0) for noted in ("", "0", "no", "65536", "9" * 5000)),
            *(("free", [], 0), ("free", ["u"], 1)),
        ],
    )
    async def test_the_next_server_opens_it_where_a_step_may_know_it(self, door, tmp_path, noted, runs, opened):
        with _listen(0) as probe:
            port = probe.getsockname()[1]
        (tmp_path / "states").mkdir()
        (tmp_path / "states" / "port").write_text(str(port) if noted == "free" else noted)
        self.runs = runs
        door.resume()
        assert await self.begun() == opened
        assert not opened or self.served[0][1] == [port]

    async def test_where_its_port_cannot_be_read_the_server_begins_all_the_same(self, door, tmp_path, caplog):
        (tmp_path / "states" / "port").mkdir(parents=True)
        door.resume()
        assert "states cannot be served: [Errno 21] Is a directory" in caplog.text
        assert await self.begun() == 0

    async def test_it_ends_as_well_where_it_could_not_serve(self, tmp_path):
        async def serve(_app, sockets, *, stop):
            sockets[0].close()
            raise OSError("no")

        door = StateDoor(tmp_path, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        await door.close()

    @pytest.mark.parametrize("fault", [OSError("no"), None])
    async def test_it_is_opened_again_where_nobody_serves_it_any_more(self, tmp_path, monkeypatch, caplog, fault):
        """Terraform asks again, at the address that it was told."""
        monkeypatch.setattr(state_door, "AGAIN_S", 0.001)
        served = []

        async def serve(_app, sockets, *, stop):
            served.append(sockets[0].getsockname()[1])
            if len(served) < 3:
                if fault:
                    raise fault
                return
            await stop.wait()

        door = StateDoor(tmp_path, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        await until(lambda: len(served) == 3)
        assert len(set(served)) == 1
        assert caplog.text.count("states are not served for") == 2
        await door.close()
        assert len(served) == 3

    async def test_where_it_cannot_be_opened_again_that_is_said_until_it_can(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(state_door, "AGAIN_S", 0.001)

        async def serve(_app, _sockets, *, stop):
            raise OSError("no")

        def none(_port):
            raise OSError("no port is left")

        door = StateDoor(tmp_path, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        monkeypatch.setattr(state_door, "_listen", none)
        await until(lambda: caplog.text.count("no port is left") > 1)
        await door.close()

    async def test_a_key_that_is_damaged_opens_nothing(self, door, tmp_path, caplog):
        (tmp_path / "states").mkdir()
        (tmp_path / "states" / "key").write_bytes(b"short")
        (tmp_path / "states" / "port").write_text("9")
        door.resume()
        assert "states cannot be served: the key for states has 5 bytes" in caplog.text
        with pytest.raises(OSError, match="has 5 bytes"):
            door.variables(WHO)
        assert await self.begun() == 0


class TestFiles:
    @pytest.fixture
    def files(self, tmp_path):
        states.keys(tmp_path)
        self.known = {"u": SimpleNamespace(run="the run")}
        return StateFiles(tmp_path, SimpleNamespace(load=self.known.get))

    def test_a_key_is_drawn_once_and_only_where_it_may_be(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            states.keys(tmp_path, make_them=False)
        made = states.keys(tmp_path)
        assert states.keys(tmp_path) == states.keys(tmp_path, make_them=False) == made
        assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "states" / "key").stat().st_mode & 0o777 == 0o600

    async def test_a_head_is_swapped_for_the_one_that_was_seen(self, files, tmp_path):
        assert await files.find(PLACE) == Found(Head())
        head = Head(sandbox="s", versions=(VERSION,))
        assert await files.swap(PLACE, await files.find(PLACE), head)
        assert not await files.swap(PLACE, Found(Head()), Head(sandbox="t")), "it has been another one since"
        assert await files.find(PLACE) == Found(head, digest(msgspec.json.encode(head)))
        assert states.heads(tmp_path) == {PLACE: head}
        seen = await files.find(PLACE)
        self.known.clear()
        assert not await files.swap(PLACE, seen, Head()), "its run is over"

    @pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]"])
    async def test_of_a_head_that_is_damaged_where_it_lies_is_said(self, files, tmp_path, data):
        """Nobody begins anew over it, though a head that is empty could be taken for none."""
        assert await files.swap(PLACE, await files.find(PLACE), Head(versions=(VERSION,)))
        path = tmp_path / "states" / "u" / "db" / "head"
        path.write_bytes(data)
        with pytest.raises(DamagedError, match=str(path)):
            await files.find(PLACE)
        assert isinstance(states.heads(tmp_path)[PLACE], DamagedError)

    async def test_the_ledger_is_the_runs(self, files):
        assert await files.ledger("u") == "the run"
        assert await files.ledger("v") is None

    async def test_chunks_are_kept_in_their_order_and_dropped(self, files, tmp_path):
        await files.keep(PLACE, None, "b", [b"1", b"2", b"3"])
        await files.keep(PLACE, None, "c", [b"4"])
        assert await files.chunks(PLACE, VERSION) == [b"1", b"2", b"3"]
        (tmp_path / "states" / "u" / "db" / "b.1").unlink()
        assert await files.chunks(PLACE, VERSION) == [b"1", b"3"], "those that are there"
        await files.drop(PLACE, "b", 3)
        assert [each.name for each in (tmp_path / "states" / "u" / "db").iterdir()] == ["c.0"]

    @pytest.mark.parametrize(("room", "fits"), [(64 << 20, True), ((64 << 20) - 1, False)])
    async def test_the_disk_is_not_filled(self, files, monkeypatch, room, fits):
        disk = SimpleNamespace(f_bavail=room + 5, f_frsize=1)
        monkeypatch.setattr(states.os, "statvfs", lambda _home: disk)
        if fits:
            await files.keep(PLACE, None, "b", [b"12", b"345"])
        else:
            with pytest.raises(FullError, match="would leave less than 64 MiB"):
                await files.keep(PLACE, None, "b", [b"12", b"345"])
        assert len(await files.chunks(PLACE, VERSION)) == 2 * fits

    async def test_of_what_the_disk_refuses_in_the_middle_nothing_is_left(self, files, tmp_path, monkeypatch):
        """As where its owner has a quota, which `statvfs` does not tell: a Terraform that asks again would fill it."""
        write, written = states.make, []

        def refuse(path, data):
            written.append(path)
            write(path, data[:1])
            if len(written) == 2:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)

        await files.keep(PLACE, None, "c", [b"4"])
        monkeypatch.setattr(states, "make", refuse)
        with pytest.raises(OSError, match="quota"):
            await StateService(states.keys(tmp_path), files, now_ms)._keep(PLACE, None, "b", [b"11", b"22", b"33"])
        assert len(written) == 2
        assert [each.name for each in (tmp_path / "states" / "u" / "db").iterdir()] == ["c.0"]

    @pytest.mark.parametrize(("phase", "left"), [(Phase.CLEANED, 0), (Phase.ABANDONED, 1)])
    async def test_with_a_run_that_was_cleaned_up_they_go(self, files, tmp_path, phase, left):
        await files.swap(PLACE, Found(Head()), Head())
        for _ in range(2):
            files.clear(SimpleNamespace(uid="u", phase=phase))
            assert len(states.heads(tmp_path)) == left

    async def test_what_was_broken_off_is_written_anew(self, files, tmp_path):
        folder = tmp_path / "states" / "u" / "db"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "head.tmp").write_bytes(b"half")
        assert await files.swap(PLACE, Found(Head()), Head(sandbox="s"))
        assert [each.name for each in folder.iterdir()] == ["head"]
        assert (await files.find(PLACE)).head.sandbox == "s"

    async def test_it_is_on_the_disk_before_it_has_its_name_and_nobody_else_reads_it(
        self, files, tmp_path, monkeypatch
    ):
        folder, synced = tmp_path / "states" / "u" / "db", []

        def opened(descriptor):
            return Path(f"/proc/self/fd/{descriptor}")

        def fsync(descriptor):
            path = opened(descriptor).readlink()
            synced.append((path.name, descriptor, (folder / "head").exists()))

        monkeypatch.setattr(states.os, "fsync", fsync)
        assert await files.swap(PLACE, Found(Head()), Head())
        assert [(name, there) for name, _, there in synced] == [("head.tmp", False), ("db", True)]
        assert not any(opened(descriptor).exists() for _, descriptor, _ in synced)
        assert [each.stat().st_mode & 0o777 for each in (folder.parent, folder, folder / "head")] == [
            0o700,
            0o700,
            0o600,
        ]
