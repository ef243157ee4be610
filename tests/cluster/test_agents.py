"""A real server with its own certificate, and the installed operator connected to it as in docs/guides/connect-a-cluster.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import Installed
from tests.cluster.server_in_cluster import ServerInCluster, connected_server
from tests.cluster.waiting import eventually

CLUSTER = "east"


@pytest.fixture
def server(operator: Installed, tmp_path: Path) -> Iterator[ServerInCluster]:
    """A server to which the installed operator is connected during the test."""
    with connected_server(operator, tmp_path, CLUSTER) as found:
        yield found


@contextlib.contextmanager
def baseline(operator: Installed) -> Iterator[str]:
    name = "basket"
    container = {"name": "main", "image": images.SHELL, "command": ["sleep", "3600"]}
    labels = {"app": name}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        },
    }
    meta = {"name": name, "namespace": TEAM}
    operator.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    try:
        yield name
    finally:
        operator.own.kubectl("delete", "deployment", name, "-n", TEAM)


def published(operator: Installed) -> list[str]:
    every = operator.items("/apis/dayfly.dev/v1alpha1/resourceplugins")
    return sorted(each["metadata"]["name"] for each in every)


@pytest.mark.proof
@pytest.mark.timeout(600, func_only=True)
def test_sandbox_applied_at_the_server_leaves_nothing(operator, server, journal, wishes):
    others = published(operator)  # of the stories before this one
    plugin = wishes.plugin()
    spec = {key: value for key, value in plugin["spec"].items() if key != "name"}
    server.must("PUT", "resource-plugins/words", {"name": "words", "spec": spec})
    with baseline(operator) as name:
        env = [{"name": "WORDS", "valueFrom": {"resource": {"name": "pair", "outputKey": "second.words"}}}]
        of = {"kind": "Deployment", "namespace": TEAM, "name": name}
        wish = {
            "cluster": CLUSTER,
            "resources": [{"name": "pair", "plugin": "words"}],
            "forks": [{"forkOf": of, "customizations": {"env": env}}],
        }

        # Before the operator has dialled for the first time.
        server.must("PUT", "sandboxes/shop", {"spec": wish})
        eventually(lambda: server.must("GET", "sandboxes/shop")["status"]["ready"], "the sandbox is ready")
        assert published(operator) == others, "a plugin of the server is none of the cluster's"
        [found] = operator.items(f"/apis/dayfly.dev/v1alpha1/namespaces/{TEAM}/sandboxes")
        assert found["status"]["servedFor"] == "acme/shop"
        forks = operator.items(f"/apis/apps/v1/namespaces/{TEAM}/deployments?labelSelector=dayfly.dev/run")
        [fork] = [each["metadata"]["name"] for each in forks]
        said = operator.own.kubectl("exec", "-n", TEAM, f"deployment/{fork}", "--", "sh", "-c", "echo $WORDS")
        assert said.strip() == "hello world"
        told = {each["output"]: each["value"] for each in server.must("GET", "sandboxes/shop/outputs")}
        assert told == {"word": "hello", "words": "hello world"}
        refusal = operator.refused(
            "patch", "dfs", found["metadata"]["name"], "-n", TEAM, "--type=merge", "-p", '{"spec": {"cluster": "x"}}'
        )
        assert "cannot change" in refusal or "this is the sandbox shop of acme" in refusal
        server.must("DELETE", "sandboxes/shop")
        eventually(lambda: server.ask("GET", "sandboxes/shop")[0] == 404, "its end is noted")
        eventually(
            lambda: not operator.items(f"/apis/dayfly.dev/v1alpha1/namespaces/{TEAM}/sandboxes"),
            "the object is gone",
        )
