"""What `plugin test` does from outside to pods and objects of steps, and whether the person may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.object.render import ObjectIdentity, name
from dayfly.execute.pod.names import UNIT_ANNOTATION
from dayfly.kube import errors
from dayfly.kube.discovery import served
from dayfly.kube.objects import PODS, Resource
from dayfly.testing import Hand, Lacking

if TYPE_CHECKING:
    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.kube.client import Client
    from dayfly.spec.plugin import Plugin

_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    dict[str, Any],
    namespaced=False,
)
_NOTE = "dayfly-plugin-test-was-here"
_KILL_S = 1


class PluginAttempt(NamedTuple):
    """One attempt of a unit of a sandbox, which is named by its UID."""

    sandbox: str
    unit: str
    number: int


def need(cluster: ClusterBackend, verb: str, group: str, kind: str, namespace: str) -> None:
    """Refuse to begin without a right.

    Raises:
        DayflyError: the person has not got it.
    """
    if not _may(cluster, verb, group, kind, namespace):
        place = f" in the namespace {namespace}" if namespace else ""
        message = f"you may not {verb} {kind}{place}, which the test needs"
        raise DayflyError(Exit.DENIED, message, "ask the cluster's administrator for that right")


def lacking(cluster: ClusterBackend, plugin: Plugin, runners: str) -> Lacking:
    """What the person may not do to pods of steps, which run in `runners`, and to the objects of each step."""
    pods = "" if _may(cluster, "delete", "", "pods", runners) else f"you may not delete pods in {runners}"
    objects = {}
    for step in plugin.spec.create:
        if step.object is not None and step.object.manifest is not None:
            manifest = step.object.manifest
            kind = cluster.call(lambda client, manifest=manifest: _kind(client, manifest))  # type: ignore[misc] # bound now
            here = cluster.namespace
            refused = [
                verb for verb in ("list", "patch", "delete") if not _may(cluster, verb, kind.group, kind.plural, here)
            ]
            objects[step.name] = f"you may not {refused[0]} {kind.plural} in {here}" if refused else ""
    return Lacking(pods, objects)


def _may(cluster: ClusterBackend, verb: str, group: str, kind: str, namespace: str) -> bool:
    asked = {"verb": verb, "group": group, "resource": kind, "namespace": namespace}
    body = {"spec": {"resourceAttributes": asked}}
    answer = cluster.call(lambda client: client.create(_REVIEWS, body))
    return bool(answer["status"].get("allowed"))


async def delete_pod(client: Client, pod: str, namespace: str) -> bool:
    """Delete a pod at once; whether it was there."""
    try:
        await client.delete(PODS, pod, namespace, grace=_KILL_S)
    except errors.NotFound:
        return False
    return True


async def meddle(
    client: Client, hand: Hand, manifest: dict[str, Any], namespace: str, run: str, of: PluginAttempt
) -> bool:
    """Edit or delete the object that an attempt of a run's unit has made; whether there was one.

    Its marks anybody can copy, but not the name, which it has already. It is edited as one does who tidies up: its
    labels are gone, but for a new one.
    """
    kind = await _kind(client, manifest)
    made = name(ObjectIdentity(of.sandbox, of.unit, of.number, namespace, {}), manifest)
    for each in (await client.list_all(kind, namespace)).items:
        meta = each["metadata"]
        owners = [owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Run"]
        marks = owners, (meta.get("annotations") or {}).get(UNIT_ANNOTATION)
        if meta["name"] != made or marks != ([run], of.unit):
            continue
        try:
            if hand is Hand.DELETES:
                await client.delete(kind, meta["name"], namespace, uid=meta["uid"])
            else:
                labels = {**dict.fromkeys(meta.get("labels") or {}), _NOTE: "edited"}
                patch = {"metadata": {"uid": meta["uid"], "labels": labels, "annotations": {_NOTE: "edited"}}}
                await client.patch(kind, patch, meta["name"], namespace)
        except (errors.NotFound, errors.Conflict):
            return False
        return True
    return False


async def _kind(client: Client, manifest: dict[str, Any]) -> Resource[dict[str, Any]]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    seen = await served(client, manifest["apiVersion"], manifest["kind"])
    if seen is None:
        said = f"this cluster has no kind {manifest['kind']} of {manifest['apiVersion']}"
        raise DayflyError(Exit.FAILED, said, "install it")
    return Resource(group, version, seen.name, seen.kind, dict[str, Any], seen.namespaced)
