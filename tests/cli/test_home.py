"""The key of a home: drawn once, whole or not at all."""

from __future__ import annotations

import os
import resource
import stat
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Cli, refused

from dayfly.client.errors import DayflyError
from dayfly.client.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_key_is_created_once_with_mode_0600(home: Home):
    key = home.make_key()
    assert len(key) > 40
    assert home.make_key() == home.read(home.key) == key
    assert stat.S_IMODE(home.key.stat().st_mode) == 0o600


def test_a_disk_that_was_full_leaves_no_empty_key_behind(home: Home):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            home.make_key()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert home.make_key() == home.read(home.key)


def test_a_key_that_another_server_is_just_writing_is_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.make()
    home.key.touch(mode=0o600)
    monkeypatch.setattr(time, "sleep", lambda _: home.key.write_text("drawn by another\n"))
    assert home.make_key() == "drawn by another"


def test_a_key_that_stays_empty_is_said_with_a_way_out(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.make()
    home.key.touch(mode=0o600)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(DayflyError, match="key is empty; remove it and try again"):
        home.make_key()


STRANGER = 54321
"""No user of this machine, and not us."""


@pytest.mark.root
@pytest.mark.parametrize("whose", ["folder", "key", "url", "link"])
def test_home_of_another_user_is_refused(cli: Cli, whose: str):
    """Otherwise its owner could read the key of a server, or receive the requests and the key of the user."""
    home = Home(cli.home)
    home.make_key()
    home.url.write_text("http://127.0.0.1:9\n")
    if whose == "link":
        cli.home.rename(cli.home.with_name("real"))
        cli.home.symlink_to("real")
        os.lchown(cli.home, STRANGER, -1)
    else:
        os.chown({"folder": cli.home, "key": home.key, "url": home.url}[whose], STRANGER, -1)
    words = [["status"], ["with", "-f", "-", "--", "true"]]
    words += [["up", "--port", "0"], ["down"]] if whose in ("folder", "link") else []
    for each in words:
        stdin = "name: p\nspec: {create: [{name: a, script: '#!/bin/sh'}]}\n"
        refused(cli(*each, stdin=stdin), 5, "belongs to another user (uid 54321)", "DAYFLY_HOME")
    assert not home.path.joinpath("lock").exists()
    os.lchown(cli.home, os.geteuid(), -1)


@pytest.mark.parametrize(
    ("file", "mode", "said"),
    [
        ("", 0o777, "could write there; close it with: chmod o-w"),
        ("key", 0o644, "read or change it"),
        ("url", 0o666, "could change it"),
    ],
)
def test_world_accessible_home_is_refused(cli: Cli, file: str, mode: int, said: str):
    home = Home(cli.home)
    home.make_key()
    home.url.write_text("http://127.0.0.1:9\n")
    (cli.home / file).chmod(mode)
    refused(cli("status"), 5, "is accessible to all users", said)
    (cli.home / file).chmod(mode & ~0o007)
    refused(cli("status"), 6, "no server answers")


def test_a_server_elsewhere_needs_no_home(cli: Cli):
    cli.home.mkdir(mode=0o777)
    cli.home.chmod(0o777)
    refused(cli("status", DAYFLY_URL="http://127.0.0.1:9", DAYFLY_API_KEY="k"), 6, "no server answers")
    cli.home.chmod(0o700)
