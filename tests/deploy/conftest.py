from collections.abc import Iterator

import pytest
from tests.policy.apiserver import ROOT, Api, api, established, eventually, served

__all__ = ["api", "served"]

OPERATOR = "system:serviceaccount:dayfly-system:dayfly-operator"
HARMLESS = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "c",
            "image": "x",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
WRITTEN = [
    pytest.mark.cluster,
    pytest.mark.timeout(120, func_only=True),
]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def thing(api_version, kind, name, **fields):
    """Return an object with only a name as metadata."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


@pytest.fixture(scope="module")
def installed(api: Api) -> Iterator[Api]:
    """A server with all of deploy/install.yaml. Its policies are removed, as they would block other tests."""
    api.apply((ROOT / "deploy" / "install.yaml").read_text())
    eventually(lambda: established(api))
    wait_for_policies(api)
    yield api
    for each in api.ask("GET", POLICIES).body["items"]:
        if each["metadata"]["name"].startswith("dayfly-"):
            api.ask("DELETE", f"{POLICIES}/{each['metadata']['name']}")
    probe = thing("v1", "Pod", "p", spec=HARMLESS)
    probe["metadata"]["labels"] = {"dayfly.dev/x": "y"}
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    eventually(lambda: "dayfly.dev/" not in api.ask("POST", path, probe).message)


def wait_for_policies(api: Api) -> None:
    """Wait until the API server enforces every policy that exists.

    It loads policies and bindings in the order of their creation, a second or so later. So a last policy is created
    here, which refuses one ConfigMap: as soon as that is refused, all earlier policies are in force.
    """
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "matchConditions": [{"name": "probe", "expression": "object.metadata.name == 'policy-probe'"}],
        "validations": [{"expression": "false", "message": "all policies are in force"}],
    }
    group, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    policies = f"/apis/{group}/validatingadmissionpolicies"
    binding = {"policyName": "last", "validationActions": ["Deny"]}
    assert api.ask("POST", policies, thing(group, kind, "last", spec=spec)).status == 201
    assert api.ask("POST", POLICIES, thing(group, f"{kind}Binding", "last", spec=binding)).status == 201
    probe = thing("v1", "ConfigMap", "policy-probe")
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    eventually(lambda: "all policies are in force" in api.ask("POST", path, probe).message)
    for each in (POLICIES, policies):
        assert api.ask("DELETE", f"{each}/last").status == 200
