"""A ResourcePool on a whole cluster: by kubectl, as a tenant with `edit` in one namespace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes, published
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)

POOLS = f"/apis/{API}/namespaces/{TEAM}/resourcepools"
MEMBERS = f"/apis/{API}/namespaces/{TEAM}/poolmembers"


def plugin(name: str, journal: Journal) -> Any:
    """Return a plugin that needs nothing of a sandbox."""
    make = f"#!/bin/sh\n{journal.tell('create make')}\nprintf hello >/tmp/word\n"
    drop = f"#!/bin/sh\n{journal.tell('delete drop')}\n"
    create = [{"name": "make", "script": make, "outputs": [{"name": "word", "valueFromPath": "/tmp/word"}]}]
    return published(name, create, [{"name": "drop", "script": drop}])


def pool(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": TEAM}
    return {"apiVersion": API, "kind": "ResourcePool", "metadata": meta, "spec": {"plugin": name, "ready": 1, **spec}}


def test_pool_fills_drains_and_ends(operator: Installed, wishes: Wishes, journal: Journal) -> None:
    name, kubectl = wishes.name, operator.own.kubectl
    refused = operator.refused("apply", "-f", "-", stdin=json.dumps(pool(name, ready=-1)))
    assert "spec.ready" in refused
    operator.apply(pool(name, ready=2))
    eventually(lambda: _status(operator, name).get("reason") == "PluginMissing", "the missing plugin to be reported")
    operator.apply(plugin(name, journal))
    kubectl("wait", "--for=condition=Ready", f"resourcepool/{name}", "-n", TEAM, "--timeout=120s")
    assert len(operator.items(MEMBERS)) == len(journal.of("create make")) == 2
    columns = kubectl("get", "dfpool", name, "-n", TEAM, "--no-headers").split()
    assert columns[:3] == [name, name, "2/2"]
    kubectl("annotate", f"resourcepool/{name}", "-n", TEAM, "dayfly.dev/pool-request=drain ada")
    eventually(lambda: not operator.items(MEMBERS), "the members to go")
    assert len(journal.of("delete drop")) == 2
    assert _status(operator, name)["reason"] == "Drained"
    kubectl("annotate", "--overwrite", f"resourcepool/{name}", "-n", TEAM, "dayfly.dev/pool-request=resume ada")
    kubectl("wait", "--for=condition=Ready", f"resourcepool/{name}", "-n", TEAM, "--timeout=120s")
    kubectl("delete", f"resourcepool/{name}", "-n", TEAM, "--timeout=120s")
    assert not operator.items(MEMBERS)
    assert len(journal.of("delete drop")) == 4
    operator.check_nothing_left()


def test_pool_survives_the_death_of_an_operator(operator: Installed, wishes: Wishes, journal: Journal) -> None:
    name, kubectl = wishes.name, operator.own.kubectl
    operator.apply(plugin(name, journal), pool(name, ready=3))
    eventually(lambda: operator.items(MEMBERS), "the first member")
    operator.kill_leader()
    kubectl("wait", "--for=condition=Ready", f"resourcepool/{name}", "-n", TEAM, "--timeout=180s")
    assert len(operator.items(MEMBERS)) == len(journal.of("create make")) == 3
    kubectl("delete", f"resourcepool/{name}", "-n", TEAM, "--timeout=120s")
    operator.check_nothing_left()


def _status(operator: Installed, name: str) -> dict[str, Any]:
    return (operator.get(f"{POOLS}/{name}") or {}).get("status") or {}
