"""The rules of Deployments and Services: defaults and refusals."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.kube.fake.refusals import invalid
from tests.kube.fake.store import Object

_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def deployment_born(new: Object) -> None:
    """Set defaults and check fields that a reader uses."""
    spec = new.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _check_selector(spec)


def deployment_changed(old: Object, new: Object) -> None:
    """The selector is immutable, as it determines the pods."""
    deployment_born(new)
    if new["spec"]["selector"] != old["spec"]["selector"]:
        raise invalid("spec.selector", "Invalid value: field is immutable")


def _check_selector(spec: dict[str, Any]) -> None:
    wanted = spec.get("selector", {}).get("matchLabels", {})
    if not wanted:
        raise invalid("spec.selector", "Required value")
    template = spec.get("template", {})
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not wanted.items() <= labels.items():
        raise invalid("spec.template.metadata.labels", "Invalid value: `selector` does not match template `labels`")
    if not template.get("spec", {}).get("containers"):
        raise invalid("spec.template.spec.containers", "Required value")


def service_born(new: Object, dice: random.Random) -> None:
    """Set defaults and check fields that a reader uses; the Service gets an address."""
    name = new["metadata"]["name"]
    if not _SERVICE_NAME.fullmatch(name):
        raise invalid("metadata.name", f'Invalid value: "{name}": a DNS-1035 label must start with a letter')
    _complete(new)
    new["spec"].setdefault("clusterIP", f"10.0.{dice.randint(0, 255)}.{dice.randint(1, 254)}")


def service_changed(old: Object, new: Object) -> None:
    """The address is immutable."""
    spec = new.setdefault("spec", {})
    spec.setdefault("clusterIP", old["spec"]["clusterIP"])
    _complete(new)
    if spec["clusterIP"] != old["spec"]["clusterIP"]:
        raise invalid("spec.clusterIP", "Invalid value: field is immutable")


def _complete(new: Object) -> None:
    spec = new.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        raise invalid("spec.ports", "Required value")
    ports = spec.get("ports", [])
    for port in ports:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
        if len(ports) > 1 and not port.get("name"):
            raise invalid("spec.ports.name", "Required value")
    for told in ([port.get("name") for port in ports], [(port["port"], port["protocol"]) for port in ports]):
        if len(set(told)) < len(told):
            raise invalid("spec.ports", "Duplicate value")
