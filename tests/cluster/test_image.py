"""The operator's image: brought to a real node, and run there as the manifest runs it."""

import json
import sys

import pytest
from tests.cluster.installed import ROOT, SYSTEM
from tests.manifests import documents

from dayfly import __version__

PYTHON = f"/usr/local/bin/python{sys.version_info.major}.{sys.version_info.minor}"

PROGRAM = """
import os, pathlib, dayfly.operator.main, dayfly.kube.openid, ssl, sqlite3
runner = pathlib.Path(os.environ["DAYFLY_RUNNER"])
assert os.access(runner, os.X_OK)
print(os.getuid(), sorted(each.name for each in runner.parent.iterdir()), ssl.create_default_context().cert_store_stats()["x509"] > 9)
"""


@pytest.fixture
def ran(operator, request):
    """Run a command in place of the operator; return the output of its pod."""
    manifest = documents(ROOT / "deploy" / "base" / "operator.yaml")
    spec = next(each for each in manifest if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    spec |= {"restartPolicy": "Never"}
    for probe in ("livenessProbe", "readinessProbe"):
        del spec["containers"][0][probe]
    name = request.node.name.replace("_", "-")

    def said(**container: object) -> str:
        spec["containers"][0] |= container
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SYSTEM}, "spec": spec}
        operator.own.kubectl("create", "-f", "-", stdin=json.dumps(body))
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        operator.own.kubectl("wait", "-n", SYSTEM, f"pod/{name}", ended, "--timeout=60s")
        return operator.own.kubectl("logs", "-n", SYSTEM, name)

    yield said
    operator.own.kubectl("delete", "pod", name, "-n", SYSTEM, "--wait=false", "--ignore-not-found")


def test_is_this_version(ran):
    assert ran(args=["--version"]) == f"dayfly {__version__}\n"


def test_has_all_that_the_operator_needs(ran):
    """The image has modules, libraries, certificates and both runners, and runs as 65532 with a read-only root."""
    said = ran(command=[PYTHON, "-c", PROGRAM], args=[])
    assert said == "65532 ['aarch64', 'x86_64'] True\n"


def test_image_finds_its_modules_under_any_python(ran):
    """Debian's Python searches in another folder. With `-S` both are the same."""
    assert ran(command=[PYTHON, "-S", "-c", "import dayfly, aiohttp; print(1)"], args=[]) == "1\n"


def test_finds_the_api_server(ran):
    """The pod's own account is enough to speak to the API server."""
    program = """
import asyncio, dayfly.kube.auth as auth
async def main():
    found = await auth.load()
    print(found.server.startswith("https://"), (await found.header()).lower().startswith("bearer "))
asyncio.run(main())
"""
    said = ran(command=[PYTHON, "-c", program], args=[])
    assert said == "True True\n"
