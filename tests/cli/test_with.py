"""`dayfly with`: whatever ends the command, or us, ends the resource."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli import sample_specs
from tests.cli.command import COMMAND, Cli, refused, until
from tests.cli.with_command import run_with

from dayfly.cli.commands import with_command
from dayfly.cli.local import guard
from dayfly.client import Client
from dayfly.client.home import Home

WHOLE = ["provision", "seed", "drop"]
ANSWERS = """\
import os, signal, sys, time
got = []
signal.signal(signal.{signal}, lambda n, f: got.append(n))
{before}
open('started', 'w').close()
while not got: time.sleep(0.01)
time.sleep(0.3)
sys.exit(40 + len(got))
"""
"""A command that ends with 40 and how often it got the signal."""


@pytest.fixture
def plugin(cli: Cli, journal: Path) -> str:
    return cli.write("p.yaml", sample_specs.plugin(journal))


def test_outputs_reach_the_command_and_its_code_comes_back(served: Cli, plugin: str, journal: Path):
    program = "import os, json; print(json.dumps(dict(os.environ)))"
    call = ("with", "-f", plugin, "-p", "owner=me", "-e", "URL=provision.path", "--", sys.executable, "-c", program)
    done = served(*call)
    assert done.code == 0, done.err
    env = json.loads(done.out)
    assert env["NOTES_PROVISION_SECRET"] == "it's a $ecret"
    assert env["NOTES_PROVISION_PATH"] == env["URL"]
    assert env["URL"].startswith("/data/with-notes-")
    assert "NOTES_SEED_BYTES" not in env
    assert "NOTES_SEED_BYTES is binary (2 bytes)" in done.err
    assert journal.read_text().split() == WHOLE
    assert served.sandboxes() == []
    assert served("with", "-f", plugin, "sh", "-c", "exit 7").code == 7
    assert served("with", "-f", plugin, "--", "sh", "-c", "kill -9 $$").code == 128 + 9


def test_an_output_that_no_variable_can_hold_is_left_out(served: Cli):
    """An output may have four times as much as the kernel passes to a program in one variable."""
    longest = 32 * os.sysconf("SC_PAGE_SIZE") - len("BIG_MAKE_FITS=\0")
    sizes = {"fits": longest, "large": longest}  # the name of this one is longer
    script = "\n".join(f"head -c {size} /dev/zero | tr '\\0' a >/tmp/{name}" for name, size in sizes.items())
    made = [{"name": name, "valueFromPath": f"/tmp/{name}"} for name in sizes]
    create = [{"name": "make", "script": f"#!/bin/sh\n{script}\n", "outputs": made}]
    plugin = served.write("big.yaml", json.dumps({"name": "big", "spec": {"runner": {}, "create": create}}))
    done = served("with", "-f", plugin, "--", "sh", "-c", "echo ${#BIG_MAKE_FITS} ${BIG_MAKE_LARGE-none}")
    assert (done.code, done.out) == (0, f"{longest} none\n"), done.err
    assert f"BIG_MAKE_LARGE has {longest} bytes, which is more than a variable can hold\n" in done.err


def test_exit_code_is_returned_if_parent_ignores_sigchld(served: Cli, plugin: str):
    careless = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
    process = served.start("with", "-f", plugin, "--", "sh", "-c", "exit 7", **careless)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err


def test_a_server_is_started_and_stopped_again(cli: Cli, plugin: str, journal: Path):
    done = cli("with", "-f", plugin, "--", "sh", "-c", f"cat {cli.home}/url")
    assert done.code == 0, done.err
    assert done.out.startswith("http://127.0.0.1:")
    assert journal.read_text().split() == WHOLE
    assert not (cli.home / "url").exists()
    refused(cli("status"), 6, "no server runs", "dayfly up")


def test_a_failed_create_is_cleaned_up(served: Cli, journal: Path):
    plugin = served.write("p.yaml", sample_specs.plugin(journal, extra="echo no; exit 9"))
    done = served("with", "-f", plugin, "--", "touch", "ran")
    assert done.code == 1
    assert "ResourceFailed" in done.err
    assert journal.read_text().split() == WHOLE
    assert not (served.folder / "ran").exists()
    assert served.sandboxes() == []


def test_out_of_time_is_cleaned_up(served: Cli, journal: Path):
    plugin = served.write("p.yaml", sample_specs.plugin(journal, create="sleep 60"))
    done = served("with", "-f", plugin, "--timeout", "1s", "--", "touch", "ran")
    assert done.code == 4
    assert not (served.folder / "ran").exists()
    assert served.sandboxes() == []


def test_the_advice_after_a_failure_can_be_typed(cli: Cli, journal: Path):
    """The server of the command is stopped at its end, so the next server has to show the log."""
    done = cli("with", "-f", cli.write("p.yaml", sample_specs.plugin(journal, extra="echo no; exit 9")), "--", "true")
    advice = done.err.partition("read: ")[2].splitlines()[0]
    assert advice.startswith("dayfly up --detach; dayfly logs with-notes-")
    program = f'dayfly() {{ {shlex.join(COMMAND)} "$@"; }}; {advice.replace("--detach", "--detach --port 0")}'
    read = subprocess.run(["sh", "-c", program], capture_output=True, text=True, cwd=cli.folder, env=cli.environment())
    assert cli("down").code == 0
    assert (read.returncode, read.stdout.splitlines()[-1]) == (0, "no"), read.stderr


def test_ctrl_c_while_a_server_of_ours_cleans_up(cli: Cli, journal: Path):
    """Regression: an interrupted response was read as the next response."""
    gate = journal.with_name("gate")
    slow = f"echo dropping >> {journal}; {sample_specs.waiting(gate)}"
    process = cli.start("with", "-f", cli.write("p.yaml", sample_specs.plugin(journal, delete=slow)), "--", "true")
    until(lambda: journal.exists() and "dropping" in journal.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"interrupted by SIGINT; the server continues the cleanup" in err
    assert b"The server that was started keeps running" in err
    assert b"HTTP" not in err
    gate.touch()
    until(lambda: not (cli.home / "url").exists())  # the server ends itself after its last sandbox
    assert journal.read_text().split() == ["provision", "seed", "dropping", "drop"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_provisioning_cleans_up(served: Cli, journal: Path, number: signal.Signals, code: int):
    plugin = served.write("p.yaml", sample_specs.plugin(journal, create="sleep 60"))
    process = served.start("with", "-f", plugin, "--", "touch", "ran")
    until(journal.exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert f"interrupted by {number.name}; cleaning up".encode() in err
    assert journal.read_text().split()[-1] == "drop"
    assert served.sandboxes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_the_command_once_and_its_answer_counts(served: Cli, plugin: str, journal: Path, number: int):
    program = ANSWERS.format(signal=signal.Signals(number).name, before="")
    process = served.start("with", "-f", plugin, "--", sys.executable, "-c", program)
    until((served.folder / "started").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 41, err
    assert journal.read_text().split() == WHOLE
    assert served.sandboxes() == []


def _lease(served: Cli) -> int:
    """Return the lease of the only sandbox, in seconds."""
    with contextlib.closing(sqlite3.connect(served.home / "control.db")) as store:
        return store.execute("SELECT lease_seconds FROM sandboxes").fetchone()[0]


def _lease_end(served: Cli) -> int:
    """Return when the host ends the only sandbox without another renewal, in milliseconds."""
    with contextlib.closing(sqlite3.connect(served.home / "ledger.db")) as ledger:
        (found,) = ledger.execute("SELECT json_extract(CAST(intent AS TEXT), '$.lease_until') FROM run").fetchone()
    return found


def _in_a_terminal(served: Cli, plugin: str, program: str, *, type_: bytes) -> int:
    """Run a command, type something once it has started, or hang up for nothing to type; the exit code."""
    ours, theirs = os.openpty()
    # setsid --ctty gives it a session whose terminal is this one, so that the terminal itself sends the signal.
    command = ["setsid", "--ctty", "--wait", sys.executable, "-m", "dayfly", "with", "-f", plugin, "--"]
    process = subprocess.Popen(
        [*command, sys.executable, "-c", program],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=served.folder,
        env=served.environment(),
    )
    served.started.append(process)
    os.close(theirs)
    try:
        until((served.folder / "started").exists)
        if type_:
            os.write(ours, type_)
            return process.wait(30)
    finally:
        os.close(ours)
    return process.wait(30)


def test_ctrl_z_keeps_the_resource_until_it_goes_on(served: Cli, plugin: str, journal: Path):
    """In a shell with job control: while the command is stopped, the lease is long, and then short again."""
    program = "touch started; until [ -e end ]; do sleep 0.05; done; exit 7"
    dayfly = shlex.join([*COMMAND, "with", "-f", plugin, "--", "sh", "-c", program])
    shell = f"{dayfly}; echo $? >stopped; until [ -e go ]; do sleep 0.05; done; fg"

    ours, theirs = os.openpty()
    command = ["setsid", "--ctty", "--wait", "bash", "--norc", "-mc", shell]
    out = {"stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, stdin=theirs, cwd=served.folder, env=served.environment(), **out)
    served.started.append(process)
    os.close(theirs)
    try:
        until((served.folder / "started").exists)
        assert _lease(served) == 30
        os.write(ours, b"\x1a")
        until((served.folder / "stopped").exists)
        until(lambda: (served.folder / "stopped").read_text() == f"{128 + signal.SIGTSTP}\n")
        assert _lease(served) == 86_400
        (served.folder / "go").touch()
        until(lambda: _lease(served) == 30)
        (served.folder / "end").touch()
        assert process.wait(30) == 7
        assert b"is kept while the command is suspended, at most for a day" in os.read(ours, 65536)
    finally:
        os.close(ours)
    assert journal.read_text().split() == WHOLE
    assert served.sandboxes() == []


def test_ctrl_c_in_a_terminal_reaches_the_command_once(served: Cli, plugin: str, journal: Path):
    program = ANSWERS.format(signal="SIGINT", before="")
    assert _in_a_terminal(served, plugin, program, type_=b"\x03") == 41
    assert journal.read_text().split() == WHOLE


def test_ctrl_c_reaches_a_command_that_left_our_process_group(served: Cli, plugin: str, journal: Path):
    """As GNU timeout does, so that its own kill reaches all that it has started."""
    program = ANSWERS.format(signal="SIGINT", before="os.setpgid(0, 0)")
    assert _in_a_terminal(served, plugin, program, type_=b"\x03") == 41
    assert journal.read_text().split() == WHOLE


def test_hangup_is_forwarded_to_the_command(served: Cli, plugin: str, journal: Path):
    program = ANSWERS.format(signal="SIGHUP", before="")
    assert _in_a_terminal(served, plugin, program, type_=b"") == 41
    assert journal.read_text().split() == WHOLE


def test_closed_stderr_does_not_end_the_command(cli: Cli, journal: Path):
    """As `2>&1 | tee log` does at Ctrl-C, which ends tee first."""
    gate = journal.with_name("gate")
    plugin = cli.write("p.yaml", sample_specs.plugin(journal, create=sample_specs.waiting(gate)))
    process = cli.start("with", "-f", plugin, "--", "sh", "-c", "exit 7")
    assert process.stderr.readline().endswith(b"notes/provision: running\n")
    process.stderr.close()
    gate.touch()
    assert process.wait(30) == 7
    assert journal.read_text().split() == WHOLE
    refused(cli("status"), 6, "no server runs")


def test_hangup_while_provisioning_leaves_no_server(cli: Cli, journal: Path):
    gate = journal.with_name("gate")
    plugin = cli.write("p.yaml", sample_specs.plugin(journal, create=sample_specs.waiting(gate)))
    ours, theirs = os.openpty()
    command = ["setsid", "--ctty", "--wait", sys.executable, "-m", "dayfly", "with", "-f", plugin, "--", "touch", "ran"]
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, cwd=cli.folder, env=cli.environment(TERM="xterm"), **terminal)
    cli.started.append(process)
    os.close(theirs)
    until(journal.exists)
    os.close(ours)
    gate.touch()
    assert process.wait(30) == 128 + signal.SIGHUP
    assert not (cli.folder / "ran").exists()
    assert journal.read_text().split()[-1] == "drop"
    refused(cli("status"), 6, "no server runs")


def test_a_second_signal_stops_the_waiting_not_the_cleanup(served: Cli, journal: Path):
    gate = journal.with_name("gate")
    slow = f"echo dropping >> {journal}; {sample_specs.waiting(gate)}"
    plugin = served.write("p.yaml", sample_specs.plugin(journal, delete=slow))
    process = served.start("with", "-f", plugin, "--", "true")
    until(lambda: journal.exists() and "dropping" in journal.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"the server continues the cleanup" in err
    assert "drop" not in journal.read_text().split()
    gate.touch()
    until(lambda: served.sandboxes() == [])
    assert journal.read_text().split()[-1] == "drop"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


BROOD = """\
echo $$ >pids
sleep 301 & echo $! >>pids
setsid sleep 302 & echo $! >>pids
env -i sleep 303 & echo $! >>pids
touch started
exec env -i sleep 300
"""
"""A command that leaves nothing of its environment, with a child, a child that has left the session, and a bare one."""


def test_killed_with_ends_its_command_and_the_server_cleans_up(served: Cli, plugin: str, journal: Path):
    """The command would work on beside a database that is removed."""
    other = subprocess.Popen(["sleep", "304"], env={"DAYFLY_WITH": "with-notes-other"})
    served.started.append(other)
    process = served.start("with", "-f", plugin, "--", "sh", "-c", BROOD)
    until((served.folder / "started").exists)
    pids = [int(line) for line in (served.folder / "pids").read_text().split()]
    assert all(map(_runs, pids))
    process.kill()
    process.wait(10)
    until(lambda: not any(map(_runs, pids)))
    assert _runs(other.pid)
    assert _lease(served) == 30
    with Client(home=served.home) as client:
        client.sandboxes.lease(*served.sandboxes(), 1)  # in place of the 30 seconds that are left
    until(lambda: served.sandboxes() == [])
    assert journal.read_text().split() == WHOLE


def test_stubborn_command_is_killed_but_not_a_reused_pid(tmp_path: Path):
    stubborn = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", stubborn], env={**os.environ, "DAYFLY_WITH": "with-x"}, cwd=tmp_path)
    stranger = subprocess.Popen(["sleep", "305"])
    until((tmp_path / "ready").exists)
    guard.terminate("with-x", (), 0.2)
    assert child.wait(10) == -signal.SIGKILL
    # `with` is killed; the number it gave is of a process that began later than it was given.
    watcher = subprocess.Popen([sys.executable, "-ISs", guard.__file__, "with-y"], stdin=subprocess.PIPE, env={})
    watcher.stdin.write(b"999999999\n")
    watcher.stdin.close()
    assert watcher.wait(10) == 0
    assert _runs(stranger.pid)
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_signal_to_with_ends_all_that_its_command_started(served: Cli, journal: Path, number: signal.Signals):
    pids = served.folder / "pids"
    look = f"for pid in $(cat {pids}); do kill -0 $pid 2>/dev/null && echo $pid >> {journal}; done"
    plugin = served.write("p.yaml", sample_specs.plugin(journal, delete=look))
    process = served.start("with", "-f", plugin, "--", "sh", "-c", BROOD)
    until((served.folder / "started").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert not any(_runs(int(line)) for line in pids.read_text().split())
    assert journal.read_text().split() == WHOLE, "nothing of it runs beside the deletion"


def test_second_signal_kills_processes_that_ignore_the_first(served: Cli, plugin: str, journal: Path):
    stubborn = "trap '' TERM; touch started; while :; do sleep 0.05; done"
    process = served.start("with", "-f", plugin, "--", "sh", "-c", f'sh -c "{stubborn}" & echo $! >pid; wait')
    until((served.folder / "started").exists)
    process.send_signal(signal.SIGTERM)
    pid = int((served.folder / "pid").read_text())
    line = next(line for line in process.stderr if b"send another signal to kill them" in line)
    assert f"waiting for processes of the command: sh ({pid})" in line.decode()
    assert _runs(pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not _runs(pid)
    assert journal.read_text().split() == WHOLE


def test_signal_to_one_with_spares_another_of_the_same_sandbox(served: Cli, plugin: str):
    first, second = (
        served.start("with", "-f", plugin, "--reuse", "--", "sh", "-c", f"touch {name}; exec sleep 300")
        for name in ("first", "second")
    )
    until(lambda: (served.folder / "first").exists() and (served.folder / "second").exists())
    first.terminate()
    assert first.wait(60) == 128 + signal.SIGTERM
    assert second.poll() is None
    second.terminate()
    assert second.wait(60) == 128 + signal.SIGTERM


def test_a_background_child_of_a_command_that_has_ended_lives_on(served: Cli, plugin: str):
    command = "sleep 60 >&- 2>&- & until [ $(cat /proc/$!/comm) = sleep ]; do :; done; echo $!"
    done = served("with", "-f", plugin, "--", "sh", "-c", command)
    pid = int(done.out)
    assert done.code == 0
    assert f"processes that it started are still running: sleep ({pid})\n" in done.err
    assert _runs(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?"], ids=["command", "child of its shell"])
def test_background_process_of_a_killed_command_is_ended(served: Cli, plugin: str, end: str):
    """A CI runner that kills a job may kill the command before `dayfly with`."""
    done = served("with", "-f", plugin, "--", "sh", "-c", f"setsid sleep 60 >&- 2>&- & echo $!; {end}")
    assert done.code == 128 + signal.SIGKILL, done.err
    assert not _runs(int(done.out))


def test_lease_is_renewed_while_the_command_runs(
    served: Cli, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(with_command, "RENEW_INTERVAL_S", 0.05)
    monkeypatch.setenv("DAYFLY_HOME", str(served.home))
    monkeypatch.delenv("DAYFLY_URL", raising=False)
    begun, done = tmp_path / "begun", tmp_path / "done"
    ends = []

    def end_after_renewals() -> None:
        until(begun.exists)
        for _ in range(3):
            ends.append(_lease_end(served))
            until(lambda: _lease_end(served) > ends[-1])
        done.touch()

    watching = threading.Thread(target=end_after_renewals)
    watching.start()
    assert run_with(tmp_path, "--", "sh", "-c", f"touch {begun}; {sample_specs.waiting(done)}") == 0
    watching.join()
    assert done.exists()
    assert len(ends) == 3
    assert journal.read_text().split() == WHOLE


def test_with_finds_errors_before_provisioning(cli: Cli, plugin: str, journal: Path):
    refused(
        cli("with", "-f", plugin, "-p", "ownr=me", "--", "true"), 2, 'has the param "ownr"', 'did you mean "owner"?'
    )
    needy = cli.write("n.yaml", sample_specs.plugin(journal).replace("name: owner, ", "name: owner, required: true, "))
    refused(
        cli("with", "-f", needy, "--", "true"), 2, 'needs the param "owner" (its step "provision")', "-p owner=VALUE"
    )
    refused(cli("with", "-f", plugin, "-p", "owner", "--", "true"), 2, "NAME=VALUE")
    refused(cli("with", "-f", plugin, "-e", "X=provision.pat", "--", "true"), 2, 'did you mean "provision.path"?')
    refused(cli("with", "-f", plugin, "-e", "1X=provision.path", "--", "true"), 2, "environment variable name")
    refused(cli("with", "-f", plugin, "--", "no-such-program-at-all"), 127, "nothing was provisioned")
    refused(cli("with", "-f", plugin, "--", "./nothing"), 127, "no such command; nothing was provisioned")
    cli.write("bin/tool", "no program")
    for there in ("/etc/passwd", "/etc", "bin/tool"):
        refused(cli("with", "-f", plugin, "--", there), 126, "nothing was provisioned")
    path = f"{cli.folder}/bin:{os.environ['PATH']}"
    refused(cli("with", "-f", plugin, "--", "tool", PATH=path), 126, "nothing was provisioned")
    refused(cli("with", "-f", plugin), 2, "COMMAND")
    assert not journal.exists()
    assert not cli.home.exists()


def test_several_plugins_and_params_out_of_files(served: Cli, plugin: str, journal: Path):
    other = served.write("q.yaml", sample_specs.plugin(journal).replace("name: notes", "name: more"))
    served.write("owner.txt", "it's\nme\n")
    program = "import os, json; print(json.dumps(dict(os.environ)))"
    files = ("-f", plugin, "-f", other)
    refused(served("with", *files, "-p", "owner=me", "--", "true"), 2, "2 plugins", "write notes.owner or more.owner")
    refused(served("with", *files, "-e", "X=provision.path", "--", "true"), 2, "notes/provision.path or more/provision")
    refused(
        served("with", "-f", plugin, "--param-file", "owner=nothing.txt", "--", "true"), 2, "nothing.txt: no such file"
    )
    given = ("--param-file", "notes.owner=owner.txt", "-e", "X=more/provision.path")
    done = served("with", *files, *given, "--", sys.executable, "-c", program)
    assert done.code == 0, done.err
    env = json.loads(done.out)
    assert env["X"] == env["MORE_PROVISION_PATH"] != ""
    assert "NOTES_PROVISION_PATH" in env
    assert sorted(journal.read_text().split()) == sorted(WHOLE * 2)
    assert served.sandboxes() == []


def test_a_sandbox_of_a_file_with_its_plugin_in_place(served: Cli, plugin: str, journal: Path):
    served.write(
        "s.yaml",
        "name: mine\nspec: {cluster: local, resources: [{name: a, plugin: notes}, {name: b, plugin: notes}]}\n",
    )
    call = ("with", "-f", plugin, "-f", "s.yaml", "-e", "X=b/provision.path")
    done = served(*call, "--", "sh", "-c", 'test -n "$X" && test -n "$A_PROVISION_PATH" && exit 7')
    assert done.code == 7, done.err
    assert sorted(journal.read_text().split()) == sorted(WHOLE * 2)
    assert (served.sandboxes(), json.loads(served("plugin", "list", "-o", "json").out)) == ([], []), "none is published"
    refused(served("with", "-f", "s.yaml", "-f", plugin, "-p", "owner=me", "--", "true"), 2, "--set NAME=VALUE")
    group = served.write("g.yaml", "name: g\nspec: {cluster: local, match: {label: {key: a, value: b}}}\n")
    refused(served("with", "-f", plugin, "-f", group, "--", "true"), 2, "g.yaml", "is a route group")


def test_keep_keeps_only_a_failed_sandbox(served: Cli, plugin: str, journal: Path):
    refused(served("with", "-f", plugin, "--keep", "--reuse", "--", "true"), 2, "use one of them")
    assert served("with", "-f", plugin, "--keep", "--", "true").code == 0
    assert served.sandboxes() == []
    done = served("with", "-f", plugin, "--keep", "--", "sh", "-c", "exit 3")
    (name,) = served.sandboxes()
    assert (done.code, f"delete it with: dayfly sandbox delete {name}" in done.err) == (3, True), done.err
    assert served("with", "-f", plugin, "--keep", "--", "sh", "-c", "kill -INT $$").code == 130
    assert served.sandboxes() == [name], "a signal is not a failure to inspect"


def test_reuse_makes_a_resource_once(served: Cli, plugin: str, journal: Path):
    show = ("--", "sh", "-c", 'echo "$NOTES_PROVISION_PATH"; exit 5')
    first, second = (served("with", "-f", plugin, "--reuse", *show) for _ in range(2))
    assert (first.code, second.code, first.out) == (5, 5, second.out)
    assert journal.read_text().split() == ["provision", "seed"]
    other = served("with", "-f", plugin, "-p", "owner=me", "--reuse", *show)
    assert other.out not in ("", first.out), "another param is another resource"
    assert len(served.sandboxes()) == 2


@pytest.mark.parametrize("step", ["provisioning", "running", "deleting"])
def test_with_restarts_its_killed_server_for_cleanup(cli: Cli, journal: Path, step: str):
    """The command runs on: only the server of `dayfly with` is gone."""
    steps = {"provisioning": "create", "deleting": "delete"}
    gate, reached = journal.with_name("gate"), journal.with_name("reached")
    pause = f"touch {reached}; {sample_specs.waiting(gate)}"
    plugin = cli.write("p.yaml", sample_specs.plugin(journal, **({steps[step]: pause} if step in steps else {})))
    script = f"{pause}; exit 7" if step == "running" else "exit 7"
    process = cli.start("with", "-f", plugin, "--", "sh", "-c", script)
    until(reached.exists)
    killed = Home(cli.home).server_process()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    if step == "running":
        until(lambda: Home(cli.home).server_process() not in {None, killed})
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == (6 if step == "provisioning" else 7), err
    assert b"the server was killed and has been started again" in err
    assert journal.read_text().split() == WHOLE
    assert Home(cli.home).server_process() is None, "the server that was started again is stopped, too"
