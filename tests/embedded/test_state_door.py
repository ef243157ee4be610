"""Where states are kept and served, each rule alone: without a server, a step or a ledger."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.embedded import state_door, states
from dayfly.embedded.clock import now_ms
from dayfly.embedded.state_door import BODIES_AT_ONCE, BODY_S, StateDoor
from dayfly.embedded.states import StateFiles
from dayfly.execute.state import access
from dayfly.execute.state.head import Answer, DamagedError, Head, Holder, Version
from dayfly.execute.state.seal import MAX_BODY, digest
from dayfly.execute.state.service import MAX_LOCK, Found, FullError, Place
from dayfly.execute.state.service import Service as StateService
from dayfly.spec.run import Phase, Run, State, UnitRecord
from dayfly.spec.wire import RunDamagedError
from embedded import documents as doc
from embedded.machine import until
from kube.fake import run
from ports import free_port

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


@contextlib.asynccontextmanager
async def serving(service, home):
    """The application through which this service answers."""
    apps: asyncio.Queue = asyncio.Queue()

    async def serve(app, sockets, *, stop):
        await apps.put(app)
        await stop.wait()
        sockets[0].close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state_door, "Service", lambda *_: service)
        door = StateDoor(home, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        yield await apps.get()
        await door.close()


async def ask(app, method="GET", body=b"", query=b"", parts=()):
    """Status, headers and body; the request's body is sent in these parts first."""
    sent = []
    scope = {"type": "http", "path": "/u/db", "method": method, "query_string": query}
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    await app({**scope, "headers": [(b"authorization", b"Basic eA==")]}, receive, send)
    start, rest = sent
    assert (start["type"], rest["type"]) == ("http.response.start", "http.response.body")
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(rest["body"])
    return start["status"], dict(start["headers"])[b"content-type"], rest["body"]


class TestApp:
    @pytest.fixture
    async def service(self):
        return Service()

    @pytest.fixture
    async def app(self, service, tmp_path):
        async with serving(service, tmp_path) as found:
            yield found

    async def test_answer_of_the_service_is_sent(self, service, app):
        assert await ask(app, "POST", b"state", b"a=b&ID=l%201") == (200, b"application/json", b"{}")
        assert service.asked == [(WHO, "POST", "l 1", b"state")]
        service.answer = Answer(404, b"none\n")
        assert await ask(app) == (404, b"text/plain; charset=utf-8", b"none\n")
        assert service.asked[-1] == (WHO, "GET", "", b"")

    async def test_body_of_a_refused_request_is_not_read(self, service, app):
        service.refusal = Answer(403, b"no\n")
        assert (await ask(app, "POST", b"x" * (MAX_BODY + 1)))[::2] == (403, b"no\n")
        assert service.asked == []

    @pytest.mark.parametrize(
        ("method", "most"), [("POST", MAX_BODY), ("PUT", MAX_BODY), ("LOCK", MAX_LOCK), ("DELETE", MAX_LOCK)]
    )
    async def test_a_body_has_its_bound(self, service, app, method, most):
        body = b"x" * most
        for parts, rest in (((), body), ((body[:-2], b"x"), b"x")):
            assert (await ask(app, method, rest, parts=parts))[0] == 200
            assert (await ask(app, method, rest + b"x", parts=parts))[0] == 413
        assert [asked[3] for asked in service.asked] == [body, body]

    async def test_disk_error_is_answered_with_503(self, service, app):
        service.answer = OSError(28, "No space left on device")
        status, kind, body = await ask(app)
        assert (status, kind) == (503, b"text/plain; charset=utf-8")
        assert body == b"it cannot be read or written now: No space left on device\n"

    async def test_unreadable_run_is_answered_with_503_and_its_name(self, service, app):
        said = "the record of run u cannot be read"
        service.answer = RunDamagedError(said)
        assert await ask(app) == (503, b"text/plain; charset=utf-8", f"{said}\n".encode())

    async def test_lifespan_event_is_not_answered(self, app):
        await app({"type": "lifespan"}, None, None)

    async def test_few_bodies_are_in_memory_at_once(self, service, app):
        go, begun = asyncio.Event(), []

        async def handle(*asked):
            begun.append(asked)
            await go.wait()
            return Answer(200)

        service.handle = handle
        asking = [asyncio.create_task(ask(app)) for _ in range(BODIES_AT_ONCE + 2)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(begun) == BODIES_AT_ONCE
        go.set()
        await asyncio.gather(*asking)
        assert len(begun) == len(asking)

    def test_stalled_bodies_block_no_other_state_for_long(self, tmp_path):
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
            async with serving(Service(), tmp_path) as app:
                asking = [asyncio.create_task(stuck(app)) for _ in range(BODIES_AT_ONCE)]
                await asyncio.sleep(1)
                async with asyncio.timeout(3600):
                    assert (await ask(app))[0] == 200
                assert asyncio.get_running_loop().time() == BODY_S
                assert await asyncio.gather(*asking) == [503] * BODIES_AT_ONCE

        run(main())


class TestPort:
    """At which running steps look for their states."""

    @pytest.fixture
    def ports(self):
        return []

    @pytest.fixture
    def opened(self, ports, tmp_path):
        async def serve(_app, sockets, *, stop):
            port = sockets[0].getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                sockets[0].accept()[0].close()  # whoever closes first has the closing connection
            sockets[0].close()
            ports.append(port)
            await stop.wait()

        async def open_and_close():
            door, before = StateDoor(tmp_path, SimpleNamespace(uids=list), serve), len(ports)
            door.variables(WHO)
            await until(lambda: len(ports) > before)
            await door.close()

        return open_and_close

    async def test_next_server_has_the_port_though_connections_close(self, opened, ports):
        for _ in range(2):
            await opened()
        assert ports[0] == ports[1]

    async def test_port_in_use_by_another_program_is_replaced(self, opened, ports):
        await opened()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", ports[0]))
            other.listen()
            await opened()
        assert ports[1] not in (0, ports[0])

    async def test_without_any_port_the_step_is_refused(self, opened, monkeypatch):
        monkeypatch.setattr(state_door, "HOST", "203.0.113.1")
        with pytest.raises(OSError, match="Cannot assign"):
            await opened()


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

    async def test_port_is_opened_once_and_recorded(self, door, tmp_path):
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
        port = free_port()
        (tmp_path / "states").mkdir()
        (tmp_path / "states" / "port").write_text(str(port) if noted == "free" else noted)
        self.runs = runs
        door.resume()
        assert await self.begun() == opened
        assert not opened or self.served[0][1] == [port]

    async def test_unreadable_port_file_does_not_block_the_server(self, door, tmp_path, caplog):
        (tmp_path / "states" / "port").mkdir(parents=True)
        door.resume()
        assert "states cannot be served: [Errno 21] Is a directory" in caplog.text
        assert await self.begun() == 0

    async def test_close_works_after_a_failure_to_serve(self, tmp_path):
        async def serve(_app, sockets, *, stop):
            sockets[0].close()
            raise OSError("no")

        door = StateDoor(tmp_path, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        await door.close()

    @pytest.mark.parametrize("fault", [OSError("no"), None])
    async def test_port_is_reopened_when_serving_ends(self, tmp_path, monkeypatch, caplog, fault):
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

    async def test_failure_to_reopen_the_port_is_logged(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(state_door, "AGAIN_S", 0.001)

        async def serve(_app, _sockets, *, stop):
            raise OSError("no")

        door = StateDoor(tmp_path, SimpleNamespace(uids=list), serve)
        door.variables(WHO)
        monkeypatch.setattr(state_door, "HOST", "203.0.113.1")
        await until(lambda: caplog.text.count("Cannot assign") > 1)
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
    async def test_damaged_head_is_reported_with_its_path(self, files, tmp_path, data):
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

    async def test_refused_write_leaves_no_chunks(self, files, tmp_path, monkeypatch):
        """As where its owner has a quota, which `statvfs` does not tell: a Terraform that asks again would fill it."""
        write, written = states.make, []

        def refuse(path, data):
            written.append(path)
            write(path, data[:1])
            if len(written) == 2:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)

        await files.keep(PLACE, None, "c", [b"4"])
        monkeypatch.setattr(states, "make", refuse)
        body = json.dumps({"version": 4, "serial": 1, "lineage": "l", "x": os.urandom(1 << 20).hex()}).encode()
        units = {"db/make": UnitRecord(attempt=1, state=State.CLAIMED)}
        self.known["u"] = SimpleNamespace(run=Run(uid="u", target=doc.TARGET, plan="", units=units))
        with pytest.raises(OSError, match="quota"):
            await StateService(states.keys(tmp_path), files, now_ms).handle(WHO, "POST", "", body)
        assert len(written) == 2
        assert [each.name for each in (tmp_path / "states" / "u" / "db").iterdir()] == ["c.0"]

    @pytest.mark.parametrize(("phase", "left"), [(Phase.CLEANED, 0), (Phase.ABANDONED, 1)])
    async def test_with_a_run_that_was_cleaned_up_they_go(self, files, tmp_path, phase, left):
        await files.swap(PLACE, Found(Head()), Head())
        for _ in range(2):
            files.clear(SimpleNamespace(uid="u", phase=phase))
            assert len(states.heads(tmp_path)) == left

    async def test_interrupted_write_of_a_head_is_replaced(self, files, tmp_path):
        folder = tmp_path / "states" / "u" / "db"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "head.tmp").write_bytes(b"half")
        assert await files.swap(PLACE, Found(Head()), Head(sandbox="s"))
        assert [each.name for each in folder.iterdir()] == ["head"]
        assert (await files.find(PLACE)).head.sandbox == "s"

    async def test_head_is_private_and_synced_before_its_rename(self, files, tmp_path, monkeypatch):
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
