from collections.abc import Iterator

import pytest

from policy.apiserver import ROOT, Api, api, established, eventually, served

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
# Files of what is written before an API server: a commit plays half of them.
WRITTEN = [
    pytest.mark.cluster,
    pytest.mark.timeout(120, func_only=True),
    pytest.mark.rotates(2, "what is written before an API server"),
]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def thing(api_version, kind, name, **fields):
    """An object with no more metadata than its name."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


@pytest.fixture(scope="module")
def installed(api: Api) -> Iterator[Api]:
    """The server with all of deploy/install.yaml; its policies go again, for they would hold up other tests."""
    api.apply((ROOT / "deploy" / "install.yaml").read_text())
    eventually(lambda: established(api))
    probe = thing("v1", "Pod", "p", spec=HARMLESS)
    path = "/api/v1/namespaces/dayfly-runners/pods?dryRun=All"
    eventually(
        lambda: "dayfly-runners is only for" in api.ask("POST", path, probe).message
    )  # policies are in force a moment later
    yield api
    for each in api.ask("GET", POLICIES).body["items"]:
        if each["metadata"]["name"].startswith("dayfly-"):
            api.ask("DELETE", f"{POLICIES}/{each['metadata']['name']}")
    probe["metadata"]["labels"] = {"dayfly.dev/x": "y"}
    eventually(lambda: "dayfly.dev/" not in api.ask("POST", path.replace("dayfly-runners", "default"), probe).message)
