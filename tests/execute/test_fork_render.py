"""Manifests of forks: the baseline with the changes in order, and no labels that could attract its traffic."""

import copy

import msgspec
import pytest

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import (
    FORK_LABEL,
    FORM_ANNOTATION,
    ForkIdentity,
    find_service,
    first_port,
    render_fork,
    render_service,
)
from dayfly.execute.fork.rights import ForkPermissions
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.lifecycle import Baseline, EnvChange, ForkUnit, Unit

BASELINE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u",
        "resourceVersion": "9",
        "generation": 3,
        "labels": {"app": "web", "release": "r"},
        "annotations": {"tracked-by": "gitops", "deployment.kubernetes.io/revision": "4"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "App", "name": "a", "uid": "x"}],
        "finalizers": ["somebody/else"],
        "managedFields": [{}],
    },
    "spec": {
        "replicas": 7,
        "paused": True,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web", "tier": "front"}, "annotations": {"inject": "true"}},
            "spec": {
                "initContainers": [{"name": "wait", "image": "wait:1"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "web:1",
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "B", "value": "2"},
                            {"name": "C", "value": "$(B)"},
                        ],
                    },
                    {"name": "side", "image": "side:1"},
                ],
            },
        },
    },
    "status": {"replicas": 7},
}
IDENTITY = ForkIdentity(
    "f-box-web", "box-run", {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "r"}
)
FREE = ForkPermissions(is_home=True, is_free=True)
OWN = {FORK_LABEL: "f-box-web", "dayfly.dev/run": "box-run", "app.kubernetes.io/managed-by": "dayfly"}


def unit(*env: EnvChange, images=(), patch=None) -> Unit:
    of = Baseline(kind="Deployment", namespace="shop", name="web")
    return Unit(name="web", kind="fork", fork=ForkUnit(baseline=of, env=env, images=images, patch=patch))


def rendered(*env: EnvChange, inputs=None, hosts=None, permissions=ForkPermissions(is_home=True), **changes):  # noqa: B008 - it never changes
    before = copy.deepcopy(BASELINE)
    manifest = render_fork(
        unit(*env, **changes), BASELINE, IDENTITY, inputs=inputs or {}, hosts=hosts or {}, permissions=permissions
    )
    assert before == BASELINE, "the baseline must not change"
    return manifest


def main_of(manifest):
    return manifest["spec"]["template"]["spec"]["containers"][0]


class TestIdentity:
    def test_fork_has_its_own_identity(self):
        """Labels and annotations of other tools are removed. Selector, owner, name and zero replicas are the fork's."""
        manifest = rendered()
        meta, spec = manifest["metadata"], manifest["spec"]
        assert set(meta) == {"name", "namespace", "labels", "annotations", "ownerReferences"}
        assert (meta["name"], meta["namespace"], meta["labels"]) == ("f-box-web", "shop", OWN)
        assert set(meta["annotations"]) == {"dayfly.dev/form", "dayfly.dev/replicas"}
        assert meta["ownerReferences"] == [IDENTITY.owner]
        assert (spec["replicas"], spec["selector"]) == (0, {"matchLabels": {FORK_LABEL: "f-box-web"}})
        assert "paused" not in spec
        assert spec["template"]["metadata"] == {"labels": OWN, "annotations": {"inject": "true"}}
        assert "status" not in manifest

    def test_fork_has_one_replica_by_default(self):
        assert rendered()["metadata"]["annotations"]["dayfly.dev/replicas"] == "1"
        patched = rendered(patch={"type": "merge", "value": {"spec": {"replicas": 3}}})
        assert patched["metadata"]["annotations"]["dayfly.dev/replicas"] == "3"
        assert patched["spec"]["replicas"] == 0

    @pytest.mark.parametrize(
        ("wished", "noted"),
        [(1, "1"), (64, "64"), (None, "1"), (0, ""), (65, ""), (True, ""), ("2", ""), (1.5, "")],
    )
    def test_replicas_must_be_an_integer_within_the_limit(self, wished, noted):
        said = {"type": "merge", "value": {"spec": {"replicas": wished}}}
        if noted:
            assert rendered(patch=said)["metadata"]["annotations"]["dayfly.dev/replicas"] == noted
            return
        with pytest.raises(CannotRenderError, match=r"spec\.replicas must be a whole number from 1 to 64"):
            rendered(patch=said)

    @pytest.mark.parametrize(
        "patch",
        [
            {"metadata": {"name": "web", "namespace": "other", "labels": {"app": "web", "mine": "x"}}},
            {"spec": {"template": {"metadata": {"labels": {"app": "web", "tier": "back", "mine": "x"}}}}},
            {"spec": {"selector": {"matchLabels": {"app": "web"}}}},
            {"spec": {"template": {"metadata": None}}},
        ],
        ids=["object", "pods", "selector", "nothing of the pods"],
    )
    def test_patch_cannot_change_the_identity_of_the_fork(self, patch):
        """Entries with keys of the baseline are removed. In a free namespace, other labels stay."""
        manifest = rendered(patch={"type": "merge", "value": patch}, permissions=FREE)
        assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == ("f-box-web", "shop")
        for labels in (manifest["metadata"]["labels"], manifest["spec"]["template"]["metadata"]["labels"]):
            assert not labels.keys() & {"app", "tier", "release"}
            assert labels.items() >= OWN.items()
        assert manifest["spec"]["selector"] == {"matchLabels": {FORK_LABEL: "f-box-web"}}

    def test_form_differs_with_changes_and_addresses(self):
        def form(manifest):
            return manifest["metadata"]["annotations"][FORM_ANNOTATION]

        wished = EnvChange(name="A", value="x")
        assert form(rendered()) == form(rendered())
        assert form(rendered()) != form(rendered(wished))
        of = {"kind": "Deployment", "namespace": "shop", "name": "api"}
        told = EnvChange(name="A", source={"fork": {"forkOf": of, "expression": "{{.Service.Host}}"}})
        hosts = [{("shop", "api"): ("api.svc", port)} for port in (80, 81)]
        assert form(rendered(told, hosts=hosts[0])) != form(rendered(told, hosts=hosts[1]))


class TestChanges:
    def test_variables_are_changed_added_and_deleted(self):
        """A changed variable keeps its position, because `$(B)` refers to an earlier variable."""
        changes = [EnvChange(name="B", value="x"), EnvChange(name="D", value="new"), EnvChange(name="A", delete=True)]
        wanted = [{"name": "B", "value": "x"}, {"name": "C", "value": "$(B)"}, {"name": "D", "value": "new"}]
        assert main_of(rendered(*changes))["env"] == wanted

    def test_variables_of_other_containers_are_changed(self):
        manifest = rendered(
            EnvChange(name="X", value="1", container="side"), EnvChange(name="Y", value="2", container="wait")
        )
        pod = manifest["spec"]["template"]["spec"]
        assert pod["containers"][1]["env"] == [{"name": "X", "value": "1"}]
        assert pod["initContainers"][0]["env"] == [{"name": "Y", "value": "2"}]

    def test_outputs_are_references_and_absent_ones_empty(self):
        """The Deployment refers to the Secret and contains no value."""
        changes = [EnvChange(name="A", input="db.make.url"), EnvChange(name="B", input="db.make.none")]
        inputs = {"db.make.url": PodSecretKey("box-db", "make.url"), "db.make.none": None}
        env = main_of(rendered(*changes, inputs=inputs))["env"]
        reference = {"secretKeyRef": {"name": "box-db", "key": "make.url"}}
        assert env[:2] == [{"name": "A", "valueFrom": reference}, {"name": "B", "value": ""}]

    def test_variables_refer_to_objects_of_the_namespace(self):
        sources = {"configMap": {"name": "c", "key": "k"}, "secret": {"name": "s", "key": "k", "optional": True}}
        changes = [EnvChange(name=kind, source={kind: of}) for kind, of in sources.items()]
        env = {item["name"]: item for item in main_of(rendered(*changes))["env"]}
        assert env["configMap"]["valueFrom"] == {"configMapKeyRef": sources["configMap"]}
        assert env["secret"]["valueFrom"] == {"secretKeyRef": sources["secret"]}

    def test_variables_contain_addresses_of_other_forks(self):
        of = {"kind": "Deployment", "namespace": "shop", "name": "api"}
        told = {"fork": {"forkOf": of, "expression": "http://{{ .Service.Host }}:{{.Service.Port}}/"}}
        change = EnvChange(name="API", source=told)
        env = main_of(rendered(change, hosts={("shop", "api"): ("f-api.shop.svc", 8080)}))["env"]
        assert env[-1] == {"name": "API", "value": "http://f-api.shop.svc:8080/"}
        for hosts in ({}, {("shop", "api"): ("f-api.shop.svc", 0)}):
            with pytest.raises(CannotRenderError) as refused:
                rendered(change, hosts=hosts)
            assert refused.value.reason == "ForkWithoutService"

    def test_fork_without_port_has_an_address_without_port(self):
        of = {"kind": "Deployment", "namespace": "shop", "name": "api"}
        change = EnvChange(name="API", source={"fork": {"forkOf": of, "expression": "{{ .Service.Host }}"}})
        env = main_of(rendered(change, hosts={("shop", "api"): ("f-api.shop.svc", 0)}))["env"]
        assert env[-1] == {"name": "API", "value": "f-api.shop.svc"}

    def test_images_of_containers_are_changed(self):
        images = ({"image": "web:2"}, {"image": "side:2", "container": "side"})
        containers = rendered(images=images)["spec"]["template"]["spec"]["containers"]
        assert [container["image"] for container in containers] == ["web:2", "side:2"]

    def test_patches_are_applied_last_by_their_type(self):
        """A strategic patch merges containers by name, a merge patch replaces the list, and a JSON patch uses paths."""
        strategic = {
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:9", "args": ["x"]}]}}}
        }
        patched = main_of(rendered(images=({"image": "web:2"},), patch={"type": "strategic", "value": strategic}))
        assert (patched["image"], patched["args"], len(patched["env"])) == ("web:9", ["x"], 3)
        patched = rendered(patch={"type": "merge", "value": strategic}, permissions=FREE)
        assert patched["spec"]["template"]["spec"]["containers"] == [{"name": "main", "image": "web:9", "args": ["x"]}]
        operation = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:8"}
        assert main_of(rendered(patch={"type": "json", "value": [operation]}))["image"] == "web:8"

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("json", [{"op": "remove", "path": "/spec/nothing"}]),
            (
                "json",
                [{"op": "remove", "path": "/metadata/uid"}],
            ),  # the fork does not keep fields that the API server sets
            ("json", {"not": "a list"}),
            ("strategic", {"spec": {"template": {"spec": {"containers": [{"image": "no name"}]}}}}),
            ("merge", {"spec": None}),
            ("merge", {"spec": {"template": "text"}}),
            ("merge", "text"),
            ("merge", {"spec": {"replicas": 0}}),
            ("merge", {"spec": {"replicas": "many"}}),
        ],
    )
    def test_mismatched_patch_is_refused(self, kind, value):
        with pytest.raises(CannotRenderError) as refused:
            rendered(patch={"type": kind, "value": value})
        assert refused.value.reason == "BadPatch"

    def test_unknown_container_is_refused(self):
        with pytest.raises(CannotRenderError, match="it has main, side, wait"):
            rendered(EnvChange(name="A", value="1", container="nosuch"))


class TestServices:
    def of(self, name, selector, ports=(80,), labels=None, **spec):
        said = [{"name": f"p{port}", "port": port, "targetPort": "http", "nodePort": 30000} for port in ports]
        spec = {"selector": selector, "ports": said, **spec}
        return msgspec.convert(
            {"metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": spec}, ForkService
        )

    def test_service_that_selects_the_baseline_is_found(self):
        """The whole selector must match. The Service with the same name comes first, then by name. Others never match."""
        labels = {"app": "web", "tier": "front"}
        every = [
            self.of("zz", {"tier": "front"}),
            self.of("none", None),
            self.of("empty", {}),
            self.of("other", {"app": "web", "tier": "back"}),
            self.of("aa", {"app": "web"}, labels={"dayfly.dev/run": "r"}),
        ]
        assert find_service(every, "web", labels).metadata.name == "zz"
        assert find_service([*every, self.of("web", {"app": "web"})], "web", labels).metadata.name == "web"
        assert find_service(every[1:], "web", labels) is None

    def test_service_of_a_fork_selects_only_its_pods(self):
        manifest = render_service(self.of("web", {"app": "web"}, ports=(80, 81)), IDENTITY)
        assert manifest["metadata"] == {
            "name": "f-box-web",
            "namespace": "shop",
            "labels": {**OWN, "dayfly.dev/like": "web"},
            "ownerReferences": [IDENTITY.owner],
        }
        assert manifest["spec"]["selector"] == {FORK_LABEL: "f-box-web"}
        assert [port["port"] for port in manifest["spec"]["ports"]] == [80, 81]
        assert "nodePort" not in manifest["spec"]["ports"][0]
        assert "clusterIP" not in manifest["spec"]
        assert (first_port(self.of("web", {}, ports=(80, 81))), first_port(self.of("web", {}, ports=()))) == (80, 0)
        headless = render_service(self.of("web", {"app": "web"}, clusterIP="None"), IDENTITY)
        assert headless["spec"]["clusterIP"] == "None"


def test_fork_of_unlabelled_pods_has_its_own_labels():
    bare = copy.deepcopy(BASELINE)
    del bare["spec"]["template"]["metadata"], bare["metadata"]["labels"]
    manifest = render_fork(unit(), bare, IDENTITY, inputs={}, hosts={}, permissions=ForkPermissions(is_home=True))
    assert manifest["spec"]["template"]["metadata"]["labels"] == manifest["metadata"]["labels"] == OWN


def test_labels_added_by_a_patch_are_kept():
    bare = copy.deepcopy(BASELINE)
    del bare["spec"]["template"]["metadata"], bare["metadata"]["labels"]
    added = {"metadata": {"labels": {"mine": "x"}}}
    wished = unit(patch={"type": "merge", "value": {**added, "spec": {"template": added}}})
    manifest = render_fork(wished, bare, IDENTITY, inputs={}, hosts={}, permissions=FREE)
    assert manifest["spec"]["template"]["metadata"]["labels"] == manifest["metadata"]["labels"] == OWN | {"mine": "x"}
