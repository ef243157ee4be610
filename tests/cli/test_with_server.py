"""`dayfly with --server NAME` uses the named server and does not touch the home's server."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until
from tests.cli.fake_server import Fake, serving
from tests.cli.with_command import FakeServer, fake_home, run_with

from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.commands import with_command
from dayfly.client import servers
from dayfly.client.address import Address
from dayfly.client.home import Home

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fake_home"]


@pytest.fixture
def guest(served: Cli, tmp_path: Path) -> Cli:
    """Another home, in which `--server there` is the server of `served`."""
    home = Home(tmp_path / "guest")
    key, url = ((served.home / name).read_text().strip() for name in ("key", "url"))
    servers.put(home, "there", servers.Server(url, "local", key))
    return served._replace(home=home.path)


def test_with_server_creates_and_deletes_at_that_server(served: Cli, guest: Cli, journal: Path):
    plugin = served.write("p.yaml", sample_specs.plugin(journal))
    call = ("with", "--server", "there", "--cluster", "local", "-f", plugin, "--", "sh", "-c")
    done = guest(*call, 'echo "$NOTES_PROVISION_PATH"; exit 7')
    assert (done.code, done.out[:17]) == (7, "/data/with-notes-"), done.err
    assert journal.read_text().split() == ["provision", "seed", "drop"]
    assert served.sandboxes() == []
    assert not (guest.home / "url").exists(), "no server is started here"


def test_kept_sandbox_is_named_with_its_server(served: Cli, guest: Cli, journal: Path):
    plugin = served.write("p.yaml", sample_specs.plugin(journal))
    kept = guest("with", "--server", "there", "-f", plugin, "--keep", "--", "sh", "-c", "exit 3")
    [name] = served.sandboxes()
    assert kept.code == 3
    assert f"dayfly get sandbox {name} --server there; delete it with: dayfly sandbox delete {name} --server there" in (
        kept.err
    )
    assert guest("sandbox", "delete", name, "--server", "there").code == 0
    failing = served.write("f.yaml", sample_specs.plugin(journal, create="exit 9"))
    failed = guest("with", "--server", "there", "-f", failing, "--", "true")
    assert failed.code == 1
    assert "notes provision --server there" in failed.err


def test_when_it_is_killed_the_lease_there_ends_it(served: Cli, guest: Cli, journal: Path):
    """The first request has a short lease, for a killed command; `test_lease` tests its renewal."""
    plugin = served.write("p.yaml", sample_specs.plugin(journal))
    process = guest.start("with", "--server", "there", "-f", plugin, "--", "sleep", "60")
    until(lambda: journal.exists() and journal.read_text().split() == ["provision", "seed"])
    os.kill(process.pid, signal.SIGKILL)
    [name] = served.sandboxes()
    client = ServerClient(Address(*((served.home / each).read_text().strip() for each in ("url", "key"))))
    client.put("sandboxes", name, "lease", body={"seconds": 1})  # in place of the 30 that are left
    client.close()
    until(lambda: not served.sandboxes())
    assert journal.read_text().split() == ["provision", "seed", "drop"]


def test_lease_stays_at_the_named_server(fake_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A thread has no command line, so a search for the server from there would find the home's."""
    monkeypatch.setattr(with_command, "RENEW_INTERVAL_S", 0.02)
    ours, there, done = FakeServer(), FakeServer(), tmp_path / "done"
    there.drops_leases = True

    def recover() -> None:
        until(lambda: there.count("PUT", "/lease") > 2)
        there.drops_leases = False
        before = there.count("PUT", "/lease")
        until(lambda: there.count("PUT", "/lease") > before + 1)
        done.touch()

    with serving(ours) as here, serving(there) as url:
        fake_home.url.write_text(here)
        servers.put(fake_home, "there", servers.Server(url, "local", "key"))
        recovering = threading.Thread(target=recover)
        recovering.start()
        assert run_with(tmp_path, "--server", "there", "--", "sh", "-c", sample_specs.waiting(done)) == 0
        recovering.join()
    assert (ours.asked, there.deleted) == ([], True)


@pytest.mark.parametrize(
    ("clusters", "named", "chosen"),
    [
        ([], None, "local"),
        (["east"], None, "east"),
        (["east", "local"], None, "local"),
        (["east", "west"], "west", "west"),
    ],
)
def test_with_server_selects_cluster(fake_home: Home, tmp_path: Path, clusters, named, chosen):
    fake = FakeServer()
    fake.say("GET", "clusters", [{"name": each} for each in clusters])
    with serving(fake) as url:
        servers.put(fake_home, "there", servers.Server(url, "local", "key"))
        options = ["--cluster", named] if named else []
        assert run_with(tmp_path, "--server", "there", *options, "--", "true") == 0
    assert fake.applied()["spec"]["cluster"] == chosen


def test_one_of_several_is_to_be_named(guest: Cli, tmp_path: Path, journal: Path):
    plugin = guest.write("p.yaml", sample_specs.plugin(journal))
    fake = Fake()
    fake.say("GET", "clusters", [{"name": "east"}, {"name": "west"}])
    with serving(fake) as url:
        servers.put(Home(guest.home), "two", servers.Server(url, "local", "key"))
        done = guest("with", "--server", "two", "-f", plugin, "--", "true")
    refused(done, 2, "has the clusters east, west", "add --cluster NAME")
    assert {method for method, *_ in fake.asked} == {"GET"}, "nothing is applied"
    guest.write("s.yaml", json.dumps({"name": "a", "spec": {"cluster": "east"}}))
    refused(guest("with", "--server", "two", "--cluster", "e", "-f", "s.yaml", "--", "true"), 2, "remove --cluster")
