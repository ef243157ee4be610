"""Check of a stored pod: whether admission webhooks of the cluster changed something that Dayfly relies on."""

from collections.abc import Iterator
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.pod.policy.rules import OURS, Violation, containers_of, has_mount, main_of, uses_reserved_path
from dayfly.execute.pod.render import MAIN, STATE_VOLUME, VOLUME

_EMPTY_FIELDS = ("args", "lifecycle", "livenessProbe", "startupProbe", "restartPolicy", "restartPolicyRules")
_UNSET_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "ephemeralContainers", "nodeName")


def find_changes(stored: dict[str, Any], rendered: dict[str, Any]) -> list[Violation]:
    """Return the changes by webhooks that are not allowed.

    Webhooks may add containers, volumes, labels and environment, and change the registry of the image. Dayfly's
    identity, gate, finalizer, runner, start marker and deadlines must be unchanged.
    """
    changed = [*_metadata(stored, rendered), *_spec(stored, rendered), *_main(stored, rendered)]
    advice = "was changed by an admission webhook of the cluster; exempt this namespace from it"
    return [Violation(path, advice) for path in changed]


def _metadata(stored: dict[str, Any], rendered: dict[str, Any]) -> Iterator[str]:
    meta, wanted = stored.get("metadata") or {}, rendered["metadata"]
    for field in ("name", "namespace"):
        if meta.get(field) != wanted[field]:
            yield f"metadata.{field}"
    if names.FINALIZER not in (meta.get("finalizers") or []):
        yield "metadata.finalizers"
    if wanted["ownerReferences"][0]["uid"] not in [owner.get("uid") for owner in meta.get("ownerReferences") or []]:
        yield "metadata.ownerReferences"
    for field in ("labels", "annotations"):
        for key in wanted[field]:
            if key.startswith(OURS) and (meta.get(field) or {}).get(key) != wanted[field][key]:
                yield f"metadata.{field}[{key}]"


def _spec(stored: dict[str, Any], rendered: dict[str, Any]) -> Iterator[str]:
    spec, ours = stored.get("spec") or {}, rendered["spec"]
    for field in ("restartPolicy", "activeDeadlineSeconds", "automountServiceAccountToken"):
        if spec.get(field) != ours.get(field):
            yield f"spec.{field}"
    yield from (f"spec.{field}" for field in _UNSET_FIELDS if spec.get(field))
    if {"name": names.GATE} not in (spec.get("schedulingGates") or []):
        yield "spec.schedulingGates"
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or []}
    for volume in ours["volumes"]:
        if volume["name"] in (VOLUME, STATE_VOLUME) and not _is_contained(volume, volumes.get(volume["name"])):
            yield f"spec.volumes ({volume['name']})"


def _main(stored: dict[str, Any], rendered: dict[str, Any]) -> Iterator[str]:
    """Yield changes of the script's container, and mounts of other containers that use reserved paths."""
    main, wanted = main_of(stored), main_of(rendered)
    for field in ("command", "terminationMessagePolicy", "securityContext"):
        if not _is_contained(wanted.get(field), main.get(field)):
            yield f"container {MAIN}: {field}"
    yield from (f"container {MAIN}: {field}" for field in _EMPTY_FIELDS if main.get(field))
    ours = wanted["volumeMounts"]
    if not all(has_mount(mount, main.get("volumeMounts")) for mount in ours):
        yield f"container {MAIN}: volumeMounts"
    for container in containers_of(stored):
        for mount in container.get("volumeMounts") or []:
            known = container is main and has_mount(mount, ours)
            # The API server itself mounts service account tokens.
            if (
                uses_reserved_path(mount)
                and not known
                and not str(mount.get("mountPath")).startswith("/var/run/secrets/")
            ):
                yield f"container {container.get('name')}: volumeMounts"


def _is_contained(part: Any, whole: Any) -> bool:
    """Return whether `whole` contains everything in `part`. The API server adds defaults."""
    if part == whole or part is None:
        return True
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(_is_contained(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(_is_contained, part, whole))
    return False
