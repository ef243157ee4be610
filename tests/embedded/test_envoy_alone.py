"""What is done around the proxy without one: who holds its lock, which ports are free, its last words, its patience."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from dayfly.embedded import envoy, envoy_process
from dayfly.embedded.envoy import Envoy, TroubleError
from dayfly.embedded.envoy_process import holder
from dayfly.execute.process.run import opens
from dayfly.execute.route.envoy import PROBE, Lead, Way
from embedded.machine import until


@pytest.fixture
def proxy(tmp_path):
    (tmp_path / "routing").mkdir()
    return Envoy("/no/envoy", tmp_path)


@pytest.mark.parametrize(
    ("said", "last"), [(b"begins\nno such option\n", ": no such option"), (b"", ""), (b"x" * 900, ": " + "x" * 300)]
)
async def test_when_it_has_ended_its_last_words_are_told(proxy, tmp_path, said, last):
    (tmp_path / "routing" / "log").write_bytes(said)
    with pytest.raises(TroubleError) as trouble:
        await proxy._until(lambda: False, "it reads nothing")
    assert str(trouble.value) == f"Envoy has ended{last}"


class TestPatience:
    async def test_what_comes_in_time_is_waited_for(self, proxy):
        proxy._process = SimpleNamespace(pid=7)
        looks = iter([False, False, True])
        await proxy._until(lambda: next(looks), "it reads nothing")
        assert next(looks, None) is None

    async def test_it_is_looked_at_less_and_less_often(self, proxy, monkeypatch):
        proxy._process, pauses = SimpleNamespace(pid=7), []

        async def sleep(seconds):
            pauses.append(seconds)

        monkeypatch.setattr(envoy.asyncio, "sleep", sleep)
        await proxy._until(lambda: len(pauses) == 12, "it reads nothing")
        assert pauses == pytest.approx([min(0.004 * 1.5**number, 0.1) for number in range(12)])

    async def test_and_what_does_not_is_said(self, proxy, monkeypatch):
        monkeypatch.setattr(envoy, "PATIENCE_S", 0.01)
        proxy._process = SimpleNamespace(pid=7)
        with pytest.raises(TroubleError, match=r"Envoy \(process 7\): it reads nothing"):
            await proxy._until(lambda: False, "it reads nothing")


async def test_what_it_is_started_with_is_noted_for_the_next_server(proxy, tmp_path, monkeypatch):
    """Which adopts no other one."""
    monkeypatch.setattr(proxy, "_spawn", lambda: 7)
    monkeypatch.setattr(envoy, "Process", lambda pid, **_: SimpleNamespace(pid=pid))
    proxy._start()
    assert (tmp_path / "routing" / "form").read_text() == proxy._form()
    assert (tmp_path / "routing" / "token").read_text() == proxy._token
    assert len(proxy._token) == 32, "nobody guesses it"
    assert proxy.pid == 7
    folder = tmp_path / "routing"
    assert json.loads((folder / "bootstrap.json").read_text())["admin"]["address"]["pipe"]["path"] == "admin.sock"
    assert (folder / "tables").stat().st_mode & 0o777 == 0o700
    (folder / "admin.sock").touch()
    token = proxy._token
    proxy._start()
    assert not (folder / "admin.sock").exists(), "of one that was killed"
    assert proxy._token != token


async def test_at_the_end_its_process_is_ended_once(proxy):
    ended = []

    async def end():
        ended.append(7)

    proxy._process = SimpleNamespace(pid=7, end=end)
    for _ in range(2):
        await proxy.close()
    assert (ended, proxy.pid) == ([7], 0)


class Reader(Envoy):
    """Its process is none: what lies in its files is in force, unless it is `deaf`. No table in force leads nowhere."""

    def __init__(self, home: Path) -> None:
        super().__init__("/no/envoy", home)
        self.deaf = False
        self.written: list[str] = []
        self.newest = 0
        self.adopted = False  # then it does not know where former tables lead

    def resources(self, name):
        file = self._folder / name
        return json.loads(file.read_text())["resources"] if file.exists() else []

    def tables(self):
        """By the ports at which it listens."""
        found = {}
        for listener in self.resources("listeners.json"):
            [chain] = listener["filter_chains"]
            path = chain["filters"][0]["typed_config"]["rds"]["config_source"]["path_config_source"]["path"]
            [found[listener["address"]["socket_address"]["port_value"]]] = self.resources(path)
        return found

    def in_force(self):
        """By the ports at which it listens: where requests go, by their keys and without one."""
        return {
            port: [route["route"]["cluster"] for route in table["virtual_hosts"][0]["routes"][1:]]
            for port, table in self.tables().items()
        }

    def _put(self, name, data):
        super()._put(name, data)
        self.written.append(name)
        if version := int(data.get("version_info", 0)):
            assert version > self.newest
            self.newest = version
        known = {each["name"] for each in self.resources("clusters.json")}
        led_to = {cluster for leads in self.in_force().values() for cluster in leads}
        assert led_to <= known or self.adopted

    def _spawn(self):
        return 7

    def _asked(self, path):
        version = json.loads((self._folder / "clusters.json").read_text())["version_info"]
        return "" if self.deaf else f'cluster_manager.cds.version_text: "{version}"\n'

    def _probed(self, port):
        if self.deaf or port not in self.tables():
            return ""
        probe = self.tables()[port]["virtual_hosts"][0]["routes"][0]
        assert probe["match"]["headers"][0]["string_match"]["exact"] == self._token
        return probe["direct_response"]["body"]["inline_string"]


class TestFiles:
    """What it is wished for, as it reads that."""

    A, B = Way("baseline/a/b", 70, 80), Way("preview/u/x", 71, 81)
    LED = Way("baseline/a/b", 70, 80, (Lead(("key",), 90),))

    @pytest.fixture
    def reader(self, tmp_path, monkeypatch):
        found = Reader(tmp_path)
        monkeypatch.setattr(envoy, "Process", lambda pid, **_: SimpleNamespace(pid=pid, leave=list))
        monkeypatch.setattr(envoy, "is_closed", lambda port: port not in found.tables())
        monkeypatch.setattr(envoy, "unbindable", lambda port: "taken" if port in (*found.tables(), 79) else "")
        monkeypatch.setattr(envoy, "PATIENCE_S", 0.01)
        monkeypatch.setattr(envoy, "now_ms", lambda: 1_000)
        return found

    async def test_without_a_wish_it_is_not_begun(self, reader):
        assert await reader.apply([]) == {}
        assert (reader.pid, reader.written) == (0, [])

    async def test_what_is_wished_for_and_nothing_else_is_in_force(self, reader, tmp_path):
        assert await reader.apply([self.A, self.B]) == {}
        assert reader.in_force() == {70: ["127.0.0.1:80"], 71: ["127.0.0.1:81"]}
        assert await reader.apply([self.LED]) == {}
        assert list(reader.in_force()) == [70]
        assert set(reader.in_force()[70]) == {"127.0.0.1:90", "127.0.0.1:80"}
        assert [each.name for each in (tmp_path / "routing" / "tables").iterdir()] == ["baseline~a~b.json"]

    async def test_a_port_is_led_to_as_long_as_it_answers_what_has_come(self, reader):
        def known():
            return [each["name"] for each in reader.resources("clusters.json")]

        await reader.apply([self.LED])
        await reader.apply([self.A], [90])
        assert known() == ["127.0.0.1:80", "127.0.0.1:90"]
        await reader.apply([self.A])
        assert known() == ["127.0.0.1:80"]
        await reader.apply([])
        assert (known(), reader.in_force()) == ([], {})

    async def test_what_is_in_force_is_not_written_again_until_another_process_reads_it(self, reader):
        await reader.apply([self.LED, self.B])
        begun = sorted(set(reader.written) - {"bootstrap.json"})
        reader.written.clear()
        assert await reader.apply([self.LED, self.B]) == {}
        assert reader.written == []
        reader.forget()
        assert await reader.apply([self.LED, self.B]) == {}
        assert sorted(set(reader.written)) == begun
        assert reader.pid == 7, "of the same one"

    async def test_a_port_that_another_has_is_not_listened_at_and_the_others_are(self, reader):
        for _ in range(2):
            said = await reader.apply([self.A, Way("preview/u/y", 79, 82)])
            assert said == {"preview/u/y": "requests cannot be taken in on port 79 of this machine: taken"}
            assert list(reader.in_force()) == [70]

    async def test_a_port_that_two_are_to_have_is_the_firsts_and_the_others_are_in_force(self, reader):
        """Somebody may declare a baseline with a port that was chosen for an address before."""
        await reader.apply([self.B])
        for _ in range(2):
            said = await reader.apply([Way("baseline/a/c", 71, 83), self.A, self.B])
            assert said == {self.B.name: "requests cannot be taken in on port 71 of this machine: baseline/a/c has it"}
            assert reader.in_force() == {70: ["127.0.0.1:80"], 71: ["127.0.0.1:83"]}

    async def test_its_own_of_before_is_no_other(self, reader):
        await reader.apply([self.A])
        reader.forget()
        assert await reader.apply([self.A]) == {}

    async def test_what_it_does_not_take_up_is_said_and_written_again(self, reader, monkeypatch):
        await reader.apply([self.A])
        reader.deaf = True
        with pytest.raises(TroubleError, match="it reads no clusters"):
            await reader.apply([self.LED])
        monkeypatch.setattr(
            reader, "_asked", lambda _path: f'cluster_manager.cds.version_text: "{reader._clusters[1]}"'
        )
        with pytest.raises(TroubleError, match="port 70 is not served"):
            await reader.apply([self.LED])
        reader.deaf = False
        reader.written.clear()
        assert await reader.apply([self.LED]) == {}
        assert {"tables/baseline~a~b.json", "listeners.json"} <= set(reader.written)

    async def test_what_is_still_listened_at_is_said(self, reader, monkeypatch):
        await reader.apply([self.A, self.B])
        monkeypatch.setattr(envoy, "is_closed", lambda _port: False)
        with pytest.raises(TroubleError, match="port 71 is still open"):
            await reader.apply([self.A])

    async def test_behind_the_first_that_it_does_not_take_up_all_others_are_asked_for_too(self, reader, monkeypatch):
        """Each by itself: one may be served long before another."""
        served, probed = set(), reader._probed
        monkeypatch.setattr(reader, "_probed", lambda port: probed(port) if port in served else "")
        for port in (70, 71):
            with pytest.raises(TroubleError, match=f"port {port} is not served"):
                await reader.apply([self.A, self.B])
            served.add(port)
        assert await reader.apply([self.A, self.B]) == {}

    async def test_what_was_written_before_the_disk_refused_is_written_over(self, reader, monkeypatch):
        """Though what was wished for before is wished for again."""
        await reader.apply([self.A])
        write = reader._put

        def full(name, data):
            if name == "tables/preview~u~x.json":
                raise OSError(28, "no space left on device")
            write(name, data)

        monkeypatch.setattr(reader, "_put", full)
        with pytest.raises(OSError, match="no space left"):
            await reader.apply([self.LED, self.B])
        assert await reader.apply([self.A]) == {}
        assert reader.in_force() == {70: ["127.0.0.1:80"]}

    @pytest.fixture
    async def former(self, reader, monkeypatch):
        """What a former server left; and which processes are watched, ended and left alone."""
        watched = []

        class Process(SimpleNamespace):
            async def end(self):
                watched.append(("end", self.pid))

            def leave(self):
                watched.append(("leave", self.pid))

        def process(pid, *, child, ended):
            watched.append((pid, child))
            return Process(pid=pid, ended=ended)

        await reader.apply([self.A, self.LED._replace(name="preview/v/x", listens=72)])
        monkeypatch.setattr(envoy, "Process", process)
        monkeypatch.setattr(envoy, "holder", lambda lock: self.found if lock.endswith("routing/lock") else 0)
        self.found = 9
        return watched

    @pytest.mark.parametrize(("found", "same", "adopted"), [(9, 1, True), (9, 0, False), (0, 1, False), (0, 0, False)])
    async def test_one_of_a_former_server_goes_on_if_it_is_of_this_form(
        self, reader, former, tmp_path, found, same, adopted
    ):
        self.found = found
        if not same:
            (tmp_path / "routing" / "form").write_text("of another release")
        after = Reader(tmp_path)
        for _ in range(2 if adopted else 1):
            assert await after.adopt() is adopted
        assert (after.pid, after._token) == ((9, reader._token) if adopted else (0, ""))
        ended = [] if same else [("end", 9)]
        assert former == ([(9, False), *ended] if found else [])
        after.leave()
        after.leave()
        assert former[1:] == ([("leave", 9)] if adopted else ended if found else [])
        assert after.pid == 0

    async def test_one_that_is_begun_in_its_place_reads_all_anew(self, reader, former):
        self.found = 0
        reader.leave()
        assert await reader.apply([self.A]) == {}
        assert reader.in_force() == {70: ["127.0.0.1:80"]}
        assert former == [(7, True)]

    async def test_what_a_former_server_wished_for_goes(self, reader, former, tmp_path, monkeypatch):
        """Though nobody remembers it, and even if nothing is wished for any more."""
        for ways, in_force in (([self.B], {71: ["127.0.0.1:81"]}), ([], {})):
            after = Reader(tmp_path)
            after.adopted = True
            monkeypatch.setattr(envoy, "unbindable", lambda _port: "")
            assert await after.apply(ways) == {}
            assert (after.pid, after.in_force()) == (9, in_force)
            assert [each.name for each in (tmp_path / "routing" / "tables").iterdir()] == (
                ["preview~u~x.json"] if ways else []
            )
            assert len(after.resources("clusters.json")) == len(ways)

    async def test_once_it_has_ended_everything_is_asked_anew_and_that_is_told(self, reader):
        told = []
        reader.on_end = lambda: told.append(reader.pid)
        await reader.apply([self.A])
        reader._ended()
        assert told == [0]
        reader.written.clear()
        assert await reader.apply([self.A]) == {}
        assert "tables/baseline~a~b.json" in reader.written
        assert reader.pid == 7


class TestProcess:
    @pytest.fixture
    def spawned(self, tmp_path):
        program = tmp_path / "envoy"
        program.write_text('#!/bin/sh\necho "$# $HOME"\nexec sleep 60\n')
        program.chmod(0o755)
        (tmp_path / "routing").mkdir()
        proxy = Envoy(str(program), tmp_path)
        child = proxy._spawn()
        yield proxy, child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    async def test_it_has_the_lock_alone_and_is_nobodys(self, spawned, tmp_path):
        proxy, child = spawned
        lock = tmp_path / "routing" / "lock"
        assert lock.stat().st_mode & 0o777 == 0o600
        assert await until(lambda: holder(str(lock)) == child)
        assert os.getsid(child) == child, "what the terminal sends is not for it"
        assert not opens(str(os.getpid()), lock.stat())
        with pytest.raises(BlockingIOError):
            proxy._spawn()

    async def test_what_it_says_is_kept(self, spawned, tmp_path):
        log = tmp_path / "routing" / "log"
        assert await until(log.read_text) == f"{2 + len(envoy._ARGUMENTS)} \n", "and it has no environment"


class TestFind:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """The program of the package, which is there."""
        program = tmp_path / "envoy" / "_bin" / "envoy"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
        self.spec = SimpleNamespace(origin=str(tmp_path / "envoy" / "__init__.py"))
        monkeypatch.setattr(envoy.importlib.util, "find_spec", lambda _name: self.spec)
        monkeypatch.setattr(envoy.shutil, "which", lambda name: f"/bin/{name}")
        return program

    def test_that_of_the_package_comes_first(self, package):
        assert envoy.find() == str(package)

    def test_else_it_is_on_the_path_or_nowhere(self, package, monkeypatch):
        package.chmod(0o644)
        assert envoy.find() == "/bin/envoy"
        for self.spec in (SimpleNamespace(origin=None), None):
            assert envoy.find() == "/bin/envoy"
        monkeypatch.setattr(envoy.shutil, "which", lambda _name: None)
        assert envoy.find() == ""


class TestAsking:
    """What it answers at its ports and at its own socket; whoever else answers there, and whoever does not."""

    @staticmethod
    async def told(proxy, said, ask, path=""):
        """What `ask` gives of an answer with this text, and what was asked; nothing is answered where it is None."""
        asked = asyncio.get_running_loop().create_future()

        async def answer(reader, writer):
            asked.set_result(await reader.readuntil(b"\r\n\r\n"))
            if said is not None:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            else:
                await reader.read()  # until it is given up
            writer.close()

        if path:
            server = await asyncio.start_unix_server(answer, path)
        else:
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            found = await asyncio.to_thread(ask, "/stats" if path else server.sockets[0].getsockname()[1])
            return found, await asked

    @pytest.mark.parametrize(
        ("said", "version"), [(b"17", "17"), (b"not found", ""), (b"1" * 40, "1" * 32), (b"", ""), (None, "")]
    )
    async def test_a_port_tells_its_version_to_who_has_the_token(self, proxy, monkeypatch, said, version):
        monkeypatch.setattr(envoy, "ANSWER_S", 5.0 if said is not None else 0.05)
        proxy._token = "the-token"
        found, asked = await self.told(proxy, said, proxy._probed)
        assert found == version
        assert f"{PROBE}: the-token\r\n".encode() in asked
        assert b"connection: close" in asked

    async def test_where_nobody_listens_there_is_no_version(self, proxy):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            assert proxy._probed(closed.getsockname()[1]) == ""

    async def test_who_says_nothing_at_its_socket_is_given_up(self, proxy, tmp_path, monkeypatch):
        monkeypatch.setattr(envoy_process, "ANSWER_S", 0.05)
        assert (await self.told(proxy, None, proxy._asked, f"{tmp_path}/routing/admin.sock"))[0] == ""

    async def test_at_its_socket_it_tells_everything(self, proxy, tmp_path):
        assert proxy._asked("/stats") == "", "nobody is there"
        found, asked = await self.told(proxy, b"a: 1\nb: 2\n", proxy._asked, f"{tmp_path}/routing/admin.sock")
        assert found == "a: 1\nb: 2\n"
        assert asked.startswith(b"GET /stats HTTP/1.1\r\n")
