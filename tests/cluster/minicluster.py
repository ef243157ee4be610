"""The example minicluster: its program, and the requests of tests to its clusters."""

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from testcluster import build, images
from tests.cluster.installed import ROOT, Installed
from tests.cluster.test_examples import TEAM
from tests.cluster.waiting import eventually

SOURCE = ROOT / "examples" / "minicluster" / "machinery"
IMAGE = "minicluster.example/machinery:1"


def program() -> Path:
    """The machinery as one static program, built once."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCE.iterdir()))).hexdigest()[:16]
    target = build.cache() / f"minicluster-{digest}"
    with build.lock("minicluster"):
        if not target.exists():
            part = target.with_suffix(".part")
            command = ["env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(part), "."]
            subprocess.run(command, cwd=SOURCE, check=True)
            part.rename(target)
    return target


def archive() -> Path:
    """The image of the machinery: that program and nothing else."""
    made = program()

    def fill(root: Path) -> None:
        (root / "bin").mkdir()
        shutil.copy2(made, root / "bin" / "minicluster")

    return images.cached(IMAGE, made, fill, images.Settings(entrypoint=["/bin/minicluster"]))


class Ranks:
    """The cluster of one sandbox, as its namespace's own people see it."""

    def __init__(self, operator: Installed, scratch: Path) -> None:
        self.operator = operator
        job, secret = self._of("/apis/batch/v1", "jobs", "ranks"), self._of("/api/v1", "secrets", "secret")
        self.name = job["metadata"]["name"]
        self.key = base64.b64decode(secret["data"]["key"]).decode()
        self._file = scratch / "key"
        self._file.write_text(self.key)

    def _of(self, group: str, kind: str, step: str) -> dict[str, Any]:
        """The object that a step of the resource has made."""
        listed = self.operator.items(f"{group}/namespaces/{TEAM}/{kind}")
        marks = [(each["metadata"].get("annotations", {}).get("dayfly.dev/unit"), each) for each in listed]
        [found] = [each for unit, each in marks if unit == f"batch/{step}"]
        return found

    def pods(self) -> dict[int, dict[str, Any]]:
        """Return the running pods by rank."""
        found = self.operator.items(f"/api/v1/namespaces/{TEAM}/pods?labelSelector=job-name%3D{self.name}")
        index = "batch.kubernetes.io/job-completion-index"
        return {
            int(pod["metadata"]["annotations"][index]): pod
            for pod in found
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def scale(self, size: int) -> None:
        """Scale the Job as a user with permission to change it; wait for the ranks."""
        patch = json.dumps({"spec": {"completions": size, "parallelism": size}})
        self.operator.own.kubectl("patch", "job", self.name, "-n", TEAM, "--type=merge", "-p", patch)
        eventually(lambda: set(self.pods()) == set(range(size)), f"{size} ranks")

    def sum(self, size: int, key: str = "") -> str:
        """Return the leader's answer for this number of ranks, requested from outside of the cluster."""
        self._file.write_text(key or self.key)
        leader = f"{self.pods()[0]['status']['podIP']}:7700"
        command = [program(), "sum", f"--leader={leader}", f"--size={size}", f"--key={self._file}", "--within=1m"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.stdout + ended.stderr
