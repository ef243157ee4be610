"""From a unit to the manifest of its pod. Pure.

The runner comes from an immutable ConfigMap, the work order from the pod's own annotation, inputs that other units made
from the Secrets that hold them; all in one projected volume. So a step costs one container start, and no value of an
output is ever written into a pod.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.state import access
from dayfly.execute.state.access import PASSWORD
from dayfly.execute.work_order import CannotRenderError, Record, built_in, env_record, identity_records, step_records
from dayfly.kube.strategic import MergeError, merge
from dayfly.plan.reasons import Reason
from dayfly.spec.frames import encode
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import Unit, UnitInput

MAIN = "main"
VOLUME = "dayfly"
STATE_VOLUME = "dayfly-state"
MOUNT = "/dayfly"
MOUNTS = (
    {"name": VOLUME, "mountPath": MOUNT, "readOnly": True},
    {"name": STATE_VOLUME, "mountPath": "/dayfly-state"},
)
_UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
TRACEPARENT = "TRACEPARENT"
# Kubernetes takes 256 KiB of annotations; the order shares them with little else.
ORDER_LIMIT = 240 * 1024
USER = 65532


class PodSecretKey(msgspec.Struct, frozen=True):
    """A value that lies in a Secret of the pod's namespace."""

    secret: str
    key: str


class PodAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a pod is made of, but the unit itself.

    `run` is the ledger's identity (the target's UID); `owner` the Run object as an owner reference. `inputs` has each
    input's value, where it lies, or None for one that is absent; `sensitive` are those whose values must not stand in
    the log; `reads` says, for a label, which attempts tell them. `cleaning` if it deletes. A step with a state has
    `state` in its environment, and the password that lies at `token`.
    """

    run: str
    run_name: str
    owner: dict[str, Any]
    resource: str
    unit: str
    number: int
    inputs: Mapping[str, bytes | PodSecretKey | None]
    complete: bool
    sensitive: frozenset[str] = frozenset()
    namespace: str
    runner: str
    architecture: str = "amd64"
    restricted: bool = True
    cleaning: bool = False
    start_before: int = 0
    reads: str = ""
    state: Mapping[str, str] = {}
    token: PodSecretKey | None = None
    trace: str = ""
    """What its own spans hang below, where runs are told as traces."""
    ephemeral_storage: str = ""
    """Default limit on the node's disk that the step may fill, as a Kubernetes quantity. Empty for none."""

    @property
    def name(self) -> str:
        return names.pod_name(self.run, self.unit, self.number)


def pod(unit: Unit, attempt: PodAttempt) -> dict[str, Any]:
    """The manifest, the plugin's overlay merged in; it has still to pass `policy`.

    Raises:
        CannotRenderError: the order is too large, or the overlay is no pod template.
    """
    order, files = _order(unit, attempt)
    if len(order) > ORDER_LIMIT:
        raise CannotRenderError(
            Reason.SCRIPT_TOO_LARGE,
            f"script and constant inputs make {len(order)} bytes, a pod carries at most {ORDER_LIMIT}: "
            "move large constants into the image",
        )
    base = _template(unit, attempt, files)
    try:
        merged = merge(base, _overlay(unit), "io.k8s.api.core.v1.PodTemplateSpec")
    except MergeError as error:
        raise CannotRenderError(Reason.POD_REFUSED, f"the pod template cannot be laid over the pod: {error}") from None
    merged["metadata"] |= _metadata(attempt, order, merged.get("metadata") or {})
    if attempt.cleaning:
        merged["spec"]["priorityClassName"] = names.CLEANUP_CLASS
    return {"apiVersion": "v1", "kind": "Pod", **merged}


def recall(image: str, now: int) -> dict[str, Any]:
    """The ephemeral container in which the runner excludes the start of the step; `now` is unix milliseconds.

    Its pull policy is its own, so it needs no registry where the node has the image.
    """
    return {
        "name": f"{names.RECALL}{now}",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{MOUNT}/runner", "void"],
        "terminationMessagePolicy": "File",
        "volumeMounts": [dict(mount) for mount in MOUNTS],
        "securityContext": {**_UNPRIVILEGED, "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER},
    }


def _overlay(unit: Unit) -> dict[str, Any]:
    assert unit.exec is not None, "only exec units become pods"
    # Of a document that no plugin was compiled to, nobody has looked at it before.
    template = {field: value for field, value in (unit.exec.pod_template or {}).items() if value is not None}
    metadata = template.get("metadata", {})
    maps = {"metadata": metadata, "spec": template.get("spec", {})}
    if isinstance(metadata, dict):
        maps |= {f"metadata.{field}": metadata.get(field) or {} for field in ("labels", "annotations")}
    if wrong := [field for field, value in maps.items() if not isinstance(value, dict)]:
        raise CannotRenderError(Reason.POD_REFUSED, f"the pod template's {wrong[0]} is no map")
    return template


def _metadata(attempt: PodAttempt, order: bytes, merged: dict[str, Any]) -> dict[str, Any]:
    """Ours, over whatever the overlay brought: nobody else names, labels or releases our pods."""
    return {
        "name": attempt.name,
        "namespace": attempt.namespace,
        "finalizers": [names.FINALIZER],
        "ownerReferences": [attempt.owner],
        "labels": {
            **(merged.get("labels") or {}),
            names.RUN_LABEL: attempt.run_name,
            "app.kubernetes.io/managed-by": "dayfly",
            names.READS_LABEL: attempt.reads,
        },
        "annotations": {
            **(merged.get("annotations") or {}),
            names.UNIT_ANNOTATION: attempt.unit,
            names.ATTEMPT_ANNOTATION: str(attempt.number),
            names.NONCE_ANNOTATION: nonce(attempt.run, attempt.unit, attempt.number),
            names.ORDER_ANNOTATION: order.decode(),
        },
    }


def _order(unit: Unit, attempt: PodAttempt) -> tuple[bytes, dict[PodSecretKey, str]]:
    """The work order, and the file below the mount at which each secret input is found."""
    assert unit.exec is not None, "only exec units become pods"
    records: list[Record] = [
        *identity_records(attempt.run, attempt.unit, attempt.number, attempt.start_before),
        *step_records(unit),
    ]
    given = {**_traced(unit, attempt), **built_in(unit, attempt), **_stated(unit, attempt)}
    env: dict[str, Record] = {name: env_record(name, value.encode()) for name, value in given.items()}
    files: dict[PodSecretKey, str] = {}
    if attempt.token is not None:
        files[attempt.token] = f"in/{len(files)}"
        env[PASSWORD] = ("sensitive-env", f"{PASSWORD}\0{MOUNT}/{files[attempt.token]}".encode())
    for item in unit.inputs:
        records += _input(item, attempt, env, files)
    return encode("dayfly-order", [*records, *env.values()]), files


def _input(
    item: UnitInput, attempt: PodAttempt, env: dict[str, Record], files: dict[PodSecretKey, str]
) -> list[Record]:
    value = attempt.inputs[item.name]
    kind = "sensitive" if item.name in attempt.sensitive else "secret"
    if isinstance(value, PodSecretKey):
        file = files.setdefault(value, f"in/{len(files)}")
        at = f"\0{MOUNT}/{file}".encode()
        if item.as_.env:
            env[item.as_.env] = (f"{kind}-env", item.as_.env.encode() + at)
        return [(f"{kind}-file", item.as_.path.encode() + at)] if item.as_.path else []
    if item.as_.env:
        env[item.as_.env] = env_record(item.as_.env, value or b"")
    return [("file", item.as_.path.encode() + b"\0" + (value or b""))] if item.as_.path else []


def _traced(unit: Unit, attempt: PodAttempt) -> dict[str, str]:
    """A plugin's own comes first, wherever it is from: a pod is the same then, traced or not."""
    its_own = any(item.as_.env == TRACEPARENT for item in unit.inputs)
    return {TRACEPARENT: attempt.trace} if attempt.trace and not its_own else {}


def _stated(unit: Unit, attempt: PodAttempt) -> dict[str, str]:
    if not attempt.state:
        return {}
    written = {str(item.get("name", "")): None if "valueFrom" in item else item.get("value", "") for item in _env(unit)}
    given = written | dict.fromkeys((item.as_.env for item in unit.inputs if item.as_.env), None)
    return {**attempt.state, **access.past_proxies(attempt.state, given)}


def _env(unit: Unit) -> list[dict[str, Any]]:
    """The environment list of the pod template's main container, if it is one."""
    containers = (_overlay(unit).get("spec") or {}).get("containers")
    found = next((each for each in containers or () if isinstance(each, dict) and each.get("name") == MAIN), {})
    env = found.get("env")
    return [item for item in env if isinstance(item, dict)] if isinstance(env, list) else []


def _template(unit: Unit, attempt: PodAttempt, files: dict[PodSecretKey, str]) -> dict[str, Any]:
    assert unit.exec is not None, "only exec units become pods"
    limits = unit.timeouts
    container = {
        "name": MAIN,
        "image": unit.exec.image,
        "command": [f"{MOUNT}/runner", "pod"],
        "terminationMessagePolicy": "File",
        "volumeMounts": [dict(mount) for mount in MOUNTS],
        "securityContext": _UNPRIVILEGED,
    }
    if not unit.exec.image:
        del container["image"]
    if attempt.ephemeral_storage:
        # The default request is the limit, with which few steps would fit a node.
        container["resources"] = {
            "limits": {"ephemeral-storage": attempt.ephemeral_storage},
            "requests": {"ephemeral-storage": "0"},
        }
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if attempt.restricted:
        security |= {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return {
        "metadata": {},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": names.GATE}],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # The runner keeps its own deadline; this is the second belt, should it hang.
            "activeDeadlineSeconds": (limits.pull_ms + limits.run_ms + limits.grace_ms) // 1000 + 60,
            "terminationGracePeriodSeconds": limits.grace_ms // 1000 + 2,
            "securityContext": security,
            "nodeSelector": {"kubernetes.io/arch": attempt.architecture, "kubernetes.io/os": "linux"},
            "containers": [container],
            "volumes": [
                {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": _sources(attempt, files)}},
                {"name": STATE_VOLUME, "emptyDir": {}},
            ],
        },
    }


def _sources(attempt: PodAttempt, files: dict[PodSecretKey, str]) -> list[dict[str, Any]]:
    runner = {"name": attempt.runner, "items": [{"key": "runner", "path": "runner", "mode": 0o555}]}
    order = {
        "path": "order",
        "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.ORDER_ANNOTATION}']"},
    }
    uid = {"path": "uid", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
    secrets: dict[str, list[dict[str, str]]] = {}
    for value, file in files.items():
        secrets.setdefault(value.secret, []).append({"key": value.key, "path": file})
    return [
        {"configMap": runner},
        {"downwardAPI": {"items": [order, uid]}},
        *({"secret": {"name": name, "items": items}} for name, items in secrets.items()),
    ]
