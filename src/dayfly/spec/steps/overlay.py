"""`podTemplateOverlay`: text of a partial pod template, which must not contradict settings of Dayfly.

The host that merges it decides whether the pod is allowed in its cluster.
"""

from __future__ import annotations

from typing import Any

from dayfly.spec.errors import Path, SpecError, quote, render_path
from dayfly.spec.parsing import text

MAIN = "main"
RUNNER_NAMESPACES = ("", "signadot", "dayfly-runners")
"""The default namespace of steps, in three spellings."""

_RESERVED_PREFIX = "dayfly-"
_RESERVED = {
    "volumes": "signadot-execunit-io",
    "initContainers": "signadot-execunit-input-manager",
    "containers": "signadot-execunit-output-manager",
}
_TEMPLATE_FIELDS = {"apiVersion", "kind", "metadata", "spec"}


def parse_overlay(overlay: str) -> dict[str, Any]:
    """Return the partial pod template of an overlay's text, without its empty values; empty for empty text.

    Raises:
        SpecError: It is not YAML or not a mapping. Lines and paths are relative to the overlay.
    """
    documents = text.parse(overlay, file="")
    if not documents:
        return {}
    if len(documents) > 1:
        raise SpecError(f"holds {len(documents)} documents; write one")
    data = documents[0].data
    if not isinstance(data, dict):
        raise SpecError(f"must be a mapping with metadata or spec, not {text.kind_of(data)}")
    return _without_empty(data)


def _without_empty(template: dict[str, Any]) -> dict[str, Any]:
    """Return the value without empty values. Kubernetes would merge a null by removing Dayfly's own setting."""
    # It is merged into a pod, which has these fields itself.
    found = {
        field: value
        for field, value in template.items()
        if field not in ("apiVersion", "kind") and (value is not None or field not in _TEMPLATE_FIELDS)
    }
    spec = found.get("spec")
    if isinstance(spec, dict):
        found["spec"] = {field: value for field, value in spec.items() if not _is_empty(field, value)}
        if isinstance(containers := spec.get("containers"), list):
            found["spec"]["containers"] = [_without_empty_image(each) for each in containers]
    return found


def _is_empty(field: str, value: Any) -> bool:
    return (value is None and field in _RESERVED) or (value in (None, "") and field == "restartPolicy")


def _without_empty_image(container: Any) -> Any:
    if isinstance(container, dict) and container.get("image", MAIN) in (None, ""):
        return {field: value for field, value in container.items() if field != "image"}
    return container


def check_overlay(overlay: str, keys: Path, *, image: str, namespace: str) -> None:
    """Check an overlay by the rules of a pod template.

    Args:
        overlay: The YAML text.
        keys: The path to it, for the error.
        image: The runner's image, which the overlay must not contradict.
        namespace: The runner's namespace, likewise.

    Raises:
        SpecError: The fault, at `keys`. The message has the place in the overlay.
    """
    try:
        _check_template(parse_overlay(overlay), image, namespace)
    except SpecError as fault:
        place = f"line {fault.line} of the overlay: " if fault.line else ""
        inner = f"{render_path(fault.keys)}: " if fault.keys else ""
        raise SpecError(f"{place}{inner}{fault.problem}", keys) from None


def _check_template(template: dict[str, Any], image: str, namespace: str) -> None:
    if unknown := set(template) - _TEMPLATE_FIELDS:
        raise SpecError(f"a pod template has metadata and spec, not {quote(min(unknown))}")
    _check_metadata(_mapping(template, "metadata"), namespace)
    _check_spec(_mapping(template, "spec"), image)


def _mapping(template: dict[str, Any], field: str) -> dict[str, Any]:
    value = template.get(field, {})
    if not isinstance(value, dict):
        raise SpecError(f"must be a mapping, not {text.kind_of(value)}", (field,))
    return value


def _check_metadata(metadata: dict[str, Any], namespace: str) -> None:
    if metadata.get("name"):
        raise SpecError("leave the name out; each step's pod gets its own", ("metadata", "name"))
    own = namespace if metadata.get("namespace") in (None, "") else metadata["namespace"]
    if not isinstance(own, str):
        raise SpecError(f"must be a string, not {text.kind_of(own)}", ("metadata", "namespace"))
    same = own == namespace or {own, namespace} <= set(RUNNER_NAMESPACES)
    if not same:
        problem = f"{own} contradicts the runner's namespace {namespace or RUNNER_NAMESPACES[1]}; leave it out here"
        raise SpecError(problem, ("metadata", "namespace"))


def _check_spec(spec: dict[str, Any], image: str) -> None:
    if spec.get("restartPolicy", "Never") != "Never":
        raise SpecError("must be Never or left out: a step starts at most once", ("spec", "restartPolicy"))
    for field, reserved in _RESERVED.items():
        items = spec.get(field, [])
        if not isinstance(items, list):
            raise SpecError(f"must be a list, not {text.kind_of(items)}", ("spec", field))
        for index, item in enumerate(items):
            here: Path = ("spec", field, index)
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise SpecError("must be a mapping with a name, because items are merged by name", here)
            name = item["name"]
            if name == reserved or name.startswith(_RESERVED_PREFIX):
                raise SpecError(f"{quote(name)} is a reserved name; choose another", (*here, "name"))
            if field == "containers" and name == MAIN and image and item.get("image", image) != image:
                raise SpecError("contradicts the runner's image; write the image in one place", (*here, "image"))
