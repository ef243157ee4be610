"""The servers of `dayfly login`, with several processes of one home."""

from __future__ import annotations

import fcntl
import threading

import pytest

from dayfly.client import address, servers
from dayfly.client.home import Home


def test_two_logins_at_once_are_both_kept(tmp_path, monkeypatch):
    home = Home.of(tmp_path / "home")
    read, lock = Home.read, fcntl.flock
    as_far_as_it_gets = threading.Event()

    def put_another():
        servers.put(home, "b", servers.Server("https://b.example", "local", "k"))
        as_far_as_it_gets.set()

    other = threading.Thread(target=put_another)

    def read_and_let_another_in(home, path):
        found = read(home, path)
        if threading.current_thread() is not other:
            other.start()
            as_far_as_it_gets.wait(20)
        return found

    def lock_after_all(*how):
        if threading.current_thread() is other:
            as_far_as_it_gets.set()
        lock(*how)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Home, "read", read_and_let_another_in)
        meanwhile.setattr(fcntl, "flock", lock_after_all)
        servers.put(home, "a", servers.Server("https://a.example", "local", "k"))
        other.join(20)
    assert servers.names(home) == ["a", "b"]
    assert sorted(each.name for each in home.path.iterdir()) == ["servers"]
    assert home.servers.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://dayfly.example", ""),
        ("http://127.0.0.1.example:8000", ""),
        ("http://[::1", ""),
        ("http://127.0.0.1:9", "homes"),
        ("http://[::1]:9", "homes"),
        ("http://box.example:8000/", "homes"),
        ("", "homes"),
    ],
    ids=["elsewhere", "like loopback", "no address", "loopback", "loopback by IPv6", "the home's own", "none"],
)
def test_the_key_of_a_home_goes_to_no_server_elsewhere(tmp_path, monkeypatch, url, key):
    """A server that only the environment names is not the home's own."""
    home = Home.of(tmp_path / "home")
    home.make()
    home.url.write_text("http://box.example:8000\n")
    home.key.write_text("homes\n")
    home.key.chmod(0o600)
    monkeypatch.setenv("DAYFLY_URL", url)
    monkeypatch.delenv("DAYFLY_API_KEY", raising=False)
    assert address.find(home).key == key
    monkeypatch.setenv("DAYFLY_API_KEY", "given")
    assert address.find(home).key == "given"
