"""External changes of pods and objects of steps for `plugin test`, and checks of the rights for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.object.render import ObjectIdentity, object_name
from dayfly.execute.pod.names import UNIT_ANNOTATION
from dayfly.kube import errors
from dayfly.kube.discovery import find_served_kind
from dayfly.kube.objects import PODS, ApiResource
from dayfly.testing import MissingRights, Tampering

if TYPE_CHECKING:
    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.kube.client import KubeClient
    from dayfly.spec.plugin import Plugin

_REVIEWS = ApiResource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    dict[str, Any],
    namespaced=False,
)
_MARK = "dayfly-plugin-test-was-here"
_GRACE_PERIOD_S = 1


class PluginAttempt(NamedTuple):
    """An attempt of a unit. `sandbox` is the UID."""

    sandbox: str
    unit: str
    number: int


def require(cluster: ClusterBackend, verb: str, group: str, kind: str, namespace: str) -> None:
    """Check that the user has a right.

    Raises:
        DayflyError: the user does not have it.
    """
    if not _is_allowed(cluster, verb, group, kind, namespace):
        place = f" in the namespace {namespace}" if namespace else ""
        message = f"you may not {verb} {kind}{place}, which the test needs"
        raise DayflyError(Exit.DENIED, message, "ask the cluster's administrator for that right")


def find_missing_rights(cluster: ClusterBackend, plugin: Plugin, runners: str) -> MissingRights:
    """Return the missing rights for pods of steps, in the namespace `runners`, and for the objects of each step."""
    pods = "" if _is_allowed(cluster, "delete", "", "pods", runners) else f"you may not delete pods in {runners}"
    objects = {}
    for step in plugin.spec.create:
        if step.object is not None and step.object.manifest is not None:
            manifest = step.object.manifest
            kind = cluster.call(lambda client, manifest=manifest: _kind(client, manifest))  # type: ignore[misc] # binds the loop variable
            here = cluster.namespace
            refused = [
                verb
                for verb in ("list", "patch", "delete")
                if not _is_allowed(cluster, verb, kind.group, kind.plural, here)
            ]
            objects[step.name] = f"you may not {refused[0]} {kind.plural} in {here}" if refused else ""
    return MissingRights(pods, objects)


def _is_allowed(cluster: ClusterBackend, verb: str, group: str, kind: str, namespace: str) -> bool:
    asked = {"verb": verb, "group": group, "resource": kind, "namespace": namespace}
    body = {"spec": {"resourceAttributes": asked}}
    answer = cluster.call(lambda client: client.create(_REVIEWS, body))
    return bool(answer["status"].get("allowed"))


async def delete_pod(client: KubeClient, pod: str, namespace: str) -> bool:
    """Delete a pod with a short grace period. Return whether it existed."""
    try:
        await client.delete(PODS, pod, namespace, grace=_GRACE_PERIOD_S)
    except errors.NotFound:
        return False
    return True


async def tamper(
    client: KubeClient, tampering: Tampering, manifest: dict[str, Any], namespace: str, run: str, attempt: PluginAttempt
) -> bool:
    """Edit or delete the object that an attempt has created. Return whether it existed.

    The object is identified by its marks and its name: other users can copy the marks, but not a name in use. An edit
    removes all labels and adds a new one.
    """
    kind = await _kind(client, manifest)
    expected_name = object_name(ObjectIdentity(attempt.sandbox, attempt.unit, attempt.number, namespace, {}), manifest)
    for each in (await client.list_all(kind, namespace)).items:
        meta = each["metadata"]
        owners = [owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Run"]
        marks = owners, (meta.get("annotations") or {}).get(UNIT_ANNOTATION)
        if meta["name"] != expected_name or marks != ([run], attempt.unit):
            continue
        try:
            if tampering is Tampering.DELETES:
                await client.delete(kind, meta["name"], namespace, uid=meta["uid"])
            else:
                labels = {**dict.fromkeys(meta.get("labels") or {}), _MARK: "edited"}
                patch = {"metadata": {"uid": meta["uid"], "labels": labels, "annotations": {_MARK: "edited"}}}
                await client.patch(kind, patch, meta["name"], namespace)
        except (errors.NotFound, errors.Conflict):
            return False
        return True
    return False


async def _kind(client: KubeClient, manifest: dict[str, Any]) -> ApiResource[dict[str, Any]]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    found = await find_served_kind(client, manifest["apiVersion"], manifest["kind"])
    if found is None:
        message = f"this cluster has no kind {manifest['kind']} of {manifest['apiVersion']}"
        raise DayflyError(Exit.FAILED, message, "install its CustomResourceDefinition")
    return ApiResource(group, version, found.name, found.kind, dict[str, Any], found.namespaced)
