"""The Helm chart, with the real Helm: equal to the manifests, strict about values, and safe to upgrade and remove."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from scripts import archives, chart
from tests.deploy.conftest import thing
from tests.helm import Helm
from tests.manifests import documents
from tests.policy.apiserver import ROOT, established, eventually, start

from dayfly import __version__

pytestmark = [pytest.mark.builds("helm"), pytest.mark.timeout(300)]
PARTS = {
    "operator": [ROOT / "deploy" / "install.yaml"],
    "server": [ROOT / "deploy" / "server.yaml"],
    "routeServer": [ROOT / "deploy" / "routeserver.yaml"],
}
KUBERNETES = ["--kube-version", "1.30.0"]  # the oldest supported version
EVERYTHING = ["--set", "server.enabled=true,routeServer.enabled=true"]
SETS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOK = {
    "selector": {"apiVersion": "cluster.example.org/v1", "kind": "Machine"},
    "preStop": [{"name": "a", "script": "#!/bin/sh\n"}],
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory):
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The chart's archive, and its OCI image layout."""
    return chart.pack(tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="module")
def rendered(helm, packed):
    def render(*arguments):
        ended = helm("template", "dayfly", packed[0], *KUBERNETES, "--namespace", "releases", *arguments)
        assert ended.returncode == 0, ended.stderr
        return [each for each in documents(ended.stdout) if each]

    return render


def without_keep(document):
    """Return a CustomResourceDefinition or Namespace without the annotation that only Helm reads."""
    if document["kind"] in ("CustomResourceDefinition", "Namespace"):
        assert document["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return document


def by_name(found):
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


def is_hook(document):
    return "helm.sh/hook" in document["metadata"].get("annotations", {})


def is_guard(document):
    """Whether it is one of the policies that only the chart has."""
    return document["metadata"]["name"].startswith("dayfly-uninstall")


@pytest.mark.parametrize("part", PARTS)
def test_default_values_give_the_manifests(rendered, part):
    arguments = [] if part == "operator" else ["--set", f"{part}.enabled=true,crds=false"]
    expected = [each for path in PARTS[part] for each in documents(path)]
    found = [without_keep(each) for each in rendered(*arguments) if not is_hook(each) and not is_guard(each)]
    if part != "operator":
        operator = by_name(documents(PARTS["operator"][0]))
        found = [each for each in found if next(iter(by_name([each]))) not in operator]
    assert by_name(found) == by_name(expected)


def test_chart_and_manifests_have_the_version_of_the_package():
    metadata = documents(ROOT / "deploy" / "chart" / "Chart.yaml")[0]
    assert (metadata["version"], metadata["appVersion"]) == (__version__, __version__)


def test_lint_of_the_chart_finds_nothing(helm, packed):
    ended = helm("lint", "--strict", packed[0], *KUBERNETES, *EVERYTHING)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_values_reach_the_pods_of_their_part(rendered):
    values = {
        "image": {"repository": "images.example/dayfly", "digest": f"sha256:{'a' * 64}", "pullSecrets": ["pull"]},
        "quota": {"steps": 7},
        "operator": {
            "replicas": 3,
            "env": {"DAYFLY_STEPS": 40, "DAYFLY_STATE_PORT": "9443"},
            "args": ["--verbose"],
            "resources": {"limits": {"memory": "1Gi"}},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "podAnnotations": {"team": "platform"},
            "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
            "volumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        },
    }
    found = by_name(rendered(*(f"--set-json={key}={json.dumps(value)}" for key, value in values.items())))
    deployment = found["Deployment", "dayfly-system", "dayfly-operator"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["metadata"]["annotations"] == {"team": "platform"}
    assert container["image"] == f"images.example/dayfly@sha256:{'a' * 64}"
    assert container["args"] == ["operator", "--verbose"]
    assert {each["name"]: each.get("value") for each in container["env"]} == {
        "POD_NAME": None,
        "POD_NAMESPACE": None,
        "DAYFLY_STATE_PORT": "9443",
        "DAYFLY_STEPS": "40",
    }
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"pool": "system"}, [{"name": "pull"}])
    assert pod["tolerations"] == values["operator"]["tolerations"]
    assert [each["name"] for each in pod["volumes"]] == ["tmp", "ca"]
    assert container["volumeMounts"][-1] == {"name": "ca", "mountPath": "/ca"}
    assert found["ResourceQuota", "dayfly-runners", "dayfly-steps"]["spec"]["hard"] == {"pods": "7"}
    assert found["ResourceQuota", "dayfly-runners", "dayfly-cleanup"]["spec"]["hard"] == {"pods": "100"}


def test_values_of_the_page_about_proxies_are_valid(helm, packed, tmp_path):
    page = (ROOT / "docs" / "guides" / "proxies.md").read_text()
    (tmp_path / "values.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    ended = helm("template", "dayfly", packed[0], *KUBERNETES, "--values", tmp_path / "values.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "proxy.example.com" in ended.stdout


def test_namespace_of_the_release_is_not_part_of_it(helm, packed):
    """`--create-namespace` creates it before the release, and Helm would refuse to adopt it."""
    ended = helm("template", "dayfly", packed[0], *KUBERNETES, "--namespace", "dayfly-system")
    names = [name for kind, _, name in by_name(each for each in documents(ended.stdout) if each) if kind == "Namespace"]
    assert names == ["dayfly-runners"]


@pytest.mark.parametrize(
    "values",
    [
        "operator.replica=1",
        "operator.replicas=0",
        "image.digest=sha256:1",
        "image.pullPolicy=Sometimes",
        "operator.env.A=1000000",
        "extra=1",
        "operator.enabled=false,routeServer.enabled=true",
    ],
)
def test_invalid_values_are_refused_with_their_field(helm, packed, values):
    ended = helm("template", "dayfly", packed[0], *KUBERNETES, "--set", values)
    assert ended.returncode != 0
    field = values.rpartition(",")[2].partition("=")[0]
    assert field.partition(".")[2].partition(".")[0] in ended.stderr
    assert field.partition(".")[0] in ended.stderr


def test_two_packs_have_the_same_bytes(packed, tmp_path):
    again = chart.pack(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packed]


class Registry(BaseHTTPRequestHandler):
    """Answers with the only manifest of an OCI image layout, or a blob."""

    def do_GET(self):
        *_, kind, reference = self.path.split("/")
        files = self.server.files
        digest = json.loads(files["index.json"])["manifests"][0]["digest"] if kind == "manifests" else reference
        body = files.get(f"blobs/{digest.replace(':', '/')}", b"{}")
        self.send_response(200)
        self.send_header("Content-Type", archives.MANIFEST if kind == "manifests" else "application/octet-stream")
        self.send_header("Docker-Content-Digest", digest)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *_):
        pass


def test_helm_pulls_the_oci_layout_from_a_registry(helm, packed, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.files = archives.untar(packed[1].read_bytes())
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        address = f"oci://127.0.0.1:{server.server_address[1]}/charts/dayfly"
        ended = helm("pull", address, "--version", __version__, "--plain-http", "--destination", tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / packed[0].name).read_bytes() == packed[0].read_bytes()


@pytest.fixture(scope="module")
def own():
    """A separate API server, because the chart installs policies."""
    yield from start()


@pytest.fixture
def release(own, helm, packed):
    """Install, change or remove the release on the server; the function returns Helm's process."""
    kubeconfig = own.cluster.kubeconfig

    def run(verb, *arguments):
        packages = [packed[0]] if verb in ("install", "upgrade") else []
        where = ["--namespace", "dayfly-system", *(["--create-namespace"] if verb == "install" else [])]
        return helm(verb, "dayfly", *packages, *where, *arguments, kubeconfig=kubeconfig)

    return run


@pytest.mark.cluster
class TestRelease:
    def test_install_upgrade_and_removal_lose_nothing(self, own, release):
        assert (ended := release("install")).returncode == 0, ended.stderr
        eventually(lambda: established(own))
        self.damage_a_definition(own)
        ended = release("upgrade", "--set", "operator.replicas=3")
        assert ended.returncode == 0, ended.stderr
        path = "/apis/apps/v1/namespaces/dayfly-system/deployments/dayfly-operator"
        assert own.ask("GET", path).body["spec"]["replicas"] == 3
        names = own.ask("GET", f"{SETS}/sandboxes.dayfly.dev").body["spec"]["names"]
        assert names["shortNames"] == ["dfs"], "the upgrade also changes definitions"
        self.disable_parts_in_turn(own, release)
        hook = thing("dayfly.dev/v1alpha1", "LifecycleHook", "backup", spec=HOOK)
        assert (answer := own.ask("POST", "/apis/dayfly.dev/v1alpha1/lifecyclehooks", hook)).status == 201, answer
        eventually(lambda: "lifecyclehooks.dayfly.dev/backup" in self.refusal(own))
        ended = release("uninstall")
        assert ended.returncode != 0
        assert "lifecyclehooks.dayfly.dev/backup" in ended.stderr
        assert own.ask("GET", path).status == 200
        assert release("status").returncode == 0
        own.ask("DELETE", "/apis/dayfly.dev/v1alpha1/lifecyclehooks/backup")
        eventually(lambda: not self.refusal(own))
        assert (ended := release("uninstall")).returncode == 0, ended.stderr
        assert own.ask("GET", path).status == 404
        assert own.ask("GET", f"{SETS}/sandboxes.dayfly.dev").status == 200, "definitions are kept, with their objects"
        assert self.keeps_namespace(own, "dayfly-runners")

    def disable_parts_in_turn(self, own, release):
        """Replace the operator by a server, and then the server by the operator. The namespaces of both are kept."""
        for part, other in (("server", "operator"), ("operator", "server")):
            ended = release("upgrade", "--set", f"{part}.enabled=true,{other}.enabled=false")
            assert ended.returncode == 0, ended.stderr
            assert self.keeps_namespace(own, "dayfly-runners")
            assert self.keeps_namespace(own, "dayfly-server")

    def keeps_namespace(self, own, name):
        """Return whether the namespace exists and is not being deleted."""
        found = own.ask("GET", f"/api/v1/namespaces/{name}")
        return found.status == 200 and "deletionTimestamp" not in found.body["metadata"]

    def damage_a_definition(self, own):
        """Remove the short name, as an older version could lack a field."""
        patch = {"spec": {"names": {"shortNames": None}}}
        answer = own.ask("PATCH", f"{SETS}/sandboxes.dayfly.dev", patch, kind="application/merge-patch+json")
        assert answer.status == 200, answer.message

    def refusal(self, own):
        """Return why the first object of an uninstallation would be refused; empty if it would not."""
        probe = thing("v1", "ConfigMap", "dayfly-uninstall")
        answer = own.ask("POST", "/api/v1/namespaces/dayfly-system/configmaps?dryRun=All", probe)
        return "" if answer.status == 201 else answer.message
