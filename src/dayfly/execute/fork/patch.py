"""Patches of a Deployment's manifest, with bounded CPU time and memory. Pure."""

from typing import Any

from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.strategic import MergeError, merge, type_of
from dayfly.plan.reasons import Reason
from dayfly.spec import json_patch
from dayfly.spec.errors import SpecError

_Object = dict[str, Any]


def apply(manifest: _Object, patch: _Object) -> _Object:
    """Return a copy of the manifest with a patch `{type, value}` applied. It has the structure of a Deployment.

    Raises:
        CannotRenderError: The patch is malformed, does not match, or its result is not a Deployment.
    """
    kind, value = str(patch.get("type")), patch.get("value")
    try:
        json_patch.check(kind, value)
        changed = _apply(manifest, kind, value)
    except SpecError as fault:
        raise _bad_patch(fault.problem) from None
    except (MergeError, json_patch.PatchError) as fault:
        raise _bad_patch(f"does not match the baseline: {fault}") from None
    _check_structure(changed)
    return changed


def _apply(manifest: _Object, kind: str, value: Any) -> _Object:
    match kind:
        case "strategic":
            return merge(manifest, value, type_of(manifest["apiVersion"], manifest["kind"]))
        case "merge":
            merged: _Object = _merge_patch(manifest, value)
            return merged
        case "json":
            patched: _Object = json_patch.apply(manifest, json_patch.operations(value))
            return patched
    raise SpecError(f"unknown patch type {kind}")


def _merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON Merge Patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_patch(result.get(key), value)
    return result


def _check_structure(changed: Any) -> None:
    """Refuse a manifest without the fields that the following code reads."""
    meta, spec = _mapping_at(changed, "", "metadata"), _mapping_at(changed, "", "spec")
    template = _mapping_at(spec, "spec", "template")
    pod = _mapping_at(template, "spec.template", "spec")
    if not isinstance(pod.get("containers"), list):
        raise _no_deployment("spec.template.spec.containers must be a list")
    if template.get("metadata") is None:
        template["metadata"] = {}
    for owner, where in (
        (meta, "metadata"),
        (_mapping_at(template, "spec.template", "metadata"), "spec.template.metadata"),
    ):
        for field in ("labels", "annotations"):
            if owner.get(field) is not None:
                _mapping_at(owner, where, field)


def _mapping_at(holder: Any, where: str, field: str) -> _Object:
    found = holder.get(field) if isinstance(holder, dict) else None
    if not isinstance(found, dict):
        raise _no_deployment(f"{where}.{field} must be a mapping".lstrip("."))
    return found


def _no_deployment(problem: str) -> CannotRenderError:
    return _bad_patch(f"its result is not a Deployment: {problem}")


def _bad_patch(problem: str) -> CannotRenderError:
    return CannotRenderError(Reason.BAD_PATCH, f"patch: {problem}")
