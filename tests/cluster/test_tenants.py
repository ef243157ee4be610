"""Protection between tenants: attempts with a tenant's ordinary permissions."""

import base64
import json
from typing import Any, NamedTuple

import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import ACCOUNT, API, RUNNERS, Installed

SYSTEM_GROUPS = ("system:authenticated", "system:serviceaccounts")


class Tenant(NamedTuple):
    """A user with the role `edit` in one namespace and no other permissions."""

    operator: Installed
    namespace: str

    @property
    def groups(self) -> list[str]:
        groups = (*SYSTEM_GROUPS, f"system:serviceaccounts:{self.namespace}")
        return [f"--as=system:serviceaccount:{self.namespace}:ada", *(f"--as-group={group}" for group in groups)]

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.operator.own.kubectl(*self.groups, "-n", self.namespace, *arguments, stdin=stdin)

    def refused(self, *arguments: str, stdin: str = "") -> str:
        return self.operator.refused(*self.groups, "-n", self.namespace, *arguments, stdin=stdin)


def tenant(operator: Installed, namespace: str) -> Tenant:
    """Return a user with the role `edit` in the namespace."""
    operator.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ada", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "ada", "namespace": namespace}],
        }
    )
    return Tenant(operator, namespace)


@pytest.fixture
def secret(operator):
    """An ordinary Secret in the namespace of steps. It outlives the sandboxes of a test."""
    name = "superuser"
    operator.own.kubectl("create", "secret", "generic", name, "-n", RUNNERS, "--from-literal=password=hunter2")
    yield name
    operator.own.kubectl("delete", "secret", name, "-n", RUNNERS)


def reading(secret: str) -> str:
    """An overlay whose steps find a Secret in $FOUND."""
    variable = {"name": "FOUND", "valueFrom": {"secretKeyRef": {"name": secret, "key": "password"}}}
    return json.dumps({"spec": {"containers": [{"name": "main", "env": [variable]}]}})


def inline(wishes, **runner: str) -> dict[str, Any]:
    """Return a sandbox with an inline plugin; its step outputs the value of $FOUND."""
    made = wishes.sandbox()
    step = {
        "name": "look",
        "outputs": [{"name": "found", "valueFromPath": "/tmp/found"}],
        "script": wishes.script("create look", 'printf %s "$FOUND" >/tmp/found'),
    }
    made["spec"]["resources"] = [
        {"name": "pair", "spec": {"runner": {"image": images.SHELL, **runner}, "create": [step]}}
    ]
    return made


def says(operator: Installed, wishes, words: str) -> dict[str, Any]:
    """Return the status of the test's sandbox once its message contains these words."""
    return operator.wait_status(wishes.name, wishes.namespace, lambda said: words in said["message"], words)


class TestSecrets:
    def test_inline_plugin_reads_no_secret(self, operator, secret, wishes, journal):
        """A user who may write Sandboxes may not read Secrets in the namespace of steps, whatever their annotations."""
        operator.own.kubectl("annotate", "secret", secret, "-n", RUNNERS, f"dayfly.dev/plugins=cluster:{wishes.name}")
        ada = tenant(operator, TEAM)
        operator.apply_as(ada.groups, inline(wishes, podTemplateOverlay=reading(secret)))
        said = says(operator, wishes, "only a published plugin can be granted that")
        assert said["reason"] == "Refused"
        assert operator.pods() == journal.entries == []

    def test_published_plugin_reads_a_secret_that_names_it(self, operator, secret, wishes, journal):
        """The owner of a Secret permits one plugin to read it. The permission works at once, as an output proves."""
        plugin = wishes.plugin(overlay=reading(secret))
        plugin["spec"]["create"][0]["script"] = wishes.script("create first", 'printf %s "$FOUND" >/tmp/word')
        operator.apply(plugin)
        operator.apply_as(tenant(operator, TEAM).groups, wishes.sandbox())
        says(operator, wishes, f"Secret {RUNNERS}/{secret} does not name the plugin cluster:{wishes.name}")
        assert operator.pods() == journal.entries == []
        operator.own.kubectl("annotate", "secret", secret, "-n", RUNNERS, f"dayfly.dev/plugins=cluster:{wishes.name}")
        operator.wait_ready(wishes.name, TEAM)
        (resource,) = operator.items(f"/apis/{API}/resources")
        values = operator.get(f"/api/v1/namespaces/{TEAM}/secrets/{resource['status']['binding']['name']}")
        assert base64.b64decode(values["data"]["first.word"]) == b"hunter2"

    def test_annotations_of_clouds_are_refused(self, operator, wishes, journal):
        """In clusters where annotations of pods grant permissions, an author could grant all of them."""
        overlay = "metadata: {annotations: {iam.amazonaws.com/role: admin}}"
        operator.apply_as(tenant(operator, TEAM).groups, inline(wishes, podTemplateOverlay=overlay))
        says(operator, wishes, "metadata.annotations[iam.amazonaws.com/role] is not allowed on pods")
        assert operator.pods() == journal.entries == []


@pytest.fixture
def granted(operator, namespace):
    """A team's namespace in which its own steps may run."""
    operator.own.kubectl("label", "namespace", namespace, "dayfly.dev/runners=true")
    role = ["--clusterrole=dayfly-runners", f"--serviceaccount={ACCOUNT}"]
    operator.own.kubectl("create", "rolebinding", "dayfly-runners", "-n", namespace, *role)
    return namespace


class TestNamespaces:
    def test_takes_no_steps_of_others(self, operator, granted, wishes, journal):
        """A namespace that runs its own team's steps accepts no others, except from namespaces in its annotation."""
        operator.apply_as(tenant(operator, TEAM).groups, inline(wishes, namespace=granted))
        says(operator, wishes, f"namespace {granted} does not accept steps of sandboxes in {TEAM}")
        assert operator.pods() == journal.entries == []
        operator.own.kubectl("annotate", "namespace", granted, f"dayfly.dev/runners-from=other,{TEAM}")
        operator.wait_ready(wishes.name, TEAM)

    def test_steps_answer_in_no_services_name(self, operator, granted, wishes, journal):
        """By a label a step would have become an endpoint of the team's Service."""
        operator.own.kubectl("annotate", "namespace", granted, f"dayfly.dev/runners-from={TEAM}")
        ports = [{"port": 80}]
        selector = {"app.kubernetes.io/name": "database"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "database", "namespace": granted}}
        operator.apply(service | {"spec": {"ports": ports, "selector": selector}})
        overlay = "metadata: {labels: {app.kubernetes.io/name: database}}"
        operator.apply_as(tenant(operator, TEAM).groups, inline(wishes, namespace=granted, podTemplateOverlay=overlay))
        says(operator, wishes, f"its pod would become an endpoint of Service {granted}/database")
        assert operator.pods() == journal.entries == []

    def test_steps_in_a_team_namespace_are_protected_from_it(self, operator, granted, wishes, journal):
        """The own team can neither change the image of a step before its launch nor enter a running one."""
        operator.own.kubectl("annotate", "namespace", granted, f"dayfly.dev/runners-from={TEAM}")
        owner = tenant(operator, granted)
        journal.hold("create look")
        operator.apply_as(tenant(operator, TEAM).groups, inline(wishes, namespace=granted))
        journal.wait_for("create look")
        pod = operator.pod("pair/look")["metadata"]["name"]
        words = "pods of Dayfly's steps belong to the operator"
        assert words in owner.refused("set", "image", f"pod/{pod}", "main=evil")
        assert words in owner.refused("label", "pod", pod, "app=web")
        assert words in owner.refused("exec", pod, "--", "true")
        assert pod in owner.kubectl("get", "pods", "-o", "name")
        journal.let_go()
        operator.wait_ready(wishes.name, TEAM)
