"""Sandboxes of kubectl whose resources share a parent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import published
from tests.cluster.people import Person, developer
from tests.cluster.waiting import eventually

HERE = ("--context", "here", "-n", TEAM)
PARENTS = f"/apis/{API}/namespaces/{TEAM}/poolmembers"
BOXES = ("shared-1", "shared-2", "shared-3")


@pytest.fixture
def ada(operator: Installed, tmp_path: Path) -> Iterator[Person]:
    """A developer with the role `edit` in the team's namespace."""
    yield developer(operator, tmp_path / "ada", TEAM, "edit")
    operator.own.kubectl("delete", "rolebinding,serviceaccount", "ada-edit", "-n", TEAM, "--ignore-not-found")


def parent_plugin(name: str, journal: Journal) -> dict[str, Any]:
    start = f"#!/bin/sh\n{journal.tell('create start')}\nprintf server >/tmp/url\n"
    stop = f"#!/bin/sh\n{journal.tell('delete stop')}\n"
    create = {"name": "start", "script": start, "outputs": [{"name": "url", "valueFromPath": "/tmp/url"}]}
    return published(name, [create], [{"name": "stop", "script": stop}])


def child_plugin(name: str, above: str, journal: Journal) -> dict[str, Any]:
    """Return a plugin whose steps fail unless they read the output of the parent."""
    read = {"name": "url", "valueFromParent": {"step": "start", "output": "url"}, "as": {"env": "URL"}}
    clone, drop = (
        f'#!/bin/sh\n[ "$URL" = server ] || exit 1\n{journal.tell(said)}\n' for said in ("create clone", "delete drop")
    )
    made = published(
        name,
        [{"name": "clone", "script": clone, "inputs": [read]}],
        [{"name": "drop", "script": drop, "inputs": [read]}],
    )
    made["spec"]["parent"] = {"plugin": f"{above}@1.0.0", "capacity": 2}
    return made


def sandbox(name: str, plugin: str) -> dict[str, Any]:
    resources = [{"name": "db", "plugin": f"{plugin}@1.0.0"}]
    spec = {"cluster": "local", "resources": resources}
    return {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": name, "namespace": TEAM}, "spec": spec}


def parents(operator: Installed) -> list[dict[str, Any]]:
    return [each for each in (operator.get(PARENTS) or {"items": []})["items"] if each["spec"].get("parent")]


def test_sandboxes_share_a_parent_up_to_its_capacity(operator: Installed, journal: Journal, ada: Person) -> None:
    first, second, third = BOXES
    above, name = "team-server", "team-db"
    operator.apply(parent_plugin(above, journal), child_plugin(name, above, journal))
    operator.apply(sandbox(first, name), sandbox(second, name))
    for box in (first, second):
        operator.wait_ready(box, TEAM)
    [made] = parents(operator)
    assert len(journal.of("create start")) == 1
    units = {unit["id"]: unit for box in (first, second) for unit in operator.status(box, TEAM)["units"]}
    assert units["db/parent.start"]["parent"] == made["metadata"]["name"]

    operator.apply(sandbox(third, name))
    waits = eventually(lambda: said if "2 of 2" in (said := ada.dayfly("why", third, *HERE).out) else None, "why")
    assert made["metadata"]["name"] in waits
    assert "server" not in ada.dayfly("env", first, *HERE).out, "the outputs of a parent are not those of a child"
    operator.delete(first, TEAM)
    operator.wait_ready(third, TEAM)
    assert not journal.of("delete stop")
    assert [each["metadata"]["uid"] for each in parents(operator)] == [made["metadata"]["uid"]]

    for box in (second, third):
        operator.delete(box, TEAM)
    journal.wait_for("delete stop")
    eventually(lambda: not parents(operator), "the end of the parent")
    said = [entry.said for entry in journal.entries]
    assert said.count("create start") == said.count("delete stop") == 1
    assert said[-1] == "delete stop"
    assert said.count("create clone") == said.count("delete drop") == len(BOXES)
    operator.check_nothing_left()
