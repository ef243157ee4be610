"""Users of a cluster with a command line: their permissions and their folders."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.cluster.installed import ROOT, Installed

# Prefixes of variables that a new user's environment does not have.
STEERS = ("DAYFLY_", "KUBECONFIG", "XDG_STATE_HOME", "MAKE", "MFLAGS", "PYTHON")


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


class Person(NamedTuple):
    """A user with a kubeconfig whose context is called `here`."""

    home: Path
    environment: dict[str, str]

    def dayfly(self, *arguments: str) -> Done:
        """One command to its end."""
        command = [sys.executable, "-m", "dayfly", *arguments]
        ended = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=self.home, timeout=120, check=False
        )
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; the caller waits for its end."""
        command = [sys.executable, "-m", "dayfly", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, text=True, env=self.environment, cwd=self.home, **pipes)


def administrator(operator: Installed, home: Path) -> Person:
    """Return a user with all permissions."""
    config = json.loads(operator.own.kubectl("config", "view", "--flatten", "-o", "json"))
    return _person(home, config)


def developer(operator: Installed, home: Path, namespace: str, role: str) -> Person:
    """Return a user with one role in one namespace; the account is deleted with the namespace."""
    account, kubectl = f"ada-{role}", operator.own.kubectl
    kubectl("create", "serviceaccount", account, "-n", namespace)
    kubectl(
        "create",
        "rolebinding",
        account,
        "-n",
        namespace,
        f"--clusterrole={role}",
        f"--serviceaccount={namespace}:{account}",
    )
    config = json.loads(kubectl("config", "view", "--flatten", "-o", "json"))
    token = kubectl("create", "token", account, "-n", namespace).strip()
    config["users"] = [{"name": account, "user": {"token": token}}]
    return _person(home, config)


def _person(home: Path, config: dict) -> Person:
    context = config["contexts"][0]["context"] | {"user": config["users"][0]["name"]}
    config |= {"contexts": [{"name": "here", "context": context}], "current-context": "here"}
    home.mkdir(parents=True, exist_ok=True)
    path = home / "kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    machine = {name: value for name, value in os.environ.items() if not name.startswith(STEERS)}
    kept = {
        "HOME": str(home),
        "KUBECONFIG": str(path),
        "PYTHONPATH": str(ROOT / "src"),
    }
    return Person(home, {**machine, **kept, "NO_COLOR": "1", "KUBERC": "off"})
