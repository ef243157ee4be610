"""The operator's image: made here, loaded into a real node, and run as the manifest runs it."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from policy.apiserver import ROOT, build, clusters

PYTHON = f"/usr/local/bin/python{sys.version_info.major}.{sys.version_info.minor}"
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import os, pathlib, dayfly.operator.main, dayfly.kube.auth, ssl, sqlite3
from kubernetes.aio import config
runner = pathlib.Path(os.environ["DAYFLY_RUNNER"])
assert os.access(runner, os.X_OK)
print(os.getuid(), sorted(each.name for each in runner.parent.iterdir()), ssl.create_default_context().cert_store_stats()["x509"] > 9)
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A cluster with a node that has the image."""
    archive = tmp_path_factory.mktemp("image") / "operator.tar"
    subprocess.run([sys.executable, ROOT / "deploy" / "image.py", archive], check=True)
    ours = os.pidfd_open(os.getpid())
    try:
        build.check_machine()
        own = clusters.up(owner=ours)
    except build.UnavailableError as problem:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cluster tests may not be skipped in CI: {problem}")
        pytest.skip(f"CLUSTER TESTS SKIPPED: {problem}")
    finally:
        os.close(ours)
    try:
        own.load(archive)
        own.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "base" / "namespaces.yaml"))
        own.kubectl("create", "serviceaccount", "dayfly-operator", "-n", "dayfly-system")
        yield own
    finally:
        clusters.down(own)
        archive.unlink()  # pytest keeps its folders for a while, and this is large


def ran(node, name, **container):
    """What the operator's pod says if it runs this in place of the operator."""
    manifests = yaml.safe_load_all((ROOT / "deploy" / "base" / "operator.yaml").read_text())
    spec = next(each for each in manifests if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    spec |= {"restartPolicy": "Never"}
    spec["containers"][0] |= container
    for probe in ("livenessProbe", "readinessProbe"):
        del spec["containers"][0][probe]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "dayfly-system"}, "spec": spec}
    node.kubectl("create", "-f", "-", stdin=json.dumps(body))
    node.kubectl(
        "wait", "-n", "dayfly-system", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"
    )
    return node.kubectl("logs", "-n", "dayfly-system", name)


def test_is_this_version(node):
    version = (ROOT / "src" / "dayfly" / "__init__.py").read_text().split('__version__ = "')[1].split('"')[0]
    assert ran(node, "version", args=["--version"]) == f"dayfly {version}\n"


def test_has_all_that_the_operator_needs(node):
    """Its modules, their libraries, certificates and both runners, as 65532 over a read-only root."""
    said = ran(node, "needs", command=[PYTHON, "-c", PROGRAM], args=[])
    assert said == "65532 ['aarch64', 'x86_64'] True\n"


def test_finds_its_modules_whoever_built_the_python(node):
    """Debian's looks for them in a folder of its own: without its habits (`-S`) both are the same."""
    assert ran(node, "habits", command=[PYTHON, "-S", "-c", "import dayfly, aiohttp; print(1)"], args=[]) == "1\n"


def test_finds_the_api_server(node):
    """The pod's own account is enough to speak to the API server."""
    program = """
import asyncio, dayfly.kube.auth as auth
async def main():
    found = await auth.load()
    print(found.server.startswith("https://"), (await found.header()).lower().startswith("bearer "))
asyncio.run(main())
"""
    said = ran(node, "speaks", command=[PYTHON, "-c", program], args=[])
    assert said == "True True\n"
