"""One of the clusters of a server, with an operator that dials it as a process of this machine."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.cluster.audit import Audit
from bench.cluster.place import OPERATOR, Operator, Place, operator, place
from tests.cluster.installed import ACCOUNT, API, ROOT
from tests.cluster.waiting import eventually
from tests.server.balancer import Address
from tests.server.replicas import environment

ORG, NAMESPACE = "acme", "acme-sandboxes"
# An audit policy for the pods that the operator creates and launches.
_PODS = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "Request",
            "users": [OPERATOR],
            "verbs": ["create", "patch"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {"level": "None"},
    ],
}


class Begun(NamedTuple):
    """A launched step: its run and its unit."""

    run: str
    unit: str


class Member:
    """A cluster of the organisation."""

    def __init__(self, name: str, where: Place, way: Address) -> None:
        self.name = name
        self.where = where
        self.way = way
        self._audit = Audit(where.cluster.audit_log)
        self._pods: dict[str, Begun] = {}
        self._begun: list[Begun] = []
        kubectl = where.cluster.kubectl
        kubectl("create", "namespace", NAMESPACE)
        kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s")
        grant = ["--clusterrole=dayfly-agent", f"--serviceaccount={ACCOUNT}"]
        kubectl("create", "rolebinding", "dayfly-agent", "-n", NAMESPACE, *grant)

    @contextlib.contextmanager
    def dialling(self, token: str, *, source: Path | None = None) -> Iterator[Operator]:
        """Run an operator with this token, from the source of another checkout if one is given."""
        file = self.where.cluster.folder / "token"
        file.write_text(token + "\n")
        options = ["--server-url", self.way.url, "--token-file", str(file), "--agent-namespace"]
        options += [f"{ORG}={NAMESPACE}", "--no-lease"]
        variables = environment()
        if source is not None:
            variables["PYTHONPATH"] = f"{source}{os.pathsep}{variables['PYTHONPATH']}"
        with operator(self.where, *options, variables=variables) as running:
            yield running

    def sandboxes(self) -> dict[str, dict[str, Any]]:
        """Return the server's objects in the cluster by their names on the server, or else by their own.

        An object that was never offered has no other name. It exists, deleted, until its end is recorded.
        """
        status, found = self.where.cluster.get(f"/apis/{API}/namespaces/{NAMESPACE}/sandboxes")
        assert status == 200, found
        metas = [each["metadata"] for each in found["items"]]
        names = [meta["annotations"].get("served.dayfly.dev/name", meta["name"]) for meta in metas]
        return dict(zip(names, found["items"], strict=True))

    def runs(self) -> dict[str, dict[str, Any]]:
        """The ledgers there, in the same way."""
        status, found = self.where.cluster.get(f"/apis/{API}/runs")
        assert status == 200, found
        return {each["spec"]["offered"]["name"]: each for each in found["items"]}

    def begun(self) -> list[Begun]:
        """Return all launched steps in order."""
        for event in self._audit.events():
            if event.get("responseStatus", {}).get("code", 0) >= 300 or "dryRun=" in event["requestURI"]:
                continue
            asked, name = event.get("requestObject"), event["objectRef"]["name"]
            if event["verb"] == "create" and not event["objectRef"].get("subresource"):
                meta = asked["metadata"]
                made = Begun(meta["labels"]["dayfly.dev/run"], meta["annotations"]["dayfly.dev/unit"])
                assert name not in self._pods, f"the pod {name} of {made} was made twice"
                self._pods[name] = made
            elif isinstance(asked, list) and any("/spec/schedulingGates" in each["path"] for each in asked):
                self._begun.append(self._pods[name])
        return self._begun

    def check_once(self) -> None:
        """Check that each create step was launched at most once, and never after a delete step of its run."""
        begun = self.begun()
        twice = [each for each, count in Counter(begun).items() if count > 1 and each.unit.endswith("/make")]
        assert not twice, f"launched more than once in {self.name}: {twice}"
        over: set[str] = set()
        for each in begun:
            assert each.unit.endswith("/drop") or each.run not in over, f"created after cleanup in {self.name}: {each}"
            if each.unit.endswith("/drop"):
                over.add(each.run)

    def words(self) -> str:
        """Return the log of its operators."""
        return (self.where.cluster.folder / "logs" / "operator.log").read_text(errors="replace")

    def check_nothing_left(self) -> None:
        """Check that no object of Dayfly is left."""
        lists = (f"/apis/{API}/sandboxes", f"/apis/{API}/runs", f"/apis/{API}/objectlifecyclemethods")
        lists += ("/api/v1/pods?labelSelector=dayfly.dev/run",)

        def left() -> list[str]:
            found = [self.where.cluster.get(path)[1]["items"] for path in lists]
            return [f"{each.get('kind', '')} {each['metadata']['name']}" for items in found for each in items]

        try:
            eventually(lambda: not left(), "nothing is left")
        except AssertionError as error:
            raise AssertionError(f"{error} in {self.name}: {left()}") from None


@contextlib.contextmanager
def member(name: str, way: Address, *, kubelet: bool = False, checkout: Path = ROOT) -> Iterator[Member]:
    """Start a cluster with a real node or a simulated one (KWOK), and install a checkout."""
    with place(kwok_nodes=0 if kubelet else 1, audit=_PODS, checkout=checkout) as where:
        yield Member(name, where, way)
