"""The OpenAPI document: generated from the route table, and compared with real answers."""

from __future__ import annotations

import jsonschema
import pytest
from tests.server import specs
from tests.server.client import ORG, wait_for
from tests.server.test_conventions import READS

from dayfly.server.http import openapi, route_table
from dayfly.server.records import run_records

DOCUMENT = openapi.document("1")


def test_document_has_every_method_with_its_role():
    assert DOCUMENT["openapi"] == "3.1.0"
    assert set(DOCUMENT["paths"]) == set(route_table.ROUTES)
    for path, methods in route_table.ROUTES.items():
        said = DOCUMENT["paths"][path]
        assert set(said) == {"parameters", *(method.lower() for method in methods)}
        for method, operation in methods.items():
            role = operation.role.api_name if operation.role else None
            assert said[method.lower()].get("x-dayfly-role") == role
            assert bool(said[method.lower()]["security"]) == (role is not None)
    names = [
        each["operationId"] for path in DOCUMENT["paths"].values() for key, each in path.items() if key != "parameters"
    ]
    assert len(names) == len(set(names)) > 40


def answered(method, path, form):
    """Return the schema of the answer 200."""
    said = DOCUMENT["paths"][path][method.lower()]["responses"][form]
    said = DOCUMENT["components"]["responses"][form] if "$ref" in said else said
    return {**said["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}


def find_pattern(path):
    """Return the pattern in the route table that matches a path."""
    below = path.removeprefix("/api/v2").replace("/orgs/local", "/orgs/{org}")
    for known in route_table.ROUTES:
        words, parts = known.split("/"), below.split("/")
        if len(words) == len(parts) and all(w == p or w.startswith("{") for w, p in zip(words, parts, strict=True)):
            return known
    raise AssertionError(path)


@pytest.mark.parametrize(
    "path", [*READS, "/api/v2/meta/reasons", "/api/v2/meta/openapi.json", f"{ORG}/audit", f"{ORG}/keys"]
)
def test_read_answer_matches_its_openapi_schema(filled, path):
    form = answered("GET", find_pattern(path), "200")
    answer = filled.get(path)
    jsonschema.validate(answer, form)
    assert answer not in ([], {}) or path.rpartition("/")[2] in (
        "keys",
        "tokens",
        "why",
        "outputs",
        "attempts",
        "history",
    )


def test_write_and_error_answers_match_their_openapi_schema(client):
    key = {"name": "ci", "role": "viewer", "expiresInSeconds": 60}
    for method, path, body in (
        ("PUT", "workloads/default/shop", specs.baseline()),
        ("PUT", "resource-plugins/db", specs.plugin()),
        ("PUT", "sandboxes/sb1", specs.sandbox(ttl={"duration": "1h"})),
        ("PUT", "sandboxes/sb1/lease", {"seconds": 60}),
        ("PUT", "clusters/far", None),
        ("POST", "clusters/far/tokens", {}),
        ("POST", "keys", key),
        ("DELETE", "clusters/far", None),
        ("DELETE", "sandboxes/sb1", None),
    ):
        answer = client.call(method, path, body)
        assert answer.status == 200, answer.body
        jsonschema.validate(answer.json, answered(method, find_pattern(f"{ORG}/{path}"), "200"))
        refused = client.call(method, path, [] if body is not None else None, headers={"signadot-api-key": "x"})
        jsonschema.validate(refused.json, answered(method, find_pattern(f"{ORG}/{path}"), "401"))


def test_the_document_needs_no_key(filled):
    found = filled.call("GET", "/api/v2/meta/openapi.json", headers={"signadot-api-key": ""})
    assert found.status == 200
    assert found.json["info"] == {"title": "Dayfly", "version": "1.2.3"}


def test_lists_come_in_pages(client):
    for number in range(5):
        client.put(f"sandboxes/sb{number}", specs.empty(labels={"odd": str(number % 2)}))
    names = lambda path: [each["name"] for each in client.get(path)]  # noqa: E731
    assert names("sandboxes?limit=2") == ["sb0", "sb1"]
    assert names("sandboxes?limit=2&after=sb1") == ["sb2", "sb3"]
    assert names("sandboxes?limit=2&after=sb3") == ["sb4"]
    assert names("sandboxes?label=odd=1&limit=1&after=sb1") == ["sb3"]
    assert names("clusters?after=local") == []
    assert client.call("GET", "sandboxes?limit=-1").status == 400


def test_pages_by_label_are_full_and_skip_ended_sandboxes(client, host, monkeypatch):
    for number in range(9):
        client.put(f"sandboxes/sb{number}", specs.empty(labels={"three": str(number % 3)}))
    names = lambda path: [each["name"] for each in client.get(path)]  # noqa: E731
    assert names("sandboxes?limit=2&after=sb3") == ["sb4", "sb5"]
    monkeypatch.setattr(run_records, "BATCH_SIZE", 2)
    assert names("sandboxes?label=three=1") == ["sb1", "sb4", "sb7"]
    assert names("sandboxes?label=three=1&limit=2") == ["sb1", "sb4"]
    assert names("sandboxes?label=three=1&limit=3&after=sb1") == ["sb4", "sb7"]
    # A run that has ended and is not archived yet takes no place on a page.
    for name in ("sb4", "sb5"):
        (uid,) = [uid for uid, offer in host.offers.items() if offer.name == name]
        client.delete(f"sandboxes/{name}")
        host.finish(uid)
    wait_for(lambda: names("sandboxes?limit=3&after=sb2") == ["sb3", "sb6", "sb7"])
