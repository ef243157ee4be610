"""Temporary sandboxes: the plugin that a resource refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dayfly.client import files, temporary

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("2.0.0", "10.0.0", "10.0.0-rc.1", "9.1.0")


def made(folder: Path, reference: str) -> dict:
    """Return the only resource of a sandbox with this reference, next to several versions of a plugin."""
    for number, version in enumerate(VERSIONS):
        step = f'{{name: make, script: "#!/bin/sh\\n# {version}"}}'
        (folder / f"{number}.yaml").write_text(f"name: db@{version}\nspec: {{create: [{step}]}}\n")
    resources = f"[{{name: mydb, plugin: {reference}}}]"
    (folder / "s.yaml").write_text(f"name: box\nspec: {{cluster: local, resources: {resources}}}\n")
    (resource,) = temporary.sandbox_with_plugins(files.load([str(folder)], []))["spec"]["resources"]
    return resource


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("db", "10.0.0"),
        ("db@latest", "10.0.0"),
        ("db@2.0.0", "2.0.0"),
        ("db@v2", "2.0.0"),
        ("db@10.0.0-rc.1", "10.0.0-rc.1"),
    ],
)
def test_newest_matching_version_is_inlined(tmp_path, reference: str, meant: str):
    """In any order of the files."""
    resource = made(tmp_path, reference)
    assert resource["spec"]["create"][0]["script"] == f"#!/bin/sh\n# {meant}"
    assert "plugin" not in resource


@pytest.mark.parametrize("reference", ["db@3.0.0", "other", "other@2.0.0"])
def test_plugin_outside_the_files_is_left_to_the_server(tmp_path, reference: str):
    assert made(tmp_path, reference) == {"name": "mydb", "plugin": reference}
