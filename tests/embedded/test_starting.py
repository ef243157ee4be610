"""How the runner's process is started: with nothing of ours but the folder's name."""

import os
import signal
from pathlib import Path

import pytest

from dayfly.execute.process.run import Folder, Place
from dayfly.execute.process.start import Processes
from dayfly.spec.lifecycle import Exec, Unit

UNIT = Unit(name="a", kind="exec", exec=Exec(script="#!/bin/sh\n"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    folder = Folder(Place(str(tmp_path / "work"), str(tmp_path), "boot", "boot"), "run", "a", 1)
    Path(folder.path).mkdir()
    return folder


def started(tmp_path, folder, script):
    """What a program in the runner's place writes."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    child = Processes(str(program), "none").start(folder, UNIT)
    assert os.waitpid(child, 0) == (child, 0)
    return Path(folder.path, "seen").read_text()


def test_it_is_told_the_folder_and_no_environment(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("SECRET", "of the server")
    said = started(tmp_path, folder, 'echo "$1 $2" >"$2/seen"; env >>"$2/seen"')
    assert said.startswith(f"host {folder.path}\n")
    assert "SECRET" not in said


def test_it_gets_every_signal_though_we_ignore_or_block_some(tmp_path, folder):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        said = started(tmp_path, folder, 'grep -E "SigBlk|SigIgn" /proc/self/status >"$2/seen"')
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "as in every Python program"
    masks = dict(line.split(":\t") for line in said.splitlines())
    assert int(masks["SigBlk"], 16) & 1 << signal.SIGTERM - 1 == 0
    assert int(masks["SigIgn"], 16) & 1 << signal.SIGPIPE - 1 == 0


def test_a_program_that_is_not_there_is_an_error_that_names_it(folder):
    with pytest.raises(FileNotFoundError, match="/nowhere/runner"):
        Processes("/nowhere/runner", "none").start(folder, UNIT)
