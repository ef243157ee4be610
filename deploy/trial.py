#!/usr/bin/env python3
"""Run Dayfly in a separate Kubernetes cluster on this machine: `make cluster`; `make uninstall` removes it.

    deploy/trial.py up       # start the cluster if it is not there, install this checkout, apply deploy/example
    deploy/trial.py up --server     # and a server, to which the cluster is connected (deploy/trial_server.py)
    deploy/trial.py down     # drain and uninstall, then end the cluster

`up` again installs the current checkout in the same cluster. `down` removes nothing if the cleanup of a sandbox does
not end, because its resources may be outside of the cluster.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import image  # from this folder; makes testcluster importable
import trial_server
from testcluster import build, cluster, stand_ins

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
# The path of the KUBECONFIG of this checkout's cluster.
RECORD = ROOT / ".cache" / "cluster"

HOW = """
Dayfly runs in a separate Kubernetes cluster, and the sandbox notes-demo has a database. Try:

    export KUBECONFIG={kubeconfig}
    export PATH={bin}:$PATH      # a kubectl of its version
    kubectl get dfs -A                                # sandboxes, and how they stand
    kubectl get dfr                                   # their resources
    kubectl delete -f deploy/example/sandbox.yaml     # and the database is gone
    kubectl apply -f deploy/example/sandbox.yaml      # another one

docs/guides/cluster.md can be followed in this cluster, which has busybox:stable. Other images are pulled if this
machine can reach their registry, or loaded: testcluster/README.md. `make uninstall` removes the cluster.
"""


def main() -> None:
    """Run a command. An error is reported in one line, with exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--record", type=Path, default=RECORD, help="the file that says where the cluster is")
    parser.add_argument("--server", action="store_true", help="with `up`: have a server in it too")
    chosen = parser.parse_args()
    try:
        if chosen.what == "up":
            up(chosen.record, server=chosen.server)
        else:
            down(chosen.record)
    except (build.UnavailableError, cluster.StartError, cluster.CommandError, TimeoutError) as problem:
        sys.exit(f"dayfly: {problem}")
    except subprocess.CalledProcessError as problem:
        sys.exit(f"dayfly: {' '.join(map(str, problem.cmd))} ended with {problem.returncode}; see above")


def up(record: Path, *, server: bool) -> None:
    """Start or find the cluster, and install this checkout in it."""
    here = _found(record)
    fresh = here is None
    if here is None:
        # Detect missing requirements before a cluster is started.
        build.check_machine()
        build.install_tools()
    _say("making what is not there yet of the images of the operator, of the example and of docs/guides/cluster.md")
    archives = image.kept(), stand_ins.postgres(), stand_ins.busybox()
    if here is None:
        _say("starting a Kubernetes; the first time it is built, which takes a quarter of an hour")
        here = cluster.up(way_out=True)
        record.parent.mkdir(exist_ok=True)
        record.write_text(f"{here.kubeconfig}\n")
    _say("bringing it these images")
    for archive in archives:
        here.load(archive)
    _say("installing deploy/install.yaml")
    here.kubectl("apply", "--server-side", "-f", str(DEPLOY / "install.yaml"))
    deployment = ["-n", "dayfly-system", "deployment/dayfly-operator"]
    if not fresh:
        here.kubectl("rollout", "restart", *deployment)  # the image may have changed under the same name
    here.kubectl("rollout", "status", *deployment, "--timeout=180s")
    _say("applying deploy/example")
    _run(here, DEPLOY / "example" / "apply.sh")
    how = HOW.format(kubeconfig=here.kubeconfig, bin=here.folder / "bin")
    if server:
        _say("installing deploy/server.yaml, and connecting the cluster to it")
        how += trial_server.bring(here, again=not fresh)
    sys.stdout.write(how)


def down(record: Path) -> None:
    """Uninstall like an administrator, then remove the cluster."""
    here = _found(record)
    if here is None:
        _say("there is no cluster of this checkout")
        return
    try:
        _run(here, DEPLOY / "uninstall.sh")
    except subprocess.CalledProcessError:
        _say(f"the cluster stays; to end it all the same: testcluster/down {here.kubeconfig}")
        raise
    cluster.down(here)
    record.unlink()
    _say(f"{here.name} is down, and nothing of it is left")


def _found(record: Path) -> cluster.Cluster | None:
    """Return the recorded cluster if it is running."""
    if not record.exists():
        return None
    here = cluster.Cluster(Path(record.read_text().strip()).parent)
    return here if here.alive() else None


def _run(here: cluster.Cluster, script: Path) -> None:
    kubectl = {"KUBECTL": str(here.folder / "bin" / "kubectl"), "KUBECONFIG": str(here.kubeconfig)}
    subprocess.run([script], env=os.environ | kubectl, check=True)


def _say(text: str) -> None:
    sys.stderr.write(f"dayfly: {text}\n")


if __name__ == "__main__":
    main()
