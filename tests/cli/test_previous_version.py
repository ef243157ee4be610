"""The previous release's command line and home with today's, and the other way around.

Until there is a release, it is the first commit with today's version of the ledger.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.cli import sample_specs
from tests.cli.command import until

from dayfly.embedded import ledger

ROOT = Path(__file__).resolve().parents[2]


def previous_commit() -> str:
    """Return the newest tag of a release, or else the commit that introduced the ledger's version."""

    def output(*command: str) -> list[str]:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()

    if tags := output("tag", "--list", "v*", "--merged", "HEAD^", "--sort", "-v:refname"):
        return tags[0]
    line = f"SCHEMA_VERSION = {ledger.SCHEMA_VERSION}"
    return output("log", "--format=%H", f"-S{line}", "--", "src/dayfly/embedded/ledger.py")[-1]


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables that select the previous version."""
    try:
        packed = subprocess.run(
            ["git", "archive", previous_commit(), "src", "runner", "requirements"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
    except (OSError, IndexError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"NOT TESTED: the history of this checkout does not reach back to the previous version: {problem}")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(packed)) as found:
        found.extractall(folder, filter="data")
    return {"PYTHONPATH": str(folder / "src")}


def write_specs(cli, journal: Path, create: str = "") -> None:
    (cli.folder / "plugin.yaml").write_text(sample_specs.plugin(journal, create=create))
    for name in ("demo", "late"):
        (cli.folder / f"{name}.yaml").write_text(sample_specs.sandbox(name))


def done(result):
    assert result.code == 0, result.err
    return result


@pytest.mark.slow
def test_home_of_the_previous_version_continues_after_an_upgrade(cli, previous, tmp_path):
    journal, gate = tmp_path / "journal", tmp_path / "gate"
    gate.touch()
    write_specs(cli, journal, create=sample_specs.waiting(gate))
    done(cli("up", "--detach", "--port", "0", **previous))
    done(cli("apply", "-f", "plugin.yaml", "-f", "demo.yaml", **previous))
    gate.unlink()
    cli.start("apply", "-f", "late.yaml", env=cli.environment(**previous))
    until(lambda: journal.read_text().split().count("provision") == 2)
    done(cli("down", **previous))
    done(cli("up", "--detach", "--port", "0"))
    gate.touch()
    until(lambda: cli("get").out.count("AllDesiredWorkloadsReady") == 2)
    for name in ("demo", "late"):
        done(cli("sandbox", "delete", name))
    assert sorted(journal.read_text().split()) == sorted(["provision", "seed", "drop"] * 2)
    done(cli("down"))


@pytest.mark.slow
@pytest.mark.parametrize("newer", ["server", "client"])
def test_neighbouring_client_and_server_work_together(cli, previous, tmp_path, newer):
    of_server, of_client = ({}, previous) if newer == "server" else (previous, {})
    journal = tmp_path / "journal"
    write_specs(cli, journal)
    done(cli("up", "--detach", "--port", "0", **of_server))
    done(cli("apply", "-f", "plugin.yaml", "-f", "demo.yaml", **of_client))
    assert "Ready" in done(cli("get", **of_client)).out
    assert "DB_PROVISION_PATH" in done(cli("env", "demo", **of_client)).out
    assert "provision for" in done(cli("logs", "demo", **of_client)).out
    done(cli("sandbox", "delete", "demo", **of_client))
    assert journal.read_text().split() == ["provision", "seed", "drop"]
    done(cli("down", **of_server))
