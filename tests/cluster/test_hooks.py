"""Hooks around a fork on a whole cluster: all four events, with scripts, an object, and values of the fork."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, RUN_LABEL, Installed
from tests.cluster.journal import Journal
from tests.cluster.rights import granted

NAME = "hooked"
OF = {"kind": "Deployment", "namespace": TEAM, "name": NAME}
FORKS = f"/apis/apps/v1/namespaces/{TEAM}/deployments?labelSelector={RUN_LABEL}"


@pytest.fixture
def baseline(operator: Installed) -> Iterator[None]:
    """The baseline with its Service."""
    labels = {"app": NAME}
    container = {"name": "main", "image": images.SHELL, "command": ["sleep", "7200"]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    place = {"name": NAME, "namespace": TEAM}
    operator.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": place,
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        },
    )
    yield
    operator.own.kubectl("delete", "deployment,service", NAME, "-n", TEAM, "--wait=false")


def told(name: str, expression: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fork": {"forkOf": OF, "expression": expression}}}


def sandbox(journal: Journal) -> dict[str, Any]:
    """Return a sandbox whose object stores values of the fork, whose scripts read the object and the fork."""

    def says(name: str, *said: str, inputs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
        script = "\n".join(("#!/bin/sh", *map(journal.tell, said)))
        return {"name": name, "inputs": list(inputs), "script": f"{script}\n"}

    where = told("where", "http://{{.Service.Host}}:{{.Service.Port}}/")
    answers = told("answers", "{{.Ready}}")
    publish = {
        "name": "publish",
        "inputs": [where, told("who", "{{.Name}}")],
        "outputs": [{"name": each, "valueFromJSONPath": f"$.data.{each}"} for each in ("where", "who")],
        "object": {
            "manifest": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"where": "", "who": ""}},
            "set": {"/data/where": {"input": "where"}, "/data/who": {"input": "who"}},
        },
    }
    read = [{"name": each, "valueFromStep": {"name": "publish", "output": each}} for each in ("where", "who")]
    hooks = {
        "preStart": [says("before", "create before")],
        "postStart": [publish, says("warm", "create warm", "warm: $WHERE $WHO $ANSWERS", inputs=(*read, answers))],
        "preStop": [says("drain", "drain", "drain: $WHERE $ANSWERS", inputs=(where, answers))],
        "postStop": [says("after", "delete after")],
    }
    spec = {"cluster": "local", "runner": {"image": images.SHELL}, "forks": [{"forkOf": OF}], "hooks": hooks}
    return {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": NAME, "namespace": TEAM}, "spec": spec}


def test_all_four_events_around_a_fork(operator: Installed, journal: Journal, baseline: None):
    journal.hold("create before", "drain", "delete after")
    with granted(operator, TEAM, "configmaps"), operator.ending(NAME, TEAM):
        operator.apply(sandbox(journal))
        journal.wait_for("create before")
        assert operator.items(FORKS) == []
        journal.let_go("create before")
        operator.wait_ready(NAME, TEAM)
        [fork] = operator.items(FORKS)
        own = fork["metadata"]["name"]
        where = f"http://{own}.{TEAM}.svc:80/"
        assert journal.of(f"warm: {where} {own} true")
        operator.own.kubectl("delete", "sandbox.dayfly.dev", NAME, "-n", TEAM, "--wait=false")
        journal.wait_for("drain")
        assert [each["metadata"]["uid"] for each in operator.items(FORKS)] == [fork["metadata"]["uid"]]
        journal.let_go("drain")
        journal.wait_for("delete after")
        assert operator.items(FORKS) == []
        journal.let_go()
        operator.wait_gone(NAME, TEAM)
    said = [entry.said for entry in journal.entries]
    assert said == [
        "create before",
        "create warm",
        f"warm: {where} {own} true",
        "drain",
        f"drain: {where} true",
        "delete after",
    ]
    operator.check_nothing_left()
