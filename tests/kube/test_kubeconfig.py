"""The loader of kubeconfigs comes without the package around it, and takes that from nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The package whole takes ten seconds of a processor where nobody has compiled it yet.
whole = pytest.mark.rotates(8, "the package kubernetes, whole")

ALONE = """
import sys
asked = set()
sys.addaudithook(lambda event, args: asked.add(args[0]) if event == "import" else None)
from dayfly.kube.kubeconfig import library
loader = library()
assert callable(loader.load_kube_config) and loader.kube_config.Configuration()
print(len([each for each in asked if each.startswith("kubernetes.")]) < 20)
print([each for each in sys.modules if each.partition(".")[0] == "kubernetes"])
"""

LATER = """
from dayfly.kube.kubeconfig import library
loader = library()
import kubernetes
print(kubernetes.client.CoreV1Api.__name__, kubernetes.client.Configuration is not loader.kube_config.Configuration)
"""

BESIDE = """
import kubernetes.aio.client
from dayfly.kube.kubeconfig import library
print(library() is sys.modules["kubernetes.aio.config"])
print(library().kube_config.ApiClient is kubernetes.aio.client.ApiClient)
"""

ABSENT = """
import sys
from dayfly.kube.kubeconfig import library
sys.path[:] = [each for each in sys.path if "site-packages" not in each]
try:
    library()
except ModuleNotFoundError as error:
    print(error.name)
"""


def said(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not ended.returncode, ended.stderr
    return ended.stdout


def test_it_comes_alone_and_leaves_no_name():
    assert said(ALONE) == "True\n[]\n"


@whole
def test_who_wants_the_package_has_it_whole():
    assert said(LATER) == "CoreV1Api True\n"


@whole
def test_where_the_package_is_loaded_it_is_taken_from_there():
    assert said(f"import sys{BESIDE}") == "True\nTrue\n"


def test_without_the_package_its_name_is_said():
    assert said(ABSENT) == "kubernetes\n"
