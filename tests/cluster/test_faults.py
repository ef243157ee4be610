"""Faults of a cluster, caused on purpose.

After each, the log outside of the cluster shows that no create step ran twice and none after a cleanup, and at the end
nothing is left.
"""

import json
from collections.abc import Callable

import pytest
from testcluster import cluster as clusters
from tests.cluster.installed import API, ROOT, RUNNERS, Installed
from tests.cluster.kubectl_specs import Wishes
from tests.cluster.waiting import eventually


@pytest.fixture
def begun(operator, wishes, journal):
    """A sandbox whose first step has begun, and waits for the journal's answer."""
    journal.hold("create first")
    operator.apply(wishes.plugin(), wishes.sandbox())
    journal.wait_for("create first")
    return wishes


def said(journal) -> list[str]:
    return [entry.said for entry in journal.entries]


def unit(status, name) -> dict:
    """Return the status of one step."""
    return next(each for each in status.get("units", [{"id": ""}]) if each["id"] in (name, ""))


class TestOperator:
    def test_killed_in_each_step(self, operator, wishes, journal):
        """The leading operator is killed while each of three steps runs: another one goes on where it was."""
        journal.hold("create first", "create second", "delete gone")
        operator.apply(wishes.plugin(), wishes.sandbox())
        for step in ("create first", "create second"):
            journal.wait_for(step)
            operator.kill_leader()
            journal.let_go(step)
        operator.wait_ready(wishes.name, wishes.namespace)
        operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, "--wait=false")
        journal.wait_for("delete gone")
        operator.kill_leader()
        journal.let_go()
        operator.wait_gone(wishes.name, wishes.namespace)
        assert said(journal) == ["create first", "create second", "delete gone"]

    def test_sandbox_recreated_at_once_is_another_resource(self, operator, wishes, journal):
        """A name is free only after its cleanup. The next sandbox of that name is another one."""
        operator.apply(wishes.plugin(), wishes.sandbox())
        operator.wait_ready(wishes.name, wishes.namespace)
        operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, "--wait=false")

        again = json.dumps(wishes.sandbox())
        once_allowed(lambda: operator.own.kubectl("create", "-f", "-", stdin=again), "object is being deleted")
        operator.wait_ready(wishes.name, wishes.namespace)
        life = ["create first", "create second", "delete gone"]
        assert said(journal) == [*life, *life[:2]]
        former, latter = journal.entries[0].resource, journal.entries[-1].resource
        assert [entry.resource for entry in journal.entries] == [former] * 3 + [latter] * 2
        assert former != latter


class TestNode:
    def test_kubelet_killed(self, operator, begun, journal):
        """The kubelet dies under a running step and comes back: the step goes on, and its result is taken."""
        (before,) = operator.component("kubelet")
        operator.own.run_inside(["kill", "-KILL", before])
        eventually(lambda: set(operator.component("kubelet")) - {before}, "another kubelet")
        journal.let_go()
        operator.wait_ready(begun.name, begun.namespace)
        assert said(journal) == ["create first", "create second"]

    def test_kubelet_killed_while_a_step_ends(self, operator, begun, journal):
        """The step ends while no kubelet is there to see it."""
        (before,) = operator.component("kubelet")
        step = operator.process_of(operator.pod("pair/first"))
        operator.own.run_inside(["kill", "-STOP", before])
        journal.let_go()
        lives = f"grep -q '^State:.[^ZX]' /proc/{step}/status 2>/dev/null && echo yes || true"
        eventually(lambda: not operator.own.run_inside(["sh", "-c", lives]).strip(), "the end of the step")
        operator.own.run_inside(["kill", "-KILL", before])
        operator.wait_ready(begun.name, begun.namespace)
        assert said(journal) == ["create first", "create second"]

    def test_rejected_by_a_new_kubelet_while_no_operator_looks(self, operator, wishes, journal):
        """The new kubelet admits running pods again, and the node's label has changed. So it rejects the pod although
        it was already running.
        """
        kubectl = operator.own.kubectl
        (node,) = [each["metadata"]["name"] for each in operator.items("/api/v1/nodes")]
        kubectl("label", "node", node, "test.example/tier=one")
        journal.hold("create first")
        operator.apply(wishes.plugin(overlay="spec:\n  nodeSelector: {test.example/tier: one}\n"), wishes.sandbox())
        journal.wait_for("create first")
        path = f"/api/v1/namespaces/{RUNNERS}/pods/{operator.pod('pair/first')['metadata']['name']}"
        with operator.nobody_at_work():
            kubectl("label", "node", node, "test.example/tier-")
            (before,) = operator.component("kubelet")
            operator.own.run_inside(["kill", "-KILL", before])
            eventually(lambda: operator.get(path)["status"]["phase"] == "Failed", "the pod's rejection")
            assert operator.get(path)["status"]["reason"] == "NodeAffinity"
            kubectl("label", "node", node, "test.example/tier=one")
        operator.wait_status(
            wishes.name, wishes.namespace, lambda status: unit(status, "pair/first")["state"] == "failed", "failed"
        )
        assert unit(operator.status(wishes.name, wishes.namespace), "pair/first")["reason"] == "Cancelled"
        assert said(journal) == ["create first"]
        journal.let_go()
        operator.delete(wishes.name, wishes.namespace)
        kubectl("label", "node", node, "test.example/tier-")


class TestPod:
    @pytest.mark.parametrize("way", ["deleted", "evicted"])
    def test_taken_away(self, operator, begun, journal, way):
        """The step fails, the reason is reported, and the step is not retried."""
        pod = operator.pod("pair/first")["metadata"]["name"]
        if way == "deleted":
            operator.own.kubectl("delete", "pod", pod, "-n", RUNNERS, "--wait=false")
        else:
            evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": RUNNERS}}
            path = f"/api/v1/namespaces/{RUNNERS}/pods/{pod}/eviction"
            operator.own.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(evict))
        status = operator.wait_status(
            begun.name, begun.namespace, lambda status: status["reason"] == "ResourceFailed", "failure"
        )
        assert unit(status, "pair/first")["state"] == "failed"
        journal.let_go()
        operator.delete(begun.name, begun.namespace)
        assert said(journal) == ["create first", "delete gone"]

    @pytest.mark.parametrize("asked", ["deadline", "deletion"])
    def test_script_ignoring_sigterm_is_killed_after_grace(self, operator, wishes, journal, asked):
        """A script that ignores SIGTERM is killed one second later."""
        deaf = f"#!/bin/sh\ntrap '' TERM\n{journal.tell('create first')}\nwhile :; do sleep 1; done\n"
        timeouts = {"run": "5s" if asked == "deadline" else "1h", "grace": "1s"}
        operator.apply(wishes.plugin(script=deaf, timeouts=timeouts), wishes.sandbox())
        journal.wait_for("create first")
        if asked == "deadline":
            status = operator.wait_status(
                wishes.name, wishes.namespace, lambda status: status["reason"] == "ResourceFailed", "failure"
            )
            assert unit(status, "pair/first")["reason"] == "RunDeadlineExceeded"
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == ["create first", "delete gone"]


class TestPlugin:
    def test_edited_and_deleted_while_in_use(self, operator, wishes, journal):
        """A published plugin cannot be edited, nor deleted while sandboxes live off it, nor does it matter if it is."""
        operator.apply(wishes.plugin(), wishes.sandbox())
        operator.wait_ready(wishes.name, wishes.namespace)
        other = wishes.plugin(script="#!/bin/sh\nexit 1\n")
        assert "never changes" in operator.refused("apply", "-f", "-", stdin=json.dumps(other))
        delete = ["delete", "resourceplugin.dayfly.dev", other["metadata"]["name"]]
        assert "is in use by live sandboxes" in operator.refused(*delete)
        without_policy(operator, lambda: operator.own.kubectl(*delete))
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == ["create first", "create second", "delete gone"]


class TestNamespace:
    def test_deleted_with_a_living_sandbox(self, operator, namespace, wishes, journal):
        """A namespace with sandboxes stays. Deleted by force it takes them along, and they are cleaned up elsewhere."""
        mine = Wishes(wishes.name, namespace, journal)
        operator.apply(mine.plugin(), mine.sandbox())
        operator.wait_ready(mine.name, namespace)
        delete = ["delete", "namespace", namespace, "--wait=false"]
        assert f"namespace {namespace} holds live sandboxes" in operator.refused(*delete)
        without_policy(operator, lambda: operator.own.kubectl(*delete))
        operator.wait_gone(mine.name, namespace)
        eventually(lambda: operator.get(f"/api/v1/namespaces/{namespace}") is None, "the end of the namespace")
        assert said(journal) == ["create first", "create second", "delete gone"]

    def test_deleted_while_a_step_runs(self, operator, namespace, wishes, journal):
        """The running step may end, no other one begins, and the cleanup follows."""
        mine = Wishes(wishes.name, namespace, journal)
        journal.hold("create first")
        operator.apply(mine.plugin(), mine.sandbox())
        journal.wait_for("create first")
        without_policy(operator, lambda: operator.own.kubectl("delete", "namespace", namespace, "--wait=false"))
        eventually(lambda: all(run["ledger"].get("closed") for run in operator.items(f"/apis/{API}/runs")), "the close")
        journal.let_go()
        operator.wait_gone(mine.name, namespace)
        eventually(lambda: operator.get(f"/api/v1/namespaces/{namespace}") is None, "the end of the namespace")
        assert said(journal) == ["create first", "delete gone"]

    def test_can_be_deleted_after_its_sandboxes(self, operator, namespace, wishes, journal):
        """Seconds after the last sandbox is gone the namespace is its owner's again."""
        mine = Wishes(wishes.name, namespace, journal)
        operator.apply(mine.plugin(), mine.sandbox())
        operator.wait_ready(mine.name, namespace)
        operator.delete(mine.name, namespace)

        delete = ["delete", "namespace", namespace, "--wait=false"]
        once_allowed(lambda: operator.own.kubectl(*delete), "holds live sandboxes")


def once_allowed(act: Callable[[], object], refusal: str) -> None:
    """Do it as soon as the server lets us; until then it refuses with these words and no others."""

    def done() -> bool:
        try:
            act()
        except clusters.CommandError as error:
            if refusal not in str(error):
                raise
            return False
        return True

    eventually(done, f"the end of {refusal!r}")


def without_policy(operator: Installed, act: Callable[[], object]) -> None:
    """Do what the policy forbids, as an administrator in need does: without its binding, which then comes back."""
    operator.own.kubectl("delete", "validatingadmissionpolicybinding", "dayfly-in-use")
    try:
        once_allowed(act, "dayfly-in-use")  # API servers honour a binding a moment longer
    finally:
        operator.own.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "base" / "policies.yaml"))
