"""`dayfly usage`: as a table, as CSV and as JSON."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING

from tests.cli import sample_specs
from tests.cli.command import Cli, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_usage_counts_the_sandboxes_of_a_user(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    user = getpass.getuser()
    (found,) = [each for each in json.loads(served("usage", "-o", "json").out)["sums"] if each["value"] == user]
    assert found["sandboxes"] >= 1
    header, *rows = served("usage").out.splitlines()
    assert header.split() == ["CREATEDBY", "SANDBOXES", "HOURS"]
    assert any(row.startswith(f"{user} ") for row in rows)
    header, *rows = served("usage", "--csv", "--by", "team").out.splitlines()
    assert header == "value,sandboxes,hours"
    assert any(row.startswith(",") for row in rows), "the sandbox has no label of this name"
    refused(served("usage", "--csv", "-o", "json"), 2, "give either --csv or -o")
