"""Printer columns, the fifth rule of good operators: `kubectl get` shows useful columns.

tests/operator/test_good_operator.py has the list and the other six.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.installed import ROOT, Installed
from tests.manifests import documents

FILES = [*sorted((ROOT / "deploy" / "crds").glob("*s.yaml")), *sorted((ROOT / "examples").glob("**/definitions.yaml"))]
DEFINITIONS: dict[str, dict[str, Any]] = {
    each["metadata"]["name"]: each
    for file in FILES
    for each in documents(file)
    if each["kind"] == "CustomResourceDefinition"
}
# The required columns of each kind: its state or its owner.
TELLS = {
    "sandboxes.dayfly.dev": ("PHASE", "READY", "REASON", "PROGRESS"),
    "resources.dayfly.dev": ("SANDBOX", "PLUGIN", "PHASE", "READY"),
    "resourceplugins.dayfly.dev": ("PLUGIN", "ACCEPTED", "IN-USE"),
    "runs.dayfly.dev": ("TARGET", "PHASE"),
    "objectlifecyclemethods.dayfly.dev": ("TARGET",),
    "steplogs.dayfly.dev": ("SANDBOX", "STEPS"),
    "lifecyclehooks.dayfly.dev": ("KIND", "READY", "REASON", "OBJECTS"),
    "leakchecks.dayfly.dev": ("PLUGIN", "REASON"),
    "routegroups.dayfly.dev": ("READY", "REASON"),
    "resourcepools.dayfly.dev": ("PLUGIN", "READY", "REASON"),
    "poolmembers.dayfly.dev": ("POOL",),
    "basicdeployments.basic.example.org": ("REPLICAS", "READY", "MESSAGE"),
    "basicreplicasets.basic.example.org": ("REPLICAS", "ACTIVE"),
    "machines.machines.example.org": ("KIND", "READY", "MESSAGE"),
    "podmachines.machines.example.org": ("IMAGE", "READY", "MESSAGE"),
    "processmachines.machines.example.org": ("PROGRAM", "READY", "MESSAGE"),
}


def test_every_kind_is_judged():
    assert set(DEFINITIONS) == set(TELLS)


@pytest.fixture
def shown(operator: Installed, wishes) -> dict[str, list[dict[str, str]]]:
    """The tables of kubectl for each kind, row by row, while a sandbox is ready."""
    operator.apply(wishes.plugin(), wishes.sandbox())
    operator.wait_ready(wishes.name, wishes.namespace)
    return {kind: rows(operator.own.kubectl("get", kind, "--all-namespaces")) for kind in TELLS}


def rows(said: str) -> list[dict[str, str]]:
    """Split a table at the beginnings of its columns; empty cells are empty."""
    lines = said.splitlines()
    if not lines:
        return []
    head, begins = (
        lines[0],
        [at for at, char in enumerate(lines[0]) if char != " " and lines[0][at - 1 : at] in ("", " ")],
    )
    ends = [*begins[1:], None]
    names = [head[begin:end].strip() for begin, end in zip(begins, ends, strict=True)]
    cells = [[line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)] for line in lines[1:]]
    return [dict(zip(names, row, strict=True)) for row in cells]


def test_kubectl_shows_how_a_thing_stands_and_since_when(shown):
    """The tables of the real API server: no column of a ready sandbox and its objects is empty."""
    for kind, definition in DEFINITIONS.items():
        [version] = definition["spec"]["versions"]
        columns = {each["name"]: each for each in version.get("additionalPrinterColumns", ())}
        assert set(TELLS[kind]) | {"AGE"} <= set(columns), kind
        assert all(each.get("type") == "date" for name, each in columns.items() if name == "AGE")
    there = {kind: found for kind, found in shown.items() if found}
    assert set(there) >= {kind for kind in TELLS if kind.endswith("dayfly.dev")} - {
        "lifecyclehooks.dayfly.dev",
        "leakchecks.dayfly.dev",
        "routegroups.dayfly.dev",
        "resourcepools.dayfly.dev",
        "poolmembers.dayfly.dev",
    }
    for kind, found in there.items():
        for row in found:
            empty = {name for name in (*TELLS[kind], "AGE") if row.get(name) in (None, "", "<none>", "<unknown>")}
            assert empty <= {"IN-USE"}, f"{kind}: {row}"
    assert "true" in {row["IN-USE"] for row in there["resourceplugins.dayfly.dev"]}  # others' are not in use
