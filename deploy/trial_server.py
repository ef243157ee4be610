# ruff: noqa: INP001 - beside trial.py, which imports it from this folder
"""A server in the trial's cluster, installed as docs/guides/server.md describes: `make cluster SERVER=1`.

It applies deploy/server.yaml with a separate PostgreSQL, and connects the operator to it
(docs/guides/connect-a-cluster.md). Existing objects are kept, so it can be repeated. Secrets of the
administrator are stored in the cluster's folder.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

from testcluster import cluster

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
SERVER, DATABASE, SYSTEM, ORG, SANDBOXES = "dayfly-server", "dayfly-db", "dayfly-system", "trial", "trial-sandboxes"
CONNECTED_S = 120  # the current leader may have to stop first

HOW = """
It also has a server, with organisation "trial" and cluster "trial" (docs/guides/server.md). Log in as its admin:

    ./dayfly login {url} --name trial --ca {ca} <{key}
    ./dayfly cluster list --server trial
"""


def bring(here: cluster.Cluster, *, again: bool) -> str:
    """Start the server and connect the operator to it. Return instructions for the user.

    Args:
        here: The cluster, with Dayfly, its image and that of PostgreSQL.
        again: Whether the server may exist already, with another image.
    """
    here.kubectl("apply", "--server-side", "-f", str(DEPLOY / "server.yaml"))
    database = _database(here)
    url = f"https://{_address(here, SERVER, SERVER)}"
    kept = here.folder / "server"
    kept.mkdir(mode=0o700, exist_ok=True)
    _certificate(kept, url.removeprefix("https://"))
    _secret(here, SERVER, "dayfly-server-database", f"--from-literal=url={database}")
    _secret(here, SERVER, "dayfly-server-tls", f"--cert={kept / 'ca'}", f"--key={kept / 'tls.key'}", kind="tls")
    deployment = ["-n", SERVER, "deployment/dayfly-server"]
    if again:
        here.kubectl("rollout", "restart", *deployment)
    here.kubectl("rollout", "status", *deployment, "--timeout=180s")
    key = kept / "admin.key"
    if not key.exists():
        said = here.kubectl("exec", *deployment, "--", "python3.11", "-m", "dayfly", "server", "init", ORG)
        key.touch(0o600)
        key.write_text(said)
    _connect(here, kept, url)
    return HOW.format(url=url, ca=kept / "ca", key=key)


def _database(here: cluster.Cluster) -> str:
    """Create a PostgreSQL in a separate namespace. Return the URL of a database in it."""
    if not _is_there(here, "namespace", DATABASE):
        here.kubectl("create", "namespace", DATABASE)
    password = secrets.token_hex(16)
    _secret(here, DATABASE, "database", f"--from-literal=password={password}", f"--from-literal=dayfly={password}")
    manifest = (DEPLOY / "example" / "database.yaml").read_text()
    here.kubectl("apply", "-f", "-", stdin=manifest.replace("notes", DATABASE))
    server = ["-n", DATABASE, "deployment/database"]
    here.kubectl("rollout", "status", *server, "--timeout=180s")
    password = here.kubectl(
        *["get", "secret", "database", "-n", DATABASE, "-o", "go-template={{.data.dayfly | base64decode}}"]
    )
    psql = ["exec", *server, "--", "psql", "-U", "postgres"]
    if not here.kubectl(*psql, "-XAtc", "SELECT 1 FROM pg_roles WHERE rolname = 'dayfly'").strip():
        here.kubectl(
            *psql, "-c", f"CREATE USER dayfly PASSWORD '{password}'", "-c", "CREATE DATABASE dayfly OWNER dayfly"
        )
    return f"postgresql://dayfly:{password}@{_address(here, 'database', DATABASE)}/dayfly"


def _connect(here: cluster.Cluster, kept: Path, url: str) -> None:
    """Connect the operator to the server, with a token that an administrator would create in the same way."""
    if not _is_there(here, "secret", "dayfly-token", "-n", SYSTEM):
        _dayfly(kept, "login", url, "--name", ORG, "--ca", str(kept / "ca"), stdin=(kept / "admin.key").read_text())
        _dayfly(kept, "cluster", "add", ORG, "--server", ORG)
        token = kept / "token"
        token.touch(0o600)
        token.write_text(_dayfly(kept, "cluster", "token", "create", ORG, "--server", ORG))
        _secret(here, SYSTEM, "dayfly-token", f"--from-file=token={token}", f"--from-file=ca={kept / 'ca'}")
        token.unlink()
    if not _is_there(here, "namespace", SANDBOXES):
        here.kubectl("create", "namespace", SANDBOXES)
    if not _is_there(here, "rolebinding", "dayfly-agent", "-n", SANDBOXES):
        grant = ["--clusterrole=dayfly-agent", f"--serviceaccount={SYSTEM}:dayfly-operator"]
        here.kubectl("create", "rolebinding", "dayfly-agent", "-n", SANDBOXES, *grant)
    patch = (DEPLOY / "agent-patch.yaml").read_text()
    patch = patch.replace("https://dayfly.example.com", url).replace("acme=acme-sandboxes", f"{ORG}={SANDBOXES}")
    option = "- {name: DAYFLY_TOKEN_FILE, value: /var/run/dayfly/token}"
    authority = "- {name: DAYFLY_SERVER_CA, value: /var/run/dayfly/ca}"
    patch = patch.replace(option, f"{option}\n        {authority}")
    patch = patch.replace("{key: token, path: token}", "{key: token, path: token}, {key: ca, path: ca}")
    here.kubectl("patch", "deployment", "dayfly-operator", "-n", SYSTEM, "-p", patch)
    here.kubectl("rollout", "status", "deployment/dayfly-operator", "-n", SYSTEM, "--timeout=180s")
    deadline = time.monotonic() + CONNECTED_S
    while not json.loads(_dayfly(kept, "cluster", "list", "-o", "json", "--server", ORG))[0]["operator"]["version"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the operator has not connected to {url} within {CONNECTED_S} s")
        time.sleep(1)


def _certificate(kept: Path, address: str) -> None:
    """Return a self-signed certificate for the address."""
    if (kept / "ca").exists():
        return
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=dayfly-server", "-days", "365", "-addext", f"subjectAltName=IP:{address}"]
    subprocess.run([*command, "-keyout", kept / "tls.key", "-out", kept / "ca"], check=True, capture_output=True)


def _secret(here: cluster.Cluster, namespace: str, name: str, *content: str, kind: str = "generic") -> None:
    if not _is_there(here, "secret", name, "-n", namespace):
        here.kubectl("create", "secret", kind, name, "-n", namespace, *content)


def _is_there(here: cluster.Cluster, *what: str) -> bool:
    return bool(here.kubectl("get", *what, "--ignore-not-found", "-o", "name").strip())


def _address(here: cluster.Cluster, service: str, namespace: str) -> str:
    """Return the IP address: this cluster has no DNS."""
    return here.kubectl("get", "service", service, "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")


def _dayfly(kept: Path, *arguments: str, stdin: str = "") -> str:
    """Return the output of this checkout's command line, with a separate home."""
    env = os.environ | {"DAYFLY_HOME": str(kept / "home"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "dayfly", *arguments]
    ended = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise cluster.CommandError(f"dayfly {arguments[0]}: {ended.stderr.strip()}")
    return ended.stdout
