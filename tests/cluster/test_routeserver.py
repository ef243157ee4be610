"""The route server from its manifest on a whole cluster: both replicas serve the rules of a routed fork.

Only the definitions of Istio are installed. The operator finds them while it runs, and no proxy is needed.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from testcluster import images, istio
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, ROOT, SYSTEM, Installed
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

MANIFEST = ROOT / "deploy" / "routeserver.yaml"
NAME = "asked"
RULES = "/api/v1/workloads/routing-rules"


def baseline() -> list[dict[str, Any]]:
    labels, meta = {"app": NAME}, {"name": NAME, "namespace": TEAM}
    container = {"name": "main", "image": images.SHELL, "command": ["sh", "-c", "while true; do nc -l -p 8080; done"]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
    ]


def sandbox() -> dict[str, Any]:
    of = {"kind": "Deployment", "namespace": TEAM, "name": NAME}
    spec = {"cluster": "c", "forks": [{"forkOf": of}]}
    return {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": NAME, "namespace": TEAM}, "spec": spec}


@pytest.fixture
def servers(operator: Installed) -> Iterator[list[str]]:
    """The addresses of both replicas."""
    own = operator.own
    own.kubectl("apply", "--server-side", "-f", "-", stdin=istio.definitions("networking.istio.io"))
    own.kubectl("apply", "--server-side", "-f", str(MANIFEST))
    try:
        own.kubectl("rollout", "status", "-n", SYSTEM, "deployment/dayfly-routeserver", "--timeout=180s")
        selector = "labelSelector=app.kubernetes.io%2Fcomponent%3Drouteserver"
        pods = operator.items(f"/api/v1/namespaces/{SYSTEM}/pods?{selector}")
        yield [pod["status"]["podIP"] for pod in pods]
    finally:
        own.kubectl("delete", "-f", str(MANIFEST), "--ignore-not-found", "--timeout=60s")
        own.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=istio.definitions("networking.istio.io"))


def asked(address: str, query: str = "") -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection(address, 7778, timeout=5)
    try:
        connection.request("GET", f"{RULES}?{query}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)["routingRules"] or []
    finally:
        connection.close()


def led(status: dict[str, Any]) -> bool:
    return status["ready"] and any(unit["kind"] == "route" for unit in status.get("units", ()))


def test_both_replicas_serve_the_rule_while_a_fork_is_routed(operator: Installed, servers: list[str]):
    assert len(servers) == 2
    operator.apply(*baseline())
    try:
        with operator.ending(NAME, TEAM):
            operator.apply(sandbox())
            status = operator.wait_status(NAME, TEAM, led, "Ready, with a route")
            [shared] = operator.items(f"/apis/networking.istio.io/v1/namespaces/{TEAM}/virtualservices")
            assert status["routingKey"] in json.dumps(shared["spec"]), "calls follow its rules"
            for address in servers:
                [rule] = eventually(lambda address=address: asked(address, f"baselineName={NAME}"), "the rule")
                assert rule["routingKey"] == status["routingKey"]
                assert rule["baseline"] == {"kind": "Deployment", "namespace": TEAM, "name": NAME}
                assert rule["destinationSandbox"] == {"name": NAME}
                [to] = rule["mappings"][0]["destinations"]
                assert to["host"].startswith("f-asked-")
                assert not asked(address, "routingKey=nobodys")
        for address in servers:
            eventually(lambda address=address: not asked(address, f"baselineName={NAME}"), "the rule to go")
        assert operator.items(f"/apis/networking.istio.io/v1/namespaces/{TEAM}/virtualservices") == []
    finally:
        operator.own.kubectl("delete", "deployment,service", NAME, "-n", TEAM, "--ignore-not-found")
    operator.check_nothing_left()
