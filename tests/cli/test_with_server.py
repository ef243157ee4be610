"""`dayfly with --server NAME`: resources at a server that somebody has logged in to, and the home's left alone."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from cli import wishes
from cli.command import Cli, refused, until
from cli.fake import Fake, serving
from dayfly.cli import with_
from dayfly.cli.client import Address, Client
from dayfly.client import servers
from dayfly.client.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def guest(served: Cli, tmp_path: Path) -> Cli:
    """Somebody else's home, from which `--server there` is the server of `served`."""
    home = Home(tmp_path / "guest")
    key, url = ((served.home / name).read_text().strip() for name in ("key", "url"))
    servers.put(home, "there", servers.Server(url, "local", key))
    return served._replace(home=home.path)


def test_it_is_made_there_and_cleaned_up_there(served: Cli, guest: Cli, journal: Path):
    plugin = served.write("p.yaml", wishes.plugin(journal))
    call = ("with", "--server", "there", "--cluster", "local", "-f", plugin, "--", "sh", "-c")
    done = guest(*call, 'echo "$NOTES_PROVISION_PATH"; exit 7')
    assert (done.code, done.out[:17]) == (7, "/data/with-notes-"), done.err
    assert journal.read_text().split() == ["provision", "seed", "drop"]
    assert served.sandboxes() == []
    assert not (guest.home / "url").exists(), "no server is started here"


def test_what_is_kept_is_told_with_its_server(served: Cli, guest: Cli, journal: Path):
    plugin = served.write("p.yaml", wishes.plugin(journal))
    kept = guest("with", "--server", "there", "-f", plugin, "--keep", "--", "sh", "-c", "exit 3")
    [name] = served.sandboxes()
    assert kept.code == 3
    assert f"dayfly get sandbox {name} --server there; end it with: dayfly sandbox delete {name} --server there" in (
        kept.err
    )
    assert guest("sandbox", "delete", name, "--server", "there").code == 0
    failing = served.write("f.yaml", wishes.plugin(journal, create="exit 9"))
    failed = guest("with", "--server", "there", "-f", failing, "--", "true")
    assert failed.code == 1
    assert "notes provision --server there" in failed.err


def test_when_it_is_killed_the_lease_there_ends_it(served: Cli, guest: Cli, journal: Path):
    """A short lease at the first wish is what a killed command leaves; that it is renewed `test_lease` has."""
    plugin = served.write("p.yaml", wishes.plugin(journal))
    process = guest.start("with", "--server", "there", "-f", plugin, "--", "sleep", "60")
    until(lambda: journal.exists() and journal.read_text().split() == ["provision", "seed"])
    os.kill(process.pid, signal.SIGKILL)
    [name] = served.sandboxes()
    client = Client(Address(*((served.home / each).read_text().strip() for each in ("url", "key"))))
    client.put("sandboxes", name, "lease", body={"seconds": 1})  # in place of the 30 that are left
    client.close()
    until(lambda: not served.sandboxes())
    assert journal.read_text().split() == ["provision", "seed", "drop"]


def test_the_lease_is_not_taken_to_the_server_of_this_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A thread has no command line, so whoever asks there which server is meant finds the home's."""
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path))
    Home(tmp_path).url.write_text("http://127.0.0.1:1")
    client = Client(Address("http://127.0.0.1:2", "key", name="there"))
    looking = threading.Thread(target=with_._look_where_it_is, args=(client,))
    looking.start()
    looking.join()
    assert client.address.url == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("clusters", "named", "chosen"),
    [
        ([], None, "local"),
        (["east"], None, "east"),
        (["east", "local"], None, "local"),
        (["east", "west"], "west", "west"),
    ],
)
def test_which_cluster(clusters, named, chosen, monkeypatch):
    monkeypatch.setattr(with_, "is_elsewhere", lambda: True)
    fake = Fake()
    fake.say("GET", "clusters", [{"name": each} for each in clusters])
    with serving(fake) as url:
        client = Client(Address(url, "key"))
        assert with_._cluster(client, named) == chosen
        client.close()


def test_one_of_several_is_to_be_named(guest: Cli, tmp_path: Path, journal: Path):
    plugin = guest.write("p.yaml", wishes.plugin(journal))
    fake = Fake()
    fake.say("GET", "clusters", [{"name": "east"}, {"name": "west"}])
    with serving(fake) as url:
        servers.put(Home(guest.home), "two", servers.Server(url, "local", "key"))
        done = guest("with", "--server", "two", "-f", plugin, "--", "true")
    refused(done, 2, "has the clusters east, west", "give --cluster NAME")
    assert {method for method, *_ in fake.asked} == {"GET"}, "nothing is wished for"
    guest.write("s.yaml", json.dumps({"name": "a", "spec": {"cluster": "east"}}))
    refused(guest("with", "--server", "two", "--cluster", "e", "-f", "s.yaml", "--", "true"), 2, "leave --cluster out")
