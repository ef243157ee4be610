"""Random overlays: the policy is total, and whatever it passes Kubernetes' own Pod Security admission passes too."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dayfly.execute.pod import policy
from policy.apiserver import eventually
from policy.overlays import Source, merged, terms

CASES = 5_400


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_judges_whatever_it_is_given():
    """10^5 merged, damaged and senseless pods: an answer each time, and what passes is whole."""
    source = Source(seed=1)
    plain = merged({})
    passed = 0
    for number in range(100_000):
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
    assert passed > 1_000


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_kubernetes_passes_what_we_pass(api, level):
    """The oracle is a namespace that enforces the level; pods are created there with dryRun."""
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

    source = Source(seed=2, danger=3)
    pods = []
    while len(pods) < CASES // (1 if level == "restricted" else 6):
        pod = merged(source.overlay(), namespace, restricted=level == "restricted")
        if pod is not None and not policy.check(pod, terms(namespace, level=level)):
            pods.append(pod)

    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda pod: api.ask("POST", path, pod), pods))
    escapes = [answer.message for answer in answers if "violates PodSecurity" in answer.message]
    assert escapes == []
    # Nothing but plain validity (a mount without its volume, a word for a list) may be left to refuse.
    assert {answer.status for answer in answers} <= {201, 400, 403, 422}
    assert [a.message for a in answers if a.status == 403 and "RuntimeClass" not in a.message] == []
    assert sum(answer.status == 201 for answer in answers) > len(pods) / 2

    hostile = merged({"spec": {"hostNetwork": True}}, namespace)
    assert "violates PodSecurity" in api.ask("POST", path, hostile).message, "the oracle sleeps"
