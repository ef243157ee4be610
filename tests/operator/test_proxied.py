"""The fault matrix with a real API server: a proxy applies faults to the requests of operators.

All selected plans are played concurrently, once, and then checked one by one: naming a single test plays its plan only.
`make test` plays one of 240 shares of all changes and faults, a different one for each commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.operator.proxied import plans
from tests.operator.proxied.plans import Plan
from tests.operator.proxied.proxy import Harm
from tests.operator.proxied.trials import LIVES_MOST, Server, Trials
from tests.policy.apiserver import ROOT, Api, established, eventually, start

from dayfly.operator import sweeper

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(60, func_only=True)]
ACCOUNT = "/api/v1/namespaces/dayfly-system/serviceaccounts/dayfly-operator"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A server with etcd and controllers, without nodes."""
    yield from start()


@pytest.fixture(scope="module")
def server(api: Api) -> Server:
    """Install everything except for the operator, which these tests run."""
    installed = (ROOT / "deploy" / "install.yaml").read_text().split("\n---\n")
    api.apply("\n---\n".join(each for each in installed if "\nkind: Deployment\n" not in f"\n{each}"))
    eventually(lambda: established(api))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
    token = api.ask("POST", f"{ACCOUNT}/token", request).body["status"]["token"]
    pki = api.cluster.folder / "pki"
    return Server(
        url=f"https://{api.cluster.network.node}:6443",
        authority=pki / "ca.crt",
        admin=api.cluster.kubeconfig,
        scheduler=pki / "kube-scheduler.kubeconfig",
        kubelet=pki / "kubelet.kubeconfig",
        token=token,
    )


@pytest.fixture(scope="module")
def trials(server: Server, request: pytest.FixtureRequest) -> Trials:
    """Play all plans of this session."""
    wanted = [item.callspec.params["plan"] for item in request.session.items if "plan" in _params(item)]
    trials = Trials(server)
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeper, "SWEEP_INTERVAL_S", 5.0)  # a minute would be too long
        asyncio.run(trials.play(wanted))
    print(f"{len(wanted)} plans in {time.monotonic() - began:.0f} s")
    return trials


def _params(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


@pytest.mark.parametrize("plan", plans.chosen(), ids=str)
def test_plan(trials, plan, played):
    """No step runs twice or out of order, and no object is left or lost, whatever happened to that change."""
    played("lives on a real API server, each with one harm from the proxy before it", 1)
    if wrong := trials.wrong(plan):
        pytest.fail("\n".join(wrong))


@pytest.mark.parametrize("plan", [Plan("midway", 999, Harm.CUT)], ids=str)
def test_a_change_that_never_comes(trials, plan):
    """A story that ends before its fault is repeated; at last it is reported that it has shown nothing."""
    assert [each.missed for each in trials.trials[str(plan)]] == [True] * LIVES_MOST
    assert "so nothing was harmed" in trials.wrong(plan)[0]


def test_no_defect(trials):
    """No operator met an unexpected error or ended by itself."""
    assert not trials.defects


def test_every_change_was_numbered(trials):
    """Except for shared labels and the runner's program, each change belongs to one story and could have a fault."""
    shared = ("PATCH /api/v1/namespaces/shop", "PATCH /apis/dayfly.dev/v1alpha1/resourceplugins/", "/configmaps")
    assert [each for each in trials.unowned if not any(part in each for part in shared)] == []


def test_trials_leave_nothing_and_idle_operators_write_nothing(trials):
    """(13, 14) Quorum reads find nothing of any story, and two idle operators write nothing."""
    assert trials.left == []
    assert trials.late == []
