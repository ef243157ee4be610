"""Fields that steps may not set: in the manifest, by an input, and in the rendered object."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dayfly.execute.object.render import ObjectIdentity, render_object
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.steps import object_fields
from dayfly.spec.steps.kube_object import InputPlacement, KubeObject, check, refusal
from dayfly.spec.steps.object_fields import RefusedField

IDENTITY = ObjectIdentity("run", "db/make", 1, "shop", {"uid": "r"})
POD: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
FORBIDDEN = "forbidden"


def at(keys: tuple[str, ...], value: Any) -> Any:
    """Nest a value below a path; a `*` is the first item of a list, and in a key any text."""
    for key in reversed(keys):
        value = [value] if key == "*" else {key.replace("*", "x"): value}
    return value


def merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: merged(one.get(key), other.get(key)) for key in {**one, **other}}
    return one if other is None else other


def manifest(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "spec": spec}


def value_of(row: RefusedField) -> Any:
    return row.only.replace("*", "x") if row.only != "*" else FORBIDDEN


KNOWN = [(group, kind, row) for (group, kind), rows in object_fields.OF_KIND.items() for row in rows]
VERSIONS = {"": "v1"}

TEMPLATES = {
    "Deployment": ("apps/v1", ("spec", "template", "spec")),
    "StatefulSet": ("apps/v1", ("spec", "template", "spec")),
    "ReplicaSet": ("apps/v1", ("spec", "template", "spec")),
    "ReplicationController": ("v1", ("spec", "template", "spec")),
    "Job": ("batch/v1", ("spec", "template", "spec")),
    "CronJob": ("batch/v1", ("spec", "jobTemplate", "spec", "template", "spec")),
    "PodTemplate": ("v1", ("template", "spec")),
    "Rollout": ("argoproj.io/v1alpha1", ("spec", "template", "spec")),
    "JobSet": ("jobset.x-k8s.io/v1", ("spec", "replicatedJobs", "*", "template", "spec", "template", "spec")),
}
OF_PODS: dict[str, dict[str, Any]] = {
    "hostNetwork": {"hostNetwork": True},
    "hostNetwork of the wrong type": {"hostNetwork": "true"},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": 1},
    "hostPath": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}]},
    "hostPort": {"containers": [{"ports": [{"containerPort": 1}, {"hostPort": 80}]}]},
    "hostPort of an init container": {"initContainers": [{"ports": [{"hostPort": "80"}]}]},
    "privileged": {"containers": [{"securityContext": {"privileged": True}}]},
    "procMount": {"containers": [{"securityContext": {"procMount": "Unmasked"}}]},
    "capabilities": {"containers": [{"securityContext": {"capabilities": {"add": ["KILL", "SYS_ADMIN"]}}}]},
    "capabilities of the wrong type": {"containers": [{"securityContext": {"capabilities": {"add": "SYS_ADMIN"}}}]},
    "nested capabilities": {"containers": [{"securityContext": {"capabilities": {"add": [["KILL"]]}}}]},
    "seccomp": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "AppArmor": {"containers": [{"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]},
    "SELinux": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
    "sysctl": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "probe": {"containers": [{"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}]},
    "hook": {"containers": [{"lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}}]},
    "host process": {"containers": [{"securityContext": {"windowsOptions": {"hostProcess": True}}}]},
    "priority": {"priorityClassName": "system-node-critical"},
    "claim of a volume": {"volumes": [{"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "pv"}}}}]},
}
HARMLESS: list[dict[str, Any]] = [
    manifest("v1", "Service", type="ClusterIP", clusterIP="None", ports=[{"port": 80}], selector={"a": "b"}),
    manifest("v1", "Service", externalIPs=None, externalName="", loadBalancerIP=None, ports=None),
    manifest("v1", "Service", externalIPs=[], type=None, sessionAffinity="ClientIP"),
    manifest("v1", "PersistentVolumeClaim", volumeName=None, dataSourceRef={"kind": "VolumeSnapshot", "name": "s"}),
    manifest(
        "apps/v1",
        "Deployment",
        template={
            "spec": {
                "hostNetwork": False,
                "hostPID": None,
                "hostUsers": False,
                "hostAliases": [{"ip": "1.1.1.1"}],
                "priorityClassName": "low",
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "sysctls": []},
                "containers": [
                    {
                        "ports": [{"containerPort": 80, "hostPort": 0}],
                        "securityContext": {
                            "privileged": False,
                            "procMount": "Default",
                            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                        },
                        "livenessProbe": {"httpGet": {"port": 80}},
                    }
                ],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
            }
        },
    ),
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"hostNetwork": "true"}},
    manifest("networking.istio.io/v1", "VirtualService", exportTo=["."], hosts=["a"]),
    manifest("networking.k8s.io/v1", "Ingress", rules=[{"host": "a.example"}]),
    manifest("gateway.networking.k8s.io/v1", "HTTPRoute", hostnames=["a.example"], parentRefs=[{"namespace": "infra"}]),
    manifest("db.example.org/v1", "Claim", externalIPs=["1.1.1.1"], volumeName="x", ports=[1], volumes="all"),
]


@pytest.mark.parametrize(("group", "kind", "row"), KNOWN, ids=lambda each: getattr(each, "path", each))
def test_refused_field_of_a_known_kind_has_its_place(group, kind, row):
    made = merged(manifest(f"{group}/v1" if group else "v1", kind), at(row.keys, value_of(row)))
    path, problem = refusal(made)
    assert row.why in problem
    if not row.needed:
        assert [str(key).replace("0", "*") for key in path] == [key.replace("*-", "x-") for key in row.keys]
    with pytest.raises(SpecError) as caught:
        check(KubeObject(manifest=made), (), ("object",))
    assert caught.value.keys == ("object", "manifest", *path)


@pytest.mark.parametrize("fault", OF_PODS)
@pytest.mark.parametrize("kind", TEMPLATES)
def test_pod_template_that_reaches_out_is_refused_in_each_kind(kind, fault):
    version, way = TEMPLATES[kind]
    made = {"apiVersion": version, "kind": kind, **at(way, {**POD, **OF_PODS[fault]})}
    path, problem = refusal(made)
    assert path
    assert problem.startswith("no step may set it")


def test_every_row_for_any_kind_is_refused():
    for row in object_fields.ANYWHERE:
        made = manifest("x.example/v1", "Any", a=[at(row.keys, value_of(row))])
        assert row.why in refusal(made)[1], row.path


@pytest.mark.parametrize("made", HARMLESS, ids=lambda made: made["kind"])
def test_harmless_object_is_not_refused(made):
    assert refusal(made) == ((), "")
    check(KubeObject(manifest=made), (), ())


@pytest.mark.parametrize(
    ("made", "pointer", "as_", "value"),
    [
        (manifest("v1", "Service", externalIPs=[""]), "/spec/externalIPs/0", "string", b"10.0.0.1"),
        (manifest("v1", "Service"), "/spec/externalIPs", "string", b"10.0.0.1"),
        (manifest("v1", "Service", type="ClusterIP"), "/spec/type", "string", b"ExternalName"),
        (manifest("v1", "Service", ports=[{"port": 1}]), "/spec/ports/0/nodePort", "integer", b"30000"),
        (
            manifest("apps/v1", "Deployment", template={"spec": {**POD}}),
            "/spec/template/spec/hostNetwork",
            "boolean",
            b"true",
        ),
        (
            {**manifest("networking.k8s.io/v1", "Ingress"), "metadata": {"annotations": {}}},
            "/metadata/annotations/nginx.ingress.kubernetes.io~1server-snippet",
            "string",
            b"x",
        ),
    ],
)
def test_refused_field_cannot_come_from_an_input(made, pointer, as_, value):
    item = KubeObject(manifest=copy.deepcopy(made), set={pointer: InputPlacement(input="given", as_=as_)})
    if refusal(made)[1] == "":
        with pytest.raises(SpecError, match="cannot come from an input") as caught:
            check(item, ("given",), ())
        assert caught.value.keys == ("set", pointer)
    with pytest.raises(CannotRenderError) as refused:
        render_object(item, {"given": value}, (), IDENTITY)
    assert refused.value.reason == Reason.FIELD_REFUSED
    assert str(refused.value).startswith(("spec.", "metadata."))


@pytest.mark.parametrize(
    "made",
    [
        {"apiVersion": None, "kind": "Service"},
        {"apiVersion": ["v1"], "kind": "Service"},
        {"apiVersion": "v1", "kind": {"a": 1}},
        {"apiVersion": "v1"},
    ],
)
def test_manifest_without_the_name_of_a_kind_is_refused(made):
    assert refusal(made)[1] == "must be a string"


@pytest.mark.parametrize("spec", [None, [], "x", 1, [[{"externalIPs": 1}]], {"ports": {"a": {"nodePort": 1}}}])
def test_malformed_manifest_raises_nothing(spec):
    refusal({"apiVersion": "v1", "kind": "Service", "spec": spec, "metadata": spec})


def test_deployment_with_a_null_spec_is_made_at_rest():
    made = render_object(KubeObject(manifest=manifest("apps/v1", "Deployment") | {"spec": None}), {}, (), IDENTITY)
    assert made["spec"] == {"replicas": 0}
