"""The servers that somebody has logged in to, as several processes of one home keep them."""

from __future__ import annotations

import fcntl
import threading

from dayfly.client import servers
from dayfly.client.home import Home


def test_two_logins_at_once_are_both_kept(tmp_path, monkeypatch):
    home = Home.of(tmp_path / "home")
    read, lock = servers._read, fcntl.flock
    as_far_as_it_gets = threading.Event()

    def put_another():
        servers.put(home, "b", servers.Server("https://b.example", "local", "k"))
        as_far_as_it_gets.set()

    other = threading.Thread(target=put_another)

    def read_and_let_another_in(home):
        found = read(home)
        if threading.current_thread() is not other:
            other.start()
            as_far_as_it_gets.wait(20)
        return found

    def lock_after_all(*how):
        if threading.current_thread() is other:
            as_far_as_it_gets.set()
        lock(*how)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(servers, "_read", read_and_let_another_in)
        meanwhile.setattr(fcntl, "flock", lock_after_all)
        servers.put(home, "a", servers.Server("https://a.example", "local", "k"))
        other.join(20)
    assert servers.names(home) == ["a", "b"]
    assert sorted(each.name for each in home.path.iterdir()) == ["servers"]
    assert home.servers.stat().st_mode & 0o777 == 0o600
