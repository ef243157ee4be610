"""What is done around the proxy without one: who holds its lock, which ports are free, its last words, its patience."""

import fcntl
import os
import socket
import subprocess
from types import SimpleNamespace

import pytest

from dayfly.embedded import envoy
from dayfly.embedded.envoy import Envoy, TroubleError
from dayfly.embedded.envoy_process import holder, unbindable


@pytest.fixture
def proxy(tmp_path):
    (tmp_path / "routing").mkdir()
    return Envoy("/no/envoy", tmp_path)


class TestHolder:
    def test_it_is_the_process_that_has_the_file_open(self, tmp_path):
        lock = tmp_path / "lock"
        held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(["sleep", "60"], pass_fds=(held,)) as child:
            os.close(held)
            assert holder(str(lock)) == child.pid
            child.kill()
        assert holder(str(lock)) == 0, "it is there, and nobody holds it"

    def test_of_one_that_is_not_there_nobody_is(self, tmp_path):
        assert holder(str(tmp_path / "lock")) == 0


def test_a_port_that_somebody_listens_at_is_not_to_be_had():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert unbindable(port) == "address already in use"
    assert unbindable(port) == ""


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
    assert proxy.pid == 7


async def test_at_the_end_its_process_is_ended_once(proxy):
    ended = []

    async def end():
        ended.append(7)

    proxy._process = SimpleNamespace(pid=7, end=end)
    for _ in range(2):
        await proxy.close()
    assert (ended, proxy.pid) == ([7], 0)
