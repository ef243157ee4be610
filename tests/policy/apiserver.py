"""A real API server for tests that need no node, and a small client that can impersonate users.

`DAYFLY_TEST_KUBECONFIG` is ignored: these tests install and remove cluster-wide policies, so they need their own server.
"""

import functools
import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
from testcluster import build  # noqa: E402 - found beside the tests
from testcluster import cluster as clusters  # noqa: E402 - found beside the tests
from tests.manifests import documents  # noqa: E402 - found beside the tests


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def message(self) -> str:
        return self.body.get("message", "") if isinstance(self.body, dict) else str(self.body)


IDLE_SECONDS = 30  # the server closes idle connections after 90 s, perhaps while the next request is sent


class Api:
    """A client of one server, with a separate connection for each thread."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self.cluster = cluster
        self._tls = ssl.create_default_context(cafile=str(cluster.folder / "pki" / "ca.crt"))
        self._tls.load_cert_chain(cluster.folder / "pki" / "admin.crt", cluster.folder / "pki" / "admin.key")
        self._local = threading.local()
        self._open: list[http.client.HTTPSConnection] = []

    def ask(
        self, method: str, path: str, body: Any = None, *, user: str = "", kind: str = "application/json"
    ) -> Answer:
        """Send a request and return status and parsed body. `user` is impersonated; by default the client is an administrator."""
        headers = {"Content-Type": kind}
        if user:
            headers["Impersonate-User"] = user
            headers["Impersonate-Group"] = (
                "system:serviceaccounts" if user.startswith("system:serviceaccount:") else "system:authenticated"
            )
        answer = self.send(method, path, None if body is None else json.dumps(body), headers)
        data = answer.read()
        return Answer(
            answer.status, json.loads(data) if answer.headers.get_content_type() == "application/json" else data
        )

    def send(
        self, method: str, path: str, body: str | bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """Return the answer. Read its body before the next request of this thread."""
        connection = self._connection()
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.cluster.network.node, 6443, context=self._tls, timeout=60)
            self._local.connection = connection
            self._open.append(connection)
        elif time.monotonic() - self._local.used > IDLE_SECONDS:
            connection.close()  # the next request opens a new connection
        self._local.used = time.monotonic()
        return connection

    def apply(self, text: str) -> None:
        """Apply every document of a text server-side; each must succeed."""
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


def eventually(check: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait for the first true value of `check`."""
    end = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < end, "the condition was not met"
        time.sleep(0.1)
    return value


# The audit log records the impersonating user for objects that the operator creates.
AUDITED = "objects-team"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "namespaces": [AUDITED],
            "resources": [{"group": "batch", "resources": ["jobs"]}, {"group": "", "resources": ["configmaps"]}],
        },
        {"level": "None"},
    ],
}


def start(audit: dict[str, Any] | None = None) -> Iterator[Api]:
    """Run a server during the fixture that yields from this."""
    ours = os.pidfd_open(os.getpid())  # a killed session must leave no server process
    try:
        build.check_machine(kubelet=False)
        own = clusters.up(kubelet=False, owner=ours, audit=audit)
    except build.UnavailableError as problem:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cluster tests may not be skipped in CI: {problem}")
        pytest.skip(f"CLUSTER TESTS SKIPPED: {problem}")
    finally:
        os.close(ours)
    api = Api(own)
    try:
        yield api
    finally:
        api.close()
        clusters.down(own)


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """A server without Dayfly."""
    yield from start(AUDIT)


def definitions() -> str:
    """Return Dayfly's CustomResourceDefinitions as one text."""
    return "---\n".join(path.read_text() for path in sorted((ROOT / "deploy" / "crds").glob("*s.yaml")))


@functools.cache
def _names() -> list[str]:
    return [each["metadata"]["name"] for each in documents(definitions())]


def established(api: Api) -> bool:
    """Return whether the server serves all of Dayfly's kinds."""
    for name in _names():
        found = api.ask("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").body
        conditions = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", [])}
        if conditions.get("Established") != "True":
            return False
    return True


@pytest.fixture(scope="session")
def served(api: Api) -> Api:
    """A server with Dayfly's kinds."""
    api.apply(definitions())
    eventually(lambda: established(api))
    return api
