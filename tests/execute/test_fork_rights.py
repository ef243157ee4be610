"""Differences between a fork and its baseline: refused ones with their messages, allowed ones, and random patches."""

from __future__ import annotations

import random
import re

import pytest
from tests.execute.baselines import EVERY
from tests.execute.rendered_forks import AWAY, FREE, HOME, OUTPUT, forked, json, main, pod, strategic
from tests.policy.overlays import Source

from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.lifecycle import EnvChange

POD = "spec.template.spec"
MAIN = f"{POD}.containers[main]"


def secret(**where):
    return {"name": "X", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k", **where}}}


def mount(**more):
    return {"name": "v", "mountPath": "/v", **more}


def volume(**source):
    return pod(volumes=[{"name": "v", **source}])


def mounted(source, **more):
    """Return a new volume with a mount."""
    made = volume(**source)
    made["value"]["spec"]["template"]["spec"]["containers"] = [{"name": "main", "volumeMounts": [mount(**more)]}]
    return made


ROOT = {"hostPath": {"path": "/"}}
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}

# By the gained right: the patch, the field in the message, and words of the message.
ANYWHERE = {
    "privileged": (main(securityContext={"privileged": True}), f"{MAIN}.securityContext", "other rights on the node"),
    "capabilities": (main(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), f"{MAIN}.securityContext", ""),
    "root": (main(securityContext={"runAsNonRoot": None, "runAsUser": 0}), f"{MAIN}.securityContext", ""),
    "no limits at all": (main(securityContext={"$patch": "delete"}), f"{MAIN}.securityContext", ""),
    "root for the pod": (pod(securityContext={"runAsUser": 0}), f"{POD}.securityContext", ""),
    "sysctls": (pod(securityContext={"sysctls": [{"name": "a", "value": "b"}]}), f"{POD}.securityContext", ""),
    "ServiceAccount": (pod(serviceAccountName="admin"), f"{POD}.serviceAccountName", "rights of a ServiceAccount"),
    "ServiceAccount of old": (pod(serviceAccount="admin"), f"{POD}.serviceAccount", "rights of a ServiceAccount"),
    "token": (pod(automountServiceAccountToken=True), f"{POD}.automountServiceAccountToken", "a ServiceAccount"),
    "token by default": (pod(automountServiceAccountToken=None), f"{POD}.automountServiceAccountToken", "is missing"),
    "host network": (pod(hostNetwork=True), f"{POD}.hostNetwork", "access the node"),
    "host processes": (pod(hostPID=True), f"{POD}.hostPID", "access the node"),
    "host IPC": (pod(hostIPC=True), f"{POD}.hostIPC", "access the node"),
    "host users": (pod(hostUsers=True), f"{POD}.hostUsers", "access the node"),
    "shared processes": (pod(shareProcessNamespace=True), f"{POD}.shareProcessNamespace", ""),
    "node": (pod(nodeName="control-plane"), f"{POD}.nodeName", "choose the nodes on which"),
    "node selector": (pod(nodeSelector={"a": "b"}), f"{POD}.nodeSelector", "choose the nodes on which"),
    "affinity": (pod(affinity={"nodeAffinity": {"x": 1}}), f"{POD}.affinity", "choose the nodes on which"),
    "tolerations": (pod(tolerations=[{"operator": "Exists"}]), f"{POD}.tolerations", "choose the nodes on which"),
    "scheduler": (pod(schedulerName="mine"), f"{POD}.schedulerName", "choose the nodes on which"),
    "runtime": (pod(runtimeClassName="weak"), f"{POD}.runtimeClassName", "choose the nodes on which"),
    "priority class": (pod(priorityClassName="system-node-critical"), f"{POD}.priorityClassName", "pods of other"),
    "priority": (pod(priority=2**30), f"{POD}.priority", "pods of other users"),
    "preemption": (pod(preemptionPolicy="Never"), f"{POD}.preemptionPolicy", "pods of other users"),
    "endless end": (pod(terminationGracePeriodSeconds=2**31), f"{POD}.terminationGracePeriodSeconds", "differs from"),
    "host names": (pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["x"]}]), f"{POD}.hostAliases", "differs from"),
    "claims of devices": (pod(resourceClaims=[{"name": "x"}]), f"{POD}.resourceClaims", "differs from"),
    "unknown field of a pod": (pod(newField={"all": True}), f"{POD}.newField", "differs from"),
    "of a container": (main(newField=1), f"{MAIN}.newField", "differs from"),
    "of a Deployment": (json({"op": "add", "path": "/spec/newField", "value": 1}), "spec.newField", "differs from"),
    "of an object": (json({"op": "add", "path": "/data", "value": {}}), "data", "differs from"),
    "host port": (main(ports=[{"containerPort": 1, "hostPort": 1}]), f"{MAIN}.ports[0].hostPort", "port of the node"),
    "host address": (main(ports=[{"containerPort": 1, "hostIP": "::"}]), f"{MAIN}.ports[0].hostIP", "of the node"),
    "probe of any address": (
        main(livenessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}),
        f"{MAIN}.livenessProbe.httpGet.host",
        "make the node send requests to any address",
    ),
    "probe of any socket": (
        main(startupProbe={"tcpSocket": {"port": 80, "host": "10.0.0.1"}}),
        f"{MAIN}.startupProbe.tcpSocket.host",
        "the node send",
    ),
    "hook to any address": (
        main(lifecycle={"preStop": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}),
        f"{MAIN}.lifecycle.preStop.httpGet.host",
        "the node send",
    ),
    "devices": (
        main(resources={"limits": {"devices.example/kvm": "1"}}),
        f"{MAIN}.resources.limits[devices.example/kvm]",
        "a device of the node",
    ),
    "amounts that are a list": (main(resources={"limits": ["cpu"]}), f"{MAIN}.resources.limits", "must be a mapping"),
    "amounts that are text": (main(resources={"requests": "cpu"}), f"{MAIN}.resources.requests", "must be a mapping"),
    "an amount that is a list": (main(resources={"limits": {"cpu": [1]}}), f"{MAIN}.resources.limits[cpu]", "quantity"),
    "claims of a container": (main(resources={"claims": [{"name": "x"}]}), f"{MAIN}.resources.claims", ""),
    "another container": (pod(containers=[{"name": "late", "image": "x"}]), f"{POD}.containers", "own: main, side"),
    "another init container": (
        pod(initContainers=[{"name": "late", "image": "x", "securityContext": {"privileged": True}}]),
        f"{POD}.initContainers",
        "own: migrate",
    ),
    "container for an init container": (
        json(
            {"op": "move", "from": "/spec/template/spec/initContainers/0", "path": "/spec/template/spec/containers/-"}
        ),
        f"{POD}.containers",
        "own: main, side",
    ),
    "container twice": (
        json({"op": "copy", "from": "/spec/template/spec/containers/0", "path": "/spec/template/spec/containers/-"}),
        f"{POD}.containers",
        "own: main, side",
    ),
    "container of another kind": (
        json({"op": "add", "path": "/spec/template/spec/containers/-", "value": "main"}),
        f"{POD}.containers",
        "",
    ),
    "ephemeral container": (pod(ephemeralContainers=[{"name": "e"}]), f"{POD}.ephemeralContainers", ""),
    "lasting init container": (
        pod(initContainers=[{"name": "migrate", "restartPolicy": "Always"}]),
        f"{POD}.initContainers[migrate].restartPolicy",
        "",
    ),
    "block device": (main(volumeDevices=[{"name": "v", "devicePath": "/d"}]), f"{MAIN}.volumeDevices", "the node"),
    "role of a cloud": (
        strategic(metadata={"annotations": {"iam.amazonaws.com/role": "admin"}}),
        "spec.template.metadata.annotations[iam.amazonaws.com/role]",
        "an instruction to another tool",
    ),
    "no sidecar": (
        strategic(metadata={"annotations": {"sidecar.istio.io/inject": None}}),
        "spec.template.metadata.annotations[sidecar.istio.io/inject]",
        "an instruction to another tool",
    ),
    "order on the object": (
        {"type": "merge", "value": {"metadata": {"annotations": {"operator.example/item": "all"}}}},
        "metadata.annotations[operator.example/item]",
        "an instruction to another tool",
    ),
    "label that a Service selects": (
        strategic(metadata={"labels": {"role": "payments"}}),
        "spec.template.metadata.labels[role]",
        "of other workloads select its pods",
    ),
    "label on the object": (
        {"type": "merge", "value": {"metadata": {"labels": {"role": "payments"}}}},
        "metadata.labels[role]",
        "an instruction to another tool",
    ),
    "finalizers of pods": (
        strategic(metadata={"finalizers": ["mine/forever"]}),
        "spec.template.metadata.finalizers",
        "prevent the deletion",
    ),
    "name of pods": (strategic(metadata={"namespace": "kube-system"}), "spec.template.metadata.namespace", ""),
    "gates": (pod(schedulingGates=[{"name": "mine/gate"}]), f"{POD}.schedulingGates", ""),
    "held for ever": (
        {"type": "merge", "value": {"spec": {"paused": True}}},
        "spec.paused",
        "prevent the fork from starting",
    ),
    "a whole list by a merge patch": (
        {"type": "merge", "value": {"spec": {"template": {"spec": {"initContainers": [{"name": "migrate"}]}}}}},
        f"{POD}.initContainers[migrate].securityContext",
        "is missing, but a fork must keep this field",
    ),
    "node's folders": (volume(**ROOT), f"{POD}.volumes", ""),
    "token as a volume": (volume(**TOKEN), f"{POD}.volumes", ""),
}

AT_HOME = {
    "node's folders": (mounted(ROOT), f"{POD}.volumes[v].hostPath", "access the node"),
    "token": (mounted(TOKEN), f"{POD}.volumes[v].projected.sources[0].serviceAccountToken", "a ServiceAccount"),
    "bundle": (
        mounted({"projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}),
        f"{POD}.volumes[v].projected.sources[0].clusterTrustBundle",
        "",
    ),
    "driver": (mounted({"csi": {"driver": "secrets-store"}}), f"{POD}.volumes[v].csi", ""),
    "server": (mounted({"nfs": {"server": "x", "path": "/"}}), f"{POD}.volumes[v].nfs", ""),
    "claim of one's own": (mounted({"ephemeral": {"x": 1}}), f"{POD}.volumes[v].ephemeral", ""),
    "two sources": (mounted({"emptyDir": {}, **ROOT}), f"{POD}.volumes[v].hostPath", ""),
    "propagation": (
        mounted({"emptyDir": {}}, mountPropagation="Bidirectional"),
        f"{MAIN}.volumeMounts[v].mountPropagation",
        "access the node",
    ),
    "the other container's token": (
        main(volumeMounts=[{"name": "identity", "mountPath": "/stolen"}]),
        f"{MAIN}.volumeMounts[identity]",
        "not as the baseline does",
    ),
    "the baseline's volume as another": (
        pod(volumes=[{"name": "tmp", "emptyDir": None, **ROOT}]),
        f"{POD}.volumes[tmp].hostPath",
        "access the node",
    ),
    "value from a file": (
        main(env=[{"name": "X", "valueFrom": {"fileKeyRef": {"volumeName": "identity", "path": "t", "key": "k"}}}]),
        f"{MAIN}.env[X].valueFrom.fileKeyRef",
        "",
    ),
    "all variables of another kind": (
        main(envFrom=[{"fileRef": {"volumeName": "identity"}}]),
        f"{MAIN}.envFrom[0].fileRef",
        "",
    ),
    "pull secrets of another form": (
        pod(imagePullSecrets=[{"name": "x", "namespace": "kube-system"}]),
        f"{POD}.imagePullSecrets",
        "",
    ),
}

ELSEWHERE = {
    "Secret": (main(env=[secret()]), f"{MAIN}.env[X].valueFrom.secretKeyRef", "another namespace than the sandbox's"),
    "another key": (
        main(env=[secret(name="web")]),
        f"{MAIN}.env[X].valueFrom.secretKeyRef",
        "another namespace than the sandbox's",
    ),
    "another key in place": (
        main(env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"key": "root"}}}]),
        f"{MAIN}.env[TOKEN].valueFrom.secretKeyRef",
        "another namespace than the sandbox's",
    ),
    "ConfigMap": (
        main(env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "k"}}}]),
        f"{MAIN}.env[X].valueFrom.configMapKeyRef",
        "another namespace than the sandbox's",
    ),
    "all of a Secret": (
        main(envFrom=[{"secretRef": {"name": "web"}}]),
        f"{MAIN}.envFrom[0]",
        "another namespace than the sandbox's",
    ),
    "volume": (mounted({"secret": {"secretName": "web"}}), f"{POD}.volumes", ""),
    "empty volume": (volume(emptyDir={}), f"{POD}.volumes", ""),
    "mount": (main(volumeMounts=[{"name": "settings", "mountPath": "/s"}]), f"{MAIN}.volumeMounts", ""),
    "pull secrets": (
        pod(imagePullSecrets=[{"name": "admin"}]),
        f"{POD}.imagePullSecrets",
        "another namespace than the sandbox's",
    ),
    "output of another sandbox": (
        main(env=[{"name": "URL", "valueFrom": {"secretKeyRef": {"name": "box-db", "key": "make.root"}}}]),
        f"{MAIN}.env[URL].valueFrom.secretKeyRef",
        "another namespace than the sandbox's",
    ),
}


def _refusal(patch, **more):
    with pytest.raises(CannotRenderError) as refused:
        forked(patch, **more)
    assert refused.value.reason == "ExceedsBaseline"
    return str(refused.value)


class TestRefused:
    """The message has the field, the gained right, and the solution."""

    @pytest.mark.parametrize(("patch", "field", "words"), ANYWHERE.values(), ids=ANYWHERE)
    @pytest.mark.parametrize("permissions", [HOME, AWAY], ids=["home", "elsewhere"])
    def test_anywhere(self, permissions, patch, field, words):
        said = _refusal(patch, permissions=permissions)
        assert f" {field}" in said
        assert words in said
        assert "pods would have more rights than those of Deployment shop/web" in said
        assert said.endswith("an administrator can also label namespace shop dayfly.dev/forks=free")

    @pytest.mark.parametrize(("patch", "field", "words"), AT_HOME.values(), ids=AT_HOME)
    def test_in_the_sandboxes_own_namespace(self, patch, field, words):
        said = _refusal(patch)
        assert f" {field}" in said
        assert words in said

    @pytest.mark.parametrize(("patch", "field", "words"), ELSEWHERE.values(), ids=ELSEWHERE)
    def test_elsewhere(self, patch, field, words):
        """Changes that are allowed at home read Secrets of another namespace elsewhere."""
        said = _refusal(patch, permissions=AWAY)
        assert f" {field}" in said
        assert words in said
        assert forked(patch)

    def test_by_a_variable_elsewhere(self):
        """A variable is enough; no patch is needed."""
        for kind in ("secret", "configMap"):
            change = EnvChange(name="X", source={kind: {"name": "web", "key": "root"}})
            said = _refusal(None, permissions=AWAY, env=[change])
            assert f"{MAIN}.env[X].valueFrom.{kind}KeyRef would read a Secret or ConfigMap of another namespace" in said
            assert forked(None, env=[change])

    def test_privileged_baseline_allows_no_other_rights(self):
        """The fork keeps the baseline's rights but gains none: no other path of the node, and no writable mount."""
        kept = forked(None, of="agent")["spec"]["template"]["spec"]
        wanted = EVERY["agent"]["spec"]["template"]["spec"]
        assert {**kept, "containers": 0} == {**wanted, "containers": 0}
        for patch, field in (
            (main(volumeMounts=[{"mountPath": "/state", "name": "root", "readOnly": False}]), "volumeMounts[root]"),
            (main(volumeMounts=[{"mountPath": "/more", "name": "root"}]), "volumeMounts[root]"),
            (pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]), "volumes[root].hostPath"),
            (main(ports=[{"containerPort": 9100, "hostPort": 22}]), "ports[metrics].hostPort"),
            (main(resources={"limits": {"vendor.example/gpu": "8"}}), "limits[vendor.example/gpu]"),
            (main(livenessProbe={"httpGet": {"host": "10.0.0.1"}}), "livenessProbe.httpGet.host"),
            (pod(runtimeClassName=None), "runtimeClassName is missing"),
            (pod(nodeSelector=None), "nodeSelector is missing"),
        ):
            assert field in _refusal(patch, of="agent")

    def test_further_problems_are_counted(self):
        said = _refusal(pod(hostNetwork=True, hostPID=True, hostIPC=True, nodeName="x", priority=1))
        assert "; and 2 more" in said
        said = _refusal(pod(hostNetwork=True, hostPID=True, hostIPC=True))
        assert all(field in said for field in ("hostNetwork", "hostPID", "hostIPC"))
        assert "more. Remove" not in said

    def test_reserved_keys_are_refused_in_a_free_namespace(self):
        """The operator writes the Deployment and controllers write its pods, so no admission policy of Dayfly would apply."""
        for patch, field in (
            (
                strategic(metadata={"labels": {"dayfly.dev/unit": "x"}}),
                "spec.template.metadata.labels[dayfly.dev/unit]",
            ),
            (strategic(metadata={"annotations": {"dayfly.dev/order": "x"}}), "metadata.annotations[dayfly.dev/order]"),
            (strategic(metadata={"finalizers": ["dayfly.dev/record"]}), "spec.template.metadata.finalizers"),
            (pod(schedulingGates=[{"name": "dayfly.dev/claim"}]), f"{POD}.schedulingGates"),
            ({"type": "merge", "value": {"metadata": {"labels": {"dayfly.dev/like": "x"}}}}, "labels[dayfly.dev/like]"),
            # An invalid name could match any name.
            (_merged(metadata={"finalizers": [1]}), "spec.template.metadata.finalizers"),
            (_merged(spec={"schedulingGates": [{"name": 1}]}), f"{POD}.schedulingGates"),
            (_merged(spec={"schedulingGates": ["x/y", {}]}), f"{POD}.schedulingGates"),
        ):
            for permissions in (FREE, HOME):
                assert f"{field} begins with dayfly.dev/" in _refusal(patch, permissions=permissions)


def _merged(**template):
    return {"type": "merge", "value": {"spec": {"template": template}}}


ALLOWED = {
    "image": main(image="web:2", imagePullPolicy="Always"),
    "command": main(command=["sh"], args=["-c", "x"], workingDir="/tmp", stdin=True, tty=True),
    "no command": main(command=None, args=None),
    "env": main(env=[{"name": "MODE", "value": "forked"}, {"name": "TOKEN", "$patch": "delete"}]),
    "fields": main(env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
    "the outputs that it reads": main(env=[{"name": "AGAIN", "valueFrom": OUTPUT}]),
    "resources": main(resources={"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}),
    "ports": main(ports=[{"containerPort": 9000, "name": "debug"}]),
    "probes": main(readinessProbe=None, livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 5}),
    "probe of itself": main(startupProbe={"httpGet": {"path": "/", "port": 1, "httpHeaders": [{"name": "a"}]}}),
    "grpc": main(livenessProbe={"grpc": {"port": 1}}),
    "hooks": main(lifecycle={"preStop": {"sleep": {"seconds": 5}}, "postStart": {"exec": {"command": ["true"]}}}),
    "init container": pod(initContainers=[{"name": "migrate", "command": ["true"]}]),
    "replicas": {"type": "merge", "value": {"spec": {"replicas": 64}}},
    "rollout": {"type": "merge", "value": {"spec": {"strategy": {"type": "Recreate"}, "minReadySeconds": 1}}},
    "notes": strategic(metadata={"annotations": {"prometheus.io/scrape": "true"}}),
    "the baseline's own again": pod(serviceAccountName="web", securityContext={"runAsUser": 1000}),
    "the baseline's labels are left behind": strategic(metadata={"labels": {"app": "web", "tier": "back"}}),
}
ALLOWED_AT_HOME = {
    "Secret": main(env=[secret(optional=True)]),
    "all of a ConfigMap": main(envFrom=[{"configMapRef": {"name": "c"}, "prefix": "P_"}]),
    "Secret as files": mounted({"secret": {"secretName": "s", "items": [{"key": "a", "path": "b"}]}}, subPath="b"),
    "claim": mounted({"persistentVolumeClaim": {"claimName": "c"}}, readOnly=False),
    "memory": mounted({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}),
    "fields as files": mounted({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
    "several": mounted({"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}}),
    "the baseline's claim elsewhere": main(volumeMounts=[{"name": "settings", "mountPath": "/s"}]),
    "without a volume": pod(volumes=[{"name": "identity", "$patch": "delete"}]),
    "pull secrets": pod(imagePullSecrets=[{"name": "mine"}]),
}


class TestAllowed:
    @pytest.mark.parametrize("patch", ALLOWED.values(), ids=ALLOWED)
    @pytest.mark.parametrize("permissions", [HOME, AWAY], ids=["home", "elsewhere"])
    def test_anywhere(self, permissions, patch):
        assert forked(patch, permissions=permissions)

    @pytest.mark.parametrize("patch", ALLOWED_AT_HOME.values(), ids=ALLOWED_AT_HOME)
    def test_in_the_sandboxes_own_namespace(self, patch):
        assert forked(patch)

    @pytest.mark.parametrize("name", EVERY)
    @pytest.mark.parametrize("permissions", [HOME, AWAY], ids=["home", "elsewhere"])
    def test_fork_without_a_patch_is_allowed(self, name, permissions):
        assert forked(None, of=name, permissions=permissions, images=({"image": "other:1"},))

    @pytest.mark.parametrize("patch", [row[0] for row in (*ANYWHERE.values(), *AT_HOME.values())])
    def test_free_namespace_allows_every_change(self, patch):
        assert forked(patch, permissions=FREE)


# --- random patches -------------------------------------------------------------------------------------------------
# The oracle does not use the rows of the product: it writes both pods as lines and checks each line that differs.

_C = r"(containers|initContainers)\[\w+\]"
_ANY = re.compile(
    rf"{_C}\.((image|imagePullPolicy|workingDir|stdin|stdinOnce|tty|terminationMessage\w+)=|(command|args|resizePolicy)\b"
    r"|env\[[^]]*\]\.(name|value|valueFrom\.(fieldRef|resourceFieldRef)\.\w+)="
    r"|ports\[[^]]*\]\.(name|containerPort|protocol)="
    r"|(livenessProbe|readinessProbe|startupProbe|lifecycle)\b(?!.*\.host=)"
    r"|resources\.(requests|limits)\.[\w-]+=)"
)
_HOME = re.compile(
    rf"{_C}\.(env\[[^]]*\]\.valueFrom\.(secretKeyRef|configMapKeyRef)\.\w+=|envFrom\[|volumeMounts\[)"
    r"|imagePullSecrets\[[^]]*\]\.name="
    r"|volumes\[[^]]*\]\.(name|secret|configMap|persistentVolumeClaim|emptyDir|downwardAPI"
    r"|projected\.(defaultMode|sources\[\d+\]\.(secret|configMap|downwardAPI)))\b"
)
_OURS = re.compile(rf"{_C}\.env\[[^]]*\]\.valueFrom\.secretKeyRef\.(name='box-db'|key='make.url')")


def lines(value, here=""):
    """Yield each leaf as `path=value`, with the names of named items in the path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from lines(inner, f"{here}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            name = item.get("name") if isinstance(item, dict) else None
            yield from lines(item, f"{here}[{name if isinstance(name, str) else index}]")
    elif value is not None and value not in ([], {}):
        yield f"{here}={value!r}"


def escapes(made, before, home):
    """Return added lines that are not allowed, and missing lines of the baseline."""
    now, then = (set(lines(each["spec"]["template"]["spec"])) for each in (made, before))
    free = [_ANY, _OURS, *([_HOME] if home else [])]
    bad = [line for line in now - then if not any(rule.match(line) for rule in free)]
    # Removals are allowed for the environment in every namespace, and for volumes at home.
    free += [
        re.compile(rf"{_C}\.(env|resources\b|\w+Probe|lifecycle|ports)"),
        *([re.compile(r"volumes\[")] if home else []),
    ]
    bad += [line for line in then - now if not any(rule.match(line) for rule in free)]
    pod = made["spec"]["template"]["spec"]
    closed = {
        each.get("name")
        for each in pod.get("volumes") or ()
        if {"hostPath", "csi", "nfs"} & each.keys() or "serviceAccountToken" in str(each)
    }
    kept = before["spec"]["template"]["spec"]
    for field in ("containers", "initContainers"):
        known = {each["name"]: each.get("volumeMounts") or [] for each in kept.get(field) or ()}
        found = [each for each in pod.get(field) or () if isinstance(each, dict) and each["name"] in known]
        bad += ["a container twice"] * (len(found) - len(known))
        for each in found:
            new = [item for item in each.get("volumeMounts") or () if item not in known[each["name"]]]
            bad += [
                item for item in new if item.get("name") in closed or item.get("mountPropagation", "None") != "None"
            ]
    notes = made["spec"]["template"]["metadata"]
    noted = before["spec"]["template"]["metadata"].get("annotations") or {}
    ours = {"dayfly.dev/fork", "dayfly.dev/run", "app.kubernetes.io/managed-by"}
    bad += set(notes["labels"]) - ours
    changed = (notes.get("annotations") or {}).items() ^ noted.items()
    bad += [key for key, _ in changed if not key.startswith(("prometheus.io/", "kubectl.kubernetes.io/"))]
    return bad + [key for key in notes if key not in ("labels", "annotations", "creationTimestamp")]


class Chance:
    """Random patches of all kinds. Most have one hostile change and otherwise harmless ones."""

    def __init__(self, seed):
        self._random, self._source = random.Random(seed), Source(seed, danger=2)

    def patch(self, baseline):
        template = self._source.overlay()
        match self._random.randint(0, 3):
            case 0:
                return {"type": "merge", "value": {"spec": {"template": template}}}
            case 1:
                return {"type": "json", "value": [self._operation(baseline) for _ in range(self._random.randint(1, 3))]}
            case 2:
                harmless = self._random.choice([*ALLOWED.values(), *ALLOWED_AT_HOME.values()])
                hostile = self._random.choice([*ANYWHERE.values(), *AT_HOME.values()])[0]
                return harmless if self._random.random() < 0.5 else hostile
            case _:
                return {"type": "strategic", "value": {"spec": {"template": template}}}

    def _operation(self, baseline):
        places = [place for place, _ in _places(baseline["spec"]["template"], "/spec/template")]
        path, other = self._random.choice(places), self._random.choice(places)
        op = self._random.choice(["add", "remove", "replace", "copy", "move"])
        word = self._random.choice(["", "", "/-", "/hostNetwork", "/securityContext", "/env", "/hostPort", "/x"])
        value = self._random.choice([True, "x", 1, {"privileged": True}, [], {"name": "main"}, self._source.junk(2)])
        return {"op": op, "path": path + word, "from": other, "value": value}


def _places(value, here):
    yield here, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, f"{here}/{str(key).replace('/', '~1')}")


class TestChance:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", EVERY)
    @pytest.mark.parametrize("permissions", [HOME, AWAY], ids=["home", "elsewhere"])
    def test_random_patches_gain_no_rights(self, name, permissions):
        """For every patch, the result differs from the baseline only in allowed fields."""
        chance, passed, refused = Chance(f"{name} {permissions.is_home}"), 0, 0
        for _ in range(400):
            patch = chance.patch(EVERY[name])
            try:
                made = forked(patch, of=name, permissions=permissions)
            except CannotRenderError:
                refused += 1
                continue
            passed += 1
            assert not escapes(made, EVERY[name], permissions.is_home), patch
        assert passed > 20
        assert refused > 100

    def test_oracle_detects_every_refused_patch(self):
        """In a free namespace, the oracle reports each patch of the tables, so the oracle can fail."""
        blind = {
            key
            for table, home in ((ANYWHERE, True), (AT_HOME, True), (ELSEWHERE, False))
            for key, (patch, *_) in table.items()
            if not escapes(forked(patch, permissions=FREE), EVERY["web"], home)
        }
        assert blind == {
            # These fields are outside of the pod, which the oracle reads.
            "of a Deployment",
            "of an object",
            "order on the object",
            "label on the object",
            "held for ever",
            # Current API servers do not have this field.
            "all variables of another kind",
        }


def test_volume_of_the_baseline_is_allowed_in_any_key_order():
    volume = {"hostPath": {"type": "Directory", "path": "/var/lib/agent"}, "name": "root"}
    patch = json({"op": "replace", "path": "/spec/template/spec/volumes/0", "value": volume})
    assert forked(patch, of="agent", env=())["spec"]["template"]["spec"]["volumes"] == [volume]
