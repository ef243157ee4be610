"""`dayfly with --secrets-file`: secrets reach only the steps that declare them."""

from __future__ import annotations

import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.cli import sample_specs
from tests.cli.command import COMMAND, Cli, refused, until
from tests.embedded.machine import work_of

from dayfly.cli import secret_files, temporary_spec, verbs
from dayfly.client.errors import DayflyError

CANARY = "canary-31f0-of-the-mine"
SEEN = """\
import os, pathlib
word = os.environb[b"ADMIN_PASSWORD"]
assert pathlib.Path("/tmp/password").read_bytes() == word
print("it is", word.decode(), flush=True)
found = []
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit() and int(entry.name) != os.getpid():
        for name in ("cmdline", "environ"):
            try:
                if word in (entry / name).read_bytes():
                    found.append(f"{entry.name} {name}")
            except OSError:
                pass
"""
"""A step that looks who else has the value in arguments or environment."""


BOX = "name: demo\nspec:\n  cluster: local\n  resources:\n  - {name: db, plugin: db}\n"


def plugin(journal: Path, *, create: str = "", delete: str = "", name: str = "db") -> str:
    looking = SEEN.replace("\n", "\n      ")
    return f"""\
name: {name}
spec:
  create:
  - name: look
    inputs:
    - {{name: admin-password, valueFromSandbox: true, secret: true, as: {{env: ADMIN_PASSWORD, path: /tmp/password}}}}
    script: |
      #!{sys.executable}
      {looking}
      with open({str(journal)!r}, "a") as file:
          print("looked", *found, file=file)
      pathlib.Path("/tmp/looked").touch()
    outputs:
    - {{name: looked, valueFromPath: /tmp/looked}}
  - name: make
    inputs:
    - {{name: admin-password, valueFromSandbox: true}}
    - {{name: looked, valueFromStep: {{name: look, output: looked}}}}
    script: |
      #!/bin/sh
      echo make >> {journal}
      {create or "true"}
  delete:
  - name: drop
    inputs:
    - {{name: admin-password, valueFromSandbox: true}}
    script: |
      #!/bin/sh
      {delete or "true"}
      echo "drop ${{#ADMIN_PASSWORD}}" >> {journal}
      echo "dropped with $ADMIN_PASSWORD"
"""


def secrets(cli: Cli, text: str = f"ADMIN_PASSWORD={CANARY}\nOTHER=nobody-asks\n", name: str = ".env") -> str:
    path = cli.folder / name
    path.write_text(text)
    path.chmod(0o600)
    return name


def holding(cli: Cli) -> list[str]:
    """Return all files of the home and of its work folder that contain the canary."""
    folders = [cli.home, work_of(cli.home)]
    files = [path for folder in folders if folder.exists() for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


TOLD = """\
import json, os, pathlib, subprocess, sys, urllib.request
home, dayfly = pathlib.Path(os.environ["DAYFLY_HOME"]), sys.argv[1:]
url, key = ((home / name).read_text().strip() for name in ("url", "key"))
def get(path):
    asked = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {key}"})
    return urllib.request.urlopen(asked).read().decode()
name = json.loads(get("/api/v2/orgs/local/sandboxes"))[0]["name"]
for at in ("", "/plan", "/report", "/why", "/outputs", "/attempts", "/history", "/logs?resource=db&step=look"):
    print(get(f"/api/v2/orgs/local/sandboxes/{name}{at}"))
for at in ("audit", "attention", "sandboxes", "clusters"):
    print(get(f"/api/v2/orgs/local/{at}"))
for verb in (["logs", name], ["get", "sandbox", name, "-o", "yaml"], ["why", name], ["env", name], ["audit"],
             ["sandbox", "get", name, "-o", "json"], ["status"]):
    subprocess.run([*dayfly, *verb], stderr=subprocess.STDOUT)
subprocess.run(["env"])
"""
"""Prints the output of the server and the command line while the resource exists."""


@pytest.mark.slow
def test_secret_reaches_only_the_steps(served: Cli, journal: Path):
    given = ("with", "-f", served.write("p.yaml", plugin(journal)), "--secrets-file", secrets(served))
    done = served(*given, "--", sys.executable, "-c", TOLD, *COMMAND)
    assert done.code == 0, done.err
    assert CANARY not in done.out + done.err
    assert "it is ***" in done.out
    assert '"env": "ADMIN_PASSWORD"' in done.out
    assert "db gets the secret admin-password (ADMIN_PASSWORD in .env)." in done.err
    assert "nobody-asks" not in done.out + done.err
    assert "OTHER" not in done.err
    assert journal.read_text().splitlines() == ["looked", "make", f"drop {len(CANARY)}"]
    assert b"nobody-asks" not in b"".join(path.read_bytes() for path in served.home.glob("*.db*"))
    until(lambda: not holding(served), 20)
    with sqlite3.connect(served.home / "ledger.db") as ledger:
        assert ledger.execute("SELECT count(*) FROM secret").fetchone() == (0,)
    logs = b"".join(path.read_bytes() for path in served.home.rglob("*.log"))
    assert b"dropped with ***" in logs


def test_the_plan_has_no_value(served: Cli, journal: Path):
    done = served("plan", "-f", served.write("p.yaml", plugin(journal)), "-f", served.write("s.yaml", BOX))
    assert "$ADMIN_PASSWORD and /tmp/password = the secrets file (sensitive)" in done.out, done


def test_published_plugin_names_the_secrets_it_takes(served: Cli, journal: Path):
    assert served("apply", "-f", served.write("p.yaml", plugin(journal))).code == 0
    box = "name: demo\nspec:\n  cluster: local\n  resources:\n  - {name: mine, plugin: db}\n"
    file = served.write("s.yaml", box)
    refused(served("apply", "-f", file), 2, "s.yaml:5", "admin-password is a secret that was not given")
    refused(served("with", "-f", file, "--", "true"), 2, "admin-password (of mine) is a secret; name a file")
    done = served(
        "with", "-f", file, "--secrets-file", secrets(served, f"MINE_ADMIN_PASSWORD='{CANARY}'"), "--", "true"
    )
    assert done.code == 0, done.err
    assert journal.read_text().splitlines()[-1] == f"drop {len(CANARY)}"
    assert served.sandboxes() == []


def test_another_secret_is_another_name_to_use_again(cli: Cli, journal: Path):
    spec = temporary_spec.read((str(cli.folder / cli.write("p.yaml", plugin(journal))),), (), (), (), ())
    given = [{"db": {"admin-password": value}} for value in (CANARY, f"{CANARY}-2")]
    names = [spec.stable_name("a home's key", each) for each in ({}, *given)]
    assert len({*names, spec.stable_name("another home's", given[0])}) == 4
    assert names[1] == spec.stable_name("a home's key", given[0])


def test_the_next_with_the_same_secret_has_it_at_once(served: Cli, journal: Path):
    call = ("with", "-f", served.write("p.yaml", plugin(journal)), "--secrets-file", secrets(served), "--reuse")
    for _ in range(2):
        done = served(*call, "--", "true")
        assert (done.code, CANARY in done.err) == (0, False), done.err
    assert journal.read_text().splitlines() == ["looked", "make"]
    (name,) = served.sandboxes()
    assert served("sandbox", "delete", name).code == 0
    until(lambda: not holding(served), 20)


@pytest.mark.proof
def test_killed_server_leaves_no_secret_after_next_cleanup(cli: Cli, journal: Path):
    """While the resource is made, and while it is removed."""
    gates = {step: journal.with_name(step) for step in ("create", "delete")}
    waits = {step: f"echo waits to {step} >> {journal}; {sample_specs.waiting(gate)}" for step, gate in gates.items()}
    given = ("-f", cli.write("p.yaml", plugin(journal, **waits)), "--secrets-file", secrets(cli))
    servers = []

    def begin() -> None:
        servers.append(cli.start("up", "--port", "0"))
        assert b"is up at" in servers[-1].stderr.readline()

    def end(number: int) -> None:
        servers[-1].send_signal(number)
        servers[-1].wait(30)
        assert CANARY.encode() not in servers[-1].stderr.read()

    begin()
    process = cli.start("with", *given, "--", "true")
    until(lambda: journal.exists() and "waits to create" in journal.read_text())
    end(signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, CANARY.encode() in err) == (6, False), err
    assert any(name.startswith("ledger.db") for name in holding(cli)), "the delete step still needs it"
    begin()
    gates["create"].touch()
    (name,) = cli.sandboxes()
    assert cli("sandbox", "delete", name, "--wait=false").code == 0
    until(lambda: "waits to delete" in journal.read_text())
    end(signal.SIGKILL)
    begin()
    gates["delete"].touch()
    until(lambda: not holding(cli), 20)
    assert journal.read_text().splitlines()[-1] == f"drop {len(CANARY)}"
    end(signal.SIGTERM)


def test_killed_with_leaves_no_secret_after_its_lease(served: Cli, journal: Path):
    given = ("-f", served.write("p.yaml", plugin(journal)), "--secrets-file", secrets(served))
    process = served.start("with", *given, "--", "sh", "-c", "touch there; exec sleep 600")
    until((served.folder / "there").exists)
    process.kill()
    process.wait()
    (name,) = served.sandboxes()
    assert served("sandbox", "delete", name).code == 0
    until(lambda: not holding(served), 20)


def test_a_server_elsewhere_is_given_none(cli: Cli, journal: Path):
    """No secret is sent there; only the health is requested."""
    with pytest.raises(DayflyError, match="secrets are sent only to a server on this machine"):
        secret_files.reject_remote_server("https://dayfly.example:8443")
    for url in ("http://127.0.0.1:7850", "http://[::1]:7850", "http://localhost:1"):
        secret_files.reject_remote_server(url)


def test_a_fault_of_our_own_keeps_none_for_a_bug_report(cli: Cli, journal: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(_text: str) -> None:
        raise KeyError("a fault")

    cli.home.mkdir(mode=0o700)
    monkeypatch.setenv("DAYFLY_HOME", str(cli.home))
    monkeypatch.setattr(secret_files, "print_message", fail)
    file, given = cli.write("p.yaml", plugin(journal)), secrets(cli)
    call = ["with", "-f", str(cli.folder / file), "--secrets-file", str(cli.folder / given), "--", "true"]
    assert verbs.run(call) == 1
    (crash,) = cli.home.glob("crash-*.txt")
    assert ("a fault" in crash.read_text(), CANARY in crash.read_text()) == (True, False)


def test_all_that_is_missing_is_named_before_anything_starts(cli: Cli, journal: Path):
    file = cli.write("p.yaml", plugin(journal) + "---\n" + plugin(journal, name="queue"))
    call = ("with", "-f", file, "--secrets-file", secrets(cli, f"ADMIN_PASSWORD={CANARY}\nQUEUE_ADMIN_PASWORD=x1234\n"))
    said = "DB_ADMIN_PASSWORD (of db), QUEUE_ADMIN_PASSWORD (of queue) are missing"
    refused(cli(*call, "--", "true"), 2, ".env: ", said)
    refused(cli("with", "-f", file, "--", "true"), 2, "admin-password (of db), admin-password (of queue) are secrets")
    refused(
        cli("with", "-f", file, "-p", f"db.admin-password={CANARY}", "--", "true"),
        2,
        "other users can read the values of -p",
    )
    assert not cli.home.exists()
    assert not journal.exists()


def test_a_plugin_that_takes_one_is_tested_with_it(cli: Cli, journal: Path):
    thing = f"{journal}.$DAYFLY_RESOURCE_ID"
    inventory = f"""\
  inventory:
  - name: list
    inputs:
    - {{name: admin-password, valueFromSandbox: true}}
    script: |
      #!/bin/sh
      echo "inventory ${{#ADMIN_PASSWORD}}" >> {journal}
      count=0
      for each in {thing}; do
          [ ! -e "$each" ] || {{ count=1; echo '{{"name": "thing"}}'; }}
      done
      echo "{{\\"complete\\": true, \\"count\\": $count}}"
"""
    file = cli.write("p.yaml", plugin(journal, create=f"touch {thing}", delete=f"rm -f {thing}") + inventory)
    only = ("--only", "no such life", "-o", "json")
    refused(cli("plugin", "test", "-f", file, *only), 2, "admin-password (of db) is a secret; name a file")
    said = cli("plugin", "test", "-f", file, *only, "--context", "x", "--secrets-file", secrets(cli))
    refused(said, 2, "admin-password is a secret, and --secrets-file can set it only on")
    done = cli("plugin", "test", "-f", file, *only, "--secrets-file", secrets(cli))
    assert (done.code, CANARY in done.out + done.err) == (0, False), done
    written = journal.read_text().splitlines()
    assert written.count(f"inventory {len(CANARY)}") >= 2, written
    assert f"drop {len(CANARY)}" in written


def test_apply_accepts_a_secrets_file(served: Cli, journal: Path):
    files = ("-f", served.write("p.yaml", plugin(journal)), "-f", served.write("s.yaml", BOX))
    call = ("apply", *files, "--secrets-file")
    refused(served(*call, secrets(served, "OTHER=word\n")), 2, ".env: ADMIN_PASSWORD (of db) is missing")
    assert "There are no plugins" in served("plugin", "list").err, "nothing was changed"
    elsewhere = served(*call, secrets(served), DAYFLY_URL="https://dayfly.example:8443", DAYFLY_API_KEY="k")
    refused(elsewhere, 2, "secrets are sent only to a server on this machine")
    done = served(*call, secrets(served))
    assert (done.code, CANARY in done.out + done.err) == (0, False), done.err
    again = served("sandbox", "apply", *files[2:], "--secrets-file", secrets(served))
    assert (again.code, "Unchanged" in again.err) == (0, True), again.err
    other = served("sandbox", "apply", *files[2:], "--secrets-file", secrets(served, "ADMIN_PASSWORD=another"))
    refused_ = 'secrets of sandbox "demo" cannot change while it lives'
    assert (other.code, refused_ in other.err) == (1, True), other.err
    assert served("sandbox", "delete", "demo").code == 0
    until(lambda: not holding(served), 20)
    assert journal.read_text().splitlines() == ["looked", "make", f"drop {len(CANARY)}"]
