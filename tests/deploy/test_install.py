"""The install manifest: current, equal to the output of kustomize, and as restricted as documented."""

import ipaddress
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.deploy.conftest import OPERATOR, thing
from tests.kube.fake import FakeCluster, FakeTransport
from tests.manifests import documents
from tests.policy.apiserver import ROOT, established, eventually, start

from dayfly import __version__
from dayfly.execute.object.run import ACCOUNT, EXTRA
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import untyped_resource
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.hooks import target_grants
from dayfly.operator.main import Operator
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.operator.targets.adapter import BaseAdapter, rights
from dayfly.operator.targets.lifecycle_hook import HookedTarget

OBJECTS = documents(ROOT / "deploy" / "install.yaml")
ROUTE_SERVER = documents(ROOT / "deploy" / "routeserver.yaml")
SERVER = documents(ROOT / "deploy" / "server.yaml")

MACHINES = untyped_resource("cluster.example.org/v1", "Machine", "machines").metadata_only()

RIGHTS = """\
ClusterRole dayfly-agent-leaks: dayfly.dev/leakchecks create,delete
ClusterRole dayfly-agent: dayfly.dev/sandboxes create
ClusterRole dayfly-forks: apps/deployments create,delete,patch,update
ClusterRole dayfly-forks: gateway.networking.k8s.io/grpcroutes create,delete,update
ClusterRole dayfly-forks: gateway.networking.k8s.io/httproutes create,delete,update
ClusterRole dayfly-forks: networking.istio.io/virtualservices create,delete,patch
ClusterRole dayfly-forks: secrets create,get
ClusterRole dayfly-forks: services create,delete,patch
ClusterRole dayfly-operator: apiextensions.k8s.io/customresourcedefinitions get
ClusterRole dayfly-operator: apps/deployments get,list,watch
ClusterRole dayfly-operator: apps/replicasets list
ClusterRole dayfly-operator: authentication.k8s.io/userextras/dayfly.dev/objects impersonate [true]
ClusterRole dayfly-operator: dayfly.dev/leakchecks create,get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/leakchecks/status patch
ClusterRole dayfly-operator: dayfly.dev/lifecyclehooks get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/lifecyclehooks/status patch
ClusterRole dayfly-operator: dayfly.dev/objectlifecyclemethods create,delete,get,list,patch,update,watch
ClusterRole dayfly-operator: dayfly.dev/poolmembers create,delete,get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/poolmembers/status patch
ClusterRole dayfly-operator: dayfly.dev/resourceplugins get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/resourceplugins/status patch
ClusterRole dayfly-operator: dayfly.dev/resourcepools delete,get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/resourcepools/status patch
ClusterRole dayfly-operator: dayfly.dev/resources create,delete,get,list,patch,update,watch
ClusterRole dayfly-operator: dayfly.dev/resources/status patch
ClusterRole dayfly-operator: dayfly.dev/routegroups delete,get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/routegroups/status patch
ClusterRole dayfly-operator: dayfly.dev/runs create,delete,get,list,patch,update,watch
ClusterRole dayfly-operator: dayfly.dev/sandboxes delete,get,list,patch,watch
ClusterRole dayfly-operator: dayfly.dev/sandboxes/status patch
ClusterRole dayfly-operator: dayfly.dev/steplogs create,delete,get,list
ClusterRole dayfly-operator: discovery.k8s.io/endpointslices list
ClusterRole dayfly-operator: events.k8s.io/events create,list,patch
ClusterRole dayfly-operator: gateway.networking.k8s.io/grpcroutes get,list,watch
ClusterRole dayfly-operator: gateway.networking.k8s.io/httproutes get,list,watch
ClusterRole dayfly-operator: namespaces get,list,patch,watch
ClusterRole dayfly-operator: networking.istio.io/virtualservices get,list,watch
ClusterRole dayfly-operator: pods get,list,watch
ClusterRole dayfly-operator: rbac.authorization.k8s.io/clusterroles list,watch [dayfly-operator-targets]
ClusterRole dayfly-operator: serviceaccounts impersonate [dayfly-objects]
ClusterRole dayfly-operator: services get,list,watch
ClusterRole dayfly-plugin-publisher: dayfly.dev/resourceplugins create,delete,get,list,watch
ClusterRole dayfly-runners: configmaps create,get
ClusterRole dayfly-runners: persistentvolumeclaims get
ClusterRole dayfly-runners: pods create,delete,patch
ClusterRole dayfly-runners: pods/ephemeralcontainers patch
ClusterRole dayfly-runners: pods/log get
ClusterRole dayfly-runners: secrets create,delete,get
ClusterRole dayfly-sandbox-editor: dayfly.dev/resourcepools create,delete,get,list,patch,update,watch
ClusterRole dayfly-sandbox-editor: dayfly.dev/routegroups create,delete,get,list,patch,update,watch
ClusterRole dayfly-sandbox-editor: dayfly.dev/sandboxes create,delete,get,list,patch,update,watch
ClusterRole dayfly-viewer: dayfly.dev/leakchecks get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/lifecyclehooks get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/objectlifecyclemethods get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/poolmembers get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/resourceplugins get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/resourcepools get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/resources get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/routegroups get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/runs get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/sandboxes get,list,watch
ClusterRole dayfly-viewer: dayfly.dev/steplogs get,list,watch
Role dayfly-operator: coordination.k8s.io/leases create,get,update
Role dayfly-operator: secrets create,delete,get,list,patch,update
"""

BINDINGS = """\
ClusterRoleBinding dayfly-operator-targets: ClusterRole dayfly-operator-targets
ClusterRoleBinding dayfly-operator: ClusterRole dayfly-operator
RoleBinding dayfly-runners/dayfly-runners: ClusterRole dayfly-runners
RoleBinding dayfly-system/dayfly-operator: Role dayfly-operator
"""


def of(*kinds):
    return [each for each in OBJECTS if each["kind"] in kinds]


def test_rights_are_the_ones_we_know():
    """Each right of each role, and who has it: a new one is seen here before it is in a cluster."""
    rights = [
        f"{role['kind']} {role['metadata']['name']}: {'/'.join(filter(None, [group, resource]))} {','.join(sorted(rule['verbs']))}"
        + (f" {json.dumps(rule['resourceNames']).replace(chr(34), '')}" if "resourceNames" in rule else "")
        for role in of("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    assert "\n".join(sorted(rights)) + "\n" == RIGHTS
    bindings = []
    for each in of("RoleBinding", "ClusterRoleBinding"):
        meta, role = each["metadata"], each["roleRef"]
        place = "/".join(filter(None, [meta.get("namespace"), meta["name"]]))
        bindings.append(f"{each['kind']} {place}: {role['kind']} {role['name']}")
        assert each["subjects"] == [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}]
    assert "\n".join(sorted(bindings)) + "\n" == BINDINGS


def test_operator_role_covers_the_rights_of_each_target():
    """A kind that is added is missed here first."""
    [role] = [each for each in of("ClusterRole") if each["metadata"]["name"] == "dayfly-operator"]
    client = KubeClient(FakeTransport(FakeCluster(), "operator"))
    operator = Operator(client, runner=RunnerConfigMap("runner"), groups=RouteGroupsExtension)
    needed = [rights(adapter) for adapter in operator.targets]
    assert len(needed) == 2
    assert [rule for rule in needed if rule not in role["rules"]] == []


def test_target_grant_is_aggregated_into_the_operator_role():
    """The command in the condition of a hook creates a role that is aggregated into the operator's role."""
    [role] = [each for each in of("ClusterRole") if "aggregationRule" in each]
    assert role["rules"] == []
    [selector] = role["aggregationRule"]["clusterRoleSelectors"]
    assert selector == {"matchLabels": {target_grants.LABEL: "true"}}
    kind = HookedTarget(ClusterWatches(None), MACHINES, BaseAdapter(MACHINES), on_change=print, on_run_missing=print)  # type: ignore[arg-type] - nobody is asked
    assert target_grants.VERBS.split(",") == rights(kind)["verbs"]
    assert target_grants.grant_command("machines.cluster.example.org") == (
        "kubectl create clusterrole dayfly-targets-machines.cluster.example.org --verb=get,list,watch,patch "
        "--resource=machines.cluster.example.org && "
        "kubectl label clusterrole dayfly-targets-machines.cluster.example.org dayfly.dev/targets=true"
    )


def test_operator_impersonates_only_its_own_accounts():
    every = [rule for role in of("Role", "ClusterRole") for rule in role["rules"] if "impersonate" in rule["verbs"]]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in every] == [
        (["serviceaccounts"], [ACCOUNT], ["impersonate"]),
        ([f"userextras/{key}" for key in EXTRA], list(EXTRA.values()), ["impersonate"]),
    ]


def test_no_right_is_a_master_key():
    words = yaml.safe_dump([role["rules"] for role in of("Role", "ClusterRole")])
    for word in ("*", "escalate", "bind", "nonResourceURLs", "token", "exec", "nodes"):
        assert word not in words


def test_every_policy_is_in_force():
    policies = {each["metadata"]["name"] for each in of("ValidatingAdmissionPolicy")}
    bound = {
        each["spec"]["policyName"]: each["spec"]["validationActions"] for each in of("ValidatingAdmissionPolicyBinding")
    }
    assert bound == {name: ["Deny"] for name in policies}
    assert all(each["spec"]["failurePolicy"] == "Fail" for each in of("ValidatingAdmissionPolicy"))


@pytest.mark.parametrize("objects", [OBJECTS, SERVER], ids=["operator", "server"])
def test_the_image_is_this_version(objects):
    """The name is reserved (RFC 2606), so no registry can have it, and no other image is pulled."""
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"dayfly.invalid/operator:{__version__}"


METADATA = ["169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fe80::1"]


@pytest.mark.parametrize("address", METADATA)
def test_steps_reach_no_machines_metadata(address):
    """Metadata addresses of known clouds, for IPv4 and IPv6, are blocked; other addresses are reachable."""
    (policy,) = [each for each in of("NetworkPolicy") if each["metadata"]["namespace"] == "dayfly-runners"]
    (rule,) = policy["spec"]["egress"]
    assert _reached(rule, "192.0.2.1")
    assert not _reached(rule, address)


STEPS_NETWORK = ROOT / "deploy" / "steps-network.yaml"


@pytest.mark.parametrize(
    "address", [*METADATA, "10.0.0.1", "172.20.0.1", "192.168.1.5", "100.64.3.4", "fd12::1", "::1"]
)
def test_steps_network_excludes_private_addresses(address):
    """There API servers, kubelets and machines are."""
    policy = yaml.safe_load(STEPS_NETWORK.read_text())
    assert policy["metadata"]["name"] == "dayfly-runners", "it takes the place of that one"
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]
    pods, internet = policy["spec"]["egress"]
    assert pods == {"to": [{"namespaceSelector": {}}]}
    assert _reached(internet, "192.0.2.1")
    assert _reached(internet, "2001:db8::1")
    assert not _reached(internet, address)


@pytest.mark.cluster
@pytest.mark.timeout(120, func_only=True)  # the server's start is not its own
def test_install_leaves_an_applied_steps_network(api):
    """An upgrade must not open the network again in silence."""
    install = str(ROOT / "deploy" / "base" / "network.yaml")
    api.apply((ROOT / "deploy" / "base" / "namespaces.yaml").read_text())
    api.apply(Path(install).read_text())
    (line,) = [each[1:].strip() for each in STEPS_NETWORK.read_text().splitlines() if "kubectl apply" in each]
    command = line.removeprefix("kubectl ").replace("deploy/", f"{ROOT}/deploy/").split()
    api.cluster.kubectl(*command)
    kubectl = [str(api.cluster.folder / "bin" / "kubectl"), "--kubeconfig", str(api.cluster.kubeconfig)]
    again = subprocess.run(
        [*kubectl, "apply", "--server-side", "-f", install], capture_output=True, text=True, check=False
    )
    assert again.returncode != 0
    assert "dayfly-steps-network" in again.stderr
    found = api.ask("GET", "/apis/networking.k8s.io/v1/namespaces/dayfly-runners/networkpolicies/dayfly-runners").body
    wanted = yaml.safe_load(STEPS_NETWORK.read_text())["spec"]
    assert {field: found["spec"][field] for field in wanted} == wanted


def _reached(rule, address):
    ip = ipaddress.ip_address(address)
    blocks = [each["ipBlock"] for each in rule["to"]]
    return any(
        ip in ipaddress.ip_network(block["cidr"])
        and not any(ip in ipaddress.ip_network(net) for net in block["except"])
        for block in blocks
    )


def test_namespaces_enforce_restricted():
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in of("Namespace")}
    assert set(labels) == {"dayfly-system", "dayfly-runners"}
    assert {each["pod-security.kubernetes.io/enforce"] for each in labels.values()} == {"restricted"}


@pytest.mark.cluster
@pytest.mark.timeout(120, func_only=True)  # the server's start is not its own
def test_kustomize_makes_the_same(api):
    """deploy/base, rendered by kubectl's kustomize, holds the very objects of install.yaml."""
    made = documents(api.cluster.kubectl("kustomize", str(ROOT / "deploy" / "base")))

    def key(each):
        return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]

    assert sorted(made, key=key) == sorted(OBJECTS, key=key)


@pytest.mark.cluster
@pytest.mark.timeout(120, func_only=True)  # the server's start is not its own
def test_the_operators_pod_is_admitted(api):
    """Pod Security lets the Deployment's pods into the namespace that the manifest makes."""
    api.apply((ROOT / "deploy" / "base" / "namespaces.yaml").read_text())
    (deployment,) = of("Deployment")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dayfly-operator"}}
    api.ask("POST", "/api/v1/namespaces/dayfly-system/serviceaccounts", account)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": deployment["spec"]["template"]["spec"]}
    answer = api.ask("POST", "/api/v1/namespaces/dayfly-system/pods?dryRun=All", pod)
    assert answer.status == 201, answer.message


@pytest.mark.cluster
@pytest.mark.timeout(120, func_only=True)  # the server's start is not its own
def test_the_servers_objects_and_its_pod_are_admitted(api):
    """The server has no permissions in the cluster: its pod has no token of an account, and no role is bound to it."""
    namespace, deployment = SERVER[:2]
    api.apply(yaml.safe_dump(namespace))
    api.cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(ROOT / "deploy" / "server.yaml"))
    template = deployment["spec"]["template"]["spec"]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.ask("POST", "/api/v1/namespaces/dayfly-server/serviceaccounts", account)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template}
    answer = api.ask("POST", "/api/v1/namespaces/dayfly-server/pods?dryRun=All", pod)
    assert answer.status == 201, answer.message
    assert template["automountServiceAccountToken"] is False
    kinds = {each["kind"] for each in SERVER}
    assert kinds == {"Namespace", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}


@pytest.fixture(scope="module")
def own():
    yield from start()


@pytest.mark.cluster
@pytest.mark.timeout(180, func_only=True)
class TestUninstall:
    """The script with a separate server: it drains first, and prints the objects that it leaves."""

    def env(self, api):
        kubectl = api.cluster.folder / "bin" / "kubectl"
        return os.environ | {"KUBECTL": str(kubectl), "KUBECONFIG": str(api.cluster.kubeconfig)}

    def run(self, api, *arguments):
        command = [ROOT / "deploy" / "uninstall.sh", *arguments]
        return subprocess.run(command, env=self.env(api), capture_output=True, text=True, check=False)

    def install(self, api, *, finalizers):
        api.apply((ROOT / "deploy" / "install.yaml").read_text())
        eventually(lambda: established(api))
        body = thing("dayfly.dev/v1alpha1", "Sandbox", "s", spec={"cluster": "c"})
        path = "/apis/dayfly.dev/v1alpha1/namespaces/default/sandboxes"
        assert api.ask("POST", path, body).status == 201
        if finalizers:
            held = {"metadata": {"finalizers": ["dayfly.dev/lifecycle"]}}
            assert api.ask("PATCH", f"{path}/s", held, user=OPERATOR, kind="application/merge-patch+json").status == 200
        return f"{path}/s"

    @pytest.mark.long_story
    def test_stays_while_a_cleanup_is_not_proved(self, own):
        sandbox = self.install(own, finalizers=True)
        ended = self.run(own, "--timeout", "2s")
        assert ended.returncode == 1
        assert "still being cleaned up, so Dayfly is not removed: default/s" in ended.stderr
        assert own.ask("GET", "/apis/apps/v1/namespaces/dayfly-system/deployments/dayfly-operator").status == 200
        released = own.ask(
            "PATCH", sandbox, {"metadata": {"finalizers": None}}, user=OPERATOR, kind="application/merge-patch+json"
        )
        assert released.status == 200

    @pytest.mark.long_story
    def test_drains_then_goes(self, own):
        sandbox = self.install(own, finalizers=False)
        labels = {"metadata": {"labels": {"dayfly.dev/in-use": "true"}}}
        label = {"user": OPERATOR, "kind": "application/merge-patch+json"}
        assert own.ask("PATCH", "/api/v1/namespaces/default", labels, **label).status == 200
        granted = thing(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "dayfly-forks",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dayfly-forks"},
            subjects=[{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
        )
        bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        assert own.ask("POST", bindings, granted).status == 201
        ended = self.run(own)
        assert ended.returncode == 0, ended.stderr
        assert "dayfly.dev/in-use" not in own.ask("GET", "/api/v1/namespaces/default").body["metadata"]["labels"]
        left = [line for line in ended.stderr.splitlines() if line.startswith("    ")]
        assert [line.partition(" delete ")[2] for line in left] == ["RoleBinding -n 'default' 'dayfly-forks'"]
        assert subprocess.run(["sh", "-c", left[0]], env=self.env(own), check=False).returncode == 0
        assert own.ask("GET", f"{bindings}/dayfly-forks").status == 404
        assert "deleting sandboxes and waiting for their cleanup, at most 15m: default/s" in ended.stderr
        assert own.ask("GET", sandbox).status == 404
        for path in (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/api/v1/namespaces",
        ):
            names = [each["metadata"]["name"] for each in own.ask("GET", path).body["items"]]
            assert [name for name in names if "dayfly" in name] == []

    @pytest.mark.long_story
    def test_uninstall_keeps_the_crds_if_requested(self, own):
        self.install(own, finalizers=False)
        plugin = thing(
            "dayfly.dev/v1alpha1",
            "ResourcePlugin",
            "p.1.0.0",
            spec={"name": "p@1.0.0", "create": [{"name": "a", "script": "#!/bin/sh\n"}]},
        )
        assert own.ask("POST", "/apis/dayfly.dev/v1alpha1/resourceplugins", plugin).status == 201
        ended = self.run(own, "--keep-definitions")
        assert ended.returncode == 0, ended.stderr
        assert "left: the kinds of dayfly.dev and the plugins p.1.0.0" in ended.stderr
        assert own.ask("GET", "/apis/dayfly.dev/v1alpha1/resourceplugins/p.1.0.0").status == 200
        path = "/apis/dayfly.dev/v1alpha1/namespaces/default/sandboxes"
        body = thing("dayfly.dev/v1alpha1", "Sandbox", "late", spec={"cluster": "c"})
        eventually(lambda: own.ask("POST", f"{path}?dryRun=All", body).status == 201)  # no policy blocks it now
        policies = own.ask("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies").body["items"]
        assert [each["metadata"]["name"] for each in policies] == []


@pytest.mark.cluster
@pytest.mark.timeout(120, func_only=True)  # the server's start is not its own
def test_route_server_pod_is_admitted_with_minimal_rights(api):
    api.apply((ROOT / "deploy" / "base" / "namespaces.yaml").read_text())
    api.apply((ROOT / "deploy" / "routeserver.yaml").read_text())
    (deployment,) = (each for each in ROUTE_SERVER if each["kind"] == "Deployment")
    template = deployment["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template}
    answer = api.ask("POST", "/api/v1/namespaces/dayfly-system/pods?dryRun=All", pod)
    assert answer.status == 201, answer.message
    assert template["containers"][0]["image"] == f"dayfly.invalid/operator:{__version__}"
    (role,) = (each for each in ROUTE_SERVER if each["kind"] == "ClusterRole")
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["sandboxes", "routegroups"], ["list", "watch"]),
        (["services"], ["list", "watch"]),
        (["deployments"], ["list", "watch"]),
    ]
