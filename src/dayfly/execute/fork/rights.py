"""How far a fork may differ from its baseline. Pure.

The finished manifest is held against the baseline, field by field, by a list of what may differ (`shape`). Whatever is
not on the list is the baseline's own, also what nobody has thought of. Patches are not looked at: what they made is.

Whoever may write a Sandbox says by a fork what runs (image, command, environment, probes, how much of the machine), and
never with whose rights: ServiceAccount and token, security context, all that is the node's, node choice and priority
are what the baseline was given. Volumes, and variables from Secrets and ConfigMaps, are free in the sandbox's own
namespace alone.
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
_SHOWN = 3
_POD = "spec.template.spec"
_AMOUNT = quantity()

_Object = Mapping[str, Any]


class Leave(NamedTuple):
    """How much is left to a sandbox's forks in one namespace."""

    home: bool
    """It is the sandbox's own."""
    free: bool = False
    """An administrator has labelled it so that forks there may differ in everything."""


def check(manifest: _Object, baseline: _Object, *, own: Collection[str], values: Iterable[Any], leave: Leave) -> None:
    """Hold a fork's finished manifest against its baseline.

    Args:
        manifest: The fork, in its outlines a Deployment.
        baseline: What it derives from.
        own: The keys of labels and annotations that every fork has.
        values: The `valueFrom` of each output that this fork reads.
        leave: What it may.

    Raises:
        CannotRenderError: it differs where it may not. Said is where, whose right that would borrow, and what to do.
    """
    problems = list(_stamped(manifest, own))
    if not leave.free:
        problems += _Comparison(values, home=leave.home).of(manifest, baseline, own)
    if not problems:
        return
    namespace, name = baseline["metadata"]["namespace"], baseline["metadata"]["name"]
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise CannotRenderError(
        Reason.EXCEEDS_BASELINE,
        f"the fork is refused because its pods would have more than those of Deployment {namespace}/{name}: "
        f"{'; '.join(f'{path} {what}' for path, what in problems[:_SHOWN])}{more}. Leave that out, or change the "
        f"baseline; an administrator can also label namespace {namespace} {FREE_LABEL}=free",
    )


class _Comparison:
    """One fork beside one baseline."""

    def __init__(self, values: Iterable[Any], *, home: bool) -> None:
        self._values = {_canonical(value) for value in values}
        self._home = home

    def of(self, manifest: _Object, baseline: _Object, own: Collection[str]) -> Iterator[Problem]:
        for key in sorted(manifest.keys() - {"apiVersion", "kind", "metadata", "spec"}):
            yield key, shape.OTHER
        yield from _noted(manifest["metadata"], {}, own, "metadata")
        spec, before = manifest["spec"], baseline["spec"]
        yield from _same_but(shape.SPEC | {"template", "selector", "replicas", "paused"}, spec, before, "spec")
        if spec.get("paused"):
            yield "spec.paused", "would keep it from ever starting"
        template, known = spec["template"], before["template"]
        yield from _same_but({"metadata", "spec"}, template, known, "spec.template")
        meta, noted = template["metadata"], known.get("metadata") or {}
        yield from _same_but({"labels", "annotations"}, meta, noted, "spec.template.metadata")
        yield from _noted(meta, noted, own, "spec.template.metadata")
        yield from self._pod(template["spec"], known["spec"])

    def _pod(self, pod: _Object, before: _Object) -> Iterator[Problem]:
        at_home = {"volumes", "imagePullSecrets"} if self._home else set()
        yield from _same_but({"containers", "initContainers"} | at_home, pod, before, _POD)
        if self._home:
            for path, volume in _new(pod, before, "volumes", _POD):
                yield from _judged(shape.HOME_VOLUME, volume, path)
            secrets = pod.get("imagePullSecrets")
            if secrets is not None and not equal(secrets, before.get("imagePullSecrets")):
                yield from _judged(shape.HOME_PULL_SECRETS, secrets, f"{_POD}.imagePullSecrets")
        # Volumes that not anybody may have there: of these only the baseline's own mounts stay.
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
        yield from _same_but({*shape.CONTAINER, *lists}, item, before, here)
        for field, row in shape.CONTAINER.items():
            if item.get(field) is not None and not equal(item[field], before.get(field)):
                yield from _judged(row, item[field], f"{here}.{field}")
        for path, port in _new(item, before, "ports", here):
            yield from _judged(shape.PORT, port, path)
        yield from _resources(item, before, f"{here}.resources")
        yield from self._environment(item, before, here)
        if self._home:
            for path, mount in _new(item, before, "volumeMounts", here):
                problems = list(_judged(shape.HOME_MOUNT, mount, path))
                yield from problems
                if not problems and mount.get("name") in closed:
                    yield path, shape.MOUNTED

    def _environment(self, item: _Object, before: _Object, here: str) -> Iterator[Problem]:
        for path, variable in _new(item, before, "env", here):
            source = variable.get("valueFrom") if isinstance(variable, dict) and len(variable) == 2 else None
            if _canonical(source) in self._values:
                continue
            if self._home:
                yield from _judged(shape.HOME_VARIABLE, variable, path)
            else:
                for place, what in _judged(shape.VARIABLE, variable, path):
                    yield place, shape.ELSEWHERE if place.endswith(("secretKeyRef", "configMapKeyRef")) else what
        for path, source in _new(item, before, "envFrom", here):
            if self._home:
                yield from _judged(shape.HOME_VARIABLES, source, path)
            else:
                yield path, shape.ELSEWHERE


def _stamped(manifest: _Object, own: Collection[str]) -> Iterator[Problem]:
    """Keys of ours: we would write them, and the cluster's controllers copy them to pods, past our own policies."""
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


def _noted(meta: _Object, before: _Object, own: Collection[str], here: str) -> Iterator[Problem]:
    """Labels and annotations beside our own. Of the baseline's labels none has stayed, so any label is an addition."""
    for key in sorted(set(meta.get("labels") or {}) - set(own)):
        if not key.startswith(_OURS):
            yield f"{here}.labels[{key}]", shape.ACTED_ON if here == "metadata" else shape.SELECTED
    found, known = meta.get("annotations") or {}, before.get("annotations") or {}
    for key in sorted(found.keys() | known.keys()):
        if not key.startswith((_OURS, *shape.ANNOTATIONS)) and not equal(found.get(key), known.get(key)):
            yield f"{here}.annotations[{key}]", shape.ACTED_ON


def _resources(item: _Object, before: _Object, here: str) -> Iterator[Problem]:
    """How much of the machine is free; its devices (`vendor/name`) are not."""
    found, known = item.get("resources"), before.get("resources") or {}
    if found is None:
        return
    if not isinstance(found, dict):
        yield here, "must be a mapping"
        return
    yield from _same_but({"requests", "limits"}, found, known, here)
    for field in ("requests", "limits"):
        amounts, devices = found.get(field) or {}, known.get(field) or {}
        if not isinstance(amounts, dict):
            yield f"{here}.{field}", "must be a mapping"
            continue
        for name in sorted(amounts):
            if problems := list(_AMOUNT(amounts[name], f"{here}.{field}[{name}]")):
                yield from problems
            elif "/" in name and not equal(amounts[name], devices.get(name)):
                yield f"{here}.{field}[{name}]", "would take a device of the node"


def _same_but(free: Collection[str], found: _Object, before: _Object, here: str) -> Iterator[Problem]:
    """All fields but these must be as the baseline has them."""
    for key in sorted((found.keys() | before.keys()) - set(free)):
        if not equal(found.get(key), before.get(key)):
            what = shape.BORROWED.get(key, shape.OTHER) if found.get(key) is not None else shape.MISSING
            yield f"{here}.{key}", what


def _new(holder: _Object, before: _Object, field: str, here: str) -> Iterator[tuple[str, Any]]:
    """The items of a list that the baseline's does not have in the same form, each with its path."""
    known = {_canonical(item) for item in before.get(field) or ()}
    for index, item in enumerate(_items(holder, field)):
        if _canonical(item) not in known:
            name = item.get("name") if isinstance(item, dict) else None
            yield f"{here}.{field}[{name if isinstance(name, str) else index}]", item


def _items(holder: _Object, field: str) -> list[Any]:
    """A list that may be missing; what is no list is one item that nothing allows."""
    found = holder.get(field)
    if found is None:
        return []
    return found if isinstance(found, list) else [None]


def _canonical(value: Any) -> str:
    """The same text for what is the same in JSON."""
    return json.dumps(value, sort_keys=True)


def _judged(row: Row, value: Any, path: str) -> Iterator[Problem]:
    """What a row has against a value, in the words of whose right it would borrow."""
    for place, what in row(value, path):
        yield place, shape.BORROWED.get(place.rpartition(".")[2], what)
