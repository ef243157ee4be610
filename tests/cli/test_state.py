"""`dayfly state`: what is kept in a home is listed and written out, whether a server runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from cli.command import refused
from dayfly.cli import abandon, hosts
from dayfly.cli.client import Address, Client
from dayfly.embedded import states
from dayfly.execute.state import seal
from dayfly.execute.state.head import Head, Holder, Version
from dayfly.execute.state.service import Place

if TYPE_CHECKING:
    from cli.command import Cli

NEW, OLD = Place("new", "stack"), Place("old", "stack")


@pytest.fixture
def home(cli: Cli) -> Cli:
    """One in which two sandboxes of a name have left states; the last version of the newer one was deleted."""
    cli.home.mkdir(mode=0o700)
    keys = states.keys(cli.home)
    for place, at, texts in ((OLD, 1_000, [b"older"]), (NEW, 5_000, [b"first", b"second", b""])):
        versions = []
        for number, text in enumerate(texts, 1):
            chunks = seal.seal(keys, (*place, f"b{number}"), text) if text else []
            for index, chunk in enumerate(chunks):
                states._put(states._chunk(cli.home, place, f"b{number}", index), chunk)
            versions.append(
                Version(
                    number=number,
                    at=at + number,
                    holder=Holder(unit="stack/apply", attempt=1),
                    size=len(text),
                    digest=seal.digest(text),
                    blob=f"b{number}" if text else "",
                    chunks=len(chunks),
                    key=keys.name,
                )
            )
        head = Head(sandbox="box", namespace="", resource="stack", versions=tuple(versions))
        states._put(states.folder(cli.home) / place.run / place.resource / "head", msgspec.json.encode(head))
    return cli


def test_all_versions_are_listed(home: Cli):
    done = home("state", "list")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["SANDBOX", "RESOURCE", "VERSION", "WRITTEN", "BY", "BYTES"]
    assert [(row[2], row[-1]) for row in rows[1:]] == [("1", "5"), ("2", "6"), ("3", "deleted"), ("1", "5")]
    assert home("state", "list", "box").out == done.out
    refused(home("state", "list", "other"), 3, "no state is kept for other")


def test_the_newest_sandbox_of_a_name_is_shown(home: Cli):
    refused(home("state", "show", "box", "stack"), 3, "the state of box/stack has no content")
    assert home("state", "show", "box", "stack", "--version", "2").out == "second"
    refused(home("state", "show", "box", "stack", "--version", "3"), 3, "the state of box/stack has no version 3")
    refused(home("state", "show", "box", "other"), 3, "no state of box/other is kept; see: dayfly state list")


def test_a_head_that_is_damaged_is_said_and_hides_no_other(home: Cli):
    path = states.folder(home.home) / NEW.run / NEW.resource / "head"
    path.write_bytes(path.read_bytes()[:40])
    said = f"the head of a state is not what was written ({path})"
    done = home("state", "list")
    assert [line.split()[2] for line in done.out.splitlines()] == ["VERSION", "1"]
    assert done.code == 1
    assert said in done.err
    assert home("state", "show", "box", "stack").out == "older"
    unknown = home("state", "show", "box", "other")
    assert (unknown.code, unknown.out) == (1, "")
    assert said in unknown.err


def test_what_was_altered_or_has_lost_its_key_is_said(home: Cli):
    path = states._chunk(home.home, NEW, "b1", 0)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    refused(
        home("state", "show", "box", "stack", "--version", "1"), 1, "version 1 of the state of stack is not what was"
    )
    path.unlink()
    refused(
        home("state", "show", "box", "stack", "--version", "1"), 1, "version 1 of the state of stack is not what was"
    )
    (states.folder(home.home) / "key").write_bytes(b"x" * 32)
    refused(home("state", "show", "box", "stack", "--version", "2"), 1, "was written with the key")
    (states.folder(home.home) / "key").unlink()
    refused(home("state", "show", "box", "stack", "--version", "2"), 1, "the key of the states cannot be read")


def test_a_home_without_states_has_none(cli: Cli):
    refused(cli("state", "list"), 3, "no state is kept")
    assert not cli.home.exists()


def test_a_namespace_and_a_server_have_none_of_this_homes(home: Cli):
    refused(home("state", "list", "-n", "shop"), 2, "a namespace is part of a cluster", "--context NAME")
    refused(home("state", "list", "--server", "work"), 2, "in the server's clusters", "--context NAME")


def test_who_abandons_is_told_of_what_is_kept(home: Cli, monkeypatch):
    monkeypatch.setenv("DAYFLY_HOME", str(home.home))
    served = hosts.Served(Client(Address("http://localhost:1", "a key")))  # nobody asks the server
    assert abandon._states(served, "box", None) == ["stack"]
    assert abandon._states(served, "other", None) == []
    home.home.chmod(0o777)
    assert abandon._states(served, "box", None) == [], "it is not looked at, and nothing is said"
    home.home.chmod(0o700)
