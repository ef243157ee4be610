"""Random pod templates: the policy is total, and Pod Security admission accepts every pod that the policy accepts.

Each block has its own seed. `make test` selects some of the blocks, different ones for each commit.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.policy.apiserver import eventually
from tests.policy.overlays import Source, merged, terms
from tests.selection import SELECTION

from dayfly.execute.pod import policy

BLOCKS, PARTS = 20, 20
TOTAL = 5_000  # pods of a block
CASES = {"restricted": 270, "baseline": 45}  # templates of a block that are sent to the server


def blocks(about: str) -> list[int]:
    """Return the seeds of the selected blocks."""
    return SELECTION.sample(range(1, BLOCKS + 1), PARTS, about)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", blocks("pods"))
def test_policy_is_total_and_accepted_pods_are_complete(seed, played):
    """The policy never raises for merged, damaged and random pods, 10^5 in all blocks, and accepted pods are complete."""
    played("merged, damaged and senseless pods judged by the policy", TOTAL)
    source = Source(seed=seed)
    plain = merged({})
    passed = 0
    for number in range(TOTAL):
        if number % 3 == 0:
            pod = source.junk()
        elif number % 3 == 1:
            pod = source.damaged(plain)
        else:
            pod = merged(source.overlay()) if number % 2 else plain
        if pod is not None:
            found = policy.check(pod, terms())
            assert all(each.path or each.sentence for each in found)
            passed += not found
    assert passed > TOTAL // 100


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_kubernetes_accepts_every_pod_the_policy_accepts(api, level, played):
    """The oracle is a namespace that enforces the level. Pods are created there with dryRun."""
    namespace = f"oracle-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    assert api.ask("POST", "/api/v1/namespaces", body).status == 201
    eventually(lambda: api.ask("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default").status == 200)

    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
    }
    assert api.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime).status in (201, 409)

    pods = [pod for seed in blocks(level) for pod in passed(seed, namespace, level)]

    played("pods that the policy passes, shown to Kubernetes' own Pod Security admission", len(pods))
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda pod: api.ask("POST", path, pod), pods))
    escapes = [answer.message for answer in answers if "violates PodSecurity" in answer.message]
    assert escapes == []
    # The server may refuse accepted pods only because they are invalid, such as a mount without its volume.
    assert {answer.status for answer in answers} <= {201, 400, 403, 422}
    assert [a.message for a in answers if a.status == 403 and "RuntimeClass" not in a.message] == []
    assert sum(answer.status == 201 for answer in answers) > len(pods) / 2

    hostile = merged({"spec": {"hostNetwork": True}}, namespace)
    assert "violates PodSecurity" in api.ask("POST", path, hostile).message, "the oracle refuses nothing"


def passed(seed: int, namespace: str, level: str) -> Iterator[dict[str, Any]]:
    """Return the pods of one block that the policy accepts."""
    source, left = Source(seed=seed, danger=3), CASES[level]
    while left:
        pod = merged(source.overlay(), namespace, restricted=level == "restricted")
        if pod is not None and not policy.check(pod, terms(namespace, level=level)):
            left -= 1
            yield pod
