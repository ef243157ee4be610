"""JSON Schemas: every example is valid, and most documents that the parser refuses are invalid."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from dayfly.spec import documents
from dayfly.spec.parsing import text
from dayfly.spec.schema import json_schema

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    "ResourcePlugin": "plugin",
    "Sandbox": "sandbox",
    "LifecycleHook": "hook",
    "RouteGroup": "routegroup",
    "ResourcePool": "pool",
    "Deployment": "baseline",
}
PLUGIN = {"name": "p", "spec": {"create": [{"name": "make", "script": "#!/bin/sh\n"}]}}


def check(word: str) -> jsonschema.Draft7Validator:
    schema = json_schema.file_schema(word)
    jsonschema.Draft7Validator.check_schema(schema)
    json.dumps(schema)
    return jsonschema.Draft7Validator(schema)


def wishes() -> dict[str, tuple[str, object]]:
    """Yield each document in the examples, with its directives."""
    found = {}
    for path in sorted(ROOT.glob("examples/**/*.yaml")):
        for index, document in enumerate(text.parse(path.read_bytes(), file=str(path))):
            data = document.data
            if isinstance(data, dict) and (
                (data.get("kind", "Sandbox") in WORDS and "spec" in data) or "command" in data
            ):
                try:
                    kind = documents.classify(document)
                except ValueError:
                    continue
                found[f"{path.relative_to(ROOT)}#{index}"] = WORDS[kind], data
    return found


WISHES = wishes()


@pytest.mark.parametrize("name", WISHES)
def test_every_file_of_the_examples_is_right(name: str):
    word, data = WISHES[name]
    assert [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in check(word).iter_errors(data)] == []


def test_each_kind_has_examples():
    assert {word for word, _ in WISHES.values()} == {*json_schema.file_kinds()} - {"routegroup", "leakcheck"}


def test_a_route_group_is_right_and_without_a_match_is_not():
    group = {"name": "checkout", "spec": {"match": {"label": {"key": "team", "value": "pay-*"}}}}
    assert check("routegroup").is_valid(group)
    assert not check("routegroup").is_valid({"name": "checkout", "spec": {"description": "nothing matches"}})


def test_leak_check_is_right_and_another_action_is_not():
    spec = {"cluster": "local", "plugin": "bucket", "params": {"region": "west"}, "grace": "24h", "action": "delete"}
    assert check("leakcheck").is_valid({"kind": "LeakCheck", "name": "buckets", "spec": spec})
    assert not check("leakcheck").is_valid({"name": "buckets", "spec": spec | {"action": "burn"}})


def test_pool_with_param_fixed_as_absent_is_right():
    spec = {"plugin": "pg@1.0.0", "params": {"size": "2", "extra": None}, "auto": {"hitRatio": 0.9, "max": 4}}
    assert check("pool").is_valid({"name": "postgres", "spec": spec})
    assert not check("pool").is_valid({"name": "postgres", "spec": spec | {"ready": -1}})
    assert not check("pool").is_valid({"name": "postgres", "spec": {"ready": 1}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "has blanks in it"),
        ("scrpt", "#!/bin/sh\n"),
        ("timeouts", {"run": "soon"}),
        ("retry", {"limit": 0}),
        ("inputs", [{"name": "x", "valueFromSandbox": "yes"}]),
        ("outputs", [{"valueFromPath": "/tmp/x"}]),
    ],
)
def test_a_mistake_in_a_step_is_seen(field: str, value: object):
    assert check("plugin").is_valid(PLUGIN)
    step = PLUGIN["spec"]["create"][0] | {field: value}
    assert not check("plugin").is_valid({"name": "p", "spec": {"create": [step]}})


@pytest.mark.parametrize("name", ["limit", "idempotent"])
def test_a_variable_may_stand_for_any_value(name: str):
    step = PLUGIN["spec"]["create"][0] | {"retry": {name: "@{given}"}, "name": "@{prefix}-make"}
    assert check("plugin").is_valid(
        {"name": "p", "spec": {"create": [step], "delete": "@{embed[yaml]: ./delete.yaml}"}}
    )
    assert not check("plugin").is_valid({"name": "p", "spec": {"create": [step | {"retry": {name: "given"}}]}})


def test_both_forms_of_a_plugin_are_right():
    spec = PLUGIN["spec"] | {"name": "p@1.0.0"}
    head = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "ResourcePlugin", "metadata": {"name": "p.1.0.0"}}
    assert check("plugin").is_valid(head | {"spec": spec})
    assert not check("plugin").is_valid(head | {"kind": "Sandbox", "spec": spec})
    assert not check("sandbox").is_valid(yaml.safe_load("{name: s, spec: {description: a sandbox needs a cluster}}"))
