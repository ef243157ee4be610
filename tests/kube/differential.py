"""Random requests that are sent to the fake and to a real API server, and comparisons of the results."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.kube.fake import custom

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Style
from dayfly.kube.objects import NAMESPACES, PODS, SECRETS, ApiResource, untyped_resource

GROUP = "test.dayfly.dev"
THINGS = untyped_resource(f"{GROUP}/v1", "Thing", "things")
LEDGERS = untyped_resource(f"{GROUP}/v1", "Ledger", "ledgers", namespaced=False)
DEPLOYMENTS = untyped_resource("apps/v1", "Deployment", "deployments")
SERVICES = untyped_resource("v1", "Service", "services")
FAKE_KINDS = [
    custom(GROUP, "v1", "things", "Thing"),
    custom(GROUP, "v1", "ledgers", "Ledger", namespaced=False, status=False),
]
_RESOURCES = {
    "things": THINGS,
    "ledgers": LEDGERS,
    "secrets": SECRETS.read_as(dict[str, Any]),
    "pods": PODS.read_as(dict[str, Any]),
    "deployments": DEPLOYMENTS,
    "services": SERVICES,
}
# Controllers of a real cluster also write to these, at any time.
_ATTENDED = ("deployments", "services")
_WRONG_UID = "00000000-0000-0000-0000-000000000000"


@dataclasses.dataclass(frozen=True)
class Step:
    """One request. `uid` and `version`: "" for none, "now", "first" (the first one of that name) or "wrong"."""

    verb: str
    plural: str
    name: str
    uid: str = ""
    version: str = ""
    value: Any = None
    style: Style = Style.MERGE
    subresource: str = ""


def draw(dice: random.Random, count: int) -> list[Step]:
    """Return random steps over a few names, so that they collide."""
    return [_one(dice) for _ in range(count)]


def draw_workloads(dice: random.Random, count: int) -> list[Step]:
    """Return random steps for Deployments without replicas, and for Services."""
    return [_workload(dice) for _ in range(count)]


def _workload(dice: random.Random) -> Step:
    plural, name = dice.choice(_ATTENDED), dice.choice(["a", "b"])
    uid = dice.choice(["", "", "now", "first", "wrong"])
    verb = dice.choice(["create", "create", "update", "patch", "patch", "delete"])
    match verb:
        case "create":
            made = _deployment(dice) if plural == "deployments" else _service(dice)
            return Step(verb, plural, name, value=made | {"metadata": {"labels": {"x": str(dice.randint(0, 2))}}})
        case "delete":
            return Step(verb, plural, name, uid)
    style = Style.MERGE if verb == "update" else dice.choice([Style.MERGE, Style.STRATEGIC])
    changes: list[dict[str, Any]] = [{"metadata": {"labels": {"x": str(dice.randint(0, 2))}}}]
    if plural == "deployments":
        template = {"metadata": {"labels": dice.choice([{"app": "a"}, {"app": "b"}, {"app": "a", "more": "c"}])}}
        changes += [{"spec": {"template": template}}, {"spec": {"selector": {"matchLabels": {"app": "b"}}}}]
        changes += [{"spec": {"minReadySeconds": dice.randint(1, 3)}}, {"spec": {"replicas": None}}]
    else:
        changes += [_service(dice), {"spec": {"ports": None}}, {"spec": {"selector": {"app": "b"}}}]
        changes += [{"spec": {"clusterIP": "None"}}]
    return Step(verb, plural, name, uid, value=dice.choice(changes), style=style)


def _deployment(dice: random.Random) -> dict[str, Any]:
    labels = dice.choice([{"app": "a"}, {"app": "a"}, {"app": "a"}, {"app": "b"}, None])
    spec: dict[str, Any] = {"replicas": 0, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
    if labels is not None:
        spec |= {"selector": {"matchLabels": {"app": "a"}}}
        spec["template"]["metadata"] = {"labels": labels}
    return {"spec": spec}


def _service(dice: random.Random) -> dict[str, Any]:
    ports = [{"port": dice.randint(80, 82)}, {"port": 90, "targetPort": "web", "name": "web"}]
    ports[0] |= {"name": "first"}
    spec: dict[str, Any] = {"selector": {"app": "a"}, "ports": ports[: dice.randint(0, 2)]}
    return {"spec": spec | dice.choice([{}, {}, {"clusterIP": "None"}])}


def _one(dice: random.Random) -> Step:
    plural = dice.choice(["things", "things", "ledgers", "secrets", "pods", "pods"])
    name = dice.choice(["a", "b"])
    uid = dice.choice(["", "", "", "now", "first", "wrong"])
    version = dice.choice(["", "", "now", "now", "first"])
    verb = dice.choice(["create", "create", "update", "patch", "patch", "patch", "delete", "delete", "special"])
    match verb:
        case "create":
            return Step(verb, plural, name, value=_born(dice, plural))
        case "delete":
            return Step(verb, plural, name, uid, version, dice.choice([None, None, 0, 1, 60]))
        case "update":
            return Step(verb, plural, name, uid, version, _change(dice, plural))
        case "patch":
            style = dice.choice([Style.MERGE, Style.MERGE, Style.JSON, Style.STRATEGIC])
            if plural in ("things", "ledgers") and dice.random() < 0.2:
                status = {"status": {"said": dice.randint(0, 2)}}
                return Step(verb, plural, name, uid, version, status, Style.MERGE, "status")
            value = _operations(dice) if style is Style.JSON else _change(dice, plural)
            return Step(verb, plural, name, uid, version, value, style)
    if plural == "pods":
        return Step(dice.choice(["bind", "evict", "ungate", "end"]), plural, name, uid)
    return Step("dry-delete", plural, name, uid)


def _born(dice: random.Random, plural: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": {"x": str(dice.randint(0, 2))}}
    if dice.random() < 0.5:
        metadata["finalizers"] = dice.choice([["test.dayfly.dev/one"], ["test.dayfly.dev/one", "test.dayfly.dev/two"]])
    match plural:
        case "secrets":
            secret: dict[str, Any] = {"metadata": metadata, "data": {"a": "YQ=="}}
            return secret | ({"immutable": True} if dice.random() < 0.3 else {})
        case "pods":
            spec = {
                "schedulerName": "nobody",
                "containers": [{"name": "main", "image": "none"}],
                "automountServiceAccountToken": False,
            }
            gates = dice.choice([[], ["test.dayfly.dev/gate"], ["test.dayfly.dev/gate", "test.dayfly.dev/other"]])
            return {"metadata": metadata, "spec": spec | {"schedulingGates": [{"name": gate} for gate in gates]}}
    return {"metadata": metadata, "spec": {"n": dice.randint(0, 2)}, "status": {"said": dice.randint(0, 2)}}


def _change(dice: random.Random, plural: str) -> dict[str, Any]:
    changes: list[dict[str, Any]] = [
        {"metadata": {"labels": {"x": str(dice.randint(0, 2))}}},
        {"metadata": {"labels": None}},
        {"metadata": {"annotations": {"note": str(dice.randint(0, 2))}}},
        {"metadata": {"finalizers": None}},
        {"metadata": {"finalizers": ["test.dayfly.dev/one"]}},
        {"metadata": {"finalizers": []}},
    ]
    match plural:
        case "secrets":
            changes += [{"data": {"a": "Yg=="}}, {"data": {"a": None}}, {"type": "other"}]
        case "pods":
            gates = dice.choice([[], ["test.dayfly.dev/gate"], ["test.dayfly.dev/new"]])
            changes += [{"spec": {"schedulingGates": [{"name": gate} for gate in gates] or None}}]
            changes += [{"spec": {"restartPolicy": "Never"}}, {"spec": {"activeDeadlineSeconds": 100}}]
        case _:
            changes += [
                {"spec": {"n": dice.randint(0, 2), "deep": {"er": [dice.randint(0, 2)]}}},
                {"spec": {"deep": None}},
                {"status": {"said": dice.randint(0, 2)}},
                {"spec": {"n": dice.randint(0, 2)}, "status": {"said": dice.randint(0, 2)}},
            ]
    return dice.choice(changes)


def _operations(dice: random.Random) -> list[dict[str, Any]]:
    return dice.choice(
        [
            [{"op": "add", "path": "/metadata/labels", "value": {"x": "9"}}],
            [{"op": "remove", "path": "/metadata/finalizers"}],
            [
                {"op": "test", "path": "/metadata/finalizers/0", "value": "test.dayfly.dev/one"},
                {"op": "remove", "path": "/metadata/finalizers/0"},
            ],
            [{"op": "replace", "path": "/metadata/labels/x", "value": "8"}],
        ]
    )


class Player:
    """Sends steps to one server, and describes the results independently of the server."""

    def __init__(self, client: KubeClient, namespace: str, prefix: str) -> None:
        self._client = client
        self._namespace = namespace
        self._prefix = prefix
        self._seen: dict[tuple[str, str], list[tuple[str, str]]] = {}

    async def play(self, step: Step) -> tuple[Any, Any]:
        """Return the response, and the object afterwards."""
        resource = _RESOURCES[step.plural]
        try:
            answer = await self._do(step, resource)
            said: Any = self._told(step, answer) if answer else "done"
        except errors.Refused as no:
            said = (type(no).__name__, no.status, no.reason)
        return said, await self._there(step, resource)

    async def _do(self, step: Step, resource: ApiResource[dict[str, Any]]) -> Any:
        name, where = self._prefix + step.name, self._namespace if resource.namespaced else ""
        uid, version = self._pick(step, step.uid, 0), self._pick(step, step.version, 1)
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        guard = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        client = self._client
        match step.verb:
            case "create":
                body = about | step.value | {"metadata": step.value["metadata"] | {"name": name}}
                return await client.create(resource, body, where)
            case "update":
                current = await client.get(resource, name, where)
                body = _laid_over(current, step.value)
                body["metadata"] = {
                    key: value for key, value in body["metadata"].items() if key not in ("uid", "resourceVersion")
                } | guard
                return await client.update(resource, body, name, where)
            case "patch" if step.style is Style.JSON:
                return await client.patch(resource, step.value, name, where, style=step.style)
            case "patch":
                patch = step.value | {"metadata": step.value.get("metadata", {}) | guard}
                return await client.patch(resource, patch, name, where, style=step.style, subresource=step.subresource)
            case "delete":
                return await client.delete(resource, name, where, uid=uid, resource_version=version, grace=step.value)
            case "dry-delete":
                return await client.delete(resource, name, where, uid=uid, dry_run=True)
            case "evict":
                return await client.evict(name, where, uid=uid)
            case "ungate":
                patch = {"metadata": guard, "spec": {"schedulingGates": None}}
                return await client.patch(resource, patch, name, where)
            case "end":
                patch = {"metadata": guard, "status": {"phase": "Succeeded"}}
                return await client.patch(resource, patch, name, where, subresource="status")
            case "bind":
                body = {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": "nowhere"},
                }  # fmt: skip
                request = untyped_resource("v1", "Binding", f"pods/{name}/binding")
                await client.create(request, body, where)
                return None
        raise AssertionError(step.verb)

    async def _there(self, step: Step, resource: ApiResource[dict[str, Any]]) -> Any:
        try:
            where = self._namespace if resource.namespaced else ""
            return self._told(step, await self._client.get(resource, self._prefix + step.name, where))
        except errors.NotFound:
            return "nothing"

    def _pick(self, step: Step, which: str, part: int) -> str:
        seen = self._seen.get((step.plural, step.name), [])
        if which == "wrong":
            return _WRONG_UID
        if not which or not seen:
            return ""
        return seen[-1 if which == "now" else 0][part]

    def _told(self, step: Step, item: dict[str, Any]) -> Any:
        """Return the comparable part of an object; identities only as changed or unchanged."""
        metadata = item["metadata"]
        identity = (metadata["uid"], metadata["resourceVersion"])
        seen = self._seen.setdefault((step.plural, step.name), [])
        news = tuple(now != before for now, before in zip(identity, seen[-1], strict=True)) if seen else (True, True)
        if any(news):
            seen.append(identity)
        kept = ("labels", "annotations", "finalizers", "generation", "deletionGracePeriodSeconds")
        told = {key: metadata[key] for key in kept if key in metadata}
        told["deleting"] = "deletionTimestamp" in metadata
        spec = item.get("spec", {})
        if step.plural in _ATTENDED:
            return self._told_attended(step, item), news[:1]
        if step.plural == "pods":
            gates = spec.get("schedulingGates", [])
            told["spec"] = (gates, spec.get("nodeName"), spec["restartPolicy"], spec.get("activeDeadlineSeconds"))
            told["phase"] = item["status"].get("phase")
        else:
            told |= {"spec": spec, "status": item.get("status"), "data": item.get("data"), "type": item.get("type")}
        return told, news

    def _told_attended(self, step: Step, item: dict[str, Any]) -> Any:
        """Return the part that controllers of a cluster do not change."""
        spec, labels = item["spec"], item["metadata"].get("labels")
        if step.plural == "services":
            headless = spec["clusterIP"] == "None"
            ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec.get("ports", [])]
            return labels, spec["type"], spec.get("selector"), ports, headless
        template = spec["template"]
        told = spec["replicas"], spec["selector"], spec.get("minReadySeconds"), template["metadata"].get("labels")
        return labels, told, [container["image"] for container in template["spec"]["containers"]]


def _laid_over(current: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Apply a merge patch (RFC 7386), independently of the fake, whose mistakes it must find."""
    result = {key: value for key, value in current.items() if change.get(key, value) is not None}
    for key, value in change.items():
        if isinstance(value, dict):
            result[key] = _laid_over(result.get(key) or {}, value)
        elif value is not None:
            result[key] = value
    return result


async def prepare(client: KubeClient) -> None:
    """Define our kinds on a real server."""
    crds = untyped_resource(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )
    for resource, status in ((THINGS, True), (LEDGERS, False)):
        schema = {
            "type": "object",
            "properties": {
                key: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} for key in ("spec", "status")
            },
        }
        version: dict[str, Any] = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
        crd = {
            "apiVersion": crds.api_version,
            "kind": crds.kind,
            "metadata": {"name": f"{resource.plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "names": names,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "versions": [version | ({"subresources": {"status": {}}} if status else {})],
            },
        }
        try:
            await client.create(crds, crd)
        except errors.AlreadyExists:
            continue
    for resource in (THINGS, LEDGERS):
        await _there(lambda resource=resource: client.page(resource, limit=1))


async def new_namespace(client: KubeClient) -> str:
    """Create a namespace in which pods can be created."""
    made = await client.create(NAMESPACES, {"metadata": {"generateName": "kube-"}})
    accounts = untyped_resource("v1", "ServiceAccount", "serviceaccounts")
    await _there(lambda: client.get(accounts, "default", made.metadata.name))
    return made.metadata.name


async def _there(ask: Callable[[], Awaitable[Any]]) -> None:
    """Poll until the object exists."""
    async with asyncio.timeout(60):
        while True:
            try:
                await ask()
            except errors.ABSENT:
                await asyncio.sleep(0.05)
            else:
                return
