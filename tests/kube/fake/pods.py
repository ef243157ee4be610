"""The rules of pods: gates, binding, grace periods, and an almost immutable spec."""

from __future__ import annotations

from tests.kube.fake.refusals import Refusal, invalid
from tests.kube.fake.store import Object, copied

_ENDED = ("Succeeded", "Failed")
GRACE = 30
EPHEMERAL, FIELD = "ephemeralcontainers", "ephemeralContainers"


def born(pod: Object) -> None:
    """Set the defaults that a reader uses."""
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE)
    if not spec.get("containers"):
        raise invalid("spec.containers", "Required value")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise invalid("spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")
    pod["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


def changed(old: Object, new: Object, *, adds: bool = False) -> None:
    """Refuse changes of the spec as the server does; `adds` is true for the subresource of ephemeral containers."""
    before, after = copied(old["spec"]), copied(new.get("spec", {}))
    if adds:
        there, then = before.pop(FIELD, []), after.pop(FIELD, [])
        if then[: len(there)] != there:
            raise invalid(f"spec.{FIELD}", "Forbidden: existing ephemeral containers may not be changed or removed")
        for container in then[len(there) :]:
            container.setdefault("imagePullPolicy", "IfNotPresent")
    gates = [gate["name"] for gate in before.pop("schedulingGates", [])]
    left = [gate["name"] for gate in after.pop("schedulingGates", [])]
    if any(name not in gates for name in left):
        raise invalid("spec.schedulingGates", "Forbidden: only deletion is allowed, but found new scheduling gate")
    for spec in (before, after):
        spec.pop("activeDeadlineSeconds", None)
        for container in spec.get("containers", []):
            container.pop("image", None)
    if before != after:
        raise invalid("spec", "Forbidden: pod updates may not change fields other than a few")


def bind(pod: Object, node: str) -> Object:
    """Bind a pod, as the scheduler does."""
    key = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        raise Refusal(409, f"pod {key} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise Refusal(409, f'pod {key} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise Refusal(409, f"pod {key} has non-empty .spec.schedulingGates")
    scheduled = {"type": "PodScheduled", "status": "True"}
    others = [each for each in pod["status"].get("conditions", []) if each["type"] != "PodScheduled"]
    return pod | {
        "spec": pod["spec"] | {"nodeName": node},
        "status": pod["status"] | {"conditions": [*others, scheduled]},
    }


def disrupted(pod: Object) -> Object:
    """Mark a pod, as an eviction does first."""
    conditions = pod.get("status", {}).get("conditions", [])
    if any(each["type"] == "DisruptionTarget" for each in conditions):
        return pod
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    return pod | {"status": pod["status"] | {"conditions": [*conditions, mark]}}


def grace(pod: Object, asked: int | None) -> int:
    """Return the grace period of a deleted pod in seconds; 0 without a kubelet that has to end it."""
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in _ENDED:
        return 0
    if asked is None:
        return int(pod["spec"].get("terminationGracePeriodSeconds", GRACE))
    return max(0, asked)
