"""`make cluster` for a newcomer: a fresh checkout, an empty HOME, and then what the pages say, to the cluster's end."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from testcluster import build, host, stand_ins
from testcluster import cluster as clusters
from tests.cluster.installed import API, ROOT
from tests.cluster.people import STEERS
from tests.cluster.registry import registry
from tests.cluster.waiting import eventually
from tests.docs.transcript import differences, follow

SERVED = "trial-sandboxes"
SERVERS = ("namespace/dayfly-server", "namespace/dayfly-db")
"""Objects that the removal of the operator leaves; they end with the cluster."""
GREETING = """
name: greeting
spec:
  runner: {image: "busybox:stable"}
  create:
  - name: make
    outputs:
    - {name: word, valueFromPath: /tmp/word}
    script: |
      #!/bin/sh
      printf 'hello from %.13s' "$DAYFLY_SANDBOX_NAME" >/tmp/word
"""
BORROWED = "./dayfly with --server trial -f p.yaml -- sh -c 'echo \"$GREETING_MAKE_WORD\"; exit 7'"
PSQL = ["exec", "-n", "notes", "deployment/database", "--", "sh", "-c"]


class Newcomer(NamedTuple):
    """A user with only a checkout in `dayfly/`, in which `make cluster` was run."""

    home: Path
    environment: dict[str, str]

    @property
    def checkout(self) -> Path:
        return self.home / "dayfly"

    @property
    def record(self) -> Path:
        return self.checkout / ".cache" / "cluster"

    def make(self, target: str, *variables: str) -> str:
        """Run a target; return its whole output."""
        ended = subprocess.run(
            ["make", target, *variables],
            cwd=self.checkout,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout


class Tried(NamedTuple):
    """A cluster after `make cluster`, its user, and the output."""

    own: clusters.Cluster
    newcomer: Newcomer
    said: str

    @property
    def exports(self) -> str:
        """The lines that make a shell one of this cluster."""
        return "".join(f"{line}\n" for line in re.findall(r"^    (export .*)$", self.said, re.MULTILINE))


def newcomer(home: Path) -> Newcomer:
    """A checkout with the files that git knows, as they are; Kubernetes is not built again for it."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (home / "dayfly" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, home / "dayfly" / name)
    machine = {name: value for name, value in os.environ.items() if not name.startswith(STEERS)}
    own = {"HOME": str(home), "DAYFLY_CACHE": str(build.cache().parent), "NO_COLOR": "1", "KUBERC": "off"}
    return Newcomer(home, machine | own)


@pytest.fixture(scope="module")
def tried(machine) -> Iterator[Tried]:
    home = Path(tempfile.mkdtemp(prefix="ada-"))
    ada = newcomer(home)
    try:
        said = ada.make("cluster")
        yield Tried(clusters.Cluster(Path(ada.record.read_text().strip()).parent), ada, said)
    finally:
        if ada.record.exists():
            clusters.down(clusters.Cluster(Path(ada.record.read_text().strip()).parent))
        shutil.rmtree(home)


def databases(own: clusters.Cluster) -> list[str]:
    """Return databases and roles of sandboxes, queried from the server."""
    query = "SELECT datname FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
    said = own.kubectl(*PSQL, f'PGPASSWORD="$POSTGRES_PASSWORD" psql -h 127.0.0.1 -U postgres -XAtc "{query}"')
    return [name for name in said.split() if name.startswith("notes_")]


@pytest.mark.timeout(600, func_only=True)
class TestTrial:
    """In their order: each goes on where the one before has left the cluster."""

    def test_the_example_has_a_database_of_its_own(self, tried):
        own = tried.own
        name, role = databases(own)
        assert name == role
        (resource,) = own.get(f"/apis/{API}/resources")[1]["items"]
        secret = own.get(f"/api/v1/namespaces/notes/secrets/{resource['status']['binding']['name']}")[1]
        assert sorted(secret["data"]) == [
            "provision.name",
            "provision.password",
            "provision.url",
            "schema-and-seed.notes",
        ]
        url = own.kubectl(
            *["get", "secret", "-n", "notes", secret["metadata"]["name"]],
            *["-o", 'go-template={{index .data "provision.url" | base64decode}}'],
        )
        assert "and takes it away" in own.kubectl(*PSQL, f"psql -XAtc 'SELECT text FROM notes' '{url}'")

    def test_printed_commands_work_as_described(self, tried):
        """The commands in the output of `make cluster` work as described there."""
        typed = "set -e\n" + "\n".join(re.findall(r"^    (\S.*)$", tried.said, re.MULTILINE))
        before = databases(tried.own)
        ada = tried.newcomer
        ended = subprocess.run(
            ["sh", "-c", typed], cwd=ada.checkout, env=ada.environment, capture_output=True, text=True, timeout=100
        )
        assert ended.returncode == 0, ended.stderr
        assert "notes-demo" in ended.stdout
        eventually(
            lambda: len(databases(tried.own)) == 2 and not set(databases(tried.own)) & set(before), "another database"
        )

    @pytest.mark.parametrize("name", ["tutorials/first-cluster.md", "guides/cluster.md"])
    def test_cluster_page_shows_the_real_output(self, tried, name):
        """Type a page's commands after `make cluster`, with the variables that `make cluster` prints."""
        ada = tried.newcomer
        page = ada.home / "page.md"
        page.write_text(f"```sh\n{tried.exports}```\n{(ROOT / 'docs' / name).read_text()}")
        names = {str(ada.home): "/home/ada", "testcluster": "here"}
        found = [
            text
            for command, printed in follow(page, ada.home, ada.environment, names, seconds=560)
            if (text := differences(command, printed))
        ]
        assert not found, "\n".join(found)

    def test_images_are_pulled_as_this_machine_could(self, tried):
        """The node has no network access, so this machine sends the requests to the registry."""
        kubectl, here = tried.own.kubectl, ["-n", "default"]  # the page's own namespace is on its way out
        with registry(tried.own, stand_ins.busybox()) as server:
            image = f"--image={server.name}/other/busybox:1"
            kubectl("run", "pulled", image, *here, "--restart=Never", "--", "echo", "here")
            ended = "--for=jsonpath={.status.phase}=Succeeded"
            kubectl("wait", "pod/pulled", *here, ended, "--timeout=60s")
            assert server.asked_from == {tried.own.network.host}
        assert kubectl("logs", "pulled", *here) == "here\n"

    @pytest.mark.proof
    def test_trial_cluster_can_have_a_server(self, tried):
        """`make cluster SERVER=1` for the same cluster: its printed commands work, and so does `with`."""
        ada = tried.newcomer
        said = ada.make("cluster", "SERVER=1").rpartition("It also has a server")[2]
        (ada.checkout / "p.yaml").write_text(GREETING)
        typed = [*re.findall(r"^    (\S.*)$", said, re.MULTILINE), BORROWED]
        ended = subprocess.run(
            ["sh", "-ec", "\n".join(typed)],
            cwd=ada.checkout,
            env=ada.environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ended.returncode == 7, ended.stderr
        assert re.search(r"^trial +\S+ +0\.", ended.stdout, re.MULTILINE), "its operator is connected"
        assert ended.stdout.splitlines()[-1] == "hello from with-greeting"
        assert f"{SERVED}/" not in tried.own.kubectl("get", "dfs", "-A"), "the resource is gone with its command"
        wish = '{"name": "stays", "spec": {"cluster": "trial", "resources": []}}'
        subprocess.run(
            ["./dayfly", "apply", "--server", "trial", "-f", "-"],
            cwd=ada.checkout,
            env=ada.environment,
            input=wish,
            text=True,
            check=True,
            timeout=100,
        )

    def test_uninstall_drains_a_living_sandbox(self, tried):
        """The sandbox's database goes before Dayfly does; nothing of Dayfly stays but what others were given."""
        own = tried.own
        assert databases(own)
        kubectl = {"KUBECTL": str(own.folder / "bin" / "kubectl"), "KUBECONFIG": str(own.kubeconfig)}
        began = time.monotonic()
        ended = subprocess.run(
            [tried.newcomer.checkout / "deploy" / "uninstall.sh"],
            env=os.environ | kubectl,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ended.returncode == 0, ended.stderr
        assert re.search(r"waiting for their cleanup, at most 15m: .*\bnotes/notes-demo", ended.stderr)
        assert databases(own) == []
        kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,namespace"
        left = own.kubectl("get", kinds, "-o", "name").split()
        left = [name for name in left if "dayfly" in name and name not in SERVERS]
        assert left == [], f"after {time.monotonic() - began:.0f} s"

    def test_down_ends_the_cluster(self, tried):
        own = tried.own
        assert f"{own.name} is down" in tried.newcomer.make("uninstall")
        assert not own.folder.exists()
        assert host.traces(own.name) == []
        assert "there is no cluster" in tried.newcomer.make("uninstall")
