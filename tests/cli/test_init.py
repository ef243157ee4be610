"""The files of `plugin init` work immediately, and existing files are not touched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.cli.command import Cli
from tests.examples.pages import follow

from dayfly.cli import scaffold

ROOT = Path(__file__).resolve().parents[2]


def typed(cli: Cli) -> dict[str, str]:
    """The environment of a user with `dayfly` on the PATH."""
    return cli.environment(PATH=f"{ROOT}{os.pathsep}{os.environ['PATH']}", TMPDIR=str(cli.folder))


@pytest.mark.slow
def test_new_plugin_folder_passes_its_test_and_its_readme(cli: Cli):
    done = cli("plugin", "init", "scratch-space")
    assert (done.code, done.err) == (0, "Wrote 8 files to scratch-space. Try it with: scratch-space/test.sh\n")
    folder = cli.folder / "scratch-space"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = follow(folder / "README.md", folder, typed(cli))
    assert "created, used and removed; nothing is left" in said
    assert "THING_MAKE_PATH=" in said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_its_test_can_fail(cli: Cli):
    assert cli("plugin", "init", "scratch").code == 0
    folder = cli.folder / "scratch"
    (folder / "remove.sh").write_text("#!/bin/sh\necho nothing\n")
    (folder / "plugin.yaml").write_text((folder / "plugin.yaml").read_text().replace("debian:12-slim", "debian:latest"))
    failed = subprocess.run([folder / "test.sh"], env=typed(cli), capture_output=True, text=True)
    assert (failed.returncode, "DF601" in failed.stdout, "DF401" in failed.stdout) == (1, True, True)
    (folder / "plugin.yaml").write_text(
        (folder / "plugin.yaml")
        .read_text()
        .replace("debian:latest", "debian:12  # dayfly: ignore=DF401")
        .replace(
            "- name: root\n      valueFromSandbox: true\n    script",
            "- name: root  # dayfly: ignore=DF401\n      valueFromSandbox: true\n    script",
        )
    )
    failed = subprocess.run([folder / "test.sh"], env=typed(cli), capture_output=True, text=True)
    assert (failed.returncode, "left over: " in failed.stderr) == (1, True), failed


@pytest.mark.parametrize("name", sorted(scaffold.gallery()))
def test_each_example_of_the_gallery_can_be_begun_with(name: str, tmp_path: Path):
    folder = tmp_path / "mine"
    scaffold.create(str(folder), name)
    example = ROOT / "examples" / name
    for path in example.rglob("*"):
        if path.is_file() and path.name not in ("README.md", "plugin.yaml") and "__pycache__" not in path.parts:
            assert (folder / path.relative_to(example)).read_bytes() == path.read_bytes()
    assert (folder / "plugin.yaml").read_text().partition("\n")[2] == (example / "plugin.yaml").read_text()
    readme = (folder / "README.md").read_text()
    assert (f"examples/{name}" in readme, "./dayfly" in readme, "(../" in readme or "the checkout" in readme) == (
        False,
        False,
        False,
    )
    ended = (
        subprocess.run(
            [folder / "test.sh"],
            env={**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        if name == "sqlite-notes"
        else None
    )
    assert ended is None or (ended.returncode, ended.stdout) == (0, ""), ended


@pytest.mark.parametrize("name", ["../postgres-schema", "volume-backup", "s3-buckt", ""])
def test_unknown_gallery_example_is_refused(cli: Cli, name: str):
    done = cli("plugin", "init", "mine", "--from", name)
    assert (done.code, f'the gallery has no example "{name}"' in done.err) == (3, True)
    assert not (cli.folder / "mine").exists()


def test_nothing_that_is_there_is_touched(cli: Cli):
    (cli.folder / "mine").mkdir()
    (cli.folder / "mine" / "notes").write_text("mine")
    (cli.folder / "file").write_text("mine")
    for name in ("mine", "file"):
        done = cli("plugin", "init", name)
        assert (done.code, "exists and is not empty" in done.err) == (2, True)
    assert [path.name for path in (cli.folder / "mine").iterdir()] == ["notes"]
    done = cli("plugin", "init", "9-lives")
    assert (done.code, (cli.folder / "9-lives").exists()) == (2, False)


def test_the_longest_names_work(tmp_path: Path):
    name = "a" * 24 + "-" + "B" * 100
    scaffold.create(str(tmp_path / name), None)
    sandbox = yaml.safe_load((tmp_path / name / "sandbox.yaml").read_text())
    assert (sandbox["name"], sandbox["spec"]["resources"][0]["plugin"]) == ("a" * 24 + "-demo", f"{name}@1.0.0")


def test_schema_accepts_gallery_plugins_and_rejects_a_typo(tmp_path: Path):
    scaffold.create(str(tmp_path / "mine"), None)
    schema = json.loads((tmp_path / "mine" / scaffold.SCHEMA).read_text())
    check = jsonschema.Draft7Validator(schema)
    check.check_schema(schema)
    plugins = [*ROOT.glob("examples/*/plugin.yaml"), tmp_path / "mine" / "plugin.yaml"]
    for path in plugins:
        assert [fault.message for fault in check.iter_errors(yaml.safe_load(path.read_text()))] == [], path
    wrong = yaml.safe_load(plugins[-1].read_text())
    wrong["spec"]["create"][0]["inputs"][0]["valueFromSandbx"] = True
    assert not check.is_valid(wrong)
    assert (
        (tmp_path / "mine" / "plugin.yaml").read_text().startswith(f"# yaml-language-server: $schema={scaffold.SCHEMA}")
    )
