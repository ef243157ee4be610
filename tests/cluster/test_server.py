"""deploy/server.yaml on a real PostgreSQL, installed as docs/guides/server.md and restored as docs/guides/back-up.md."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcluster import images, stand_ins
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, ROOT, Installed
from tests.cluster.server_in_cluster import ServerInCluster, certificate, dialling
from tests.cluster.waiting import eventually

ORG, CLUSTER = "acme", "east"
DATABASE = "dayfly-db"
PSQL = ["exec", "-n", DATABASE, "deployment/database", "--", "psql", "-U", "postgres"]
PLUGIN = {
    "runner": {"image": images.SHELL},
    "create": [
        {"name": "make", "script": '#!/bin/sh\nprintf %s "$DAYFLY_SANDBOX_NAME" >/tmp/name', "outputs": [
            {"name": "name", "valueFromPath": "/tmp/name"},
        ]},
    ],
    "delete": [{"name": "unmake", "script": "#!/bin/sh\nexit 0"}],
}  # fmt: skip
PAGES = "\n".join((ROOT / "docs" / "guides" / name).read_text() for name in ("server.md", "back-up.md"))


class Administrator:
    """Executes lines of the pages, with values for their words in capitals."""

    def __init__(self, operator: Installed, folder: Path) -> None:
        self.folder = folder
        own = operator.own
        path = f"{own.folder / 'bin'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(own.kubeconfig), "PATH": path}
        (folder / "deploy").symlink_to(ROOT / "deploy")

    def types(self, beginning: str, **values: str) -> str:
        """Execute the only line of the pages with this beginning, and return its output."""
        [line] = re.findall(rf"^    ({re.escape(beginning)}.*)$", PAGES, re.MULTILINE)
        for name, value in values.items():
            assert name in line
            line = line.replace(name, value)
        ended = subprocess.run(
            ["bash", "-ec", line], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{line}: {ended.stdout}{ended.stderr}"
        return ended.stdout


@pytest.fixture
def database(operator: Installed) -> Iterator[str]:
    """The URL of a PostgreSQL database in a separate namespace."""
    operator.own.load(stand_ins.postgres())
    kubectl = operator.own.kubectl
    manifest = (ROOT / "deploy" / "example" / "database.yaml").read_text()
    kubectl("create", "namespace", DATABASE)
    kubectl("create", "secret", "generic", "database", "-n", DATABASE, "--from-literal=password=of-the-superuser")
    kubectl("apply", "-f", "-", stdin=manifest.replace("name: notes}", f"name: {DATABASE}}}").replace(
        "namespace: notes}", f"namespace: {DATABASE}}}"
    ))  # fmt: skip
    try:
        kubectl("rollout", "status", "-n", DATABASE, "deployment/database", "--timeout=120s")
        kubectl(*PSQL, "-c", "CREATE USER dayfly PASSWORD 'secret'", "-c", "CREATE DATABASE dayfly OWNER dayfly")
        yield f"postgresql://dayfly:secret@{_address(operator, 'database', DATABASE)}/dayfly"
    finally:
        kubectl("delete", "namespace", DATABASE, "--wait=false")


def _address(operator: Installed, service: str, namespace: str) -> str:
    """Return the IP address of a Service, because this cluster has no DNS."""
    return operator.own.kubectl("get", "service", service, "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")


@pytest.fixture
def administrator(operator: Installed, tmp_path: Path) -> Administrator:
    return Administrator(operator, tmp_path)


@pytest.fixture
def server(operator: Installed, administrator: Administrator, database: str) -> Iterator[ServerInCluster]:
    """The page's first lines: both replicas ready, and the key of the first admin."""
    kubectl, types = operator.own.kubectl, administrator.types
    types("kubectl apply --server-side -f deploy/server.yaml")
    try:
        types(
            "kubectl create secret generic dayfly-server-database", **{"postgresql://USER:PASSWORD@HOST/NAME": database}
        )
        address = _address(operator, "dayfly-server", "dayfly-server")
        trusted = certificate(administrator.folder, f"IP:{address}")
        types("kubectl create secret tls", **{"CHAIN.pem": "server.pem", "KEY.pem": "server.key"})
        types("kubectl rollout status -n dayfly-server")
        key = types("kubectl exec -n dayfly-server", ORG=ORG).strip()
        yield ServerInCluster(f"https://{address}", ORG, key, trusted)
    finally:
        kubectl("delete", "namespace", "dayfly-server")


@pytest.mark.timeout(600, func_only=True)
def test_two_replicas_serve_and_a_restored_backup_ends_nothing(operator, administrator, server, tmp_path):
    def ready(name: str) -> bool:
        return server.must("GET", f"sandboxes/{name}")["status"]["ready"]

    def living() -> set[str]:
        found = operator.items(f"/apis/{API}/namespaces/{TEAM}/sandboxes")
        return {each["status"]["servedFor"] for each in found if "deletionTimestamp" not in each["metadata"]}

    server.must("PUT", "resource-plugins/name", {"name": "name", "spec": PLUGIN})
    wish = {"spec": {"cluster": CLUSTER, "resources": [{"name": "name", "plugin": "name"}]}}
    server.must("PUT", f"clusters/{CLUSTER}", {})
    token = server.must("POST", f"clusters/{CLUSTER}/tokens", {})["token"]
    with dialling(operator, server.url, f"{ORG}={TEAM}", token, tmp_path / "server.pem"):
        server.must("PUT", "sandboxes/before", wish)
        eventually(lambda: ready("before"), "a sandbox that is ready")

        administrator.types("kubectl exec -n dayfly-db deployment/database -- pg_dump")
        server.must("PUT", "sandboxes/after", wish)
        eventually(lambda: ready("after"), "one that the backup does not know")
        administrator.types("kubectl scale -n dayfly-server deployment/dayfly-server --replicas 0")
        operator.own.kubectl("wait", "pods", "--for=delete", "--all", "-n", "dayfly-server", "--timeout=60s")
        administrator.types('kubectl exec -n dayfly-db deployment/database -- psql -U postgres -c "DROP DATABASE')
        administrator.types("kubectl exec -i -n dayfly-db")
        administrator.types("kubectl scale -n dayfly-server deployment/dayfly-server --replicas 2")
        administrator.types("kubectl rollout status -n dayfly-server")

        eventually(lambda: server.must("GET", f"clusters/{CLUSTER}/thaw").get("compared"), "the restore is noticed")
        sides = server.must("GET", f"clusters/{CLUSTER}/thaw")
        assert len(sides["onlyInCluster"]) == 1
        assert sides["onlyHere"] == []
        assert living() == {"acme/before", "acme/after"}
        server.must("POST", f"clusters/{CLUSTER}/thaw", {})
        server.must("DELETE", "sandboxes/before")
        eventually(lambda: server.ask("GET", "sandboxes/before")[0] == 404, "what both know ends")
        assert living() == {"acme/after"}
        # no other test has a sandbox there
        operator.own.kubectl("delete", "dfs", "--all", "-n", TEAM, "--timeout=120s")
