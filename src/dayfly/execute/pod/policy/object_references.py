"""References of a pod to Secrets, ConfigMaps and PersistentVolumeClaims of its namespace."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dayfly.execute.pod.policy.rows import Problem
from dayfly.execute.pod.render import VOLUME
from dayfly.spec.scalars import kube_names

SECRET, CONFIG_MAP, CLAIM = "Secret", "ConfigMap", "PersistentVolumeClaim"


class Reference(NamedTuple):
    """An object of the pod's namespace, the field that names it, and the keys that it must have."""

    kind: str
    name: str
    path: str
    keys: tuple[str, ...] = ()


def references(pod: dict[str, Any]) -> list[Reference]:
    """Return all references except those of the runner's volume. The pod must have passed the shapes."""
    spec = pod["spec"]
    found = [*_of_volumes(spec.get("volumes") or [])]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            found += _of_container(container, f"spec.{field}[{index}]")
    for index, each in enumerate(spec.get("imagePullSecrets") or []):
        found.append(Reference(SECRET, each.get("name") or "", f"spec.imagePullSecrets[{index}]"))
    return found


def check(pod: dict[str, Any], *, inline: bool) -> Iterator[Problem]:
    """Yield a problem for each invalid name, and for each reference of an inline plugin.

    An inline plugin has only the rights of its tenant, not those of the operator.
    """
    for kind, name, path, _ in references(pod):
        if not kube_names.is_object(name):
            yield path, f"is not a valid name of a {kind}"
        elif inline:
            yield path, f"reads {kind} {name}: only a published plugin can be granted that"


def _of_volumes(volumes: list[dict[str, Any]]) -> Iterator[Reference]:
    for index, volume in enumerate(volumes):
        if volume["name"] == VOLUME:
            continue
        here = f"spec.volumes[{index}]"
        if (secret := volume.get("secret")) is not None:
            yield Reference(SECRET, secret.get("secretName") or "", f"{here}.secret", _keys(secret))
        if (config := volume.get("configMap")) is not None:
            yield Reference(CONFIG_MAP, config.get("name") or "", f"{here}.configMap", _keys(config))
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            yield Reference(CLAIM, claim["claimName"], f"{here}.persistentVolumeClaim")
        for position, source in enumerate((volume.get("projected") or {}).get("sources") or []):
            yield from _named(source, (("secret", SECRET), ("configMap", CONFIG_MAP)), f"{here}.sources[{position}]")


def _of_container(container: dict[str, Any], here: str) -> Iterator[Reference]:
    for index, env in enumerate(container.get("env") or []):
        kinds = (("secretKeyRef", SECRET), ("configMapKeyRef", CONFIG_MAP))
        yield from _named(env.get("valueFrom") or {}, kinds, f"{here}.env[{index}]")
    for index, source in enumerate(container.get("envFrom") or []):
        yield from _named(source, (("secretRef", SECRET), ("configMapRef", CONFIG_MAP)), f"{here}.envFrom[{index}]")


def _named(source: dict[str, Any], kinds: tuple[tuple[str, str], ...], path: str) -> Iterator[Reference]:
    for field, kind in kinds:
        if (named := source.get(field)) is not None:
            yield Reference(kind, named.get("name") or "", path, _keys(named))


def _keys(source: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys that the kubelet needs to start the containers."""
    if source.get("optional"):
        return ()
    items = [str(item["key"]) for item in source.get("items") or []]
    return (*items, str(source["key"])) if "key" in source else tuple(items)
