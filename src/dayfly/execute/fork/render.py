"""The manifests of a fork and its Service, from the baseline and the requested changes. Pure.

The fork has zero replicas. It has none of the labels of the baseline and its pods, so no Service, NetworkPolicy or
PodDisruptionBudget of the baseline selects its pods. The fork's own label is also its selector.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.fork import addresses, patch, rights, shape
from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.rights import ForkPermissions
from dayfly.execute.pod.names import GROUP, RUN_LABEL, derive_name
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.objects import ObjectMeta
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import EnvChange, ForkUnit, Unit, digest

FORK_LABEL = f"{GROUP}/fork"
# On a fork's Service: the name of the baseline's Service with the same ports.
LIKE_LABEL = f"{GROUP}/like"
FORM_ANNOTATION = f"{GROUP}/form"
REPLICAS_ANNOTATION = f"{GROUP}/replicas"

_KEPT_METADATA = ("namespace", "labels", "annotations")

Hosts = Mapping[tuple[str, str], tuple[str, int]]
"""Host and first port of the forks of a run, by namespace and name of their baselines."""


class ForkIdentity(NamedTuple):
    """The fork's name, the run's name, and the run's owner reference."""

    name: str
    run: str
    owner: dict[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return {FORK_LABEL: self.name, RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "dayfly"}


def fork_name(target: str, uid: str, namespace: str, baseline: str) -> str:
    """Return the name of a fork and its Service. `target` and `uid` are those of the ledger."""
    return derive_name("f", f"{target[:14]}-{baseline}", "fork", uid, namespace, baseline)


def fork_digest(unit: Unit, baseline: ObjectMeta, hosts: Hosts) -> str:
    """Return a digest of everything that a fork depends on: its spec, the baseline's version, addresses of others."""
    answers = [f"{place}={hosts.get(place)}" for place in peer_baselines(unit)]
    return derive_name("", "", digest(unit), baseline.uid, str(baseline.generation), *answers)


def peer_baselines(unit: Unit) -> list[tuple[str, str]]:
    """Return namespace and name of the baselines of the forks whose addresses this fork uses."""
    return list(dict.fromkeys((of.namespace, of.name) for of in addresses.peer_baselines(unit)))


def render_fork(
    unit: Unit,
    baseline: dict[str, Any],
    identity: ForkIdentity,
    *,
    inputs: Mapping[str, PodSecretKey | None],
    hosts: Hosts,
    permissions: ForkPermissions,
) -> dict[str, Any]:
    """Return the manifest of the fork with zero replicas.

    An annotation has the number of replicas to scale to: one, unless the patch sets it.

    Args:
        unit: The fork's unit.
        baseline: The current Deployment of the baseline.
        identity: The fork's name and owner.
        inputs: The Secret of each input in the fork's namespace, None if the input is absent.
        hosts: The addresses of other forks.
        permissions: How the fork may differ from its baseline.

    Raises:
        CannotRenderError: A change does not match the baseline, or gives the fork more rights than the baseline.
    """
    assert unit.fork is not None, "the unit is a fork"
    manifest = copy.deepcopy(baseline)
    manifest.pop("status", None)
    manifest["metadata"] = {key: value for key, value in manifest["metadata"].items() if key in _KEPT_METADATA}
    # The baseline's number of pods and a paused rollout do not apply to the fork.
    manifest["spec"] |= {"replicas": 1}
    manifest["spec"].pop("paused", None)
    pod = manifest["spec"]["template"]["spec"]
    _change_images(unit.fork, pod)
    for change in unit.fork.env:
        _change_env(change, pod, inputs, hosts)
    if unit.fork.patch is not None:
        manifest = patch.apply(manifest, unit.fork.patch)
    replicas = _replicas(manifest)
    for place, before in ((manifest, baseline), (manifest["spec"]["template"], baseline["spec"]["template"])):
        _relabel(place, before, identity)
    manifest |= {"apiVersion": baseline["apiVersion"], "kind": baseline["kind"]}
    manifest["spec"] |= {"replicas": 0, "selector": {"matchLabels": {FORK_LABEL: identity.name}}}
    form_now = fork_digest(unit, msgspec.convert(baseline["metadata"], ObjectMeta), hosts)
    own_annotations = {REPLICAS_ANNOTATION: str(replicas), FORM_ANNOTATION: form_now}
    before = baseline["metadata"]
    manifest["metadata"] = {
        "name": identity.name,
        "namespace": before["namespace"],
        "labels": manifest["metadata"]["labels"],
        "annotations": _added_entries(manifest["metadata"].get("annotations"), before.get("annotations"))
        | own_annotations,
        "ownerReferences": [identity.owner],
    }
    values = [_reference(where) for where in inputs.values() if where is not None]
    rights.check(manifest, baseline, own={*identity.labels, *own_annotations}, values=values, permissions=permissions)
    return manifest


def find_service(services: Iterable[ForkService], name: str, labels: Mapping[str, str]) -> ForkService | None:
    """Return a Service that selects the baseline's pods, preferably with the baseline's name.

    `name` is the baseline's name, `labels` are those of its pods, and `services` are those of its namespace.
    """
    found = [
        each
        for each in services
        if each.spec.selector
        and RUN_LABEL not in (each.metadata.labels or {})
        and each.spec.selector.items() <= labels.items()
    ]
    return min(found, key=lambda each: (each.metadata.name != name, each.metadata.name), default=None)


def render_service(like: ForkService, identity: ForkIdentity) -> dict[str, Any]:
    """Return a Service with the ports of the baseline's Service that selects only the fork's pods."""
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
    """Return the ports of a Service as in its manifest."""
    found: list[dict[str, Any]] = msgspec.to_builtins(of.spec.ports or [])
    return found


def first_port(of: ForkService) -> int:
    """Return the first port of a Service; 0 if it has none."""
    return of.spec.ports[0].port if of.spec.ports else 0


def _change_images(unit: ForkUnit, pod: dict[str, Any]) -> None:
    for change in unit.images:
        _container(pod, str(change.get("container") or ""), "images")["image"] = change["image"]


def _container(pod: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return the container with this name; without a name the first one."""
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


def _change_env(
    change: EnvChange, pod: dict[str, Any], inputs: Mapping[str, PodSecretKey | None], hosts: Hosts
) -> None:
    """Apply a change. A variable keeps its position, because later variables may refer to it."""
    container = _container(pod, change.container, f"env {change.name}")
    env = list(container.get("env") or [])
    at = next((index for index, item in enumerate(env) if item["name"] == change.name), len(env))
    env[at : at + 1] = [] if change.delete else [{"name": change.name, **_variable_source(change, inputs, hosts)}]
    container["env"] = env


def _variable_source(change: EnvChange, inputs: Mapping[str, PodSecretKey | None], hosts: Hosts) -> dict[str, Any]:
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
    of = addresses.peer_baseline(change)
    assert of is not None, "the value is from another fork"
    where = hosts.get((of.namespace, of.name))
    if where is None or (addresses.needs_port(change) and not where[1]):
        raise CannotRenderError(
            Reason.FORK_WITHOUT_SERVICE,
            f"env {change.name}: no Service with a port selects the baseline {of.namespace}/{of.name}, so its "
            "fork has no address",
        )
    return addresses.fill_address(change, *where)


def _replicas(manifest: dict[str, Any]) -> int:
    wanted = manifest["spec"].get("replicas", 1)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= shape.MAX_REPLICAS:
        problem = f"patch: spec.replicas must be a whole number from 1 to {shape.MAX_REPLICAS}"
        raise CannotRenderError(Reason.BAD_PATCH, problem)
    return wanted


def _relabel(place: dict[str, Any], before: dict[str, Any], identity: ForkIdentity) -> None:
    """Keep only labels that the patch has added, and add Dayfly's labels."""
    meta = place.get("metadata") or {}
    labels = _added_entries(meta.get("labels"), (before.get("metadata") or {}).get("labels")) | identity.labels
    place["metadata"] = {**meta, "labels": labels}


def _added_entries(entries: Mapping[str, str] | None, before: Mapping[str, str] | None) -> dict[str, str]:
    """Return new entries. With keys of the baseline, other tools could mistake the fork for the baseline."""
    return {key: value for key, value in (entries or {}).items() if key not in (before or {})}
