"""The working directory of a step: empty, private, and removed with the attempt."""

import os

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded.startup import isolation as granted

# The public terraform plugin fetches its module into the working directory in each step.
FETCH = 'mkdir module && echo "$0" > module/main.tf && cd module && ls | wc -l >> "$JOURNAL"'


def begins(machine):
    """Working directories of attempts; empty ones are renamed for the next attempt."""
    return [entry for entry in (machine.home / "steps").iterdir() if not entry.name.startswith(".spare-")]


async def left_nothing(machine):
    await until(lambda: not begins(machine), lambda: begins(machine))


@pytest.mark.parametrize("isolation", ["none", "granted"])
async def test_start_folder_is_empty_and_removed_after_the_attempt(machine, isolation):
    await machine.down()
    await machine.up(isolation="none" if isolation == "none" else None)
    create = [doc.step(name, f'ls -A | wc -l >> "$JOURNAL"; {FETCH}') for name in ("a", "b")]
    await machine.host.offer(doc.offer(doc.resource("r", create, [doc.step("z", FETCH)])))
    await machine.ready()
    await left_nothing(machine)
    await machine.finish()
    assert sorted(machine.lines()) == ["0", "0", "1", "1", "1"], "the delete step starts with an empty directory"
    await left_nothing(machine)


async def test_relative_paths_lie_there(machine):
    script = 'echo "$PWD" > value; cat value >> "$JOURNAL"'
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script)])))
    await machine.ready()
    assert machine.lines() == [f"{machine.home}/steps/u.r.a.1"]


async def test_locked_folders_are_removed_without_following_links(machine, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").touch()
    script = f"mkdir -p go/pkg && touch go/pkg/x && ln -s {kept} link && chmod 0500 go/pkg go && chmod 0 ."
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script)])))
    await machine.ready()
    await left_nothing(machine)
    assert (kept / "file").exists()
    assert kept.stat().st_mode & 0o777 == 0o755


async def test_next_server_removes_folders_a_killed_server_left(machine):
    """The server died between the creation of the two folders."""
    await machine.down()
    left = machine.home / "steps/u.r.a.1"
    (left / "module").mkdir(parents=True)
    (machine.home / "steps/mine").mkdir()
    await machine.up()
    await until(lambda: not left.exists(), "its removal")
    assert [entry.name for entry in begins(machine)] == ["mine"], "other folders stay"


async def test_next_server_keeps_the_folder_of_a_running_step(machine):
    script = 'echo begun >> "$JOURNAL"; echo kept > file; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; cat file'
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script)])))
    await machine.wrote("begun")
    await machine.down()
    await machine.up()
    machine.journal.with_name("journal.go").touch()
    await machine.ready()
    assert machine.log("r/a") == b"kept\n"


async def test_untouched_folder_is_reused_and_removed_with_the_server(machine):
    """A disk that has just deleted many folders is slow to create new ones."""
    script = 'stat -c %i . >> "$JOURNAL"'
    told = {"script": f"{script}; echo x > /tmp/x", "outputs": [("x", "/tmp/x")]}
    steps = [doc.step("a", **told), doc.step("b", inputs=["x=a.x"], **told), doc.step("c", script, inputs=["x=b.x"])]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.ready()
    if granted(machine.runner) != "none":
        first, _, third = machine.lines()
        assert third == first, "a step starts before the previous folder is released"
    await left_nothing(machine)
    await machine.down()
    assert list((machine.home / "steps").iterdir()) == []


async def test_start_folder_has_mode_0700(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'stat -c "%a %u" . >> "$JOURNAL"')])))
    await machine.ready()
    assert machine.lines() == [f"700 {os.geteuid()}"]
