"""`dayfly state` lists and prints the states of a home, with or without a running server."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import refused
from tests.cli.fake_server import Fake, serving

from dayfly.embedded import states
from dayfly.execute.state import seal
from dayfly.execute.state.head import Head, LockHolder, Version
from dayfly.execute.state.service import StateOwner

if TYPE_CHECKING:
    from tests.cli.command import Cli

NEW, OLD = StateOwner("new", "stack"), StateOwner("old", "stack")


@pytest.fixture
def home(cli: Cli) -> Cli:
    """One in which two sandboxes of a name have left states; the last version of the newer one was deleted."""
    cli.home.mkdir(mode=0o700)
    keys = states.keys(cli.home)
    store = states.StateFiles(cli.home, SimpleNamespace(load=lambda _run: True))
    for place, at, texts in ((OLD, 1_000, [b"older"]), (NEW, 5_000, [b"first", b"second", b""])):
        versions = []
        for number, text in enumerate(texts, 1):
            chunks = seal.seal(keys, (*place, f"b{number}"), text) if text else []
            asyncio.run(store.write_chunks(place, None, f"b{number}", chunks))
            versions.append(
                Version(
                    number=number,
                    at=at + number,
                    holder=LockHolder(unit="stack/apply", attempt=1),
                    size=len(text),
                    digest=seal.digest(text),
                    blob=f"b{number}" if text else "",
                    chunks=len(chunks),
                    key=keys.name,
                )
            )
        head = Head(sandbox="box", namespace="", resource="stack", versions=tuple(versions))
        assert asyncio.run(store.swap(place, store.load(place), head))
    return cli


def test_all_versions_are_listed(home: Cli):
    done = home("state", "list")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["SANDBOX", "RESOURCE", "VERSION", "WRITTEN", "BY", "BYTES"]
    assert [(row[2], row[-1]) for row in rows[1:]] == [("1", "5"), ("2", "6"), ("3", "deleted"), ("1", "5")]
    assert home("state", "list", "box").out == done.out
    assert home("state", "list", "other").err == "There are no states of sandbox other.\n"


def test_states_are_listed_for_programs(home: Cli):
    shown = home("state", "list").out.splitlines()
    assert home("state", "list", "--no-headers").out.splitlines() == shown[1:]
    listed = json.loads(home("state", "list", "-o", "json").out)
    assert [each["name"] for each in listed] == ["/".join(line.split()[:2]) for line in shown[1:]]


def test_the_newest_sandbox_of_a_name_is_shown(home: Cli):
    refused(home("state", "show", "box", "stack"), 3, "the state of box/stack has no content")
    assert home("state", "show", "box", "stack", "--version", "2").out == "second"
    refused(home("state", "show", "box", "stack", "--version", "3"), 3, "the state of box/stack has no version 3")
    refused(home("state", "show", "box", "other"), 3, "no state of box/other is stored; see: dayfly state list")


def test_a_head_that_is_damaged_is_said_and_hides_no_other(home: Cli):
    path = states.folder(home.home) / NEW.run / NEW.resource / "head"
    path.write_bytes(path.read_bytes()[:40])
    said = f"the head of a state is damaged ({path})"
    done = home("state", "list")
    assert [line.split()[2] for line in done.out.splitlines()] == ["VERSION", "1"]
    assert done.code == 1
    assert said in done.err
    assert home("state", "show", "box", "stack").out == "older"
    unknown = home("state", "show", "box", "other")
    assert (unknown.code, unknown.out) == (1, "")
    assert said in unknown.err


@pytest.mark.slow
def test_state_show_reports_altered_data_and_lost_keys(home: Cli):
    path = states.folder(home.home) / NEW.run / NEW.resource / "b1.0"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    refused(home("state", "show", "box", "stack", "--version", "1"), 1, "version 1 of the state of stack is damaged")
    path.unlink()
    refused(home("state", "show", "box", "stack", "--version", "1"), 1, "version 1 of the state of stack is damaged")
    (states.folder(home.home) / "key").write_bytes(b"x" * 32)
    refused(home("state", "show", "box", "stack", "--version", "2"), 1, "was written with the key")
    (states.folder(home.home) / "key").unlink()
    refused(home("state", "show", "box", "stack", "--version", "2"), 1, "the key of the states cannot be read")


def test_a_home_without_states_has_none(cli: Cli):
    assert cli("state", "list").err == "There are no states.\n"
    assert not cli.home.exists()


def test_a_namespace_and_a_server_have_none_of_this_homes(home: Cli):
    refused(home("state", "list", "-n", "shop"), 2, "--namespace needs a cluster", "--context NAME")
    refused(home("state", "list", "--server", "work"), 2, "in the server's clusters", "--context NAME")


def test_abandon_names_the_states_that_are_kept(home: Cli):
    fake = Fake()
    for name in ("box", "other"):
        sandbox = {"name": name, "createdAt": "2026-01-01T00:00:00Z", "routingKey": "k", "spec": {}, "status": {}}
        fake.say("GET", f"sandboxes/{name}", sandbox)
        fake.say("GET", f"sandboxes/{name}/report", {"uid": "u", "version": 1, "phase": "open", "units": []})
        fake.say("POST", f"sandboxes/{name}/abandon", {})
    with serving(fake) as url:
        (home.home / "url").write_text(url)
        kept = home("abandon", "box", "--reason", "gone", "--force")
        none = home("abandon", "other", "--reason", "gone", "--force")
    assert kept.err.endswith("The Terraform state of stack is kept; see: dayfly state show box stack\n")
    assert "Terraform" not in none.err
