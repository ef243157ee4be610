"""A fork of a real Deployment, reached by its own Service, with an output of a step in its environment."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from testcluster import images
from tests.cluster.installed import ACCOUNT, AS_OPERATOR, Installed
from tests.cluster.kubectl_specs import Wishes
from tests.cluster.waiting import eventually

FORK_LABEL = "dayfly.dev/fork"
UID = "jsonpath={.metadata.uid}"
SAYS = 'while true; do echo "$WORD $MODE $LEVEL" | nc -l -p 8080; done'


class Shop:
    """A Deployment with its Service, and the fork of it."""

    def __init__(self, operator: Installed, wishes: Wishes) -> None:
        self.operator = operator
        self.wishes = wishes
        self.name = f"{wishes.name}-shop"
        self._core = f"/api/v1/namespaces/{wishes.namespace}"

    def baseline(self, level: str, namespace: str = "") -> list[dict[str, Any]]:
        """Return the baseline, which answers each connection with its environment."""
        labels = {"app": self.name}
        container = {
            "name": "main",
            "image": images.SHELL,
            "command": ["sh", "-c", SAYS],
            "env": [{"name": "MODE", "value": "live"}, {"name": "LEVEL", "value": level}],
            "ports": [{"name": "talk", "containerPort": 8080}],
        }
        pod = {"terminationGracePeriodSeconds": 2, "containers": [container]}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        place = {"name": self.name, "namespace": namespace or self.wishes.namespace}
        ports = [{"name": "talk", "port": 80, "targetPort": "talk"}]
        return [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec},
            {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"selector": labels, "ports": ports}},
        ]

    def sandbox(self, mode: str, namespace: str = "") -> dict[str, Any]:
        """With the resource `pair`, and a fork that reads from it."""
        env = [
            {"name": "WORD", "valueFrom": {"resource": {"name": "pair", "outputKey": "first.word"}}},
            {"name": "MODE", "value": mode},
        ]
        of = {"kind": "Deployment", "namespace": namespace or self.wishes.namespace, "name": self.name}
        made = self.wishes.sandbox()
        made["spec"]["forks"] = [{"forkOf": of, "customizations": {"env": env}}]
        return made

    def fork(self) -> str:
        """The name of the fork's Deployment, and of its Service."""
        (found,) = self.forks()
        return found["metadata"]["name"]

    def forks(self, besides: str = "") -> list[dict[str, Any]]:
        """Return all forks' Deployments except for the one with this UID."""
        found = self.operator.items(f"/apis/apps/v1/deployments?labelSelector={FORK_LABEL}")
        return [each for each in found if each["metadata"]["uid"] != besides]

    def pods(self, labels: str = FORK_LABEL) -> list[dict[str, Any]]:
        """Return the pods of the fork, or those with other labels."""
        return self.operator.items(f"{self._core}/pods?labelSelector={labels}")

    def wait_answer(self, name: str, wanted: str) -> None:
        """Wait until a Service gives this answer."""

        def answer() -> str:
            service = self.operator.get(f"{self._core}/services/{name}")
            assert service is not None, f"there is no Service {name}"
            with socket.create_connection((service["spec"]["clusterIP"], 80), timeout=2) as connection:
                return connection.recv(100).decode()

        eventually(lambda: answer() == wanted, f"the answer {wanted!r} of {name}")

    def check_apart(self) -> None:
        """The baseline's Service leads to the baseline's pods, and to no other."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.wishes.namespace}/endpointslices"
        slices = self.operator.items(f"{path}?labelSelector=kubernetes.io/service-name={self.name}")
        reached = {each["targetRef"]["name"] for found in slices for each in found.get("endpoints") or []}
        forked = {pod["metadata"]["name"] for pod in self.pods()}
        assert reached
        assert forked
        assert not reached & forked


@pytest.fixture
def shop(operator: Installed, wishes: Wishes) -> Iterator[Shop]:
    """The baseline is deleted after the test."""
    shop = Shop(operator, wishes)
    yield shop
    for kind in ("deployment", "service"):
        operator.own.kubectl("delete", kind, shop.name, "-n", wishes.namespace, "--ignore-not-found")


class TestForks:
    def test_a_forks_life(self, operator, wishes, journal, shop, record_property):
        """Waits for its baseline, answers with its own environment, follows, comes again, is gone before cleanup."""
        operator.apply(wishes.plugin(), shop.sandbox("forked"))
        operator.wait_status(
            wishes.name, wishes.namespace, lambda said: "does not exist" in said["message"], "the lack"
        )
        operator.apply(*shop.baseline("info"))
        began = time.monotonic()
        operator.wait_ready(wishes.name, wishes.namespace)
        ready = time.monotonic() - began
        fork = shop.fork()
        shop.wait_answer(fork, "hello forked info\n")
        shop.wait_answer(shop.name, " live info\n")
        shop.check_apart()

        operator.apply(*shop.baseline("debug"))
        shop.wait_answer(fork, "hello forked debug\n")
        operator.apply(shop.sandbox("again"))
        shop.wait_answer(fork, "hello again debug\n")
        (before,) = shop.forks()
        operator.own.kubectl("delete", "deployment", fork, "-n", wishes.namespace, "--wait=false")
        eventually(lambda: shop.forks(besides=before["metadata"]["uid"]), "another fork")
        operator.wait_ready(wishes.name, wishes.namespace)
        shop.wait_answer(fork, "hello again debug\n")
        shop.check_apart()

        journal.hold("delete gone")
        operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, "--wait=false")
        journal.wait_for("delete gone")
        assert (shop.pods(), shop.forks()) == ([], [])
        journal.let_go()
        operator.wait_gone(wishes.name, wishes.namespace)
        operator.check_nothing_left()
        shop.wait_answer(shop.name, " live debug\n")
        record_property("took", f"fork ready {ready:.1f} s after its baseline came")

    def test_made_again_too_late(self, operator, wishes, shop):
        """A paused operator may create an unclaimed Deployment again (other users may not: see the policies). It is
        deleted, with or without pods.

        Its ReplicaSet does not count as a leftover of the claimed fork.
        """

        def make_again(replicas: int) -> str:
            (found,) = shop.forks()
            kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
            meta = {key: found["metadata"][key] for key in kept}
            new = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta}
            body = json.dumps(new | {"spec": found["spec"] | {"replicas": replicas}})
            operator.own.kubectl("delete", "deployment", meta["name"], "-n", meta["namespace"], "--wait=false")
            return operator.own.kubectl("create", AS_OPERATOR, "-f", "-", "-o", UID, stdin=body)

        operator.apply(*shop.baseline("info"), wishes.plugin(), shop.sandbox("forked"))
        operator.wait_ready(wishes.name, wishes.namespace)
        other = make_again(1)
        eventually(lambda: shop.forks(besides=other), "a fork of the operator's own")
        operator.wait_ready(wishes.name, wishes.namespace)
        shop.wait_answer(shop.fork(), "hello forked info\n")
        make_again(0)
        operator.delete(wishes.name, wishes.namespace)
        operator.check_nothing_left()

    def test_another_namespaces_workloads_need_its_leave(self, operator, wishes, shop, namespace):
        """Without a word there a Sandbox reaches into no other namespace; with it, and the rights, it may."""
        operator.apply(*shop.baseline("info", namespace))
        operator.apply(wishes.plugin(), shop.sandbox("forked", namespace))

        def says(words: str) -> None:
            operator.wait_status(wishes.name, wishes.namespace, lambda said: words in said["message"], words)

        says("an administrator can annotate it dayfly.dev/sandboxes-from=")
        operator.own.kubectl("annotate", "namespace", namespace, f"dayfly.dev/sandboxes-from={wishes.namespace}")
        says("an administrator can bind the ClusterRole dayfly-forks")
        grant = ["--clusterrole=dayfly-forks", f"--serviceaccount={ACCOUNT}"]
        operator.own.kubectl("create", "rolebinding", "dayfly-forks", "-n", namespace, *grant)
        operator.wait_ready(wishes.name, wishes.namespace)
        secrets = operator.items(f"/api/v1/namespaces/{namespace}/secrets?fieldSelector=type%3Ddayfly.dev%2Foutputs")
        assert [sorted(each["data"]) for each in secrets] == [["first.word", "second.words"]]
        operator.delete(wishes.name, wishes.namespace)
        operator.check_nothing_left()

    def test_a_fork_has_no_more_than_its_baseline(self, operator, wishes, shop):
        """Patches of a fork could once give a user of Sandboxes a privileged pod with the root folder of the node.
        Another patch of 1.3 KB could exhaust the memory of both operators.
        """
        container = {
            "name": "main",
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": "root", "mountPath": "/host"}],
        }
        pod = {
            "containers": [container],
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
            "serviceAccountName": "admin",
        }

        def patched(kind: str, value: Any) -> dict[str, Any]:
            made = shop.sandbox("forked")
            made["spec"]["forks"][0]["customizations"]["patch"] = {"type": kind, "value": json.dumps(value)}
            return made

        def says(words: str) -> None:
            operator.wait_status(wishes.name, wishes.namespace, lambda said: words in said["message"], words)

        operator.apply(
            *shop.baseline("info"), wishes.plugin(), patched("strategic", {"spec": {"template": {"spec": pod}}})
        )
        says("spec.template.spec.volumes[root].hostPath would access the node")
        copies = [{"op": "copy", "from": "/spec", "path": f"/spec/x{n}"} for n in range(24)]
        operator.apply(patched("json", copies))
        says("more than 131072 bytes")
        operator.apply(patched("json", [{"op": "remove", "path": "/spec/template/spec/containers/7"}]))
        says("operation 1 (remove): the list")
        assert shop.forks() == []
        change = {"containers": [{"name": "main", "env": [{"name": "LEVEL", "value": "patched"}]}]}
        operator.apply(patched("strategic", {"spec": {"template": {"spec": change}}}))
        operator.wait_ready(wishes.name, wishes.namespace)
        shop.wait_answer(shop.fork(), "hello forked patched\n")
        shop.check_apart()
        operator.delete(wishes.name, wishes.namespace)
        operator.check_nothing_left()

    def test_fork_named_by_another_needs_permission(self, operator, wishes, shop, namespace):
        """For its address a Service was made in a namespace that had allowed nothing."""
        operator.apply(*shop.baseline("info"), *shop.baseline("info", namespace), wishes.plugin())
        made = shop.sandbox("forked")
        of = {"kind": "Deployment", "namespace": namespace, "name": shop.name}
        told = {"name": "OTHER", "valueFrom": {"fork": {"forkOf": of, "expression": "{{.Service.Host}}"}}}
        made["spec"]["forks"][0]["customizations"]["env"].append(told)
        made["spec"]["forks"].append({"forkOf": of})
        grant = ["--clusterrole=dayfly-forks", f"--serviceaccount={ACCOUNT}"]
        operator.own.kubectl("create", "rolebinding", "dayfly-forks", "-n", namespace, *grant)
        operator.apply(made)
        words = f"workloads of namespace {namespace} may not be forked by sandboxes of {wishes.namespace}"
        operator.wait_status(wishes.name, wishes.namespace, lambda said: words in said["message"], words)
        assert [each["metadata"]["name"] for each in operator.items(f"/api/v1/namespaces/{namespace}/services")] == [
            shop.name
        ]
        operator.delete(wishes.name, wishes.namespace)
        operator.check_nothing_left()
