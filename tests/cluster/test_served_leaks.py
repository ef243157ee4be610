"""A leak check that a server makes in a real cluster: permissions, verdicts, a plan, and one record of each deletion."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cloud import Cloud
from tests.cluster.installed import API, Installed
from tests.cluster.server_in_cluster import ServerInCluster, connected_server
from tests.cluster.waiting import eventually
from tests.examples.leaks import similar

CLUSTER, CHECK = "east", "leakchecks/items"
ROLE = "dayfly-agent-leaks"


@pytest.fixture
def server(operator: Installed, tmp_path: Path) -> Iterator[ServerInCluster]:
    """A server to which the installed operator is connected during the test."""
    with connected_server(operator, tmp_path, CLUSTER) as found:
        yield found


@pytest.fixture
def cloud(operator: Installed, server: ServerInCluster) -> Iterator[Cloud]:
    """A cloud, whose plugin is published at the server."""
    with contextlib.closing(Cloud(operator.own.network.host)) as found:
        server.must("PUT", "resource-plugins/item", {"name": "item@1.0.0", "spec": found.plugin()})
        yield found


def create_sandbox(server: ServerInCluster, name: str) -> None:
    spec = {"cluster": CLUSTER, "resources": [{"name": "it", "plugin": "item@1.0.0"}]}
    server.must("PUT", f"sandboxes/{name}", {"spec": spec})
    eventually(lambda: server.must("GET", f"sandboxes/{name}")["status"]["ready"], f"sandbox {name} is ready")


def apply_check(server: ServerInCluster) -> tuple[int, Any]:
    spec = {"cluster": CLUSTER, "plugin": "item", "every": "1h", "grace": "1s", "action": "report"}
    return server.ask("PUT", CHECK, {"spec": spec})


def wait_for_status(server: ServerInCluster, number: int) -> dict[str, Any]:
    """Wait for the end of a sweep. The operator may be away at first."""

    def ended() -> dict[str, Any] | None:
        code, found = server.ask("GET", CHECK)
        assert code in (200, 503), found
        status: dict[str, Any] = found["status"] if code == 200 else {}
        return status if status.get("number", 0) >= number and not status["sweeping"] else None

    return eventually(ended, f"the end of sweep {number}")


def sweep(server: ServerInCluster, plan: str = "") -> dict[str, Any]:
    """Request a sweep, and return the status after it."""
    before = server.must("POST", f"{CHECK}/sweep", {"plan": plan})["status"]
    status = wait_for_status(server, before["number"] + 1)
    assert not status["error"], status["error"]
    return status


def audited(server: ServerInCluster) -> list[str]:
    """Return the objects of the deletions in the audit log."""
    return [each["object"] for each in server.must("GET", "audit")["entries"] if each["action"] == "delete-leak"]


@pytest.mark.timeout(600, func_only=True)
def test_orphan_is_deleted_by_a_plan_and_recorded_once(operator: Installed, server: ServerInCluster, cloud: Cloud):
    create_sandbox(server, "shop")
    [(_, orphan)] = cloud.items.items()
    create_sandbox(server, "other")
    [held] = [each for each in cloud.items.values() if each != orphan]

    code, refusal = apply_check(server)
    assert code != 200, refusal
    [grant] = re.findall(rf"kubectl (create clusterrolebinding {ROLE} .*--serviceaccount [a-z:-]+)", refusal["error"])
    operator.own.kubectl(*grant.split())
    try:
        eventually(lambda: apply_check(server)[0] == 200, "the permission to make leak checks")
        assert wait_for_status(server, 1)["counts"] == {"held": 2}

        # An item that another owner of the account has made, with a copy of our token.
        foreign = f"item-{similar(orphan['id'])}"
        cloud.add(foreign, similar(orphan["id"]), orphan["token"])
        server.must("DELETE", "sandboxes/shop?force=true")
        eventually(lambda: server.ask("GET", "sandboxes/shop")[0] == 404, "the end of the sandbox")
        found = eventually(lambda: (seen := sweep(server))["counts"].get("orphan") and seen, "an orphan in two lists")
        assert found["counts"] == {"held": 1, "orphan": 1, "foreign": 1}
        verdicts = {each["name"]: (each["verdict"], each["deletable"]) for each in found["findings"]}
        assert verdicts == {orphan["name"]: ("orphan", True), foreign: ("foreign", False)}
        assert cloud.deletions == []

        number = server.must("POST", f"{CHECK}/sweep", {"plan": found["plan"]})["status"]["number"]
        operator.own.kubectl("delete", "pods", "--all", "-n", "dayfly-system", "--grace-period=0", "--force")
        status = wait_for_status(server, number + 1)
        assert (status["applied"], status["deleted"]) == ("done", [orphan["id"]])
        assert cloud.items.keys() == {held["name"], foreign}
        assert set(cloud.deletions) == {orphan["id"]}
        record = f"leakchecks/items/{orphan['id']}/item@1.0.0"
        eventually(lambda: audited(server) == [record], "the entry in the audit log")

        server.must("DELETE", CHECK)
        eventually(lambda: operator.items(f"/apis/{API}/leakchecks") == [], "the end of the object")
        assert server.ask("GET", CHECK)[0] == 404
        assert audited(server) == [record]
        server.must("DELETE", "sandboxes/other")
        eventually(lambda: server.ask("GET", "sandboxes/other")[0] == 404, "the end of the other sandbox")
        assert cloud.items.keys() == {foreign}
    finally:
        operator.own.kubectl("delete", "leakchecks", "--all", "--ignore-not-found")
        operator.own.kubectl("delete", "clusterrolebinding", ROLE)
    operator.check_nothing_left()
