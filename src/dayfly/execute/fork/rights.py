"""The check of a fork's manifest against its baseline. Pure.

Each field of the finished manifest must equal the baseline's, unless it is on the allow-list in `shape`. So unknown
fields are refused. The check reads only the result of a patch, not the patch.

The author of a Sandbox may choose what a fork runs: image, command, environment, probes and resources. The author may
not choose its rights: ServiceAccount and token, security context, access to the node, node selection and priority
remain those of the baseline. Volumes, and variables from Secrets and ConfigMaps, may change only in the sandbox's own
namespace.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dayfly.execute.fork import shape
from dayfly.execute.pod.names import GROUP
from dayfly.execute.pod.policy.rows import Problem, Row, quantity
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.spec.json_patch import equal

FREE_LABEL = f"{GROUP}/forks"
"""On a namespace, with the value `free`: forks there may differ from their baselines in everything."""

_OURS = f"{GROUP}/"
_MAX_SHOWN = 3
_POD = "spec.template.spec"
_AMOUNT = quantity()

_Object = Mapping[str, Any]


class ForkPermissions(NamedTuple):
    """The permissions of a sandbox's forks in one namespace to differ from their baselines."""

    is_home: bool
    """Whether it is the sandbox's own namespace."""
    is_free: bool = False
    """Whether an administrator has labelled the namespace so that forks may differ in every field."""


def check(
    manifest: _Object, baseline: _Object, *, own: Collection[str], values: Iterable[Any], permissions: ForkPermissions
) -> None:
    """Check a fork's finished manifest.

    Args:
        manifest: The fork, with the structure of a Deployment.
        baseline: The baseline.
        own: The keys of labels and annotations that Dayfly sets on every fork.
        values: The `valueFrom` of each output that this fork reads.
        permissions: How the fork may differ.

    Raises:
        CannotRenderError: The fork differs in a field that is not allowed. The message has the field, the reason and
            the solution.
    """
    problems = list(_reserved_keys(manifest, own))
    if not permissions.is_free:
        problems += _Comparison(values, home=permissions.is_home).compare(manifest, baseline, own)
    if not problems:
        return
    namespace, name = baseline["metadata"]["namespace"], baseline["metadata"]["name"]
    more = f"; and {len(problems) - _MAX_SHOWN} more" if len(problems) > _MAX_SHOWN else ""
    raise CannotRenderError(
        Reason.EXCEEDS_BASELINE,
        f"the fork is refused because its pods would have more rights than those of Deployment {namespace}/{name}: "
        f"{'; '.join(f'{path} {what}' for path, what in problems[:_MAX_SHOWN])}{more}. Remove that, or change the "
        f"baseline; an administrator can also label namespace {namespace} {FREE_LABEL}=free",
    )


class _Comparison:
    """The comparison of a fork with its baseline."""

    def __init__(self, values: Iterable[Any], *, home: bool) -> None:
        self._values = {_canonical(value) for value in values}
        self._home = home

    def compare(self, manifest: _Object, baseline: _Object, own: Collection[str]) -> Iterator[Problem]:
        for key in sorted(manifest.keys() - {"apiVersion", "kind", "metadata", "spec"}):
            yield key, shape.OTHER
        yield from _metadata(manifest["metadata"], {}, own, "metadata")
        spec, before = manifest["spec"], baseline["spec"]
        yield from _differences_except(
            shape.SPEC | {"template", "selector", "replicas", "paused"}, spec, before, "spec"
        )
        if spec.get("paused"):
            yield "spec.paused", "would prevent the fork from starting"
        template, known = spec["template"], before["template"]
        yield from _differences_except({"metadata", "spec"}, template, known, "spec.template")
        meta, known_meta = template["metadata"], known.get("metadata") or {}
        yield from _differences_except({"labels", "annotations"}, meta, known_meta, "spec.template.metadata")
        yield from _metadata(meta, known_meta, own, "spec.template.metadata")
        yield from self._pod(template["spec"], known["spec"])

    def _pod(self, pod: _Object, before: _Object) -> Iterator[Problem]:
        at_home = {"volumes", "imagePullSecrets"} if self._home else set()
        yield from _differences_except({"containers", "initContainers"} | at_home, pod, before, _POD)
        if self._home:
            for path, volume in _new_items(pod, before, "volumes", _POD):
                yield from _check_row(shape.HOME_VOLUME, volume, path)
            secrets = pod.get("imagePullSecrets")
            if secrets is not None and not equal(secrets, before.get("imagePullSecrets")):
                yield from _check_row(shape.HOME_PULL_SECRETS, secrets, f"{_POD}.imagePullSecrets")
        # Volumes with other sources are from the baseline: only the baseline's own mounts of them may remain.
        volumes = [each for each in _items(pod, "volumes") if isinstance(each, dict)]
        closed = {str(each.get("name")) for each in volumes if any(shape.HOME_VOLUME(each, ""))}
        for field in ("containers", "initContainers"):
            known = {item["name"]: item for item in before.get(field) or ()}
            found = {str(item.get("name")): item for item in _items(pod, field) if isinstance(item, dict)}
            if len(_items(pod, field)) != len(found) or found.keys() != known.keys():
                yield f"{_POD}.{field}", f"must be the baseline's own: {', '.join(known) or 'none'}"
                continue
            for name, item in found.items():
                yield from self._container(item, known[name], closed, f"{_POD}.{field}[{name}]")

    def _container(self, item: _Object, before: _Object, closed: Collection[str], here: str) -> Iterator[Problem]:
        lists = {"env", "envFrom", "ports", "resources"} | ({"volumeMounts"} if self._home else set())
        yield from _differences_except({*shape.CONTAINER, *lists}, item, before, here)
        for field, row in shape.CONTAINER.items():
            if item.get(field) is not None and not equal(item[field], before.get(field)):
                yield from _check_row(row, item[field], f"{here}.{field}")
        for path, port in _new_items(item, before, "ports", here):
            yield from _check_row(shape.PORT, port, path)
        yield from _resources(item, before, f"{here}.resources")
        yield from self._environment(item, before, here)
        if self._home:
            for path, mount in _new_items(item, before, "volumeMounts", here):
                problems = list(_check_row(shape.HOME_MOUNT, mount, path))
                yield from problems
                if not problems and mount.get("name") in closed:
                    yield path, shape.MOUNTED

    def _environment(self, item: _Object, before: _Object, here: str) -> Iterator[Problem]:
        for path, variable in _new_items(item, before, "env", here):
            source = variable.get("valueFrom") if isinstance(variable, dict) and len(variable) == 2 else None
            if _canonical(source) in self._values:
                continue
            if self._home:
                yield from _check_row(shape.HOME_VARIABLE, variable, path)
            else:
                for place, what in _check_row(shape.VARIABLE, variable, path):
                    yield place, shape.ELSEWHERE if place.endswith(("secretKeyRef", "configMapKeyRef")) else what
        for path, source in _new_items(item, before, "envFrom", here):
            if self._home:
                yield from _check_row(shape.HOME_VARIABLES, source, path)
            else:
                yield path, shape.ELSEWHERE


def _reserved_keys(manifest: _Object, own: Collection[str]) -> Iterator[Problem]:
    """Yield keys with Dayfly's prefix.

    The operator would write them and controllers would copy them to pods, which bypasses Dayfly's admission policies.
    """
    template = manifest["spec"]["template"]
    for meta, here in ((manifest["metadata"], "metadata"), (template["metadata"], "spec.template.metadata")):
        for field in ("labels", "annotations"):
            for key in sorted(meta.get(field) or {}):
                if key.startswith(_OURS) and key not in own:
                    yield f"{here}.{field}[{key}]", shape.STAMPED
    gates = [
        each.get("name") if isinstance(each, dict) else None for each in _items(template["spec"], "schedulingGates")
    ]
    finalizers = _items(template["metadata"], "finalizers")
    for names, here in ((finalizers, "spec.template.metadata.finalizers"), (gates, f"{_POD}.schedulingGates")):
        if any(not isinstance(name, str) or name.startswith(_OURS) for name in names):
            yield here, shape.STAMPED


def _metadata(meta: _Object, before: _Object, own: Collection[str], here: str) -> Iterator[Problem]:
    """Yield added labels and annotations. Labels of the baseline were removed before, so every label is an addition."""
    for key in sorted(set(meta.get("labels") or {}) - set(own)):
        if not key.startswith(_OURS):
            yield f"{here}.labels[{key}]", shape.ACTED_ON if here == "metadata" else shape.SELECTED
    found, known = meta.get("annotations") or {}, before.get("annotations") or {}
    for key in sorted(found.keys() | known.keys()):
        if not key.startswith((_OURS, *shape.ANNOTATIONS)) and not equal(found.get(key), known.get(key)):
            yield f"{here}.annotations[{key}]", shape.ACTED_ON


def _resources(item: _Object, before: _Object, here: str) -> Iterator[Problem]:
    """Check resources: amounts may change, but not devices of the node (`vendor/name`)."""
    found, known = item.get("resources"), before.get("resources") or {}
    if found is None:
        return
    if not isinstance(found, dict):
        yield here, "must be a mapping"
        return
    yield from _differences_except({"requests", "limits"}, found, known, here)
    for field in ("requests", "limits"):
        amounts, devices = found.get(field) or {}, known.get(field) or {}
        if not isinstance(amounts, dict):
            yield f"{here}.{field}", "must be a mapping"
            continue
        for name in sorted(amounts):
            if problems := list(_AMOUNT(amounts[name], f"{here}.{field}[{name}]")):
                yield from problems
            elif "/" in name and not equal(amounts[name], devices.get(name)):
                yield f"{here}.{field}[{name}]", "would use a device of the node"


def _differences_except(free: Collection[str], found: _Object, before: _Object, here: str) -> Iterator[Problem]:
    """Yield each field that differs from the baseline, except those in `free`."""
    for key in sorted((found.keys() | before.keys()) - set(free)):
        if not equal(found.get(key), before.get(key)):
            what = shape.BORROWED.get(key, shape.OTHER) if found.get(key) is not None else shape.MISSING
            yield f"{here}.{key}", what


def _new_items(holder: _Object, before: _Object, field: str, here: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list that are not in the baseline's list, with their paths."""
    known = {_canonical(item) for item in before.get(field) or ()}
    for index, item in enumerate(_items(holder, field)):
        if _canonical(item) not in known:
            name = item.get("name") if isinstance(item, dict) else None
            yield f"{here}.{field}[{name if isinstance(name, str) else index}]", item


def _items(holder: _Object, field: str) -> list[Any]:
    """Return a list, empty if it is missing. A value that is not a list becomes an item that no rule allows."""
    found = holder.get(field)
    if found is None:
        return []
    return found if isinstance(found, list) else [None]


def _canonical(value: Any) -> str:
    """Return the same text for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def _check_row(row: Row, value: Any, path: str) -> Iterator[Problem]:
    """Yield the problems of a value, with the messages of `shape.BORROWED` if there are any."""
    for place, what in row(value, path):
        yield place, shape.BORROWED.get(place.rpartition(".")[2], what)
