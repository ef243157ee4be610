"""From a baseline and the ordered changes to the fork's manifest, and the Service that leads to it. Pure.

The fork is born without replicas. Every label of the baseline, and of its pods above all, is left behind, so that no
Service, NetworkPolicy or disruption budget of the baseline selects the fork's pods; these carry one of their own, which
is also the fork's selector.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.fork import addresses, patch, rights, shape
from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.rights import Leave
from dayfly.execute.pod.names import GROUP, RUN_LABEL, derive_name
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.objects import ObjectMeta
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import EnvChange, ForkUnit, Unit, digest

FORK_LABEL = f"{GROUP}/fork"
# On a fork's Service: the baseline's Service whose ports it has.
LIKE_LABEL = f"{GROUP}/like"
FORM_ANNOTATION = f"{GROUP}/form"
REPLICAS_ANNOTATION = f"{GROUP}/replicas"

_KEPT_OF_META = ("namespace", "labels", "annotations")

Hosts = Mapping[tuple[str, str], tuple[str, int]]
"""Where the forks of a run answer, host and first port, by namespace and name of their baselines."""


class ForkIdentity(NamedTuple):
    """Whose fork it is: its name, the run's name, and the run as an owner reference."""

    name: str
    run: str
    owner: dict[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return {FORK_LABEL: self.name, RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "dayfly"}


def fork_name(target: str, uid: str, namespace: str, baseline: str) -> str:
    """The name of a fork, and of the Service that leads to it; `target` and `uid` are the ledger's."""
    return derive_name("f", f"{target[:14]}-{baseline}", "fork", uid, namespace, baseline)


def form(unit: Unit, baseline: ObjectMeta, hosts: Hosts) -> str:
    """A short name for all that a fork is made of: its wish, that version of its baseline, where others answer."""
    answers = [f"{place}={hosts.get(place)}" for place in elsewhere(unit)]
    return derive_name("", "", digest(unit), baseline.uid, str(baseline.generation), *answers)


def elsewhere(unit: Unit) -> list[tuple[str, str]]:
    """The baselines, as namespace and name, whose forks this one is told the addresses of."""
    return list(dict.fromkeys((of.namespace, of.name) for of in addresses.peers(unit)))


def fork(
    unit: Unit,
    baseline: dict[str, Any],
    identity: ForkIdentity,
    *,
    inputs: Mapping[str, PodSecretKey | None],
    hosts: Hosts,
    leave: Leave,
) -> dict[str, Any]:
    """The manifest of the fork, with no replicas; how many it wants (one, unless its patch says more) is noted beside.

    Args:
        unit: The wish.
        baseline: What it derives from, as it is now.
        identity: Whose fork it is.
        inputs: Where each input's value lies in the fork's namespace, None for one that is absent.
        hosts: Where the other forks answer that it is told of.
        leave: How far it may differ from its baseline.

    Raises:
        CannotRenderError: a change that does not fit the baseline, or that would give the fork more than that has.
    """
    assert unit.fork is not None, "only forks derive from a baseline"
    manifest = copy.deepcopy(baseline)
    manifest.pop("status", None)
    manifest["metadata"] = {key: value for key, value in manifest["metadata"].items() if key in _KEPT_OF_META}
    # How many pods carry everybody's traffic, or that a rollout is held, says nothing of a fork.
    manifest["spec"] |= {"replicas": 1}
    manifest["spec"].pop("paused", None)
    pod = manifest["spec"]["template"]["spec"]
    _images(unit.fork, pod)
    for change in unit.fork.env:
        _env(change, pod, inputs, hosts)
    if unit.fork.patch is not None:
        manifest = patch.apply(manifest, unit.fork.patch)
    replicas = _replicas(manifest)
    for place, before in ((manifest, baseline), (manifest["spec"]["template"], baseline["spec"]["template"])):
        _relabel(place, before, identity)
    manifest |= {"apiVersion": baseline["apiVersion"], "kind": baseline["kind"]}
    manifest["spec"] |= {"replicas": 0, "selector": {"matchLabels": {FORK_LABEL: identity.name}}}
    form_now = form(unit, msgspec.convert(baseline["metadata"], ObjectMeta), hosts)
    noted = {REPLICAS_ANNOTATION: str(replicas), FORM_ANNOTATION: form_now}
    before = baseline["metadata"]
    manifest["metadata"] = {
        "name": identity.name,
        "namespace": before["namespace"],
        "labels": manifest["metadata"]["labels"],
        "annotations": _without(manifest["metadata"].get("annotations"), before.get("annotations")) | noted,
        "ownerReferences": [identity.owner],
    }
    values = [_reference(where) for where in inputs.values() if where is not None]
    rights.check(manifest, baseline, own={*identity.labels, *noted}, values=values, leave=leave)
    return manifest


def leading(services: Iterable[ForkService], name: str, labels: Mapping[str, str]) -> ForkService | None:
    """The Service whose ports a fork's own gets: one that selects the baseline's pods, by preference its namesake.

    `name` is the baseline's, `labels` are its pods'; `services` are of its namespace.
    """
    found = [
        each
        for each in services
        if each.spec.selector
        and RUN_LABEL not in (each.metadata.labels or {})
        and each.spec.selector.items() <= labels.items()
    ]
    return min(found, key=lambda each: (each.metadata.name != name, each.metadata.name), default=None)


def service(like: ForkService, identity: ForkIdentity) -> dict[str, Any]:
    """A Service with the ports of the baseline's, that leads to the fork's pods alone."""
    headless = {"clusterIP": "None"} if like.spec.cluster_ip == "None" else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": identity.name,
            "namespace": like.metadata.namespace,
            "labels": {**identity.labels, LIKE_LABEL: like.metadata.name},
            "ownerReferences": [identity.owner],
        },
        "spec": {"selector": {FORK_LABEL: identity.name}, "ports": ports(like), **headless},
    }


def ports(of: ForkService) -> list[dict[str, Any]]:
    """A Service's ports as they are written."""
    found: list[dict[str, Any]] = msgspec.to_builtins(of.spec.ports or [])
    return found


def first_port(of: ForkService) -> int:
    """The first port of a Service; 0 if it has none."""
    return of.spec.ports[0].port if of.spec.ports else 0


def _images(wished: ForkUnit, pod: dict[str, Any]) -> None:
    for change in wished.images:
        _container(pod, str(change.get("container") or ""), "images")["image"] = change["image"]


def _container(pod: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """The container of that name; the first is the main one."""
    containers: list[dict[str, Any]] = [*pod["containers"], *(pod.get("initContainers") or ())]
    if not name:
        return containers[0]
    found = next((container for container in containers if container["name"] == name), None)
    if found is None:
        known = ", ".join(container["name"] for container in containers)
        raise CannotRenderError(
            Reason.CONTAINER_NOT_FOUND, f"{where}: the baseline has no container {name}; it has {known}"
        )
    return found


def _env(change: EnvChange, pod: dict[str, Any], inputs: Mapping[str, PodSecretKey | None], hosts: Hosts) -> None:
    """One change; a variable keeps its place, for others may be made of it."""
    container = _container(pod, change.container, f"env {change.name}")
    env = list(container.get("env") or [])
    at = next((index for index, item in enumerate(env) if item["name"] == change.name), len(env))
    env[at : at + 1] = [] if change.delete else [{"name": change.name, **_value(change, inputs, hosts)}]
    container["env"] = env


def _value(change: EnvChange, inputs: Mapping[str, PodSecretKey | None], hosts: Hosts) -> dict[str, Any]:
    if change.input:
        where = inputs.get(change.input)
        if where is None:
            return {"value": ""}
        return {"valueFrom": _reference(where)}
    if not change.source:
        return {"value": change.value}
    for kind, reference in (("configMap", "configMapKeyRef"), ("secret", "secretKeyRef")):
        if kind in change.source:
            return {"valueFrom": {reference: change.source[kind]}}
    return {"value": _address(change, hosts)}


def _reference(where: PodSecretKey) -> dict[str, Any]:
    return {"secretKeyRef": {"name": where.secret, "key": where.key}}


def _address(change: EnvChange, hosts: Hosts) -> str:
    of = addresses.peer(change)
    assert of is not None, "asked for a value from another fork"
    where = hosts.get((of.namespace, of.name))
    if where is None or (addresses.asks_for_port(change) and not where[1]):
        raise CannotRenderError(
            Reason.FORK_WITHOUT_SERVICE,
            f"env {change.name}: no Service with a port leads to the baseline {of.namespace}/{of.name}, so its "
            "fork has no address",
        )
    return addresses.filled_in(change, *where)


def _replicas(manifest: dict[str, Any]) -> int:
    wanted = manifest["spec"].get("replicas", 1)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= shape.MOST_REPLICAS:
        problem = f"patch: spec.replicas must be a whole number from 1 to {shape.MOST_REPLICAS}"
        raise CannotRenderError(Reason.BAD_PATCH, problem)
    return wanted


def _relabel(place: dict[str, Any], before: dict[str, Any], identity: ForkIdentity) -> None:
    """Keep of the labels those that the patch has added, and add our own."""
    meta = place.get("metadata") or {}
    labels = _without(meta.get("labels"), (before.get("metadata") or {}).get("labels")) | identity.labels
    place["metadata"] = {**meta, "labels": labels}


def _without(entries: Mapping[str, str] | None, before: Mapping[str, str] | None) -> dict[str, str]:
    """Those whose keys were not there before: by the baseline's, other tools would take the fork for theirs."""
    return {key: value for key, value in (entries or {}).items() if key not in (before or {})}
