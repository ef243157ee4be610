"""`dayfly plugin plan` and `plugin diff`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_plan_shows_the_steps_without_server_and_params(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal))
    shown = cli("plugin", "plan", "p.yaml")
    assert shown.code == 0, shown.err
    assert shown.out.startswith('Resource plugin "notes@1.0.0"\n')
    assert '$OWNER = "<owner>"' in shown.out
    assert "delete, stage 1: postStop" in shown.out
    assert '$OWNER = "me"' in cli("plugin", "plan", "-f", "p.yaml", "-p", "owner=me").out
    assert json.loads(cli("plugin", "plan", "p.yaml", "-o", "json").out)["plugin"] == "notes@1.0.0"
    refused(cli("plugin", "plan", "p.yaml", "-p", "ovner=me"), 2, "notes@1.0.0 has no param ovner; its params: owner")
    refused(cli("plugin", "plan"), 2, "give the file of a plugin")
    cli.write("s.yaml", sample_specs.sandbox())
    refused(cli("plugin", "plan", "s.yaml"), 2, "is a sandbox, not a plugin")


def test_diff_compares_with_the_published_version(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    refused(served("plugin", "diff", "p.yaml"), 3, 'no version of the resource plugin "notes" is published')
    assert served("plugin", "apply", "-f", "p.yaml").code == 0
    same = served("plugin", "diff", "p.yaml")
    assert (same.code, same.out) == (0, "")
    served.write("p.yaml", sample_specs.plugin(journal, create="echo changed"))
    changed = served("plugin", "diff", "p.yaml")
    assert changed.code == 1
    assert "echo changed" in "".join(line for line in changed.out.splitlines() if line.startswith("+"))
    refused(served("plugin", "apply", "-f", "p.yaml"), 1, "p.yaml: ", "compare: dayfly plugin diff p.yaml")
    served.write("p.yaml", sample_specs.plugin(journal, create="echo changed").replace("@1.0.0", "@1.1.0"))
    assert "--- published notes@1.0.0" in served("plugin", "diff", "p.yaml").out
