"""The key of a home: drawn once, whole or not at all."""

from __future__ import annotations

import resource
import stat
import time
from typing import TYPE_CHECKING

import pytest

from dayfly.cli.exits import CliError
from dayfly.cli.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_it_is_drawn_once_for_its_owner_alone(home: Home):
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
    home.key.touch()
    monkeypatch.setattr(time, "sleep", lambda _: home.key.write_text("drawn by another\n"))
    assert home.make_key() == "drawn by another"


def test_a_key_that_stays_empty_is_said_with_a_way_out(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.make()
    home.key.touch()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(CliError, match="key is empty; remove it and try again"):
        home.make_key()
