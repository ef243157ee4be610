"""The rules of storing and serving states, without a host, steps or a ledger."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.ports import free_port

from dayfly.embedded import state_server, states
from dayfly.embedded.state_server import StateServer
from dayfly.embedded.states import StateFiles
from dayfly.execute.state import access
from dayfly.execute.state.head import DamagedError, Head, LockHolder, Version
from dayfly.execute.state.seal import digest
from dayfly.execute.state.service import FullError, StateOwner, StateService, StoredHead
from dayfly.lib.clock import now_ms
from dayfly.spec.run import Phase, Run, State, UnitRecord

PLACE = StateOwner("u", "db")
WHO = access.state_caller("u", "db", "db/make", 1)
VERSION = Version(number=1, at=1, holder=LockHolder(unit="db/make", attempt=1), size=1, digest="d", blob="b", chunks=3)


class TestPort:
    """Return a free port, as running steps expect it."""

    @pytest.fixture
    def ports(self):
        return []

    @pytest.fixture
    def opened(self, ports, tmp_path):
        async def serve(_app, sockets, *, stop):
            port = sockets[0].getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                sockets[0].accept()[0].close()  # the side that closes first keeps the closing connection
            sockets[0].close()
            ports.append(port)
            await stop.wait()

        async def open_and_close():
            door, before = StateServer(tmp_path, SimpleNamespace(live_uids=list), serve), len(ports)
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

    async def test_step_is_refused_without_a_free_port(self, opened, monkeypatch):
        monkeypatch.setattr(state_server, "HOST", "203.0.113.1")
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
            return StateServer(tmp_path, SimpleNamespace(live_uids=lambda: self.runs), serve)

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
        assert told["TF_HTTP_PASSWORD"] == access.derive_password(states.keys(tmp_path), WHO)
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
        assert "cannot serve states: [Errno 21] Is a directory" in caplog.text
        assert await self.begun() == 0

    async def test_close_works_after_a_failure_to_serve(self, tmp_path):
        async def serve(_app, sockets, *, stop):
            sockets[0].close()
            raise OSError("no")

        door = StateServer(tmp_path, SimpleNamespace(live_uids=list), serve)
        door.variables(WHO)
        await door.close()

    @pytest.mark.parametrize("fault", [OSError("no"), None])
    async def test_port_is_reopened_when_serving_ends(self, tmp_path, monkeypatch, caplog, fault):
        """Terraform retries the same address."""
        monkeypatch.setattr(state_server, "RETRY_AFTER_S", 0.001)
        served = []

        async def serve(_app, sockets, *, stop):
            served.append(sockets[0].getsockname()[1])
            if len(served) < 3:
                if fault:
                    raise fault
                return
            await stop.wait()

        door = StateServer(tmp_path, SimpleNamespace(live_uids=list), serve)
        door.variables(WHO)
        await until(lambda: len(served) == 3)
        assert len(set(served)) == 1
        assert caplog.text.count("states are not served for") == 2
        await door.close()
        assert len(served) == 3

    async def test_failure_to_reopen_the_port_is_logged(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(state_server, "RETRY_AFTER_S", 0.001)

        async def serve(_app, _sockets, *, stop):
            raise OSError("no")

        door = StateServer(tmp_path, SimpleNamespace(live_uids=list), serve)
        door.variables(WHO)
        monkeypatch.setattr(state_server, "HOST", "203.0.113.1")
        await until(lambda: caplog.text.count("Cannot assign") > 1)
        await door.close()

    async def test_damaged_key_serves_no_state(self, door, tmp_path, caplog):
        (tmp_path / "states").mkdir()
        (tmp_path / "states" / "key").write_bytes(b"short")
        (tmp_path / "states" / "port").write_text("9")
        door.resume()
        assert "cannot serve states: the key for states has 5 bytes" in caplog.text
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
        assert await files.find(PLACE) == StoredHead(Head())
        head = Head(sandbox="s", versions=(VERSION,))
        assert await files.swap(PLACE, await files.find(PLACE), head)
        assert not await files.swap(PLACE, StoredHead(Head()), Head(sandbox="t")), "the head has changed since"
        assert await files.find(PLACE) == StoredHead(head, digest(msgspec.json.encode(head)))
        assert states.heads(tmp_path) == {PLACE: head}
        seen = await files.find(PLACE)
        self.known.clear()
        assert not await files.swap(PLACE, seen, Head()), "the run has ended"

    @pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]"])
    async def test_damaged_head_is_reported_with_its_path(self, files, tmp_path, data):
        """Terraform must not start from scratch, though an empty head could count as none."""
        assert await files.swap(PLACE, await files.find(PLACE), Head(versions=(VERSION,)))
        path = tmp_path / "states" / "u" / "db" / "head"
        path.write_bytes(data)
        with pytest.raises(DamagedError, match=str(path)):
            await files.find(PLACE)
        assert isinstance(states.heads(tmp_path)[PLACE], DamagedError)

    async def test_the_ledger_is_the_runs(self, files):
        assert await files.read_ledger("u") == "the run"
        assert await files.read_ledger("v") is None

    async def test_chunks_are_kept_in_their_order_and_dropped(self, files, tmp_path):
        await files.write_chunks(PLACE, None, "b", [b"1", b"2", b"3"])
        await files.write_chunks(PLACE, None, "c", [b"4"])
        assert await files.read_chunks(PLACE, VERSION) == [b"1", b"2", b"3"]
        (tmp_path / "states" / "u" / "db" / "b.1").unlink()
        assert await files.read_chunks(PLACE, VERSION) == [b"1", b"3"], "the existing ones"
        await files.delete_chunks(PLACE, "b", 3)
        assert [each.name for each in (tmp_path / "states" / "u" / "db").iterdir()] == ["c.0"]

    @pytest.mark.parametrize(("room", "fits"), [(64 << 20, True), ((64 << 20) - 1, False)])
    async def test_the_disk_is_not_filled(self, files, monkeypatch, room, fits):
        disk = SimpleNamespace(f_bavail=room + 5, f_frsize=1)
        monkeypatch.setattr(states.os, "statvfs", lambda _home: disk)
        if fits:
            await files.write_chunks(PLACE, None, "b", [b"12", b"345"])
        else:
            with pytest.raises(FullError, match="would leave less than 64 MiB"):
                await files.write_chunks(PLACE, None, "b", [b"12", b"345"])
        assert len(await files.read_chunks(PLACE, VERSION)) == 2 * fits

    async def test_refused_write_leaves_no_chunks(self, files, tmp_path, monkeypatch):
        """As with a disk quota, which `statvfs` does not show: the retries of Terraform would fill it."""
        write, written = states.create_file, []

        def refuse(path, data):
            written.append(path)
            write(path, data[:1])
            if len(written) == 2:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)

        await files.write_chunks(PLACE, None, "c", [b"4"])
        monkeypatch.setattr(states, "create_file", refuse)
        body = json.dumps({"version": 4, "serial": 1, "lineage": "l", "x": os.urandom(1 << 20).hex()}).encode()
        units = {"db/make": UnitRecord(attempt=1, state=State.CLAIMED)}
        self.known["u"] = SimpleNamespace(run=Run(uid="u", target=doc.TARGET, plan="", units=units))
        with pytest.raises(OSError, match="quota"):
            await StateService(states.keys(tmp_path), files, now_ms).handle(WHO, "POST", "", body)
        assert len(written) == 2
        assert [each.name for each in (tmp_path / "states" / "u" / "db").iterdir()] == ["c.0"]

    @pytest.mark.parametrize(("phase", "left"), [(Phase.CLEANED, 0), (Phase.ABANDONED, 1)])
    async def test_states_of_a_cleaned_run_are_removed(self, files, tmp_path, phase, left):
        await files.swap(PLACE, StoredHead(Head()), Head())
        for _ in range(2):
            files.clear(SimpleNamespace(uid="u", phase=phase))
            assert len(states.heads(tmp_path)) == left

    async def test_interrupted_write_of_a_head_is_replaced(self, files, tmp_path):
        folder = tmp_path / "states" / "u" / "db"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "head.tmp").write_bytes(b"half")
        assert await files.swap(PLACE, StoredHead(Head()), Head(sandbox="s"))
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
        assert await files.swap(PLACE, StoredHead(Head()), Head())
        assert [(name, there) for name, _, there in synced] == [("head.tmp", False), ("db", True)]
        assert not any(opened(descriptor).exists() for _, descriptor, _ in synced)
        assert [each.stat().st_mode & 0o777 for each in (folder.parent, folder, folder / "head")] == [
            0o700,
            0o700,
            0o600,
        ]
