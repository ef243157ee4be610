"""Permissions after the installation. A tenant has all RBAC permissions, and the operator has its role."""

import copy

import pytest
from tests.deploy.conftest import HARMLESS, OPERATOR, thing
from tests.policy.apiserver import eventually
from tests.policy.overlays import merged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120, func_only=True)]

TENANT = "tenant"  # bound to cluster-admin, so RBAC refuses it nothing
DAYFLY = "/apis/dayfly.dev/v1alpha1"
TEAM = "/api/v1/namespaces/team"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
SCRIPT = {"name": "a", "script": "#!/bin/sh\n"}


RUN = thing(
    "dayfly.dev/v1alpha1",
    "Run",
    "a-tenants-run",
    ledger={"uid": "u", "target": {"kind": "S", "name": "s", "uid": "u"}, "plan": "p"},
    spec={},
)
DOCUMENT = thing(
    "dayfly.dev/v1alpha1",
    "ObjectLifecycleMethods",
    "a-tenants-document",
    spec={"target": {"kind": "S", "name": "s", "uid": "u"}},
)
RESOURCE = thing(
    "dayfly.dev/v1alpha1",
    "Resource",
    "a-tenants-resource",
    spec={"name": "db", "sandbox": {"namespace": "team", "name": "s", "uid": "u"}},
)
LOGS = thing(
    "dayfly.dev/v1alpha1",
    "StepLogs",
    "l",
    spec={
        "sandbox": {"namespace": "team", "name": "s", "uid": "u"},
        "logs": [{"unit": "db/make", "attempt": 1, "size": 4, "text": "done"}],
    },
)
SANDBOX = thing("dayfly.dev/v1alpha1", "Sandbox", "s", spec={"cluster": "c"})
ROUTE_GROUP = thing("dayfly.dev/v1alpha1", "RouteGroup", "g", spec={"match": {"label": {"key": "team", "value": "a*"}}})
POOL = thing("dayfly.dev/v1alpha1", "ResourcePool", "w", spec={"plugin": "p", "ready": 1})
MEMBER = thing("dayfly.dev/v1alpha1", "PoolMember", "w-1", spec={"pool": "w", "template": "sha256:" + "0" * 64})
PLUGIN = thing("dayfly.dev/v1alpha1", "ResourcePlugin", "p.1.0.0", spec={"name": "p@1.0.0", "create": [SCRIPT]})
_SELECTOR = {"apiVersion": "cluster.example.org/v1", "kind": "Machine"}
HOOK = thing("dayfly.dev/v1alpha1", "LifecycleHook", "h", spec={"selector": _SELECTOR, "preStop": [SCRIPT]})
CHECK = thing("dayfly.dev/v1alpha1", "LeakCheck", "things", spec={"plugin": "p"})
OUTPUTS = thing("v1", "Secret", "o-x", type="dayfly.dev/outputs", stringData={"a": "b"})
POD = thing("v1", "Pod", "p", spec=HARMLESS)
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
CARRIERS = {
    "pods": (f"{TEAM}/pods", POD),
    "secrets": (f"{TEAM}/secrets", thing("v1", "Secret", "s")),
    "configmaps": (f"{TEAM}/configmaps", thing("v1", "ConfigMap", "c")),
    "services": (f"{TEAM}/services", thing("v1", "Service", "s", spec={"ports": [{"port": 1}]})),
    "deployments": (
        "/apis/apps/v1/namespaces/team/deployments",
        thing(
            "apps/v1",
            "Deployment",
            "d",
            spec={"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE},
        ),
    ),
    "sandboxes": (f"{DAYFLY}/namespaces/team/sandboxes", SANDBOX),
    "routegroups": (f"{DAYFLY}/namespaces/team/routegroups", ROUTE_GROUP),
    "resourcepools": (f"{DAYFLY}/namespaces/team/resourcepools", POOL),
    "resourceplugins": (f"{DAYFLY}/resourceplugins", PLUGIN),
    "lifecyclehooks": (f"{DAYFLY}/lifecyclehooks", HOOK),
    "leakchecks": (f"{DAYFLY}/leakchecks", CHECK),
}
BY_PEOPLE = (
    "sandboxes",
    "routegroups",
    "resourcepools",
    "resourceplugins",
    "lifecyclehooks",
    "leakchecks",
)  # written by people, marked by the operator
_SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_ONCE = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"] | {"restartPolicy": "Never"}}
_APPS, _BATCH = "/apis/apps/v1/namespaces/team", "/apis/batch/v1/namespaces/team"
# Objects that create pods: the URL, a body, and the path to its pod template.
MAKERS = {
    "deployments": (f"{_APPS}/deployments", thing("apps/v1", "Deployment", "m", spec=_SELECTED), ("spec", "template")),
    "replicasets": (f"{_APPS}/replicasets", thing("apps/v1", "ReplicaSet", "m", spec=_SELECTED), ("spec", "template")),
    "statefulsets": (
        f"{_APPS}/statefulsets",
        thing("apps/v1", "StatefulSet", "m", spec={**_SELECTED, "serviceName": "m"}),
        ("spec", "template"),
    ),
    "daemonsets": (f"{_APPS}/daemonsets", thing("apps/v1", "DaemonSet", "m", spec=_SELECTED), ("spec", "template")),
    "replicationcontrollers": (
        f"{TEAM}/replicationcontrollers",
        thing("v1", "ReplicationController", "m", spec={"selector": {"a": "b"}, "template": _TEMPLATE}),
        ("spec", "template"),
    ),
    "jobs": (f"{_BATCH}/jobs", thing("batch/v1", "Job", "m", spec={"template": _ONCE}), ("spec", "template")),
    "cronjobs": (
        f"{_BATCH}/cronjobs",
        thing("batch/v1", "CronJob", "m", spec={"schedule": "1 1 1 1 *", "jobTemplate": {"spec": {"template": _ONCE}}}),
        ("spec", "jobTemplate", "spec", "template"),
    ),
    "podtemplates": (f"{TEAM}/podtemplates", thing("v1", "PodTemplate", "m", template=_TEMPLATE), ("template",)),
}


@pytest.fixture(scope="module", autouse=True)
def people(installed):
    """A namespace, a tenant who may do everything, and the operator's rights granted there."""
    binding = {
        **thing("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "tenant"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": TENANT, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    installed.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    installed.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", "team"))
    eventually(lambda: installed.ask("GET", f"{TEAM}/serviceaccounts/default").status == 200)
    for role in ("dayfly-forks", "dayfly-runners"):
        grant = {
            **thing("rbac.authorization.k8s.io/v1", "RoleBinding", role),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
        }
        installed.ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings", grant)
    eventually(lambda: installed.ask("GET", f"{TEAM}/secrets/x", user=OPERATOR).status == 404)


def refused(answer, words):
    assert answer.status == 403, answer
    assert words in answer.message


class TestTenant:
    @pytest.mark.parametrize(
        ("plural", "body"),
        [("runs", RUN), ("objectlifecyclemethods", DOCUMENT), ("resources", RESOURCE)],
    )
    def test_writes_none_of_our_own_kinds(self, installed, plural, body):
        path = f"{DAYFLY}/{plural}"
        words = f"{plural} are written by the Dayfly operator alone; change or delete the Sandbox instead"
        refused(installed.ask("POST", path, body, user=TENANT), words)
        made = installed.ask("POST", path, body, user=OPERATOR)
        assert made.status == 201, made.message
        one = f"{path}/{body['metadata']['name']}"
        refused(installed.ask("PUT", one, made.body, user=TENANT), words)
        refused(installed.ask("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, user=TENANT, kind=MERGE), words)
        refused(installed.ask("DELETE", one, user=TENANT), words)
        refused(installed.ask("DELETE", path, user=TENANT), words)
        assert installed.ask("GET", one, user=TENANT).status == 200
        assert installed.ask("DELETE", one, user=OPERATOR).status == 200

    def test_writes_no_logs(self, installed):
        path, words = f"{DAYFLY}/namespaces/team/steplogs", "steplogs are written by the Dayfly operator alone"
        refused(installed.ask("POST", path, LOGS, user=TENANT), words)
        made = installed.ask("POST", path, LOGS, user=OPERATOR)
        assert made.status == 201, made.message
        refused(installed.ask("PATCH", f"{path}/l", {"spec": {"logs": []}}, user=TENANT, kind=MERGE), words)
        refused(installed.ask("DELETE", f"{path}/l", user=TENANT), words)
        assert installed.ask("GET", f"{path}/l", user=TENANT).body["spec"]["logs"] == LOGS["spec"]["logs"]
        assert installed.ask("DELETE", f"{path}/l", user=OPERATOR).status == 200

    def test_tenant_creates_and_changes_no_pool_member(self, installed):
        """A tenant who may do everything can delete a member, which its pool replaces."""
        path = f"{DAYFLY}/namespaces/team/poolmembers"
        refused(
            installed.ask("POST", path, MEMBER, user=TENANT), "poolmembers are written by the Dayfly operator alone"
        )
        made = installed.ask("POST", path, MEMBER, user=OPERATOR)
        assert made.status == 201, made.message
        changed = {"spec": {"pool": "other"}}
        assert installed.ask("PATCH", f"{path}/w-1", changed, user=TENANT, kind=MERGE).status == 422
        finalizer = {"metadata": {"finalizers": ["dayfly.dev/lifecycle"]}}
        refused(installed.ask("PATCH", f"{path}/w-1", finalizer, user=TENANT, kind=MERGE), "metadata.finalizers")
        status = {"status": {"holder": "s/db"}}
        refused(
            installed.ask("PATCH", f"{path}/w-1/status", status, user=TENANT, kind=MERGE),
            "poolmembers/status are written by the Dayfly operator alone",
        )
        assert installed.ask("PATCH", f"{path}/w-1/status", status, user=OPERATOR, kind=MERGE).status == 200
        assert installed.ask("DELETE", f"{path}/w-1", user=TENANT).status == 200

    @pytest.mark.parametrize("plural", ["sandboxes", "resourceplugins", "resourcepools"])
    def test_says_nothing_in_our_name(self, installed, plural):
        path, body = CARRIERS[plural]
        installed.ask("POST", path, body, user=TENANT)
        one = f"{path}/{body['metadata']['name']}/status"
        answer = installed.ask("PATCH", one, {"status": {"message": "x"}}, user=TENANT, kind=MERGE)
        refused(answer, f"{plural}/status are written by the Dayfly operator alone")
        assert installed.ask("PATCH", one, {"status": {"message": "x"}}, user=OPERATOR, kind=MERGE).status == 200

    @pytest.mark.parametrize(
        ("metadata", "words"),
        [
            ({"finalizers": ["dayfly.dev/record"]}, "metadata.finalizers: those of dayfly.dev/"),
            ({"labels": {"dayfly.dev/run": "r"}}, "metadata.labels: the prefix dayfly.dev/ is reserved"),
        ],
        ids=["finalizer", "label"],
    )
    @pytest.mark.parametrize("plural", CARRIERS)
    def test_sets_and_removes_no_key(self, installed, plural, metadata, words):
        """Reserved keys are refused on every kind: at creation, in a later change, and at their removal."""
        path, plain = CARRIERS[plural]
        body = copy.deepcopy(plain)
        body["metadata"] |= metadata
        refused(installed.ask("POST", f"{path}?dryRun=All", body, user=TENANT), words)
        assert installed.ask("POST", path, plain, user=TENANT).status in (201, 409)
        one = f"{path}/{plain['metadata']['name']}"
        refused(installed.ask("PATCH", one, {"metadata": metadata}, user=TENANT, kind=MERGE), words)
        gone = {"metadata": dict.fromkeys(metadata)}
        if plural in BY_PEOPLE:
            assert installed.ask("PATCH", one, {"metadata": metadata}, user=OPERATOR, kind=MERGE).status == 200
        else:
            body["metadata"]["name"] = f"owned-{next(iter(metadata))}"
            one = f"{path}/{body['metadata']['name']}"
            made = installed.ask("POST", path, body, user=OPERATOR)
            assert made.status == 201, made.message
        refused(installed.ask("PATCH", one, gone, user=TENANT, kind=MERGE), words)
        if plural in BY_PEOPLE:
            assert installed.ask("PATCH", one, gone, user=OPERATOR, kind=MERGE).status == 200

    def test_gate_and_annotations_of_pods(self, installed):
        gated = copy.deepcopy(POD)
        gated["spec"]["schedulingGates"] = [{"name": "dayfly.dev/claim"}]
        gated["metadata"] = {"name": "gated", "annotations": {"dayfly.dev/order": "x"}}
        answer = installed.ask("POST", f"{TEAM}/pods?dryRun=All", gated, user=TENANT)
        refused(answer, "dayfly.dev/")
        assert installed.ask("POST", f"{TEAM}/pods", gated, user=OPERATOR).status == 201
        one = f"{TEAM}/pods/gated"
        remove = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        refused(
            installed.ask("PATCH", one, remove, user=TENANT, kind=JSON),
            "spec.schedulingGates: dayfly.dev/claim is set and removed by the Dayfly operator alone",
        )
        change = {"metadata": {"annotations": {"dayfly.dev/order": "mine"}}}
        refused(
            installed.ask("PATCH", one, change, user=TENANT, kind=MERGE),
            "metadata.annotations: on pods the prefix dayfly.dev/ is reserved",
        )
        other = {"metadata": {"annotations": {"mine": "x"}, "labels": {"mine": "x"}}}
        assert installed.ask("PATCH", one, other, user=TENANT, kind=MERGE).status == 200
        assert installed.ask("PATCH", one, remove, user=OPERATOR, kind=JSON).status == 200

    def test_controllers_copy_labels_but_no_gate(self, installed):
        """The pods of a Deployment have its labels, but a template cannot create a gated pod."""
        copied = copy.deepcopy(POD)
        copied["metadata"] = {"name": "copied", "labels": {"dayfly.dev/sandbox": "s"}}
        who = "system:serviceaccount:kube-system:replicaset-controller"
        assert installed.ask("POST", f"{TEAM}/pods?dryRun=All", copied, user=who).status == 201
        copied["spec"]["schedulingGates"] = [{"name": "dayfly.dev/claim"}]
        refused(installed.ask("POST", f"{TEAM}/pods?dryRun=All", copied, user=who), "spec.schedulingGates")

    def test_outputs(self, installed):
        words = "contains results of a step; only the Dayfly operator may write and delete it"
        refused(installed.ask("POST", f"{TEAM}/secrets", OUTPUTS, user=TENANT), words)
        assert installed.ask("POST", f"{TEAM}/secrets", OUTPUTS, user=OPERATOR).status == 201
        one = f"{TEAM}/secrets/o-x"
        refused(installed.ask("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, user=TENANT, kind=MERGE), words)
        refused(installed.ask("DELETE", one, user=TENANT), words)
        collector = "system:serviceaccount:kube-system:generic-garbage-collector"
        assert installed.ask("DELETE", f"{one}?dryRun=All", user=collector).status == 200
        assert installed.ask("DELETE", one, user=OPERATOR).status == 200

    def test_program(self, installed):
        """The runner program is recognised by its name. Users may delete objects that existed before the policies."""
        words = "only the Dayfly operator writes it"
        maps = f"{TEAM}/configmaps"
        program = thing("v1", "ConfigMap", "dayfly-runner-0123456789abcdef", binaryData={"runner": "AAAA"})
        refused(installed.ask("POST", maps, program, user=TENANT), words)
        assert installed.ask("POST", maps, program, user=OPERATOR).status == 201
        one = f"{maps}/dayfly-runner-0123456789abcdef"
        refused(installed.ask("PATCH", one, {"binaryData": {"runner": "BBBB"}}, user=TENANT, kind=MERGE), words)
        assert installed.ask("DELETE", one, user=TENANT).status == 200
        for name in ("dayfly-runner-trial", "my-dayfly-runner-0123456789abcdef"):
            other = thing("v1", "ConfigMap", name)
            assert installed.ask("POST", f"{maps}?dryRun=All", other, user=TENANT).status == 201

    def test_states(self, installed):
        """States of an abandoned run have no owner, and users who may delete Secrets there may delete them."""
        words = "contains results of a step; only the Dayfly operator may write and delete it"
        state = copy.deepcopy(OUTPUTS) | {"type": "dayfly.dev/state"}
        # the garbage collector would delete it otherwise
        there = installed.ask("GET", TEAM, user=OPERATOR).body["metadata"]
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": there["name"], "uid": there["uid"]}
        state["metadata"] = {"name": "s-x", "ownerReferences": [owner]}
        refused(installed.ask("POST", f"{TEAM}/secrets", state, user=TENANT), words)
        assert installed.ask("POST", f"{TEAM}/secrets", state, user=OPERATOR).status == 201
        one = f"{TEAM}/secrets/s-x"
        refused(installed.ask("PATCH", one, {"metadata": {"ownerReferences": None}}, user=TENANT, kind=MERGE), words)
        refused(installed.ask("DELETE", one, user=TENANT), words)
        assert installed.ask("DELETE", one, user=OPERATOR).status == 200
        del state["metadata"]["ownerReferences"]
        assert installed.ask("POST", f"{TEAM}/secrets", state, user=OPERATOR).status == 201
        refused(installed.ask("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, user=TENANT, kind=MERGE), words)
        assert installed.ask("DELETE", one, user=TENANT).status == 200

    def test_runner_namespace_accepts_pods_only_from_the_operator(self, installed):
        words = "dayfly-runners is only for the steps of Dayfly's sandboxes"
        for user in (TENANT, "system:serviceaccount:kube-system:replicaset-controller"):
            refused(installed.ask("POST", "/api/v1/namespaces/dayfly-runners/pods", POD, user=user), words)

    @pytest.mark.parametrize("namespace", ["dayfly-runners", "team"])
    def test_only_the_operator_changes_or_enters_step_pods(self, installed, namespace):
        """Another image would get the step's Secrets. In a team's namespace the pod is recognised by its label."""
        words = "pods of Dayfly's steps belong to the operator: other users may not change or enter them"
        path = f"/api/v1/namespaces/{namespace}/pods"
        granted = {"metadata": {"labels": {"dayfly.dev/runners": "true"}}}
        assert installed.ask("PATCH", path.removesuffix("/pods"), granted, user=TENANT, kind=MERGE).status == 200
        made = installed.ask("POST", path, merged({}, namespace), user=OPERATOR)
        assert made.status == 201, made.message
        one = f"{path}/{made.body['metadata']['name']}"
        late = {"spec": {"ephemeralContainers": [HARMLESS["containers"][0] | {"name": "e"}]}}
        refused(installed.ask("PATCH", f"{one}/ephemeralcontainers", late, user=TENANT, kind=STRATEGIC), words)
        for entrance in (
            "exec?command=sh&stdout=true",
            "attach?stdout=true",
            "portforward?ports=1",
            "proxy",
            "proxy/x",
        ):
            refused(installed.ask("POST", f"{one}/{entrance}", user=TENANT), words)
        image = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
        refused(installed.ask("PATCH", one, image, user=TENANT, kind=STRATEGIC), words)
        refused(installed.ask("PATCH", one, {"metadata": {"labels": {"app": "web"}}}, user=TENANT, kind=MERGE), words)
        free = [{"op": "remove", "path": "/metadata/finalizers/0"}]
        refused(installed.ask("PATCH", one, free, user=TENANT, kind=JSON), "")
        assert installed.ask("DELETE", f"{one}?gracePeriodSeconds=0", user=TENANT).status == 200
        assert installed.ask("GET", one).status == 200, "our finalizer keeps the status of the pod"
        assert installed.ask("PATCH", one, free, user=OPERATOR, kind=JSON).status == 200
        if namespace != "dayfly-runners":
            assert installed.ask("POST", path, thing("v1", "Pod", "web", spec=POD["spec"]), user=TENANT).status == 201
            assert "nobody else" not in installed.ask("POST", f"{path}/web/exec?command=sh", user=TENANT).message
            image["spec"]["containers"][0]["name"] = "c"
            change = installed.ask("PATCH", f"{path}/web", image, user=TENANT, kind=STRATEGIC)
            assert change.status == 200, change.message

    @pytest.mark.parametrize("plural", MAKERS)
    def test_reserved_labels_in_a_pod_template_are_refused(self, installed, plural):
        """The cluster's controllers copy labels of templates into pods, so reserved labels are refused in templates."""
        path, plain, where = MAKERS[plural]
        assert installed.ask("POST", f"{path}?dryRun=All", plain, user=TENANT).status == 201
        body = copy.deepcopy(plain)
        template = body
        for step in where:
            template = template[step]
        template["metadata"]["labels"] = template["metadata"]["labels"] | {"dayfly.dev/run": "r"}
        answer = installed.ask("POST", f"{path}?dryRun=All", body, user=TENANT)
        refused(answer, "metadata.labels: the prefix dayfly.dev/ is reserved")
        assert installed.ask("POST", path, plain, user=TENANT).status == 201
        one = f"{path}/{plain['metadata']['name']}"
        if plural != "jobs":  # a Job's template never changes
            answer = installed.ask("PUT", f"{one}?dryRun=All", body, user=TENANT)
            refused(answer, "metadata.labels: the prefix dayfly.dev/ is reserved")

    def test_controllers_copy_a_forks_template(self, installed):
        """The operator's fields of a Deployment reach its ReplicaSet and the pods of that."""
        path, plain, _ = MAKERS["replicasets"]
        body = copy.deepcopy(plain)
        body["metadata"] = {"name": "copied", "labels": {"dayfly.dev/run": "r"}}
        body["spec"]["template"]["metadata"]["labels"] = {"a": "b", "dayfly.dev/run": "r"}
        who = "system:serviceaccount:kube-system:deployment-controller"
        made = installed.ask("POST", f"{path}?dryRun=All", body, user=who)
        assert made.status == 201, made.message

    def test_grants_on_namespaces_ask_for_a_right(self, installed):
        """The permission to change labels of namespaces, which some clusters give to tenants, grants nothing."""
        rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "patch"]}]
        role = thing("rbac.authorization.k8s.io/v1", "ClusterRole", "namespace-editor", rules=rules)
        binding = {
            **thing("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "namespace-editor"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "namespace-editor"},
            "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        installed.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        installed.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        words = "which cluster administrators have"
        path = "/api/v1/namespaces"
        plain = {"metadata": {"labels": {"team": "a"}, "annotations": {"team": "a"}}}
        eventually(lambda: installed.ask("PATCH", f"{path}/team", plain, user="ada", kind=MERGE).status == 200)
        for field, key in (("labels", "runners"), ("annotations", "runners-from"), ("annotations", "pod-keys")):
            grant = {"metadata": {field: {f"dayfly.dev/{key}": "true"}}}
            refused(installed.ask("PATCH", f"{path}/default", grant, user="ada", kind=MERGE), words)
            born = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n", **grant["metadata"]}}
            refused(installed.ask("POST", path, born, user="ada"), words)
            given = installed.ask("PATCH", f"{path}/default", grant, user=TENANT, kind=MERGE)
            assert given.status == 200, given.message
            taken = {"metadata": {field: {f"dayfly.dev/{key}": None}}}
            refused(installed.ask("PATCH", f"{path}/default", taken, user="ada", kind=MERGE), words)
            assert installed.ask("PATCH", f"{path}/default", plain, user="ada", kind=MERGE).status == 200
            assert installed.ask("PATCH", f"{path}/default", taken, user=TENANT, kind=MERGE).status == 200

    def test_namespace_and_plugin_in_use_cannot_be_deleted(self, installed):
        mark, unmark = ({"metadata": {"labels": {"dayfly.dev/in-use": value}}} for value in ("true", None))
        path = "/api/v1/namespaces/team"
        refused(installed.ask("PATCH", path, mark, user=TENANT, kind=MERGE), "dayfly.dev/in-use is set and removed by")
        assert installed.ask("PATCH", path, mark, user=OPERATOR, kind=MERGE).status == 200
        refused(installed.ask("DELETE", path, user=TENANT), "namespace team holds live sandboxes of Dayfly")
        refused(
            installed.ask("PATCH", path, unmark, user=TENANT, kind=MERGE), "dayfly.dev/in-use is set and removed by"
        )
        assert installed.ask("PATCH", path, unmark, user=OPERATOR, kind=MERGE).status == 200
        assert installed.ask("DELETE", f"{path}?dryRun=All", user=TENANT).status == 200

        plugins, _ = CARRIERS["resourceplugins"]
        installed.ask("POST", plugins, PLUGIN, user=TENANT)
        one = f"{plugins}/p.1.0.0"
        assert installed.ask("PATCH", one, mark, user=OPERATOR, kind=MERGE).status == 200
        refused(installed.ask("DELETE", one, user=TENANT), "plugin p.1.0.0 is in use by live sandboxes")
        assert installed.ask("PATCH", one, unmark, user=OPERATOR, kind=MERGE).status == 200
        assert installed.ask("DELETE", one, user=TENANT).status == 200

    def test_ordinary_tenant_actions_are_allowed(self, installed):
        """Sandboxes come, change, are abandoned and go; other people's pods, labels and namespaces are untouched."""
        path = f"{DAYFLY}/namespaces/team/sandboxes"
        body = thing("dayfly.dev/v1alpha1", "Sandbox", "daily", spec={"cluster": "c"})
        assert installed.ask("POST", path, body, user=TENANT).status == 201
        change = {"metadata": {"annotations": {"dayfly.dev/abandon": "gone"}}, "spec": {"description": "x"}}
        assert installed.ask("PATCH", f"{path}/daily", change, user=TENANT, kind=MERGE).status == 200
        assert installed.ask("DELETE", f"{path}/daily", user=TENANT).status == 200
        assert (
            installed.ask(
                "POST", f"{TEAM}/pods?dryRun=All", thing("v1", "Pod", "own", spec=POD["spec"]), user=TENANT
            ).status
            == 201
        )
        assert (
            installed.ask("POST", "/api/v1/namespaces?dryRun=All", thing("v1", "Namespace", "new"), user=TENANT).status
            == 201
        )


@pytest.fixture(scope="module")
def served(installed):
    installed.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", "served"))
    grant = {
        **thing("rbac.authorization.k8s.io/v1", "RoleBinding", "dayfly-agent"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dayfly-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
    }
    installed.ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/served/rolebindings", grant)
    path = f"{DAYFLY}/namespaces/served/sandboxes"
    body = thing("dayfly.dev/v1alpha1", "Sandbox", "s-1", spec={"cluster": "c"})
    body["metadata"] |= {
        "labels": {"dayfly.dev/served": "u"},
        "annotations": {"served.dayfly.dev/for": "acme", "served.dayfly.dev/name": "shop"},
        "finalizers": ["dayfly.dev/served"],
    }
    eventually(lambda: installed.ask("POST", path, body, user=OPERATOR).status in (201, 409))
    return path


class TestControlPlanes:
    """Sandboxes that a server has created here: only the operator changes them, and tenants may end them."""

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"spec": {"description": "x"}}, "this is the sandbox shop of acme, which a server has created"),
            ({"metadata": {"annotations": {"served.dayfly.dev/for": "me"}}}, "identifies the sandbox on its server"),
            ({"metadata": {"annotations": {"served.dayfly.dev/end": "{}"}}}, "identifies the sandbox on its server"),
            ({"metadata": {"labels": {"dayfly.dev/served": None}}}, "the prefix dayfly.dev/ is reserved"),
            ({"metadata": {"finalizers": None}}, "set and removed by the Dayfly operator alone"),
        ],
    )
    def test_tenant_cannot_change_a_sandbox_from_the_server(self, installed, served, change, words):
        refused(installed.ask("PATCH", f"{served}/s-1", change, user=TENANT, kind=MERGE), words)

    def test_and_marks_none_of_their_own_as_one(self, installed, served):
        body = thing("dayfly.dev/v1alpha1", "Sandbox", "own", spec={"cluster": "c"})
        body["metadata"]["labels"] = {"dayfly.dev/served": "u"}
        refused(installed.ask("POST", served, body, user=TENANT), "the prefix dayfly.dev/ is reserved")

    def test_but_stops_it_and_gives_its_cleanup_up(self, installed, served):
        change = {"metadata": {"annotations": {"dayfly.dev/abandon": "gone", "dayfly.dev/retry": "db/drop=1"}}}
        assert installed.ask("PATCH", f"{served}/s-1", change, user=TENANT, kind=MERGE).status == 200
        assert installed.ask("DELETE", f"{served}/s-1", user=TENANT).status == 200
        free = {"metadata": {"finalizers": None}}
        assert installed.ask("PATCH", f"{served}/s-1", free, user=OPERATOR, kind=MERGE).status == 200


class TestOperator:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/api/v1/secrets"),
            ("GET", "/api/v1/namespaces/kube-system/secrets"),
            ("GET", "/api/v1/namespaces/dayfly-runners/secrets"),
            ("GET", "/api/v1/namespaces/default/secrets/x"),
            ("POST", "/api/v1/namespaces/default/pods"),
            ("DELETE", "/api/v1/namespaces/default/pods/x"),
            ("POST", "/apis/apps/v1/namespaces/default/deployments"),
            ("DELETE", "/api/v1/namespaces/team"),
            ("GET", "/api/v1/nodes"),
            ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
            ("POST", "/api/v1/namespaces/dayfly-runners/serviceaccounts/default/token"),
            ("POST", "/api/v1/namespaces/dayfly-runners/pods/x/exec"),
            ("DELETE", f"{DAYFLY}/resourceplugins/x"),
            ("POST", f"{DAYFLY}/namespaces/team/sandboxes"),
        ],
    )
    def test_may_not(self, installed, method, path):
        answer = installed.ask(method, path, {} if method == "POST" else None, user=OPERATOR)
        assert (answer.status, "cannot" in answer.message) == (403, True), answer

    def test_changes_nothing_of_a_namespace_but_its_mark(self, installed):
        for change in (
            {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
            {"labels": {"dayfly.dev/in-use": "true", "a": "b"}},
            {"annotations": {"a": "b"}},
        ):
            answer = installed.ask(
                "PATCH", "/api/v1/namespaces/default", {"metadata": change}, user=OPERATOR, kind=MERGE
            )
            refused(
                answer, "the Dayfly operator may change nothing about a namespace except its label dayfly.dev/in-use"
            )
