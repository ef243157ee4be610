"""A server with its own certificate, with clients and with the installed operator as its agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from tests.cluster.conftest import TEAM
from tests.cluster.installed import ACCOUNT, ROOT, SYSTEM, Installed
from tests.cluster.waiting import eventually

from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store

ORG, KEY = "acme", "a-key"


class ServerInCluster:
    """The API of one organisation with one key."""

    def __init__(self, url: str, org: str, key: str, trusted: Path) -> None:
        self.url = url
        self._base = f"{url}/api/v2/orgs/{org}"
        self._key = key
        self._context = ssl.create_default_context(cafile=str(trusted))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"signadot-api-key": self._key, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._base}/{path}", method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; anything but 200 fails the test."""
        status, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer


class _Server(ServerInCluster):
    """A server of this process over TLS, on an address that pods reach."""

    def __init__(self, host: str, folder: Path) -> None:
        self.certificate = certificate(folder, f"IP:{host}")
        self._store = Store.open(folder / "control.db")
        app = create_app(self._store, {}, org=ORG, keys=callers.single_key(KEY, ORG), version="1", loopback=False)
        files = {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(folder / "server.key")}
        self._server = uvicorn.Server(uvicorn.Config(app, host=host, port=0, log_config=None, **files))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))
        self._thread.start()
        eventually(lambda: self._server.started, "the server listens")
        port = self._server.servers[0].sockets[0].getsockname()[1]
        super().__init__(f"https://{host}:{port}", ORG, KEY, self.certificate)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._store.close()


@contextlib.contextmanager
def connected_server(operator: Installed, folder: Path, cluster: str) -> Iterator[ServerInCluster]:
    """Run a server of this process to which the installed operator is connected under the name of a cluster."""
    found = _Server(operator.own.network.host, folder)
    try:
        found.must("PUT", f"clusters/{cluster}", {})
        token = found.must("POST", f"clusters/{cluster}/tokens", {})["token"]
        with dialling(operator, found.url, f"{ORG}={TEAM}", token, found.certificate):
            yield found
    finally:
        found.close()


def certificate(folder: Path, *names: str) -> Path:
    """Create a self-signed certificate for these names, such as IP:10.0.0.1; its key is next to it in server.key."""
    chain = folder / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=dayfly", "-days", "1", "-addext", f"subjectAltName={','.join(names)}"]
    subprocess.run([*command, "-keyout", folder / "server.key", "-out", chain], check=True, capture_output=True)
    return chain


@contextlib.contextmanager
def dialling(operator: Installed, url: str, bound: str, token: str, trusted: Path) -> Iterator[None]:
    """Connect the installed operator to this server as in docs/guides/connect-a-cluster.md, and disconnect it afterwards."""
    kubectl = operator.own.kubectl
    patch = yaml.safe_load((ROOT / "deploy" / "agent-patch.yaml").read_text())
    [container] = patch["spec"]["template"]["spec"]["containers"]
    values = {"DAYFLY_SERVER_URL": url, "DAYFLY_AGENT_NAMESPACE": bound}
    container["env"] = [{**each, "value": values.get(each["name"], each["value"])} for each in container["env"]]
    container["env"].append({"name": "DAYFLY_SERVER_CA", "value": "/var/run/dayfly/ca"})
    [volume] = patch["spec"]["template"]["spec"]["volumes"]
    volume["secret"]["items"].append({"key": "ca", "path": "ca"})
    file = trusted.with_name("token")
    file.write_text(token + "\n")
    grant = ["--clusterrole=dayfly-agent", f"--serviceaccount={ACCOUNT}"]
    kubectl("create", "rolebinding", "dayfly-agent", "-n", TEAM, *grant)
    files = [f"--from-file=token={file}", f"--from-file=ca={trusted}"]
    kubectl("create", "secret", "generic", "dayfly-token", "-n", SYSTEM, *files)
    try:
        kubectl("patch", "deployment", "dayfly-operator", "-n", SYSTEM, "-p", json.dumps(patch))
        yield
    finally:
        kubectl("rollout", "undo", "-n", SYSTEM, "deployment/dayfly-operator")
        kubectl("rollout", "status", "-n", SYSTEM, "deployment/dayfly-operator", "--timeout=120s")
        kubectl("delete", "secret", "-n", SYSTEM, "dayfly-token", "dayfly-agent", "--ignore-not-found")
        kubectl("delete", "rolebinding", "-n", TEAM, "dayfly-agent")
