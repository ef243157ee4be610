"""If-Match and If-None-Match: a change applies only to the version that its client has read."""

from __future__ import annotations

import http.client

import pytest
from tests.server import specs
from tests.server.client import KEY, ORG
from tests.server.fake_host import uid_of

from dayfly.plan.reasons import Reason

GROUP = {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": "a"}}}}
THINGS = {
    "sandboxes/sb1": (specs.empty(), specs.empty(labels={"a": "b"})),
    "routegroups/rg1": (GROUP, {"spec": {**GROUP["spec"], "labels": {"a": "b"}}}),
    "workloads/default/shop": (specs.baseline(), specs.baseline(env={"A": "b"})),
    "resource-plugins/db": (specs.plugin("db@1.0.0"), specs.plugin("db@1.0.1")),
    "clusters/far": ({}, {}),
}
CHANGING = [path for path in THINGS if path != "clusters/far"]


def tag(client, path: str) -> str:
    return client.call("GET", path).headers["etag"]


def call(client, method: str, path: str, body=None, **headers: str):
    return client.call(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("path", THINGS)
def test_put_with_if_none_match_only_creates(client, path):
    first, second = THINGS[path]
    assert call(client, "PUT", path, first, If_None_Match="*").status == 200
    before = client.get(path)
    for body in (first, second):
        assert call(client, "PUT", path, body, If_None_Match="*").status == 412
    assert client.get(path) == before


@pytest.mark.parametrize("path", CHANGING)
def test_put_with_if_match_fails_after_another_edit(client, path):
    first, second = THINGS[path]
    for wanted in ("*", '"x"'):
        assert call(client, "PUT", path, first, If_Match=wanted).status == 412
    assert client.call("GET", path).status == 404
    client.put(path, first)
    old = tag(client, path)
    assert call(client, "PUT", path, second, If_Match=f'"other", {old}').status == 200
    assert tag(client, path) != old
    changed = client.get(path)
    for wanted in (old, f"W/{tag(client, path)}", '"x"', f'"x" , {old}'):
        assert call(client, "PUT", path, first, If_Match=wanted).status == 412
    assert client.get(path) == changed


@pytest.mark.parametrize("path", THINGS)
def test_delete_with_if_match_fails_for_another_version(client, path):
    first, _ = THINGS[path]
    client.put(path, first)
    assert call(client, "DELETE", path, If_Match='"x"').status == 412
    assert client.get(path)
    assert call(client, "DELETE", path, If_Match=tag(client, path)).status == 200


def test_new_version_of_a_recreated_sandbox_has_another_tag(client, host):
    client.put("sandboxes/sb1", specs.empty())
    old = tag(client, "sandboxes/sb1")
    client.delete("sandboxes/sb1")
    host.finish(uid_of(host))
    client.put("sandboxes/sb1", specs.empty())
    assert call(client, "DELETE", "sandboxes/sb1", If_Match=old).status == 412


def test_new_status_does_not_fail_if_match(client, host):
    client.put("sandboxes/sb1", specs.empty())
    old = tag(client, "sandboxes/sb1")
    assert read(client, "sandboxes/sb1", old)[0] == 304
    host.say(uid_of(host), ready=True, reason=Reason.READY, message="ready now")
    assert read(client, "sandboxes/sb1", old)[0] == 200
    assert call(client, "PUT", "sandboxes/sb1", specs.empty(labels={"a": "b"}), If_Match=old).status == 200


def read(client, path: str, tags: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request(method, f"{ORG}/{path}", headers={"signadot-api-key": KEY, "If-None-Match": tags})
    answer = connection.getresponse()
    found = answer.status, answer.headers["etag"], answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("path", THINGS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_get_with_the_current_etag_is_answered_by_304(client, path, method):
    client.put(path, THINGS[path][0])
    known = tag(client, path)
    for tags in (known, f"W/{known}", f'"x", {known}', "*"):
        assert read(client, path, tags, method) == (304, known, b"")
    assert read(client, path, '"x"', method)[:2] == (200, known)


@pytest.mark.parametrize("value", ["7", "abc", '"a', '"a" "b"', "*, *", "W/", '"a",, b'])
@pytest.mark.parametrize("name", ["If_Match", "If_None_Match"])
def test_malformed_precondition_is_refused(client, name, value):
    answer = call(client, "PUT", "sandboxes/sb1", specs.empty(), **{name: value})
    assert (answer.status, "ETag" in answer.error) == (400, True)
    assert client.get("sandboxes") == []


@pytest.mark.parametrize("path", ["sandboxes/sb1/extend", "sandboxes/sb1/abandon", "sandboxes/sb1/retry", "keys"])
def test_if_match_without_a_tag_to_match_is_refused(client, path):
    client.put("sandboxes/sb1", specs.empty())
    for value in ("*", '"x"', tag(client, "sandboxes/sb1")):
        answer = call(client, "POST", path, {"reason": "r", "name": "n", "role": "viewer"}, If_Match=value)
        assert (answer.status, "has no ETag" in answer.error) == (412, True)
    assert client.get("keys") == []
