"""The manifest of a unit's pod. Pure.

One projected volume contains the runner from an immutable ConfigMap, the work order from an annotation of the pod, and
inputs from the Secrets with the outputs of other units. So a step needs one container start, and no output value is
written into a pod.
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
# Kubernetes limits the annotations of an object to 256 KiB; the order is by far the largest.
ORDER_LIMIT = 240 * 1024
USER = 65532


class PodSecretKey(msgspec.Struct, frozen=True):
    """A value in a Secret of the pod's namespace."""

    secret: str
    key: str


class PodAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that a pod is rendered for, without its unit.

    `run` is the ledger's identity (the target's UID), `owner` the owner reference of the Run. `inputs` has the value of
    each input, its Secret, or None if it is absent. The log masks the values of `sensitive` inputs. `reads` is a label
    value that identifies the attempts whose outputs are inputs. `cleaning` is true for delete steps. A step with a
    Terraform state has `state` in its environment and the password from `token`. `resource_id` and
    `resource_token` are as in `StepAttempt`.
    """

    run: str
    run_name: str
    owner: dict[str, Any]
    resource: str
    resource_id: str | None = None
    resource_token: str = ""
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
    """The `traceparent` for spans of the step, if the run is traced."""
    ephemeral_storage: str = ""
    """Default limit of ephemeral storage, as a Kubernetes quantity. Empty for none."""

    @property
    def name(self) -> str:
        return names.pod_name(self.run, self.unit, self.number)


def render_pod(unit: Unit, attempt: PodAttempt) -> dict[str, Any]:
    """Return the manifest, merged with the plugin's pod template. The caller checks it with `policy`.

    Raises:
        CannotRenderError: The order is too large, or the pod template is invalid.
    """
    order, files = _order(unit, attempt)
    if len(order) > ORDER_LIMIT:
        raise CannotRenderError(
            Reason.SCRIPT_TOO_LARGE,
            f"script and constant inputs have {len(order)} bytes; the limit of a pod is {ORDER_LIMIT}. "
            "Move large constants into the image",
        )
    base = _template(unit, attempt, files)
    try:
        merged = merge(base, _overlay(unit), "io.k8s.api.core.v1.PodTemplateSpec")
    except MergeError as error:
        raise CannotRenderError(Reason.POD_REFUSED, f"cannot merge the pod template into the pod: {error}") from None
    merged["metadata"] |= _metadata(attempt, order, merged.get("metadata") or {})
    if attempt.cleaning:
        merged["spec"]["priorityClassName"] = names.CLEANUP_CLASS
    return {"apiVersion": "v1", "kind": "Pod", **merged}


def recall_container(image: str, now: int) -> dict[str, Any]:
    """Return the ephemeral container whose runner excludes the start of the step; `now` is unix milliseconds.

    Its pull policy does not need a registry if the node has the image.
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
    # A document that was not compiled from a plugin may contain an unchecked template.
    template = {field: value for field, value in (unit.exec.pod_template or {}).items() if value is not None}
    metadata = template.get("metadata", {})
    maps = {"metadata": metadata, "spec": template.get("spec", {})}
    if isinstance(metadata, dict):
        maps |= {f"metadata.{field}": metadata.get(field) or {} for field in ("labels", "annotations")}
    if wrong := [field for field, value in maps.items() if not isinstance(value, dict)]:
        raise CannotRenderError(Reason.POD_REFUSED, f"{wrong[0]} of the pod template must be a mapping")
    return template


def _metadata(attempt: PodAttempt, order: bytes, merged: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the pod. Dayfly's fields override those of the pod template."""
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
    """Return the work order, and for each secret input its file below the mount."""
    assert unit.exec is not None, "only exec units become pods"
    records: list[Record] = [
        *identity_records(attempt.run, attempt.unit, attempt.number, attempt.start_before),
        *step_records(unit),
    ]
    given = {**_trace_variables(unit, attempt), **built_in(unit, attempt), **_state_variables(unit, attempt)}
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
        source = f"\0{MOUNT}/{file}".encode()
        if item.as_.env:
            env[item.as_.env] = (f"{kind}-env", item.as_.env.encode() + source)
        return [(f"{kind}-file", item.as_.path.encode() + source)] if item.as_.path else []
    if item.as_.env:
        env[item.as_.env] = env_record(item.as_.env, value or b"")
    return [("file", item.as_.path.encode() + b"\0" + (value or b""))] if item.as_.path else []


def _trace_variables(unit: Unit, attempt: PodAttempt) -> dict[str, str]:
    """Return `TRACEPARENT`, unless an input of the plugin sets it."""
    is_input = any(item.as_.env == TRACEPARENT for item in unit.inputs)
    return {TRACEPARENT: attempt.trace} if attempt.trace and not is_input else {}


def _state_variables(unit: Unit, attempt: PodAttempt) -> dict[str, str]:
    if not attempt.state:
        return {}
    written = {str(item.get("name", "")): None if "valueFrom" in item else item.get("value", "") for item in _env(unit)}
    given = written | dict.fromkeys((item.as_.env for item in unit.inputs if item.as_.env), None)
    return {**attempt.state, **access.bypass_proxies(attempt.state, given)}


def _env(unit: Unit) -> list[dict[str, Any]]:
    """Return the environment list of the pod template's main container; empty if there is none."""
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
        # Without a request, Kubernetes would request the limit, and few steps would fit a node.
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
            # The runner enforces the deadline. This one applies if the runner hangs.
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
