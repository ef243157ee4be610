"""A RouteGroup on a whole cluster: by kubectl, with its hooks in pods, as a tenant with `edit` in one namespace."""

import json

import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)

GROUPS = f"/apis/{API}/namespaces/{TEAM}/routegroups"


def group(value: str) -> dict:
    step = {"script": '#!/bin/sh\necho "$DAYFLY_ROUTE_GROUP_NAME"\n'}
    hooks = {event: [{"name": name, **step}] for event, name in (("preStart", "tell"), ("postStop", "withdraw"))}
    spec = {"match": {"label": {"key": "team", "value": value}}, "runner": {"image": images.SHELL}, "hooks": hooks}
    return {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": "pay", "namespace": TEAM}, "spec": spec}


def sandbox(name: str, team: str) -> dict:
    meta = {"name": name, "namespace": TEAM}
    return {"apiVersion": API, "kind": "Sandbox", "metadata": meta, "spec": {"cluster": "c", "labels": {"team": team}}}


def test_a_group_lives_and_ends(operator: Installed):
    kubectl = operator.own.kubectl
    refused = operator.refused("apply", "-f", "-", stdin=json.dumps({**group("x"), "spec": {"match": {}}}))
    assert "needs exactly one of label, any and all" in refused
    operator.apply(group("pay*"), sandbox("one", "payments"), sandbox("two", "shipping"))
    kubectl("wait", "--for=condition=Ready", "dfg/pay", "-n", TEAM, "--timeout=120s")

    def matched() -> list[str]:
        found = operator.get(f"{GROUPS}/pay") or {}
        return found.get("status", {}).get("matchedSandboxes", [])

    eventually(lambda: matched() == ["one"], "one to join")
    said = operator.get(f"{GROUPS}/pay")["status"]
    assert [unit["id"] for unit in said["units"] if unit["state"] == "succeeded"] == ["tell"]
    assert len(said["routingKey"]) == 13
    kubectl("patch", "dfs", "two", "-n", TEAM, "--type=merge", "-p", '{"spec":{"labels":{"team":"pay"}}}')
    eventually(lambda: matched() == ["one", "two"], "two to join")
    operator.delete("one", TEAM)
    eventually(lambda: matched() == ["two"], "one to leave")
    kubectl("delete", "dfg", "pay", "-n", TEAM, "--timeout=120s")
    operator.delete("two", TEAM)
    operator.check_nothing_left()
