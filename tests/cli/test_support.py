"""Doctor, bug report, reset and version."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused

from dayfly import __version__
from dayfly.client.home import Home

if TYPE_CHECKING:
    from pathlib import Path


def test_version_of_client_and_server(served: Cli, cli: Cli):
    assert json.loads(served("version", "-o", "json").out) == {
        "client": __version__,
        "api": "v2",
        "server": __version__,
        "operators": {"local": __version__},
    }
    assert "Server:   none runs" in cli._replace(home=cli.folder / "empty")("version").out
    lost = cli("version", DAYFLY_URL="http://127.0.0.1:9")
    assert (lost.code, "not reachable" in lost.out) == (0, True)


def test_doctor_reports_each_part_and_fails_after_a_failed_check(served: Cli):
    done = served("doctor")
    assert done.code == 0, done.out
    states = {line.split("   ")[0]: line for line in done.out.splitlines()}
    assert {"dayfly", "home", "runner", "server", "key", "sandboxes"} <= set(states)
    wrong = served("doctor", DAYFLY_API_KEY="wrong")
    assert wrong.code == 1
    assert "failed: key" in wrong.err
    lost = served("doctor", "-o", "json", DAYFLY_URL="http://127.0.0.1:9")
    assert lost.code == 1
    assert {each["check"]: each["state"] for each in json.loads(lost.out)}["server"] == "failed"
    refused(served("doctor", "-n", "x"), 2, "--namespace needs a cluster")


def test_doctor_refuses_an_unknown_cluster_or_server(cli: Cli):
    refused(cli("doctor", "--context", "nothing", KUBECONFIG=str(cli.folder / "none")), 2, "cannot reach a cluster")
    refused(cli("doctor", "--server", "nothing"), 3, 'no server "nothing"')


SECRET = "sk-hidden-value"


def test_bug_report_has_no_values_and_no_key(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create=f"echo {SECRET}"))
    served.write("s.yaml", sample_specs.sandbox().replace("owner: me", f"owner: {SECRET}"))
    assert served("apply", "-f", ".").code == 0
    Home.of(served.home).log.write_text(f"GET https://user:{SECRET}@example.com Authorization: Bearer {SECRET}\n")
    assert served("bug-report", "demo", "--to", "report.tar.gz").code == 0
    with tarfile.open(served.folder / "report.tar.gz") as archive:
        texts = {each.name: archive.extractfile(each).read().decode() for each in archive}
    Home.of(served.home).log.unlink()
    assert {name.rpartition("/")[2] for name in texts} == {"machine.json", "server.log", "sandboxes-demo.json"}
    key = Home.of(served.home).key.read_text().strip()
    for text in texts.values():
        assert SECRET not in text
        assert key not in text
    assert "db/provision" in texts["dayfly-bug-report/sandboxes-demo.json"]
    refused(served("bug-report", "--to", "report.tar.gz"), 2, "report.tar.gz already exists")
    refused(served("bug-report", "missing", "--to", "other.tar.gz"), 3, "")
    assert not (served.folder / "other.tar.gz").exists()


@pytest.mark.parametrize("running", [True, False])
def test_reset_cleans_up_and_removes_the_home(cli: Cli, journal: Path, running: bool):
    assert cli("up", "--detach", "--port", "0").code == 0
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("s.yaml", sample_specs.sandbox())
    assert cli("apply", "-f", ".").code == 0
    if not running:
        assert cli("down").code == 0
    refused(cli("reset"), 2, "add --yes")
    assert "drop" not in journal.read_text()
    done = cli("reset", "--yes")
    assert done.code == 0, done.err
    assert "drop" in journal.read_text()
    assert not cli.home.exists()
    assert cli("reset", "--yes").code == 0


def test_reset_keeps_the_home_if_a_cleanup_fails(cli: Cli, journal: Path):
    assert cli("up", "--detach", "--port", "0").code == 0
    cli.write("p.yaml", sample_specs.plugin(journal, delete="exit 3"))
    cli.write("s.yaml", sample_specs.sandbox())
    assert cli("apply", "-f", ".").code == 0
    done = cli("reset", "--yes", "--timeout", "1s")
    assert done.code == 4
    assert "the home is kept" in done.err
    assert cli.home.exists()
    assert cli("abandon", "demo", "--reason", "end of the test").code == 0
    assert cli("reset", "--yes").code == 0


def test_reset_waits_for_the_end_of_a_shared_parent(cli: Cli, journal: Path):
    """Its child does not wait for it."""
    make = "{name: make, script: '#!/bin/sh'}"
    end = f"{{name: end, script: '#!/bin/sh\n\nsleep 2; echo end >>{journal}'}}"
    cli.write("a.yaml", f"name: server@1.0.0\nspec: {{create: [{make}], delete: [{end}]}}\n")
    cli.write("b.yaml", f"name: part@1.0.0\nspec: {{parent: {{plugin: server@1.0.0}}, create: [{make}]}}\n")
    cli.write("c.yaml", "name: demo\nspec: {cluster: local, resources: [{name: part, plugin: part}]}\n")
    assert cli("up", "--detach", "--port", "0").code == 0
    done = cli("apply", "-f", ".")
    assert done.code == 0, done.err
    done = cli("reset", "--yes")
    assert done.code == 0, done.err
    assert journal.read_text().splitlines()[-1:] == ["end"]
    assert not cli.home.exists()


def test_reset_refuses_a_folder_that_is_no_home(cli: Cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "thesis.txt").write_text("words")
    refused(cli("reset", "--yes"), 2, "is not the home of a server")
    assert (cli.home / "thesis.txt").exists()
    refused(cli("reset", "--yes", DAYFLY_URL="http://127.0.0.1:9"), 2, "unset DAYFLY_URL")
