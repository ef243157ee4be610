"""A controller of another author, for a custom kind that Dayfly does not know."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kube.fake import FakeCluster
from tests.operator.rig.cloud import Object

HOLD = "db.example.org/hold"
MERGE = "application/merge-patch+json"


class Claims:
    """Gives each claim a finalizer, a Secret and the condition Ready; removes the finalizer when it is allowed to."""

    def __init__(self, cluster: FakeCluster, ask: Any) -> None:
        self._cluster = cluster
        self._ask = ask
        self.latency = 2.0
        self.releases = True
        """Whether it removes its finalizer from a deleted claim."""
        self.fails = False
        self.version = "v1"

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            change = self._cluster.store.change()
            for claim in self._cluster.objects("claims"):
                if self._wants(claim):
                    await asyncio.sleep(self.latency)
                    self._act(claim["metadata"])
            await change

    def _wants(self, claim: Object) -> bool:
        if not self._cluster.serves("claims"):
            return False
        if claim["metadata"].get("deletionTimestamp"):
            return self.releases and HOLD in claim["metadata"].get("finalizers", [])
        return "status" not in claim

    def _act(self, meta: Object) -> None:
        """Patch the current object."""
        found = {item["metadata"]["uid"]: item for item in self._cluster.objects("claims")}.get(meta["uid"])
        if found is None or not self._wants(found):
            return
        namespace, name = meta["namespace"], meta["name"]
        path = f"/apis/db.example.org/{self.version}/namespaces/{namespace}/claims/{name}"
        finalizers = found["metadata"].get("finalizers", [])
        if found["metadata"].get("deletionTimestamp"):
            left = [each for each in finalizers if each != HOLD]
            self._ask("PATCH", path, {"metadata": {"uid": meta["uid"], "finalizers": left}}, MERGE)
            secrets = f"/api/v1/namespaces/{namespace}/secrets"
            if any(item["metadata"]["name"] == f"creds-{name}" for item in self._cluster.objects("secrets")):
                self._ask("DELETE", f"{secrets}/creds-{name}")
            return
        self._ask("PATCH", path, {"metadata": {"finalizers": [*finalizers, HOLD]}}, MERGE)
        secret = {"metadata": {"name": f"creds-{name}"}, "data": {"password": "czNjcmV0"}}
        self._ask("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        now = self._cluster.objects("claims")
        generation = next(item["metadata"]["generation"] for item in now if item["metadata"]["uid"] == meta["uid"])
        standing = {"type": "Ready", "status": "False" if self.fails else "True", "reason": "Made"}
        status: Object = {"observedGeneration": generation, "conditions": [standing], "host": f"{name}.db"}
        status["secret"] = f"creds-{name}"
        if self.fails:
            status["failureReason"] = "NoRoom"
        self._ask("PATCH", f"{path}/status", {"status": status}, MERGE)
