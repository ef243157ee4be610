"""Other ways to change objects, mainly subresources: the policies protect the same fields there."""

import copy

import pytest
from tests.deploy.conftest import OPERATOR, WRITTEN, thing
from tests.deploy.test_access import CARRIERS, MAKERS, MERGE, TEAM, TENANT, people, refused
from tests.policy.apiserver import eventually

__all__ = ["people"]

pytestmark = WRITTEN

RBAC = "rbac.authorization.k8s.io/v1"
WITH_STATUS = {
    **{plural: CARRIERS[plural] for plural in ("pods", "services")},
    **{plural: (path, body) for plural, (path, body, _) in MAKERS.items() if plural != "podtemplates"},
}


@pytest.mark.parametrize("plural", WITH_STATUS)
def test_a_status_brings_no_key(installed, plural):
    """The API server accepts metadata with a status, so a write to it could remove the operator's finalizers."""
    path, plain = WITH_STATUS[plural]
    body = copy.deepcopy(plain)
    body["metadata"]["name"] = "by-status"
    assert installed.ask("POST", path, body, user=TENANT).status == 201
    one = f"{path}/by-status"
    for metadata, words in (
        ({"finalizers": ["dayfly.dev/record"]}, "metadata.finalizers: those of dayfly.dev/"),
        ({"labels": {"dayfly.dev/run": "r"}}, "metadata.labels: the prefix dayfly.dev/ is reserved"),
    ):
        answer = installed.ask("PATCH", f"{one}/status", {"metadata": metadata}, user=TENANT, kind=MERGE)
        if plural == "deployments" and "labels" in metadata:  # of these the server keeps the labels as they were
            assert "dayfly.dev/run" not in (answer.body["metadata"].get("labels") or {})
        else:
            refused(answer, words)
    other = {"metadata": {"annotations": {"mine": "x"}}}
    answer = installed.ask("PATCH", f"{one}/status", other, user=TENANT, kind=MERGE)
    assert answer.status == 200, answer.message


def test_a_pods_status_takes_no_key_away(installed):
    """The finalizer of a pod keeps the proof of its step's end."""
    path, plain = CARRIERS["pods"]
    body = copy.deepcopy(plain)
    body["metadata"] = {
        "name": "kept",
        "finalizers": ["dayfly.dev/record"],
        "labels": {"dayfly.dev/run": "r"},
        "annotations": {"dayfly.dev/order": "x"},
    }
    assert installed.ask("POST", path, body, user=OPERATOR).status == 201
    one = f"{path}/kept/status"
    for field in ("finalizers", "labels", "annotations"):
        answer = installed.ask("PATCH", one, {"metadata": {field: None}}, user=TENANT, kind=MERGE)
        refused(answer, f"metadata.{field}: ")
    said = {"status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}}
    answer = installed.ask("PATCH", one, said, user=TENANT, kind=MERGE)
    assert answer.status == 200, answer.message


@pytest.mark.parametrize("path", [f"{TEAM}/pods/waits/binding", f"{TEAM}/bindings"])
def test_a_binding_brings_no_order(installed, path):
    """The annotations of a binding become the pod's, so another order would run with the Secrets of the step."""
    pods, plain = CARRIERS["pods"]
    body = copy.deepcopy(plain)
    body["metadata"] = {"name": "waits", "annotations": {"dayfly.dev/order": "ours"}}
    assert installed.ask("POST", pods, body, user=OPERATOR).status in (201, 409)
    binding = thing("v1", "Binding", "waits", target={"apiVersion": "v1", "kind": "Node", "name": "n"})
    other = copy.deepcopy(binding)
    other["metadata"]["annotations"] = {"dayfly.dev/order": "theirs"}
    refused(installed.ask("POST", path, other, user=TENANT), "on pods the prefix dayfly.dev/ is reserved")
    bound = installed.ask("POST", f"{path}?dryRun=All", binding, user="system:kube-scheduler")
    assert bound.status == 201, bound.message


@pytest.fixture(scope="module")
def ada(installed):
    """May write namespaces and all that belongs to them, and may not grant."""
    resources = ["namespaces", "namespaces/status", "namespaces/finalize"]
    rules = [{"apiGroups": [""], "resources": resources, "verbs": ["*"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1"
    installed.ask("POST", f"{roles}/clusterroles", thing(RBAC, "ClusterRole", "all-of-namespaces", rules=rules))
    binding = {
        **thing(RBAC, "ClusterRoleBinding", "all-of-namespaces"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-of-namespaces"},
        "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    installed.ask("POST", f"{roles}/clusterrolebindings", binding)
    plain = {"metadata": {"labels": {"team": "a"}}}
    eventually(lambda: installed.ask("PATCH", f"{TEAM}/status", plain, user="ada", kind=MERGE).status == 200)
    return "ada"


@pytest.mark.parametrize("part", ["status", "finalize"])
def test_no_grant_along_with_a_namespaces(installed, ada, part):
    whole = installed.ask("GET", TEAM).body
    for field, key in (("labels", "forks"), ("annotations", "runners-from")):
        body = copy.deepcopy(whole)
        body["metadata"].setdefault(field, {})[f"dayfly.dev/{key}"] = "free"
        refused(installed.ask("PUT", f"{TEAM}/{part}", body, user=ada), "which cluster administrators have")
    assert installed.ask("PUT", f"{TEAM}/{part}?dryRun=All", whole, user=ada).status == 200


@pytest.mark.parametrize("value", ["true", ""])
def test_tenant_cannot_set_the_in_use_label(installed, ada, value):
    """The label has this effect with any value."""
    body = installed.ask("GET", TEAM).body
    body["metadata"].setdefault("labels", {})["dayfly.dev/in-use"] = value
    for path in (TEAM, f"{TEAM}/status"):
        refused(installed.ask("PUT", path, body, user=ada), "dayfly.dev/in-use is set and removed by")
    born = thing("v1", "Namespace", "born")
    born["metadata"]["labels"] = {"dayfly.dev/in-use": value}
    refused(installed.ask("POST", "/api/v1/namespaces", born, user=ada), "dayfly.dev/in-use is set and removed by")


@pytest.mark.parametrize(
    "change",
    [
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "gone"}]},
        {"finalizers": ["example.org/held"]},
    ],
    ids=["owner", "finalizer"],
)
def test_the_operator_has_no_namespace_collected_or_held(installed, change):
    """An owner that is not there has the collector delete it, with all that is in it."""
    answer = installed.ask("PATCH", TEAM, {"metadata": change}, user=OPERATOR, kind=MERGE)
    refused(answer, "the Dayfly operator may change nothing about a namespace except its label")
