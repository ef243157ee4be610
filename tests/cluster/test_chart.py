"""The Helm chart in a real cluster: one command to the first sandbox, an upgrade beside live sandboxes, and a safe removal."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import chart
from testcluster import cluster as clusters
from testcluster import dns
from tests.cluster.installed import API, ROOT, SYSTEM, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes
from tests.cluster.waiting import eventually
from tests.helm import Helm
from tests.selection import SELECTION

LIVE = 100 if SELECTION.is_complete else 10
TEAM = "default"
pytestmark = [pytest.mark.builds("image", "helm"), pytest.mark.timeout(900, func_only=True)]


@pytest.fixture
def own(machine) -> Iterator[clusters.Cluster]:
    """A cluster without Dayfly, to which its image is brought."""
    found = clusters.up()
    try:
        said = subprocess.check_output([sys.executable, ROOT / "deploy" / "image.py"], text=True)
        found.load(Path(said.splitlines()[-1]))
        yield found
    finally:
        clusters.down(found)


@pytest.fixture
def release(own, tmp_path):
    """Install, upgrade, test or uninstall the chart; the function returns Helm's output."""
    helm = Helm(tmp_path / "helm")
    package, _ = chart.pack(tmp_path)

    def run(verb, *arguments, fails=False):
        packages = [package] if verb in ("install", "upgrade") else []
        where = ["--namespace", SYSTEM, *(["--create-namespace"] if verb == "install" else [])]
        ended = helm(verb, "dayfly", *packages, *where, *arguments, kubeconfig=own.kubeconfig)
        assert fails in (None, ended.returncode != 0), ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    return run


def test_upgrade_and_removal_lose_no_live_sandbox(own, release, record_property):
    journal = Journal(own.network.host)
    wishes = Wishes("chart", TEAM, journal)
    installed = Installed(own)
    release("install", "--set-string", "operator.env.DAYFLY_LEASE_SECONDS=5", "--wait", "--timeout", "5m")
    with dns.names(own):
        release("test")
    try:
        sandboxes = [wishes.sandbox() for _ in range(LIVE)]
        for number, each in enumerate(sandboxes):
            each["metadata"] = {"name": f"live-{number}", "namespace": TEAM}
        installed.apply(wishes.plugin(), *sandboxes)
        changed = ["--reuse-values", "--set-string", "operator.podAnnotations.release=2"]
        release("upgrade", *changed, "--wait", "--timeout", "5m")

        def are_ready():
            found = installed.items(f"/apis/{API}/namespaces/{TEAM}/sandboxes")
            return len(found) == LIVE and all(each.get("status", {}).get("ready") for each in found)

        eventually(are_ready, "all sandboxes to be ready", seconds=600)
        assert "runs.dayfly.dev/" in release("uninstall", fails=True)
        assert installed.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/dayfly-operator"), "nothing was removed"
        own.kubectl("delete", "sandboxes.dayfly.dev", "-n", TEAM, "--all", "--wait=false")
        eventually(lambda: not installed.items(f"/apis/{API}/runs"), "the end of all runs", seconds=600)
        installed.check_nothing_left()
        journal.check()
        said = [entry.said for entry in journal.entries]
        assert {step: said.count(step) for step in ("create first", "create second", "delete gone")} == {
            "create first": LIVE,
            "create second": LIVE,
            "delete gone": LIVE,
        }
        # The API server may still know a run that has just ended.
        eventually(lambda: '"dayfly" uninstalled' in release("uninstall", fails=None), "the removal")
        eventually(lambda: not installed.items(f"/api/v1/namespaces/{SYSTEM}/pods"), "the end of the operator")
        assert installed.get(f"/apis/{API}/sandboxes") is not None, "the kinds stay"
    finally:
        journal.close()
