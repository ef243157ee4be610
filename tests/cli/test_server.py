"""`up`, `down` and `status`, the server as a process, its socket and its traces."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import COMMAND, Cli, refused, until
from tests.execute.collector import collecting

from dayfly.cli.local import server_process
from dayfly.cli.local.server_process import listen_on
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "s3cr3t-canary"


def test_foreground_server_is_the_started_process(cli: Cli):
    process = cli.start("up", "--port", "0")
    line = process.stderr.readline().decode()
    url = (cli.home / "url").read_text().strip()
    assert line == f"dayfly is up at {url} (process {process.pid}, home {cli.home}); Ctrl-C stops it\n"
    assert stat.S_IMODE((cli.home / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(cli.home.stat().st_mode) == 0o700
    shown = json.loads(cli("status", "-o", "json").out)
    assert (shown["url"], shown["process"]) == (url, process.pid)
    refused(cli("up", "--port", "0"), 1, f"process {process.pid}", "dayfly down")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert not (cli.home / "url").exists()
    refused(cli("status"), 6, f"no server runs in {cli.home}", "start one with: dayfly up")


def test_detached_server_survives_until_down_ends_it(cli: Cli):
    done = cli("up", "--detach", "--port", "0")
    assert done.code == 0, done.err
    assert done.err.startswith("dayfly is up at http://127.0.0.1:")
    process = json.loads(cli("status", "-o", "json").out)["process"]
    key = (cli.home / "key").read_text()
    again = cli("up", "--detach")
    assert (again.code, f"process {process}" in again.err) == (0, True), "the server stays as it is"
    refused(cli("up"), 1, f"process {process}", "dayfly down")
    assert cli("down").err == f"The server (process {process}) has ended.\n"
    assert not _alive(process)
    refused(cli("down"), 6, "no server runs", "dayfly up")
    assert (cli.home / "key").read_text() == key
    assert "is up at" in (cli.home / "server.log").read_text()


def test_second_server_reports_that_the_home_is_in_use(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    second = cli.folder / "second"
    second.write_text(
        "#!/bin/sh\necho 'dayfly: another dayfly uses it; stop it' >&2\necho 'dayfly is up at http://x; Ctrl-C stops it'\nexit 1"
    )
    second.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(second))
    with pytest.raises(DayflyError, match=r"^another dayfly uses it; stop it$") as ended:
        server_process.start(Home(cli.home), [])
    assert ended.value.code == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_server_without_timely_answer_is_ended(cli: Cli, monkeypatch: pytest.MonkeyPatch, *, deaf: bool):
    """No command would stop it later, because its start was reported as failed."""
    mute = cli.folder / "mute"
    mute.write_text(
        f"#!/bin/sh\n{'trap : TERM' if deaf else ''}\necho $$ > {cli.folder}/pid\nwhile :; do sleep 0.1; done"
    )
    mute.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(server_process, "_START_TIMEOUT_S", 1)
    monkeypatch.setattr(server_process, "_STOP_TIMEOUT_S", 0.5)
    with pytest.raises(DayflyError, match="does not answer after 1 s"):
        server_process.start(Home(cli.home), [])
    assert not _alive(int((cli.folder / "pid").read_text()))


def test_server_stopped_during_start_is_a_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    """`down` beside `up --detach` or `with`, which would have returned 0 and not run its command."""
    stopped = cli.folder / "stopped"
    stopped.write_text("#!/bin/sh\nexit 0")
    stopped.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stopped))
    with pytest.raises(DayflyError, match="the server ended at once with code 0") as ended:
        server_process.start(Home(cli.home), [])
    assert ended.value.code == 1


@pytest.mark.slow
def test_two_homes_are_strangers(cli: Cli, tmp_path: Path):
    other = Cli(tmp_path / "other", cli.folder, [])
    for each in (cli, other):
        assert each("up", "--detach", "--port", "0").code == 0
    try:
        cli.write("s.yaml", "name: demo\nspec: {cluster: local}\n")
        assert cli("apply", "-f", "s.yaml").code == 0
        assert (cli.sandboxes(), other.sandboxes()) == (["demo"], [])
        denied = other("status", DAYFLY_URL=(cli.home / "url").read_text().strip())
        refused(denied, 5, "DAYFLY_API_KEY")
        key = (cli.home / "key").read_text().strip()
        found = other("sandbox", "list", DAYFLY_URL=(cli.home / "url").read_text().strip(), DAYFLY_API_KEY=key)
        assert "demo" in found.out
        assert cli("sandbox", "delete", "demo").code == 0  # a home that still has one keeps its place in memory
    finally:
        for each in (cli, other):
            assert each("down").code == 0


def test_running_steps_are_carried_on_by_the_next_server(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal, create=f"sleep 2; echo slept >> {journal}"))
    cli.write("s.yaml", sample_specs.sandbox())
    assert cli("up", "--detach", "--port", "0").code == 0
    assert cli("apply", "-f", ".", "--wait=false").code == 0
    until(journal.exists)
    assert cli("down").code == 0
    assert cli("up", "--detach", "--port", "0").code == 0
    try:
        assert cli("sandbox", "apply", "-f", "s.yaml").code == 0
        assert journal.read_text().split() == ["provision", "slept", "seed"]
        (name,) = cli.sandboxes()
        assert cli("sandbox", "delete", name).code == 0
    finally:
        assert cli("down").code == 0


def test_a_taken_port_is_said_in_one_line_with_a_way_out(cli: Cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(cli("up", "--port", port), 1, f"port {port}: address already in use", "--port 0")
        refused(cli("up", "--detach", "--port", port), 1, f"port {port}: address already in use", "--port 0")
    assert not (cli.home / "url").exists()


def test_server_that_cannot_write_its_url_reports_one_line(cli: Cli):
    (cli.home / "url").mkdir(parents=True)
    refused(cli("up", "--port", "0"), 1, f"{cli.home}/url", "Is a directory")
    assert [found.name for found in cli.home.glob("url*")] == ["url"]


def test_baselines_are_declared_at_the_start(cli: Cli):
    cli.write("web.yaml", "kind: Deployment\nname: web\ncommand: [sleep, '300']\n")
    cli.write("bad.yaml", "name: x\nspec: {cluster: local}\n")
    refused(cli("up", "--port", "0", "--baseline", "bad.yaml"), 2, "bad.yaml:1:1: is a sandbox, not a baseline")
    assert cli("up", "--detach", "--port", "0", "--baseline", "web.yaml").code == 0
    try:
        assert 'Unchanged: baseline "default/web"' in cli("apply", "-f", "web.yaml").err
    finally:
        assert cli("down").code == 0


@pytest.mark.parametrize("name_of_input", ["-", "/dev/stdin"])
def test_detached_server_reads_baselines_from_stdin(cli: Cli, name_of_input: str):
    """The server process has no standard input and another working directory."""
    web, box = (f"kind: Deployment\nname: {name}\ncommand: [sleep, '300']\n" for name in ("web", "box"))
    for name, text in (("web.yaml", web), ("box.yaml", box)):
        cli.write(name, text)
    done = cli("up", "--detach", "--port", "0", "--baseline", name_of_input, "--baseline", "box.yaml", stdin=web)
    assert done.code == 0, done.err
    try:
        said = cli("apply", "-f", "web.yaml", "-f", "box.yaml").err
        assert [f'Unchanged: baseline "default/{name}"' in said for name in ("web", "box")] == [True, True]
    finally:
        assert cli("down").code == 0


def test_server_serves_named_clusters_and_those_of_its_sandboxes(cli: Cli):
    staging = cli.write(
        "staging.yaml", "apiVersion: signadot.com/v1\nname: a\nspec: {cluster: staging, resources: []}\n"
    )
    refused(cli("up", "--port", "0", "--cluster", ""), 2, "'' is not a valid name for a cluster")
    up = ("up", "--detach", "--port", "0")
    assert cli(*up).code == 0
    try:
        refused(
            cli("apply", "-f", staging), 2, 'no cluster "staging"; this server has local', "dayfly up --cluster NAME"
        )
        assert cli("down").code == 0
        assert cli(*up, "--cluster", "staging", "--cluster", "prod-1").code == 0
        assert cli("apply", "-f", staging).code == 0
        assert cli("down").code == 0
        assert cli(*up).code == 0
        assert "AllDesiredWorkloadsReady" in cli("get", "sandboxes").out
        assert cli("sandbox", "delete", "a").code == 0
    finally:
        cli("down")


@pytest.mark.slow
def test_stale_url_of_killed_server_is_detected(cli: Cli):
    assert cli("up", "--detach", "--port", "0").code == 0
    process = json.loads(cli("status", "-o", "json").out)["process"]
    os.kill(process, signal.SIGKILL)
    until(lambda: not _alive(process))
    url = (cli.home / "url").read_text().strip()
    refused(cli("sandbox", "list"), 6, f"no server answers at {url}", "dayfly up")
    refused(cli("down"), 6, "no server runs")
    assert cli("up", "--detach", "--port", "0").code == 0
    assert cli("sandbox", "list").code == 0
    assert cli("down").code == 0


def test_a_stranger_where_a_killed_server_was_is_seen_through(cli: Cli, tmp_path: Path, journal: Path):
    """As after a reboot: the home has the old address, and another program has its port."""
    other = Cli(tmp_path / "other", cli.folder, [])
    assert cli("up", "--detach", "--port", "0").code == 0
    os.kill(json.loads(cli("status", "-o", "json").out)["process"], signal.SIGKILL)
    until(lambda: Home(cli.home).server_process() is None)
    port = (cli.home / "url").read_text().strip().rpartition(":")[2]
    assert other("up", "--detach", "--port", port).code == 0
    try:
        refused(cli("status"), 5, f"no server runs in {cli.home}", "dayfly up --port 0", "DAYFLY_HOME")
        plugin = cli.write("p.yaml", sample_specs.plugin(journal))
        done = cli("with", "-f", plugin, "--", "sh", "-c", "exit 7")
        assert done.code == 7, done.err
        assert journal.read_text().split() == ["provision", "seed", "drop"]
    finally:
        assert other("down").code == 0


def test_a_home_that_cannot_be_used(cli: Cli):
    cli.write("file", "")
    refused(cli("up", DAYFLY_HOME=str(cli.folder / "file" / "home")), 5, "DAYFLY_HOME")
    refused(cli("status", DAYFLY_URL="nowhere"), 2, "'nowhere' is not the address of a server", "http://host:port")
    refused(cli("status", DAYFLY_URL="http://127.0.0.1:99999"), 2, "no usable port")
    refused(cli("up", "--port", "70000"), 2, "dayfly up --help")


def test_a_runner_that_is_not_there(cli: Cli):
    refused(cli("up", "--port", "0", DAYFLY_RUNNER="/nowhere/runner"), 2, "/nowhere/runner", "runner/build.sh")


def test_nohup_is_respected(cli: Cli):
    cli.started.append(
        subprocess.Popen(
            ["env", "--ignore-signal=HUP", *COMMAND, "up", "--port", "0"],
            env=cli.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    )
    (server,) = cli.started
    assert b"is up at" in server.stderr.readline()
    server.send_signal(signal.SIGHUP)
    assert cli("status").code == 0
    server.terminate()
    assert server.wait(20) == 0


@pytest.mark.root
def test_a_full_disk_is_said_in_one_line(cli: Cli, tmp_path: Path):
    """A separate mount namespace leaves no mounts after any end of the test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk} && cat /dev/zero > {disk}/full 2>/dev/null; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *COMMAND, "up", "--port", "0"],
        env=cli.environment(DAYFLY_HOME=str(disk / "home")),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("dayfly: ")
    assert "internal error" not in line
    assert "No space left on device" in line or "full" in line


def _alive(process: int) -> bool:
    """Whether a process runs; a zombie (Z) does not."""
    try:
        return subprocess.run(["ps", "-o", "stat=", str(process)], capture_output=True, text=True).stdout[:1] not in (
            "",
            "Z",
        )
    finally:
        time.sleep(0.01)


@pytest.mark.parametrize(("called", "said"), [("", "127.0.0.1:{port}"), ("port x", "port x")])
def test_address_in_use_error_names_the_option_to_change(called, said):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(DayflyError) as refused, listen_on("127.0.0.1", port, "choose another", called=called):
            pass
    assert refused.value.code == Exit.FAILED
    assert str(refused.value) == f"{said.format(port=port)}: address already in use; choose another"


def test_later_error_is_not_reported_as_address_in_use():
    with pytest.raises(OSError, match="disk"), listen_on("127.0.0.1", 0, "choose another") as sock:
        raise OSError(28, "disk full")
    assert sock.fileno() == -1


def test_a_sandbox_is_two_traces_and_its_steps_know_theirs(cli, journal):
    say = f"echo $TRACEPARENT >> {journal}"
    drop = f"[ -e {journal}.once ] && exit 0; {say}; touch {journal}.once; echo {CANARY}; exit 7"
    cli.write("p.yaml", sample_specs.plugin(journal, create=f"{say}; echo {CANARY}", delete=drop))
    cli.write("demo.yaml", sample_specs.sandbox())
    with collecting() as collector:
        assert cli("up", "--detach", "--port", "0", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url).code == 0
        try:
            assert cli("apply", "-f", ".").code == 0
            (name,) = cli.sandboxes()
            until(lambda: "create sandbox" in collector.roots())
            assert cli("sandbox", "delete", name).code == 0
            until(lambda: "delete sandbox" in collector.roots())
        finally:
            assert cli("down").code == 0
        create, delete = collector.roots()["create sandbox"], collector.roots()["delete sandbox"]
        assert (create.attributes["dayfly.outcome"], create.attributes["dayfly.target.name"]) == ("ready", name)
        assert (create.error, delete.error) == ("", "")
        first = collector.below(create)[0]
        (attempt,) = collector.below(first)
        assert create.start <= first.start <= attempt.start <= attempt.end <= first.end <= create.end
        failed = [each for unit in collector.below(delete) for each in collector.below(unit) if each.error]
        assert [(each.name, each.error) for each in failed] == [("attempt 1", "ExitCode")]
        parents = [line for line in journal.read_text().split() if line.startswith("00-")]
        assert parents == [f"00-{each.trace}-{each.id}-01" for each in (attempt, failed[0])]
        assert CANARY not in str(collector.spans)
        assert collector.resources[0]["service.name"] == "dayfly"
