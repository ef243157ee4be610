"""A cleanup that cannot succeed: `why` reports it, and `abandon` ends it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_stuck_cleanup_is_explained_and_can_be_abandoned(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, delete="echo no network >&2; exit 6"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    done = served("sandbox", "delete", "demo", "--timeout", "2s")
    assert done.code == 4
    last = done.err.splitlines()[-1]
    assert last.startswith("dayfly: demo is still being deleted after 2 s: ")
    assert last.endswith("see: dayfly why demo")
    until(lambda: "to do: read its log" in served("why", "demo").out)
    assert "db/drop" in served("why", "demo").out
    refused(served("apply", "-f", "s.yaml"), 1, "demo", "dayfly why demo")
    assert served("logs", "demo", "db", "drop", "--attempt", "1").out == "no network\n"

    done = served("abandon", "demo", "--reason", "the database is gone with its machine")
    assert done.code == 0, done.err
    assert "may be left over" in done.err
    until(lambda: served.sandboxes() == [])
    text = served("why", "demo").out
    told = json.loads(served("why", "demo", "-o", "json").out)
    assert re.match(
        r"its cleanup was abandoned by dayfly/\S+, key \w{8}: the database is gone with its machine", told["message"]
    )
    assert (told["subject"], told["reason"], "since" in told) == ("sandbox demo", "Abandoned", True)
    (left,) = told["because"]
    assert re.fullmatch(r"created by db/provision, db/seed \(DAYFLY_RESOURCE_ID=\w{26}\)", left["message"])
    for each in (told["message"], told["next"], left["message"], "Abandoned", "LeftoversPossible"):
        assert each in text
    assert re.search(
        r"Abandoned: +the database is gone with its machine \(by dayfly/", served("get", "sandbox", "demo").out
    )
    refused(served("abandon", "demo", "--reason", "again"), 3, 'no sandbox "demo"')


GROUP = """
name: pay
spec:
  cluster: local
  match: {label: {key: team, value: pay}}
"""


@pytest.mark.parametrize(("name", "kind", "verb"), [("demo", "sandbox", "sandbox"), ("rg/pay", "route group", "rg")])
def test_abandon_of_ready_one_is_refused_without_force(served: Cli, journal: Path, name: str, kind: str, verb: str):
    served.write("p.yaml", sample_specs.plugin(journal))
    served.write("s.yaml", sample_specs.sandbox())
    served.write("g.yaml", GROUP)
    assert served("apply", "-f", "p.yaml", "-f", "s.yaml").code == 0
    assert served("rg", "apply", "-f", "g.yaml").code == 0
    bare = name.rpartition("/")[2]
    first = f"delete {bare}; or leave everything behind with --force"
    refused(served("abandon", name, "--reason", "bored"), 1, f'{kind} "{bare}" is not being deleted', first)
    assert "Ready" in served("get", verb, bare).out
    done = served("abandon", name, "--reason", "bored", "--force")
    assert done.code == 0, done.err
    until(lambda: "Phase:         Ended" in served(verb, "get", bare).out)
