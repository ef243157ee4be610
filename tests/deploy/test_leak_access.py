"""Permissions for the leak checks of a server: what the operator may do with its role, and what a tenant may not."""

from __future__ import annotations

import pytest
from tests.deploy.conftest import OPERATOR, thing
from tests.deploy.test_access import DAYFLY, MERGE, TENANT, people, refused
from tests.policy.apiserver import Api, eventually

__all__ = ["people"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120, func_only=True)]

CHECKS = f"{DAYFLY}/leakchecks"
ONE = f"{CHECKS}/served"
SECRETS = "/api/v1/namespaces/dayfly-system/secrets"
RBAC, ROLE = "rbac.authorization.k8s.io", "dayfly-agent-leaks"
JSON_PATCH = "application/json-patch+json"


def served_check(name: str = "served"):
    """Return a check as the operator creates it for a server."""
    body = thing("dayfly.dev/v1alpha1", "LeakCheck", name, spec={"plugin": "p", "cluster": "c"})
    body["metadata"] |= {
        "labels": {"dayfly.dev/served": "leakcheck"},
        "annotations": {"served.dayfly.dev/for": "acme"},
    }
    return body


@pytest.fixture(scope="module")
def granted(installed: Api) -> None:
    """The role that lets a server make checks, bound as the refusal states."""
    body = {
        **thing(f"{RBAC}/v1", "ClusterRoleBinding", ROLE),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
    }
    installed.ask("POST", f"/apis/{RBAC}/v1/clusterrolebindings", body)
    eventually(lambda: installed.ask("DELETE", f"{CHECKS}/absent", user=OPERATOR).status == 404)


@pytest.fixture
def check(installed: Api, granted: None) -> str:
    """A check of a server with the finalizer and status that the operator writes. Return its UID."""
    made = installed.ask("POST", CHECKS, served_check(), user=OPERATOR)
    assert made.status in (201, 409), made.message
    finalizer = {"metadata": {"finalizers": ["dayfly.dev/lifecycle"]}}
    found = installed.ask("PATCH", ONE, finalizer, user=OPERATOR, kind=MERGE)
    assert found.status == 200, found.message
    return found.body["metadata"]["uid"]


class TestOperator:
    def test_check_of_a_server_needs_the_role(self, installed):
        """Without it, the operator creates only its own check, and stores no order of a server."""
        words = "leak checks of a server need the role dayfly-agent-leaks"
        refused(installed.ask("POST", CHECKS, served_check(), user=OPERATOR), words)
        answer = installed.ask("DELETE", f"{CHECKS}/x", user=OPERATOR)
        assert (answer.status, "cannot delete" in answer.message) == (403, True), answer
        own = thing("dayfly.dev/v1alpha1", "LeakCheck", "terraform-states", spec={"plugin": "terraform-states"})
        assert installed.ask("POST", f"{CHECKS}?dryRun=All", own, user=OPERATOR).status == 201
        secret = thing("v1", "Secret", "dayfly-leaks-x", type="dayfly.dev/leak-check", stringData={"state": "a"})
        made = installed.ask("POST", SECRETS, secret, user=OPERATOR)
        assert made.status == 201, made.message
        one = f"{SECRETS}/dayfly-leaks-x"
        state, order = ({"stringData": {key: "b"}} for key in ("state", "order"))
        assert installed.ask("PATCH", one, state, user=OPERATOR, kind=MERGE).status == 200
        refused(installed.ask("PATCH", one, order, user=OPERATOR, kind=MERGE), words)
        secret["stringData"] = {"order": "b"}
        refused(installed.ask("POST", SECRETS, secret, user=OPERATOR), words)
        # An administrator has the permission, and a state beside an unchanged order needs none.
        assert installed.ask("PATCH", one, order, kind=MERGE).status == 200
        assert installed.ask("PATCH", one, state, user=OPERATOR, kind=MERGE).status == 200
        assert installed.ask("DELETE", one, user=OPERATOR).status == 200

    def test_role_and_policies_permit_the_life_of_a_check(self, installed, check):
        """All requests that the operator sends for a check of a server, from its creation to its end."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": check},
            {"op": "add", "path": "/spec", "value": {"plugin": "p", "cluster": "c", "every": "24h"}},
        ]
        request = {"metadata": {"uid": check, "annotations": {"dayfly.dev/leak-request": "sweep acme 1.2"}}}
        status = {"status": {"observedGeneration": 1, "ready": True, "number": 1}}
        for body, path, kind in ((patch, ONE, JSON_PATCH), (request, ONE, MERGE), (status, f"{ONE}/status", MERGE)):
            answer = installed.ask("PATCH", path, body, user=OPERATOR, kind=kind)
            assert answer.status == 200, answer.message
        owner = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "LeakCheck", "name": "served", "uid": check}
        for name, kind, owners in (
            (f"dayfly-leaks-{check}", "leak-check", [owner]),
            ("dayfly-server-keys", "server-keys", []),
        ):
            body = thing("v1", "Secret", name, type=f"dayfly.dev/{kind}", stringData={"order": "b"})
            body["metadata"]["ownerReferences"] = owners
            made = installed.ask("POST", SECRETS, body, user=OPERATOR)
            assert made.status == 201, made.message
            changed = installed.ask("PUT", f"{SECRETS}/{name}", made.body, user=OPERATOR)
            assert changed.status == 200, changed.message
            assert installed.ask("DELETE", f"{SECRETS}/{name}", user=OPERATOR).status == 200
        assert installed.ask("DELETE", ONE, {"preconditions": {"uid": check}}, user=OPERATOR).status == 200
        free = installed.ask("PATCH", ONE, {"metadata": {"finalizers": None}}, user=OPERATOR, kind=MERGE)
        assert free.status == 200, free.message
        assert installed.ask("GET", ONE).status == 404


class TestTenant:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"spec": {"action": "delete"}}, "this is the leak check served of acme, which a server has created"),
            ({"spec": {"plugin": "other"}}, "change it on the server, or delete it here to stop it"),
            ({"metadata": {"annotations": {"served.dayfly.dev/for": "me"}}}, "served.dayfly.dev/ identifies"),
            ({"metadata": {"annotations": {"served.dayfly.dev/for": None}}}, "served.dayfly.dev/ identifies"),
            ({"metadata": {"labels": {"dayfly.dev/served": None}}}, "the prefix dayfly.dev/ is reserved"),
            ({"metadata": {"finalizers": None}}, "set and removed by the Dayfly operator alone"),
        ],
        ids=["action", "plugin", "other organisation", "no organisation", "label", "finalizer"],
    )
    def test_check_of_a_server_cannot_be_changed(self, installed, check, change, words):
        refused(installed.ask("PATCH", ONE, change, user=TENANT, kind=MERGE), words)
        found = installed.ask("GET", ONE).body
        assert (found["metadata"]["uid"], found["spec"]["plugin"]) == (check, "p")

    def test_status_of_a_check_cannot_be_written(self, installed, check):
        status = {"status": {"plan": "x"}}
        answer = installed.ask("PATCH", f"{ONE}/status", status, user=TENANT, kind=MERGE)
        refused(answer, "leakchecks/status are written by the Dayfly operator alone")

    def test_own_check_cannot_get_the_mark_of_a_server(self, installed, granted):
        refused(installed.ask("POST", CHECKS, served_check("own"), user=TENANT), "the prefix dayfly.dev/ is reserved")
        plain = thing("dayfly.dev/v1alpha1", "LeakCheck", "own", spec={"plugin": "p"})
        assert installed.ask("POST", CHECKS, plain, user=TENANT).status == 201
        mark = {"metadata": {"labels": {"dayfly.dev/served": "leakcheck"}}}
        refused(installed.ask("PATCH", f"{CHECKS}/own", mark, user=TENANT, kind=MERGE), "dayfly.dev/ is reserved")
        assert installed.ask("DELETE", f"{CHECKS}/own", user=TENANT).status == 200

    def test_tenant_requests_a_sweep_and_deletes_the_check(self, installed, check):
        request = {"metadata": {"annotations": {"dayfly.dev/leak-request": "sweep ann"}}}
        assert installed.ask("PATCH", ONE, request, user=TENANT, kind=MERGE).status == 200
        assert installed.ask("DELETE", ONE, user=TENANT).status == 200
        free = installed.ask("PATCH", ONE, {"metadata": {"finalizers": None}}, user=OPERATOR, kind=MERGE)
        assert free.status == 200, free.message
