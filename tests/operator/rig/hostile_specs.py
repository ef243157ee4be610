"""Specs with every string field of their kinds, and the same specs with hostile text in one field."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dayfly.spec.schema import crd

VALUES = (
    "sec b", "../sec-b", "sec-b/status", "a/secrets/bait", "kube-system/pods?watch=1", "a%2fb", "%2e%2e", "a#b", "",
    ".", "..", "x" * 5_000, "n\u00e4me", "a\nb",
)  # fmt: skip
_LAST = re.compile(r"(?i)(name|namespaces?|kind|apiVersion|key|host|target|plugin|container|remove)(\[\])?$")
Path = tuple[Any, ...]
Object = dict[str, Any]

_HEADERS = {"X-Key": {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "}, "X-Plain": "plain"}
_WEBHOOK = {
    "method": "POST",
    "url": "https://dns.internal:8443/v1",
    "path": ["records"],
    "query": {"zone": "z"},
    "headers": _HEADERS,
    "body": {"name": "x"},
    "poll": {
        "location": "$.next",
        "until": {"path": "$.state", "in": ["done"]},
        "failed": {"path": "$.s", "in": ["f"]},
    },
    "find": {"path": ["x"], "query": {"name": "x"}, "when": {"path": "$.id", "in": ["x"]}},
    "tls": {"ca": "-----BEGIN CERTIFICATE-----"},
    "idempotencyKey": "Idempotency-Key",
    "timeouts": {"connect": "10s", "answer": "60s"},
}
_MANIFEST = {
    "apiVersion": "db.example.org/v1",
    "kind": "Claim",
    "metadata": {"name": "mine", "labels": {"app": "x"}, "annotations": {"note": "y"}},
    "spec": {"size": "small"},
}
_VERDICT = {"condition": "Ready", "status": "True"}
_WHEN = {"when": {"path": "$.status.phase", "in": ["Bound"]}}
_OBJECT = {
    "manifest": _MANIFEST,
    "set": {"/spec/size": {"input": "size", "as": "string"}},
    "ready": _VERDICT,
    "failed": _WHEN,
}
_TIMES = {
    "retry": {"backoff": "5s"},
    "timeouts": {"schedule": "1m", "pull": "1m", "run": "1m", "grace": "5s"},
}
_PLAIN = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
    "spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "x"}]}]},
}
_OVERLAY = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "granted", "key": "a"}}}],
                "envFrom": [{"configMapRef": {"name": "granted"}}],
            }
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "granted"}}],
        "imagePullSecrets": [{"name": "granted"}],
    },
}
_RUNNER = {"image": "busybox:1", "namespace": "tools"}


def _input(**source: Any) -> Object:
    return {"name": "size", "type": "text", "as": {"env": "SIZE", "path": "/tmp/size"}, **source}


def _steps(source: Object, *, ends: bool, objects: bool = True) -> list[Object]:
    """Return one step of each kind with all possible fields."""
    made = {"name": "made", "valueFromPath": "/tmp/made", "description": "d", "type": "text"}
    found = {"name": "found", "valueFromJSONPath": "$.id"}
    kept = {"name": "kept", "valueFromSecret": {"key": "k", "name": "kept"}}
    other = {"name": "other", "valueFromSecret": {"key": "k", "nameFromJSONPath": "$.status.secret"}}
    script = {"name": "script", "script": "#!/bin/sh\n", "inputs": [_input(**source)], "outputs": [made], **_TIMES}
    command = {"name": "command", "command": ["/bin/true", "x"], "inputs": [_input(valueFromStep=_OTHER)]}
    bare = {key: value for key, value in _input(**source).items() if key != "as"}
    webhook = {
        "name": "webhook",
        "webhook": _WEBHOOK,
        "inputs": [bare],
        "outputs": [found, {"name": "head", "valueFromHeader": "X-Id"}],
    }
    if ends:
        del webhook["outputs"]
        webhook["webhook"] = {key: value for key, value in _WEBHOOK.items() if key != "find"}
        steps = [script, command, webhook]
        return [*steps, {"name": "drop", "object": {"remove": "object"}}] if objects else steps
    objects_ = [{"name": "object", "object": _OBJECT, "inputs": [bare], "outputs": [kept, other]}]
    return [script, command, webhook, *(objects_ if objects else [])]


_OTHER = {"name": "script", "output": "made"}


def _named(steps: list[Object], event: str) -> list[Object]:
    """Return the same steps with other names, since names are unique in a document."""
    text = json.dumps(steps)
    for name in ("script", "command", "webhook", "object", "drop"):
        text = text.replace(f'"name": "{name}"', f'"name": "{event}-{name}"')
    return json.loads(text.replace('"remove": "object"', f'"remove": "{event}-object"'))


def _hooks(create: Object, ends: Object, events: tuple[str, str, str, str]) -> Object:
    first, second, third, last = events
    return {
        first: _named(_steps(create, ends=False), "a"),
        second: _named(_steps(create, ends=False), "b"),
        third: _named(_steps(ends, ends=True, objects=False), "c"),
        last: [*_named(_steps(ends, ends=True), "a"), *_named(_steps(ends, ends=True), "b")],
    }


def _renamed_ends(hooks: Object, last: str) -> Object:
    for step in hooks[last]:
        step["name"] = f"end-{step['name']}"
        for each in step.get("inputs", ()):
            if "valueFromStep" in each:
                each["valueFromStep"]["name"] = f"end-{each['valueFromStep']['name']}"
    return hooks


_EVENTS = ("preStart", "postStart", "preStop", "postStop")
_PARAM = {"valueFromSandbox": True}
PLUGIN = {
    "description": "d",
    "runner": {**_RUNNER, "podTemplateOverlay": json.dumps(_OVERLAY)},
    "create": _named(_steps(_PARAM, ends=False), "a"),
    "delete": _renamed_ends({"delete": _named(_steps(_PARAM, ends=True), "a")}, "delete")["delete"],
    "inventory": [{"name": "count", "script": "#!/bin/sh\n", "inputs": [{**_input(**_PARAM), "as": {"env": "SIZE"}}]}],
}
_OF = {"kind": "Deployment", "namespace": "shop", "name": "web"}
_FROM_FORK = {"fork": {"forkOf": _OF, "expression": "{{.Service.Host}}"}}
_FROM_RESOURCE = {"resource": {"name": "db", "outputKey": "a-script.made"}}
_ENV = [
    {"name": "A", "value": "x", "container": "main", "operation": "upsert"},
    {"name": "B", "valueFrom": {"configMap": {"name": "mine", "key": "k"}}},
    {"name": "C", "valueFrom": {"secret": {"name": "mine", "key": "k"}}},
]
_FORK = {
    "name": "web",
    "forkOf": _OF,
    "customizations": {
        "images": [{"image": "web:2", "container": "main"}],
        "env": _ENV,
        "patch": {"type": "merge", "value": json.dumps({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})},
    },
    "endpoints": [{"name": "own", "host": "web.shop.svc", "port": 80, "protocol": "http"}],
}
_HEAD = {
    "cluster": "c",
    "description": "d",
    "labels": {"team": "pay"},
    "ttl": {"duration": "8h", "offsetFrom": "createdAt"},
    "localMachineID": "mine",
}
_ENDPOINT = {"name": "way", "target": "http://web.shop.svc:80"}


def _inline(value: Any) -> Any:
    """Return the same steps without values of Secrets, which inline plugins may not read."""
    return json.loads(json.dumps(value).replace(json.dumps(_HEADERS), '{"X-Plain": "plain"}'))


INLINE = {**_inline(PLUGIN), "runner": {**_RUNNER, "podTemplateOverlay": json.dumps(_PLAIN)}}
SANDBOXES = (
    # Its forks can start at once.
    {
        **_HEAD,
        "forks": [_FORK],
        "defaultRouteGroup": {"endpoints": [_ENDPOINT]},
        "endpoints": [{"name": "old", "host": "web.shop.svc", "port": 80, "protocol": "http"}],
        "local": [{"name": "l", "from": {"kind": "Deployment", "namespace": "shop", "name": "api"}, "mappings": []}],
    },
    # The steps of its plugin can start at once.
    {
        **_HEAD,
        "resources": [{"name": "db", "spec": INLINE, "params": {"size": "small"}}],
        "forks": [
            {
                "forkOf": _OF,
                "customizations": {
                    "env": [
                        {"name": "D", "valueFrom": _FROM_RESOURCE},
                        {"name": "E", "valueFrom": {"fork": {"forkOf": _OF, "expression": "{{.Service.Host}}"}}},
                    ]
                },
            }
        ],
    },
    {**_HEAD, "resources": [{"name": "db", "plugin": "bait@1.0.0", "params": {"size": "small"}}]},
    # Its hooks can start at once.
    {
        **_HEAD,
        "runner": {**_RUNNER, "podTemplateOverlay": json.dumps(_PLAIN)},
        "hooks": _inline(_renamed_ends(_hooks({"value": "x"}, {"value": "x"}, _EVENTS), "postStop")),
    },
    # Its hooks read a resource and a fork.
    {
        **_HEAD,
        "runner": _RUNNER,
        "forks": [{"forkOf": _OF}],
        "resources": [{"name": "db", "spec": INLINE, "params": {"size": "small"}}],
        "hooks": {
            "preStart": [{"name": "p", "script": "#!/bin/sh\n", "inputs": [_input(valueFrom=_FROM_RESOURCE)]}],
            "postStart": [{"name": "q", "script": "#!/bin/sh\n", "inputs": [_input(valueFrom=_FROM_FORK)]}],
        },
    },
)
GROUP = {
    **{key: value for key, value in _HEAD.items() if key != "localMachineID"},
    "ttl": {"duration": "8h", "offsetFrom": "noMatchedSandboxes"},
    "match": {"label": {"key": "team", "value": "pay*"}},
    "endpoints": [{**_ENDPOINT, "cluster": "c"}],
    "hooks": SANDBOXES[3]["hooks"],
    "runner": SANDBOXES[3]["runner"],
}
HOOK = {
    "selector": {
        "apiVersion": "cluster.example.org/v1",
        "kind": "Machine",
        "namespaces": ["shop"],
        "labels": {"team": "pay"},
    },
    "started": _VERDICT,
    "stopped": _WHEN,
    "hold": {"annotation": "example.org/hold", "value": "x"},
    "runner": SANDBOXES[3]["runner"],
    **_inline(_renamed_ends(_hooks({"value": "x"}, {"valueFromTarget": "$.metadata.name"}, _EVENTS), "postStop")),
}
for _step in HOOK["postStop"]:
    if "object" not in _step:
        _step["undoes"] = "a-script"


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all strings in a value. The path of a key in an open mapping ends with None."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
            if path and path[-1] in ("labels", "annotations", "params", "set", "headers", "query", "matchLabels"):
                yield (*path, key, None)


def planted(value: Any, path: Path, text: str) -> Any:
    """Return a copy with a text in the place of one string."""
    made = copy.deepcopy(value)
    *way, last = path
    if last is None:
        *way, key = way
        within = _at(made, way)
        within[text] = within.pop(key)
    else:
        _at(made, way)[last] = text
    return made


def _at(value: Any, way: list[Any]) -> Any:
    for key in way:
        value = value[key]
    return value


def field(path: Path) -> str:
    """Return the field of a path, with `[]` for an item and `{}` for a member of an open mapping."""
    text = "".join("[]" if isinstance(key, int) else f".{key}" for key in path)
    return re.sub(r"\.(labels|params|set)\.[^.\[]+", r".\1.{}", text)[1:]


def fields(kind: str) -> dict[str, Object]:
    """Return the string fields of a kind's spec and their schemas, from its CustomResourceDefinition."""
    found = next(each["spec"] for each in crd.definitions() if each["spec"]["names"]["kind"] == kind)
    schema = found["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return dict(sorted(_fields(schema["spec"], ""), key=lambda found: found[0]))


def _fields(schema: Object, path: str) -> Iterator[tuple[str, Object]]:
    if schema.get("type") == "string":
        yield path, schema
    for key, each in schema.get("properties", {}).items():
        yield from _fields(each, f"{path}.{key}" if path else key)
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], f"{path}.{{}}")


def sort(name: str) -> str:
    """Return the last two parts of a field, which are the same for all lists of steps."""
    return ".".join(name.split(".")[-2:])


def sorts(kind: str) -> set[str]:
    """Return the kinds of all string fields of a kind's spec."""
    return {sort(name) for name in fields(kind)}


def names_something(name: str) -> bool:
    """Return whether the content of a field, or of a kind of fields, becomes part of a request."""
    return _LAST.search(name) is not None


def grafted(value: Any, name: str, text: str) -> Any:
    """Return a copy with a text in a new field, and with the mappings and lists that lead there."""
    made = within = copy.deepcopy(value)
    *way, last = re.findall(r"\[\]|\{\}|[^.\[\]{}]+", name)
    for key, after in itertools.pairwise([*way, last]):
        empty: Any = [] if after == "[]" else {}
        if key == "[]":
            within[:] = within or [empty]
            within = within[0]
        else:
            within = within.setdefault("key" if key == "{}" else key, empty)
    if last == "[]":
        within[:] = [text]
    else:
        within["key" if last == "{}" else last] = text
    return made


def wishes(
    kind: str, seeds: Sequence[Object], tried: Iterable[str] = (), most: int = 14
) -> Iterator[tuple[str, str, Object]]:
    """Yield field, text and spec: each field with one text, and one field of each kind that names something with all.

    The seeds are valid specs. Their keys, and their strings in open fields, count as fields.
    """
    places: dict[str, tuple[Object, Path]] = {}
    for seed in seeds:
        for path in leaves(seed):
            places.setdefault(field(path), (seed, path))
    known = set(tried)
    for number, name in enumerate(dict.fromkeys((*fields(kind), *places))):
        turned = VALUES[number % len(VALUES) :] + VALUES[: number % len(VALUES)]
        all_of = names_something(name) and sort(name) not in known
        texts = turned[: most if all_of else 1]
        known.add(sort(name))
        for text in texts:
            seed, path = places.get(name, (seeds[0], ()))
            yield name, text, planted(seed, path, text) if path else grafted(seed, name, text)
    for seed in seeds:
        for way, overlay in ((at, inner) for at in leaves(seed) for inner in _inner(seed, at)):
            text = VALUES[len(repr(overlay)) % len(VALUES)]
            held = json.loads(_at(seed, list(way)))
            yield f"{field(way)}:{field(overlay)}", text, planted(seed, way, json.dumps(planted(held, overlay, text)))


def _inner(seed: Object, path: Path) -> Iterator[Path]:
    """Yield the paths of all strings in an overlay or patch, which is text."""
    if path[-1] == "podTemplateOverlay" or path[-2:] == ("patch", "value"):
        yield from leaves(json.loads(_at(seed, list(path))))
