"""Dayfly on the session's cluster as an administrator installs it, and what tests ask of it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testcluster import cluster as clusters
from tests.cluster.waiting import eventually
from tests.selection import SELECTION

ROOT = Path(__file__).resolve().parents[2]
SYSTEM, RUNNERS = "dayfly-system", "dayfly-runners"
API = "dayfly.dev/v1alpha1"
RUN_LABEL = "dayfly.dev/run"
ACCOUNT = "dayfly-system:dayfly-operator"  # the operator's, as a RoleBinding wants it
_FIRST_VARIABLE = "        - name: POD_NAME\n"
_SHORT_LEASE = "        - {name: DAYFLY_LEASE_SECONDS, value: '5'}\n"
LOGGED = 200  # lines of each operator that a test's failure comes with
AS_OPERATOR = f"--as=system:serviceaccount:{ACCOUNT}"


def written_status(found: dict[str, Any]) -> dict[str, Any]:
    """Return the status of an object; empty before the operator has written one."""
    status: dict[str, Any] = found.get("status", {})
    return status if status.get("observedGeneration") != -1 else {}


class Installed:
    """The operator's Deployment, and everything that it makes.

    `took` has seconds of each part of the installation; `restarts` the replicas' restarts until both were ready
    (later ones are tests' doing).
    """

    def __init__(self, own: clusters.Cluster) -> None:
        self.own = own
        self.took: dict[str, float] = {}
        self.restarts: list[int] = []

    def install(self) -> None:
        """Bring the image of this checkout to the node, apply the manifest, and wait for both replicas.

        Outside the proof the lease of a killed leader runs out sooner: tests wait for that many times.
        """
        with self._timed("image made"):
            said = subprocess.check_output([sys.executable, ROOT / "deploy" / "image.py"], text=True)
        with self._timed("image loaded"):
            self.own.load(Path(said.splitlines()[-1]))
        with self._timed("rolled out"):
            manifest = (ROOT / "deploy" / "install.yaml").read_text()
            if not SELECTION.is_complete:
                assert manifest.count(_FIRST_VARIABLE) == 1
                manifest = manifest.replace(_FIRST_VARIABLE, f"{_SHORT_LEASE}{_FIRST_VARIABLE}")
            self.own.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
            self.own.kubectl("rollout", "status", "-n", SYSTEM, "deployment/dayfly-operator", "--timeout=120s")
        self.restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in self.replicas()]

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects as a person with kubectl does."""
        self.own.kubectl("apply", "-f", "-", stdin=_listed(objects))

    def apply_as(self, person: Sequence[str], *objects: dict[str, Any]) -> None:
        """Apply objects as another user, whom kubectl's options name."""
        self.own.kubectl(*person, "apply", "-f", "-", stdin=_listed(objects))

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """Return kubectl's error output for a request that the server must refuse."""
        try:
            said = self.own.kubectl(*arguments, stdin=stdin)
        except clusters.CommandError as error:
            return str(error)
        raise AssertionError(f"kubectl {' '.join(arguments)} was not refused: {said}")

    def get(self, path: str) -> dict[str, Any] | None:
        """An object or a list by its path; None if it is not there."""

        def answered() -> tuple[int, Any] | None:
            answer = self.own.get(path)
            return None if answer[0] == 429 else answer  # the storage of the kind is not ready yet

        status, body = eventually(answered, f"an answer to {path}")
        assert status in (200, 404), f"{path}: {status} {body}"
        return body if status == 200 else None

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        found = self.get(path)
        assert found is not None, f"{path} is not served"
        return found["items"]

    def sandbox(self, name: str, namespace: str) -> dict[str, Any] | None:
        """A Sandbox as it stands."""
        return self.get(f"/apis/{API}/namespaces/{namespace}/sandboxes/{name}")

    def status(self, name: str, namespace: str) -> dict[str, Any]:
        """Return the status of a Sandbox; empty before the operator has written one."""
        return written_status(self.sandbox(name, namespace) or {})

    def wait_status(
        self, name: str, namespace: str, check: Callable[[dict[str, Any]], Any], what: str
    ) -> dict[str, Any]:
        """Wait for a status that passes the check and return it; the error contains the last status."""
        last: dict[str, Any] = {}

        def passes() -> bool:
            nonlocal last
            last = self.status(name, namespace)
            return bool(last) and bool(check(last))

        try:
            eventually(passes, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {namespace}/{name} says {json.dumps(last, indent=1)}") from None
        return last

    def wait_ready(self, name: str, namespace: str) -> None:
        """Until a Sandbox is Ready."""
        self.wait_status(name, namespace, lambda status: status["ready"], "Ready")

    def delete(self, name: str, namespace: str) -> None:
        """Delete a Sandbox, if it is not gone yet, and wait until it is gone."""
        self.own.kubectl("delete", "sandbox.dayfly.dev", name, "-n", namespace, "--wait=false", "--ignore-not-found")
        self.wait_gone(name, namespace)

    @contextmanager
    def ending(self, name: str, namespace: str) -> Iterator[None]:
        """Delete a Sandbox that is left, before what it needs for that is taken away."""
        try:
            yield
        finally:
            if self.sandbox(name, namespace):
                self.delete(name, namespace)

    def wait_gone(self, name: str, namespace: str) -> None:
        """Until there is no such Sandbox."""
        try:
            eventually(lambda: self.sandbox(name, namespace) is None, "the end of the Sandbox")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {json.dumps(self.status(name, namespace), indent=1)}") from None

    def pods(self, unit: str = "") -> list[dict[str, Any]]:
        """Pods of steps; those of one step if it is named `resource/step`."""
        found = self.items(f"/api/v1/pods?labelSelector={RUN_LABEL}")
        return [pod for pod in found if unit in ("", pod["metadata"]["annotations"]["dayfly.dev/unit"])]

    def pod(self, unit: str) -> dict[str, Any]:
        """The one pod of a step whose container runs."""

        def running() -> dict[str, Any] | None:
            found = [pod for pod in self.pods(unit) if _runs(pod)]
            return found[0] if found else None

        return eventually(running, f"a running pod of {unit}")

    def left(self) -> list[str]:
        """Return all remaining objects of Dayfly, as `kind name`."""
        lists = {
            "Run": f"/apis/{API}/runs",
            "ObjectLifecycleMethods": f"/apis/{API}/objectlifecyclemethods",
            "Resource": f"/apis/{API}/resources",
            "Pod": f"/api/v1/pods?labelSelector={RUN_LABEL}",
            "Secret": "/api/v1/secrets?fieldSelector=type%3Ddayfly.dev%2Foutputs",
            "state": "/api/v1/secrets?fieldSelector=type%3Ddayfly.dev%2Fstate",
            "Deployment": f"/apis/apps/v1/deployments?labelSelector={RUN_LABEL}",
            "Service": f"/api/v1/services?labelSelector={RUN_LABEL}",
        }
        return [f"{kind} {each['metadata']['name']}" for kind, path in lists.items() for each in self.items(path)]

    def check_nothing_left(self) -> None:
        """Pods take a moment to end, and the garbage collector one to see that their Run is gone."""
        try:
            eventually(lambda: not self.left(), "nothing left")
        except AssertionError as error:
            told = [self._told(pod) for pod in self.items(f"/api/v1/pods?labelSelector={RUN_LABEL}")]
            raise AssertionError("\n".join([f"{error}: {self.left()}", *told])) from None

    def _told(self, pod: dict[str, Any]) -> str:
        """Return the status of a remaining pod, and its Events."""
        meta, status = pod["metadata"], pod["status"]
        events = self.items(
            f"/api/v1/namespaces/{meta['namespace']}/events?fieldSelector=involvedObject.uid={meta['uid']}"
        )
        said = [f"{each['reason']}: {each.get('message', '')}" for each in events]
        gates = pod["spec"].get("schedulingGates")
        return f"{meta['name']} gates {gates} deleted {meta.get('deletionTimestamp')} {status} {said}"

    def replicas(self) -> list[dict[str, Any]]:
        """Return the operator's pods, without replaced ones of a rollout."""
        every = self.items(f"/api/v1/namespaces/{SYSTEM}/pods")
        return [pod for pod in every if "deletionTimestamp" not in pod["metadata"]]

    def logs(self) -> str:
        """Return the end of each operator's log, and of its previous container's."""
        told = []
        for pod in self.replicas():
            name, restarted = pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"]
            for before in (["--previous"], []) if restarted else ([],):
                told.append(f"--- {' '.join([name, *before])}")
                try:
                    told.append(self.own.kubectl("logs", "-n", SYSTEM, name, f"--tail={LOGGED}", *before))
                except clusters.CommandError as error:  # it is gone, or its node does not answer
                    told.append(str(error))
        return "\n".join(told)

    def leader(self) -> str:
        """The name of the pod that does the work."""
        lease = self.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/dayfly-operator")
        return lease["spec"]["holderIdentity"] if lease else ""

    @contextmanager
    def nobody_at_work(self) -> Iterator[None]:
        """While no operator runs."""
        scale = ["scale", "-n", SYSTEM, "deployment/dayfly-operator"]
        self.own.kubectl(*scale, "--replicas=0")
        try:
            eventually(lambda: not self.items(f"/api/v1/namespaces/{SYSTEM}/pods"), "the operators' end")
            yield
        finally:
            self.own.kubectl(*scale, "--replicas=2")
            self.own.kubectl("rollout", "status", "-n", SYSTEM, "deployment/dayfly-operator", "--timeout=120s")

    def kill_leader(self) -> str:
        """SIGKILL to the operator that leads, from the node; its pod's name. The kubelet starts it again."""
        name = self.leader()
        pid = eventually(lambda: self._process_of(name), f"a running container of {name}")
        self.own.run_inside(["kill", "-KILL", pid])
        return name

    def _process_of(self, name: str) -> str:
        pod = self.get(f"/api/v1/namespaces/{SYSTEM}/pods/{name}")
        assert pod is not None, f"{name} leads, and is not there"
        return self.process_of(pod)

    def process_of(self, pod: dict[str, Any]) -> str:
        """The number, in the cluster, of the first process of a pod's container; empty if none runs (now)."""
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        tasks = self.own.run_inside(
            ["ctr", "--address=/run/testcluster/containerd.sock", "-n", "k8s.io", "tasks", "list"]
        )
        return next((line.split()[1] for line in tasks.splitlines() if line.startswith(container)), "")

    def component(self, name: str) -> list[str]:
        """Process numbers of a component of the cluster, as inside it."""
        return self.own.run_inside(["sh", "-c", f"pgrep -x {name} || true"]).split()

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[what] = time.monotonic() - began


def _listed(objects: tuple[dict[str, Any], ...]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def _runs(pod: dict[str, Any]) -> bool:
    return any("running" in each["state"] for each in pod.get("status", {}).get("containerStatuses", ()))
