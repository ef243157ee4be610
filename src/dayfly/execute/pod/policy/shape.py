"""The shape of an allowed pod, in the order of the Kubernetes API reference."""

from dayfly.execute.pod import names
from dayfly.execute.pod.policy.rows import (
    Row,
    choice,
    each,
    exactly,
    flag,
    free,
    limits,
    number,
    quantities,
    quantity,
    record,
    strings,
    text,
)

MAX_CONTAINERS = 8

_QUANTITIES = quantities(64)
_KEY_REF = record({"name": text(253), "key": text(253), "optional": flag()}, needs=("name", "key"))
_KEY_ITEMS = each(record({"key": text(253), "path": text(1024), "mode": number(0, 0o777)}, needs=("key", "path")), 64)
_FIELD_REF = record({"apiVersion": exactly("v1"), "fieldPath": text(300)}, needs=("fieldPath",))
_RESOURCE_REF = record({"containerName": text(63), "resource": text(63), "divisor": quantity()})
_NAMED = {"name": text(253), "optional": flag()}

_SECCOMP = record({"type": exactly("RuntimeDefault")}, needs=("type",))
_NO_SYSCTL = each(free("nothing", depth=0), 0)
_POD_SECURITY = record(
    {
        "runAsUser": number(0, 2**31),
        "runAsGroup": number(0, 2**31),
        "runAsNonRoot": flag(),
        "fsGroup": number(0, 2**31),
        "fsGroupChangePolicy": choice("Always", "OnRootMismatch"),
        "supplementalGroups": each(number(0, 2**31), 64),
        "supplementalGroupsPolicy": choice("Merge", "Strict"),
        "seccompProfile": _SECCOMP,
        "appArmorProfile": _SECCOMP,
        "sysctls": _NO_SYSCTL,
    }
)
_SECURITY = record(
    {
        "runAsUser": number(0, 2**31),
        "runAsGroup": number(0, 2**31),
        "runAsNonRoot": flag(),
        "readOnlyRootFilesystem": flag(),
        "allowPrivilegeEscalation": flag(),
        "privileged": exactly(False),
        "procMount": exactly("Default"),
        "seccompProfile": _SECCOMP,
        "appArmorProfile": _SECCOMP,
        "capabilities": record({"drop": each(text(63), 64), "add": each(text(63), 0)}),
    }
)
_ENV = record(
    {
        "name": text(253),
        "value": text(131_072),
        "valueFrom": record(
            {
                "configMapKeyRef": _KEY_REF,
                "secretKeyRef": _KEY_REF,
                "fieldRef": _FIELD_REF,
                "resourceFieldRef": _RESOURCE_REF,
            }
        ),
    },
    needs=("name",),
)
_CONTAINER = {
    "name": text(63),
    "image": text(1024),
    "imagePullPolicy": choice("Always", "IfNotPresent", "Never"),
    "command": each(text(65_536), 64),
    "args": each(text(65_536), 64),
    "workingDir": text(4096),
    "env": each(_ENV, 256),
    "envFrom": each(record({"prefix": text(253), "configMapRef": record(_NAMED), "secretRef": record(_NAMED)}), 32),
    "ports": each(
        record({"name": text(15), "containerPort": number(1, 65_535), "protocol": choice("TCP", "UDP", "SCTP")}), 16
    ),
    "resources": record({"requests": _QUANTITIES, "limits": limits(64)}),
    "volumeMounts": each(
        record(
            {
                "name": text(63),
                "mountPath": text(4096),
                "subPath": text(4096),
                "readOnly": flag(),
                "mountPropagation": exactly("None"),
            },
            needs=("name", "mountPath"),
        ),
        64,
    ),
    "securityContext": _SECURITY,
    "terminationMessagePolicy": choice("File", "FallbackToLogsOnError"),
}
_CONFIG_MAP = {**_NAMED, "items": _KEY_ITEMS}
_DOWNWARD = each(
    record(
        {"path": text(1024), "mode": number(0, 0o777), "fieldRef": _FIELD_REF, "resourceFieldRef": _RESOURCE_REF},
        needs=("path",),
    ),
    64,
)
_MODE = {"defaultMode": number(0, 0o777)}
_TOKEN = record({"audience": text(1024), "expirationSeconds": number(600, 2**32), "path": text(1024)}, needs=("path",))
_VOLUME = record(
    {
        "name": text(63),
        "configMap": record({**_CONFIG_MAP, **_MODE}),
        "secret": record({"secretName": text(253), "optional": flag(), "items": _KEY_ITEMS, **_MODE}),
        "emptyDir": record({"medium": choice("", "Memory"), "sizeLimit": quantity()}),
        "downwardAPI": record({"items": _DOWNWARD, **_MODE}),
        "persistentVolumeClaim": record({"claimName": text(253), "readOnly": flag()}, needs=("claimName",)),
        "projected": record(
            {
                **_MODE,
                "sources": each(
                    record(
                        {
                            "configMap": record(_CONFIG_MAP),
                            "secret": record(_CONFIG_MAP),
                            "downwardAPI": record({"items": _DOWNWARD}),
                            "serviceAccountToken": _TOKEN,
                        }
                    ),
                    64,
                ),
            }
        ),
    },
    needs=("name",),
)
_OWNER = record(
    {
        "apiVersion": exactly("dayfly.dev/v1alpha1"),
        "kind": exactly("Run"),
        "name": text(253),
        "uid": text(128),
        "controller": flag(),
        "blockOwnerDeletion": flag(),
    },
    needs=("apiVersion", "kind", "name", "uid"),
)
METADATA: Row = record(
    {
        "name": text(253),
        "namespace": text(63),
        "labels": strings(63, 64),
        "annotations": strings(262_144, 64),
        "finalizers": exactly([names.FINALIZER]),
        "ownerReferences": each(_OWNER, 1),
    },
    needs=("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences"),
)
SPEC: Row = record(
    {
        "restartPolicy": exactly("Never"),
        "schedulingGates": exactly([{"name": names.GATE}]),
        "automountServiceAccountToken": flag(),
        "serviceAccountName": text(253),
        "serviceAccount": text(253),
        "enableServiceLinks": flag(),
        "activeDeadlineSeconds": number(1, 4_000_000),
        "terminationGracePeriodSeconds": number(0, 1_000_000),
        "securityContext": _POD_SECURITY,
        "nodeSelector": strings(63, 64),
        "affinity": record({"nodeAffinity": free("a node affinity", depth=8)}),
        "tolerations": each(
            record(
                {
                    "key": text(317),
                    "operator": choice("Exists", "Equal"),
                    "value": text(63),
                    "effect": choice("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
                    "tolerationSeconds": number(0, 2**31),
                }
            ),
            16,
        ),
        "containers": each(record(_CONTAINER, needs=("name",)), MAX_CONTAINERS),
        "initContainers": each(
            record({**_CONTAINER, "restartPolicy": exactly("Always")}, needs=("name",)), MAX_CONTAINERS - 1
        ),
        "volumes": each(_VOLUME, 32),
        "imagePullSecrets": each(record({"name": text(253)}), 8),
        "runtimeClassName": text(253),
        "priorityClassName": text(253),
        "dnsPolicy": choice("ClusterFirst", "Default", "None"),
        "dnsConfig": free("a DNS configuration", depth=4),
        "hostNetwork": exactly(False),
        "hostPID": exactly(False),
        "hostIPC": exactly(False),
        "hostUsers": exactly(False),
        "shareProcessNamespace": exactly(False),
    },
    needs=(
        "restartPolicy",
        "schedulingGates",
        "automountServiceAccountToken",
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "containers",
        "volumes",
    ),
)
