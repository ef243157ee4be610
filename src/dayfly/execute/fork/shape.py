"""The fields in which a fork may differ from its baseline, and messages for all other fields. Pure."""

from dayfly.execute.pod.policy.rows import choice, each, exactly, flag, free, number, quantity, record, text

MAX_REPLICAS = 64

# --- in every namespace ---------------------------------------------------------------------------------------------

SPEC = frozenset({"strategy", "minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit"})
# Informational keys that no tool acts on with its own rights.
ANNOTATIONS = ("kubectl.kubernetes.io/", "prometheus.io/")

_AT = free("a port", depth=0)
_SECONDS = number(0, 2**31)
_COMMAND = each(text(131_072), 1024)
_HANDLERS = {
    "exec": record({"command": _COMMAND}),
    # No `host`, because the kubelet would send requests from the node to any address.
    "httpGet": record(
        {"path": text(4096), "port": _AT, "scheme": choice("HTTP", "HTTPS"), "httpHeaders": free("headers", depth=2)}
    ),
    "tcpSocket": record({"port": _AT}),
}
_PROBE = record(
    {
        **_HANDLERS,
        "grpc": record({"port": _AT, "service": text(253)}),
        "initialDelaySeconds": _SECONDS,
        "timeoutSeconds": _SECONDS,
        "periodSeconds": _SECONDS,
        "successThreshold": _SECONDS,
        "failureThreshold": _SECONDS,
        "terminationGracePeriodSeconds": _SECONDS,
    }
)
_HOOK = record({**_HANDLERS, "sleep": record({"seconds": _SECONDS})})
CONTAINER = {
    "image": text(1024),
    "imagePullPolicy": choice("Always", "IfNotPresent", "Never"),
    "command": _COMMAND,
    "args": _COMMAND,
    "workingDir": text(4096),
    "resizePolicy": free("a resize policy", depth=2),
    "stdin": flag(),
    "stdinOnce": flag(),
    "tty": flag(),
    "terminationMessagePath": text(4096),
    "terminationMessagePolicy": choice("File", "FallbackToLogsOnError"),
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": record({"postStart": _HOOK, "preStop": _HOOK, "stopSignal": text(32)}),
}
PORT = record({"name": text(15), "containerPort": number(1, 65_535), "protocol": text(8)})

_FIELDS = {
    "fieldRef": record({"apiVersion": text(16), "fieldPath": text(300)}),
    "resourceFieldRef": record({"containerName": text(63), "resource": text(63), "divisor": quantity()}),
}
_PLAIN = {"name": text(253), "value": text(131_072)}
VARIABLE = record({**_PLAIN, "valueFrom": record(_FIELDS)})

# --- in the sandbox's own namespace ---------------------------------------------------------------------------------

_NAMED = {"name": text(253), "optional": flag()}
_KEY = record({**_NAMED, "key": text(253)})
_MODE = number(0, 0o777)
_ITEMS = each(record({"key": text(253), "path": text(4096), "mode": _MODE}), 256)
_DOWNWARD = each(record({"path": text(4096), "mode": _MODE, **_FIELDS}), 256)
_SOURCE = record(
    {
        "configMap": record({**_NAMED, "items": _ITEMS}),
        "secret": record({**_NAMED, "items": _ITEMS}),
        "downwardAPI": record({"items": _DOWNWARD}),
    }
)
HOME_VARIABLE = record({**_PLAIN, "valueFrom": record({**_FIELDS, "secretKeyRef": _KEY, "configMapKeyRef": _KEY})})
HOME_VARIABLES = record({"prefix": text(253), "configMapRef": record(_NAMED), "secretRef": record(_NAMED)})
HOME_VOLUME = record(
    {
        "name": text(63),
        "configMap": record({**_NAMED, "items": _ITEMS, "defaultMode": _MODE}),
        "secret": record({"secretName": text(253), "optional": flag(), "items": _ITEMS, "defaultMode": _MODE}),
        "persistentVolumeClaim": record({"claimName": text(253), "readOnly": flag()}),
        "emptyDir": record({"medium": choice("", "Memory"), "sizeLimit": quantity()}),
        "downwardAPI": record({"items": _DOWNWARD, "defaultMode": _MODE}),
        "projected": record({"sources": each(_SOURCE, 64), "defaultMode": _MODE}),
    }
)
HOME_MOUNT = record(
    {
        "name": text(63),
        "mountPath": text(4096),
        "subPath": text(4096),
        "subPathExpr": text(4096),
        "readOnly": flag(),
        "recursiveReadOnly": text(32),
        "mountPropagation": exactly("None"),
    }
)
HOME_PULL_SECRETS = each(record({"name": text(253)}), 64)

# --- messages for other fields --------------------------------------------------------------------------------------

SELECTED = "could make a Service or NetworkPolicy of other workloads select its pods"
ACTED_ON = "may be an instruction to another tool, which would act on it with the tool's own rights"
ELSEWHERE = "would read a Secret or ConfigMap of another namespace than the sandbox's"
MOUNTED = "would mount something other than a Secret, ConfigMap, claim or emptyDir, and not as the baseline does"
MISSING = "is missing, but a fork must keep this field (a merge patch replaces whole lists, a strategic patch does not)"
OTHER = "differs from the baseline's"
STAMPED = "begins with dayfly.dev/, which is reserved for the operator"

_NODE = "would access the node"
_CHOICE = "would choose the nodes on which it runs"
_PRIORITY = "could evict pods of other users"
_ACCOUNT = "would use the rights of a ServiceAccount, and not as the baseline does"
BORROWED = {
    "serviceAccountName": _ACCOUNT,
    "serviceAccount": _ACCOUNT,
    "automountServiceAccountToken": _ACCOUNT,
    "serviceAccountToken": _ACCOUNT,
    "securityContext": "would have other rights on the node than the baseline",
    "hostNetwork": _NODE,
    "hostPID": _NODE,
    "hostIPC": _NODE,
    "hostUsers": _NODE,
    "hostPath": _NODE,
    "hostPort": "would use a port of the node",
    "hostIP": "would use a port of the node",
    "host": "would make the node send requests to any address",
    "mountPropagation": _NODE,
    "volumeDevices": _NODE,
    "nodeName": _CHOICE,
    "nodeSelector": _CHOICE,
    "affinity": _CHOICE,
    "tolerations": _CHOICE,
    "topologySpreadConstraints": _CHOICE,
    "schedulerName": _CHOICE,
    "runtimeClassName": _CHOICE,
    "priorityClassName": _PRIORITY,
    "priority": _PRIORITY,
    "preemptionPolicy": _PRIORITY,
    "finalizers": "could prevent the deletion of its pods",
    "imagePullSecrets": ELSEWHERE,
}
"""Messages by the last part of a field's path."""
