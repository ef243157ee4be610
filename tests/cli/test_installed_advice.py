"""The advice for a missing part names the source and the installer of this Dayfly, never only a name on an index."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from dayfly.cli import installed

if TYPE_CHECKING:
    from pathlib import Path

GIT = {"url": "https://forge.example/dayfly", "vcs_info": {"vcs": "git", "commit_id": "abc"}}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installed Dayfly that is no checkout."""
    folder = tmp_path / "dayfly-0.dist-info"
    folder.mkdir()
    monkeypatch.setattr(installed, "checkout", lambda: None)
    monkeypatch.setattr(metadata, "distribution", lambda _name: metadata.PathDistribution(folder))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return folder


def test_advice_in_a_checkout_names_its_setup_script():
    assert installed.install_advice("operator").endswith("/scripts/setup.sh operator")
    assert installed.install_advice("routing").endswith("/scripts/setup.sh dev"), "only this environment has Envoy"


def test_advice_names_the_url_of_the_installed_package(package: Path):
    (package / "direct_url.json").write_text(json.dumps(GIT))
    wanted = "install it with: pip install 'dayfly[routing] @ git+https://forge.example/dayfly@abc'"
    assert installed.install_advice("routing") == wanted


@pytest.mark.parametrize(("exists", "named"), [(True, "dayfly[otel] @ file:"), (False, "CHECKOUT[otel]")])
def test_advice_names_a_local_wheel_only_while_it_exists(package: Path, tmp_path: Path, named: str, *, exists: bool):
    wheel = tmp_path / "a wheel.whl"
    if exists:
        wheel.touch()
    (package / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri()}))
    assert f"pip install '{named}" in installed.install_advice("otel")


@pytest.mark.parametrize("recorded", [None, "{}", "no JSON", "[]"])
def test_advice_without_a_known_source_names_no_package(package: Path, recorded: str | None):
    if recorded is not None:
        (package / "direct_url.json").write_text(recorded)
    assert installed.install_advice("server").endswith("from its checkout: pip install 'CHECKOUT[server]'")


@pytest.mark.parametrize(
    ("file", "command"),
    [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install --force")],
)
def test_advice_names_the_installer_of_the_environment(package: Path, tmp_path: Path, file: str, command: str):
    (tmp_path / file).touch()
    (package / "direct_url.json").write_text(json.dumps(GIT))
    assert f": {command} 'dayfly[operator] @ git+" in installed.install_advice("operator")
