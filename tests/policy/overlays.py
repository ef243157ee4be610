"""Pod templates for tests of the policy: the pod that they are merged into, and random harmless and hostile ones."""

import copy
import random

from dayfly.execute.pod import policy, render
from dayfly.execute.pod.policy import PodTerms
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.strategic import MergeError
from dayfly.spec.lifecycle import As, Exec, Ref, Unit, UnitInput

OWNER = {
    "apiVersion": "dayfly.dev/v1alpha1",
    "kind": "Run",
    "name": "s-abc",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}
INPUT_SECRET = "o-provision-abcdefghijklmnop"


def attempt(namespace="dayfly-runners", **more):
    return render.PodAttempt(
        run="u",
        run_name="s-abc",
        owner=OWNER,
        resource="db",
        unit="db/seed",
        number=1,
        inputs={"a": b"1", "b": render.PodSecretKey(INPUT_SECRET, "bucket")},
        complete=True,
        namespace=namespace,
        runner="dayfly-runner-abc",
        **more,
    )


def unit(overlay):
    return Unit(
        name="seed",
        kind="exec",
        inputs=(
            UnitInput(name="a", value="1", as_=As(env="A")),
            UnitInput(name="b", from_=Ref(unit="provision", output="bucket"), as_=As(env="B")),
        ),
        exec=Exec(script="#!/bin/sh\n", image="example/x:1", pod_template=overlay),
    )


def merged(overlay, namespace="dayfly-runners", **more):
    """Return the merged pod; None if the template cannot be merged."""
    try:
        return render.render_pod(unit(copy.deepcopy(overlay)), attempt(namespace, **more))
    except (MergeError, CannotRenderError):
        return None


def terms(namespace="dayfly-runners", **more):
    return PodTerms(namespace=namespace, runner="dayfly-runner-abc", secrets=frozenset({INPUT_SECRET}), **more)


def check(overlay, **more):
    """Return the violations of a template as text."""
    pod = merged(overlay)
    assert pod is not None
    return [str(violation) for violation in policy.check(pod, terms(**more))]


_POD_FIELDS = {
    "hostNetwork": [True, False, None, "true", 1],
    "hostPID": [True, False, None],
    "hostIPC": [True, False],
    "hostUsers": [True, False],
    "shareProcessNamespace": [True, False],
    "nodeName": ["node", "", None],
    "serviceAccountName": ["default", "admin", "", None],
    "serviceAccount": ["default", "admin"],
    "automountServiceAccountToken": [True, False, None],
    "restartPolicy": ["Never", "Always", "OnFailure", None],
    "priorityClassName": ["system-node-critical"],
    "runtimeClassName": ["gvisor"],
    "enableServiceLinks": [True, False, None],
    "dnsPolicy": ["Default", "ClusterFirst", "ClusterFirstWithHostNet"],
    "dnsConfig": [{"nameservers": ["1.1.1.1"]}, None],
    "os": [{"name": "windows"}, {"name": "linux"}],
    "tolerations": [
        [{"operator": "Exists"}],
        [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    ],
    "schedulingGates": [[], None, [{"name": "other"}], [{"$patch": "replace"}]],
    "ephemeralContainers": [[{"name": "e", "image": "x"}]],
    "nodeSelector": [{"disk": "ssd"}, {"kubernetes.io/arch": None}, None],
    "affinity": [{"nodeAffinity": {}}, {"podAffinity": {}}],
    "imagePullSecrets": [[{"name": "registry"}]],
    "activeDeadlineSeconds": [60, None, 0, "1"],
    "terminationGracePeriodSeconds": [5, 0, None],
    "hostAliases": [[{"ip": "1.2.3.4", "hostnames": ["x"]}]],
    "hostname": ["x"],
    "setHostnameAsFQDN": [True],
    "hostnameOverride": ["x"],
    "resourceClaims": [[{"name": "x"}]],
    "resources": [{"limits": {"cpu": "1"}}],
    "overhead": [{"cpu": "1"}],
    "topologySpreadConstraints": [[]],
}
_SCOPE = {
    "runAsUser": [0, 1, 1000, 65532, None, "0", 2**40, -1],
    "runAsGroup": [0, 1000, None],
    "runAsNonRoot": [True, False, None, "true"],
    "seccompProfile": [
        {"type": "RuntimeDefault"},
        {"type": "Unconfined"},
        {"type": "Localhost", "localhostProfile": "p"},
        None,
        {"$patch": "replace", "type": "Unconfined"},
    ],
    "appArmorProfile": [{"type": "RuntimeDefault"}, {"type": "Unconfined"}, None],
    "seLinuxOptions": [{"type": "spc_t"}, {"user": "system_u"}, {}],
    "windowsOptions": [{"hostProcess": True}],
}
_POD_SCOPE = {
    **_SCOPE,
    "fsGroup": [0, 1000, None],
    "supplementalGroups": [[0], [1000], None],
    "fsGroupChangePolicy": ["Always", "OnRootMismatch"],
    "sysctls": [[{"name": "kernel.msgmax", "value": "1"}], [{"name": "net.ipv4.ping_group_range", "value": "0 1"}], []],
}
_CONTAINER_SCOPE = {
    **_SCOPE,
    "privileged": [True, False, None, "true"],
    "allowPrivilegeEscalation": [True, False, None],
    "readOnlyRootFilesystem": [True, False],
    "procMount": ["Unmasked", "Default"],
    "capabilities": [
        {"drop": ["ALL"]},
        {"add": ["SYS_ADMIN"]},
        {"add": ["NET_BIND_SERVICE"]},
        {"drop": ["all"]},
        {"drop": []},
        {"add": [], "drop": ["ALL", "KILL"]},
        {"$patch": "delete"},
        None,
    ],
}
_CONTAINER = {
    "image": ["example/y:2", "", None],
    "imagePullPolicy": ["Always", "Never", "IfNotPresent"],
    "command": [["sh"], None, ["/dayfly/runner", "pod"]],
    "args": [["x"], [], None],
    "workingDir": ["/tmp", "/"],
    "env": [
        [{"name": "A", "value": "b"}],
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "o-a-abcdefghijklmnop", "key": "k"}}}],
        [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    ],
    "envFrom": [[{"secretRef": {"name": "s"}}], [{"configMapRef": {"name": "c"}, "prefix": "P_"}]],
    "ports": [
        [{"containerPort": 80}],
        [{"containerPort": 80, "hostPort": 80}],
        [{"containerPort": 80, "hostIP": "0.0.0.0"}],
    ],
    "resources": [{"limits": {"cpu": "1", "memory": "64Mi"}}, {"claims": [{"name": "x"}]}],
    "lifecycle": [
        {"postStart": {"exec": {"command": ["x"]}}},
        {"preStop": {"httpGet": {"port": 1, "host": "1.1.1.1"}}},
    ],
    "livenessProbe": [{"httpGet": {"port": 80, "host": "169.254.169.254"}}],
    "startupProbe": [{"tcpSocket": {"port": 80, "host": "127.0.0.1"}}],
    "terminationMessagePolicy": ["File", "FallbackToLogsOnError"],
    "terminationMessagePath": ["/tmp/x"],
    "volumeDevices": [[{"name": "v", "devicePath": "/dev/sda"}]],
    "volumeMounts": [
        [{"name": "v", "mountPath": "/data"}],
        [{"name": "v", "mountPath": "/data", "mountPropagation": "Bidirectional"}],
        [{"name": "v", "mountPath": "/dayfly/in"}],
        [{"name": "v", "mountPath": "/dev/termination-log"}],
        [{"name": "v", "mountPath": "/"}],
        [{"name": "dayfly-state", "mountPath": "/s"}],
        [{"name": "x", "mountPath": "/dayfly", "$patch": "delete"}],
    ],
    "stdin": [True],
    "tty": [True],
    "restartPolicy": ["Always", "Never"],
    "restartPolicyRules": [[{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]],
    "resizePolicy": [[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]],
}
_VOLUMES = [
    {"name": "v", "emptyDir": {}},
    {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "v", "hostPath": {"path": "/"}},
    {"name": "v", "secret": {"secretName": "s"}},
    {"name": "v", "secret": {"secretName": "o-a-abcdefghijklmnop"}},
    {"name": "v", "configMap": {"name": "c"}},
    {"name": "v", "persistentVolumeClaim": {"claimName": "p"}},
    {"name": "v", "csi": {"driver": "d"}},
    {"name": "v", "nfs": {"server": "s", "path": "/"}},
    {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    {"name": "v", "image": {"reference": "x"}},
    {"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}},
    {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}]}},
    {"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}},
    {"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "t", "name": "x"}}]}},
    {"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"name": "v"},
    {"name": "dayfly", "hostPath": {"path": "/"}, "projected": None},
    {"name": "dayfly", "projected": {"sources": [{"configMap": {"name": "mine"}}]}},
    {"name": "dayfly", "$patch": "delete"},
    {"name": "dayfly-state", "$patch": "delete"},
    {"name": "dayfly-state", "emptyDir": None, "hostPath": {"path": "/var"}},
    {"name": "dayfly-state", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}},
    {"name": "dayfly-more", "emptyDir": {}},
    {"$patch": "replace"},
]
_META = {
    "labels": [{"app": "x"}, {"dayfly.dev/run": "other"}, {"dayfly.dev/mine": "x"}, {"app.kubernetes.io/name": "x"}],
    "annotations": [
        {"vault.hashicorp.com/agent-inject": "true"},
        {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"},
        {"container.seccomp.security.alpha.kubernetes.io/main": "unconfined"},
        {"dayfly.dev/order": "x"},
    ],
    "finalizers": [["x/y"], [], None],
    "ownerReferences": [[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]],
    "name": ["mine"],
    "namespace": ["kube-system"],
    "generateName": ["x-"],
    "deletionTimestamp": ["2026-01-01T00:00:00Z"],
    "$patch": ["replace", "delete"],
}
_ODD = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": {}},
    {"$patch": "replace"},
    {"a": None},
]


class Source:
    """Yield random templates for a seed. `danger` is the maximum number of hostile changes in each."""

    def __init__(self, seed: int, danger: int = 4) -> None:
        self._random = random.Random(seed)
        self._danger = danger

    def overlay(self):
        made: dict = {}
        for _ in range(self._random.randint(1, self._danger)):
            self._change(made)
        if self._random.random() < 0.02:
            made = {"spec": self._random.choice(_ODD[1:])} | made
        return made

    def junk(self, depth: int = 4):
        """Return a random JSON value, with keys mostly from pods."""
        kind = self._random.randint(0, 5)
        if depth == 0 or kind < 2:
            return copy.deepcopy(self._random.choice(_ODD))
        if kind == 2:
            return [self.junk(depth - 1) for _ in range(self._random.randint(0, 3))]
        words = ["metadata", "spec", "containers", "volumes", "name", "securityContext", "labels", "annotations"]
        words += ["apiVersion", "kind", "mountPath", "env", "tolerations", "capabilities", "projected", "sources", "x"]
        return {self._random.choice(words): self.junk(depth - 1) for _ in range(self._random.randint(0, 6))}

    def damaged(self, pod):
        """Return a pod with one random value replaced by an unusual one."""
        pod = copy.deepcopy(pod)
        here = pod
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                return pod
            key = self._random.choice(keys)
            if not isinstance(here[key], (dict, list)) or not here[key] or self._random.random() < 0.2:
                here[key] = copy.deepcopy(self._random.choice(_ODD))
                return pod
            here = here[key]

    def _change(self, made) -> None:
        spec = made.setdefault("spec", {})
        roll = self._random.random()
        if roll < 0.2:
            self._field(spec, _POD_FIELDS)
        elif roll < 0.3:
            self._field(spec.setdefault("securityContext", {}), _POD_SCOPE)
        elif roll < 0.5:
            self._field(self._container(spec).setdefault("securityContext", {}), _CONTAINER_SCOPE)
        elif roll < 0.7:
            self._field(self._container(spec), _CONTAINER)
        elif roll < 0.9:
            spec.setdefault("volumes", []).append(copy.deepcopy(self._random.choice(_VOLUMES)))
        else:
            # These stay mappings, because `render` writes its own keys into them.
            self._field(made.setdefault("metadata", {}), _META, odd=0)

    def _field(self, holder, fields, odd=0.03) -> None:
        name = self._random.choice(list(fields))
        values = _ODD if self._random.random() < odd else fields[name]
        holder[name] = copy.deepcopy(self._random.choice(values))

    def _container(self, spec):
        field = self._random.choice(["containers"] * 4 + ["initContainers"])
        name = self._random.choice(["main", "main", "main", "side"])
        found = spec.setdefault(field, [])
        for container in found:
            if container["name"] == name:
                return container
        container = {"name": name}
        if name == "side":
            container["image"] = "example/side:1"
            if self._random.random() < 0.7:
                container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        if field == "initContainers" and self._random.random() < 0.5:
            container["restartPolicy"] = "Always"
        found.append(container)
        return container
