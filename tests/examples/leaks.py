"""Leak checks of examples on this machine: a check, its sweeps, and the deletion of an orphan beside a foreign item."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.examples.home import Home, until

REASON = "a test of leak checks"


def write_check(folder: Path, plugin: str, params: Mapping[str, str]) -> Path:
    """Write a check for a plugin, which may delete what is older than a second."""
    spec = {"cluster": "local", "plugin": plugin, "params": dict(params), "every": "1h", "grace": "1s"}
    target = folder / "check.json"
    target.write_text(json.dumps({"kind": "LeakCheck", "name": "check", "spec": spec}))
    return target


def similar(id_: str) -> str:
    """Return an ID that differs by one character."""
    return id_[:-1] + ("0" if id_[-1] != "0" else "1")


def sweep(home: Home) -> dict[str, Any]:
    """Sweep, and return the status of the check."""
    (check,) = json.loads(home.dayfly("leaks", "--sweep", "-o", "json"))
    assert not check["status"]["error"], check["status"]["error"]
    return check["status"]


def delete_orphan(home: Home, sandbox: str, check: Path, id_: str) -> None:
    """Abandon a sandbox, and delete its resource by a plan. An item with a similar ID is foreign before and after."""
    plan = str(check.with_name("plan.json"))
    home.dayfly("apply", "-f", str(check))
    assert sweep(home)["counts"]["held"] > 0
    home.dayfly("abandon", sandbox, "--force", "--reason", REASON)
    found = until(lambda: (seen := sweep(home))["counts"].get("orphan") and seen, "orphans in two lists")
    for verdict, expected in (("orphan", id_), ("foreign", similar(id_))):
        assert {each["id"] for each in found["findings"] if each["verdict"] == verdict} == {expected}
    home.dayfly("leaks", "--plan", plan)
    home.dayfly("leaks", "--apply", plan)
    counts = sweep(home)["counts"]
    assert "orphan" not in counts
    assert counts["foreign"] > 0
