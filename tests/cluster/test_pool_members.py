"""Sandboxes of kubectl with pool members: what a developer sees of them is what they see of any other resource."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.kubectl_specs import Wishes, published
from tests.cluster.people import Person, developer
from tests.cluster.waiting import eventually

HERE = ("--context", "here", "-n", TEAM)
POOLS = f"/apis/{API}/namespaces/{TEAM}/resourcepools"


@pytest.fixture
def ada(operator: Installed, tmp_path: Path) -> Iterator[Person]:
    """A developer with the role `edit` in the team's namespace."""
    yield developer(operator, tmp_path / "ada", TEAM, "edit")
    operator.own.kubectl("delete", "rolebinding,serviceaccount", "ada-edit", "-n", TEAM, "--ignore-not-found")


def plugin(name: str, journal) -> dict:
    """Return a plugin whose steps need nothing of a sandbox."""
    read = [{"name": "word", "valueFromStep": {"name": "make", "output": "word"}, "as": {"env": "WORD"}}]
    make = f"#!/bin/sh\necho making\n{journal.tell('create make')}\nprintf hello >/tmp/word\n"
    show = f'#!/bin/sh\necho "got $WORD"\n{journal.tell("create show")}\n'
    drop = f"#!/bin/sh\necho dropping\n{journal.tell('delete drop')}\n"
    create = [
        {"name": "make", "script": make, "outputs": [{"name": "word", "valueFromPath": "/tmp/word"}]},
        {"name": "show", "script": show, "inputs": read},
    ]
    return published(name, create, [{"name": "drop", "script": drop, "inputs": read}])


def pool(name: str) -> dict:
    spec = {"cluster": "local", "plugin": f"{name}@1.0.0", "ready": 1}
    return {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": name, "namespace": TEAM}, "spec": spec}


def pool_status(person: Person) -> dict:
    """Return the status of the only pool as its owner sees it."""
    (listed,) = json.loads(person.dayfly("pool", "list", "-o", "json", *HERE).out)
    return listed["status"]


def holders(person: Person) -> set[str]:
    return {each["holder"] for each in pool_status(person)["members"] if "holder" in each}


def requests(person: Person) -> int:
    """Return the number of counted requests; the first one found a ready member."""
    status = pool_status(person)
    return status["hits"] + status["misses"] if status["hits"] else 0


def sandbox(wishes: Wishes, name: str, **resource: str) -> dict:
    made = wishes.sandbox()
    made["metadata"] = {"name": name, "namespace": TEAM}
    made["spec"]["resources"] = [{**made["spec"]["resources"][0], **resource}]
    return made


def test_two_sandboxes_use_members_as_any_other_resource(
    operator: Installed, wishes: Wishes, journal, ada: Person
) -> None:
    name = wishes.name
    cold, first, second = "pooled-cold", "pooled-1", "pooled-2"
    operator.apply(plugin(name, journal), sandbox(wishes, cold, pool="never"))
    operator.wait_ready(cold, TEAM)
    operator.apply(pool(name))
    eventually(lambda: ((operator.get(f"{POOLS}/{name}") or {}).get("status") or {}).get("ready"), "a full pool")
    assert len(journal.of("create make")) == 2
    operator.apply(sandbox(wishes, first))
    operator.wait_ready(first, TEAM)
    [hit] = {unit.get("member") for unit in operator.status(first, TEAM)["units"][:2]}
    assert hit.startswith(f"{name}-")
    operator.apply(sandbox(wishes, second))
    operator.wait_ready(second, TEAM)
    [other] = {unit.get("member") for unit in operator.status(second, TEAM)["units"][:2]}
    assert other not in ("", None, hit)
    steps = {entry.resource for entry in journal.of("create make")}
    assert len(steps) == len(journal.of("create make")), "each member was created once"

    for command in (("why",), ("logs",), ("env",)):
        shown = [ada.dayfly(*command, each, *HERE) for each in (cold, first, second)]
        assert [each.code for each in shown] == [0, 0, 0], shown
        assert len({each.out.replace(box, "BOX") for each, box in zip(shown, (cold, first, second), strict=True)}) == 1
    # If no member was expected soon, the second sandbox has one of its own.
    eventually(lambda: f"{first}/pair" in holders(ada), "the first holder")
    eventually(lambda: requests(ada) == 2, "two requests")

    journal.hold("delete drop")
    operator.own.kubectl("delete", "sandbox.dayfly.dev", first, "-n", TEAM, "--wait=false")
    journal.wait_for("delete drop")
    why = eventually(lambda: said if "drop" in (said := ada.dayfly("why", first, *HERE).out) else None, "the release")
    assert hit in why
    journal.let_go()
    for each in (first, second, cold):
        if operator.sandbox(each, TEAM):
            operator.delete(each, TEAM)
    assert ada.dayfly("pool", "delete", name, *HERE).code == 0
    operator.check_nothing_left()
