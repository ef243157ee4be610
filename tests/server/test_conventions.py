"""Conventions of the whole API: status codes, paths with and without a slash, keys, limits, errors."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import re
import socket
import time
import urllib.parse

import pytest
from tests.server import specs
from tests.server.client import KEY, ORG, wait_for

from dayfly.server.db.store import OutcomeUnknownError, StoreError
from dayfly.server.http.errors import to_request_error
from dayfly.spec.host_errors import HostSilentError, HostUnavailableError

READS = (
    "/api/v2/orgs",
    "/api/v2/meta/health",
    ORG + "/clusters",
    ORG + "/clusters/local",
    ORG + "/clusters/local/tokens",
    ORG + "/resource-plugins",
    ORG + "/resource-plugins/db",
    ORG + "/resource-plugins/db/versions",
    ORG + "/workloads",
    ORG + "/workloads/default/shop",
    ORG + "/sandboxes",
    ORG + "/sandboxes/sb1",
    ORG + "/sandboxes/sb1/report",
    ORG + "/sandboxes/sb1/why",
    ORG + "/sandboxes/sb1/outputs",
    ORG + "/sandboxes/sb1/attempts",
    ORG + "/sandboxes/sb1/history",
)


@pytest.mark.parametrize("path", READS)
def test_every_read_works_with_and_without_final_slash(filled, path):
    plain, slashed = filled.call("GET", path), filled.call("GET", path + "/")
    assert (plain.status, slashed.status) == (200, 200)
    assert plain.json == slashed.json
    assert plain.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", READS)
def test_head_equals_get_without_body(filled, path):
    answer = filled.call("HEAD", path)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("path", READS)
def test_options_lists_methods_without_cors_headers(filled, path):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
    answer = filled.call("OPTIONS", path, headers=asked)
    assert answer.status == 200
    assert "GET" in answer.headers["allow"]
    assert not [name for name in answer.headers if name.startswith("access-control")]
    for method in ("PUT", "DELETE", "POST", "PATCH"):
        if method not in answer.headers["allow"]:
            refused = filled.call(method, path, {})
            assert refused.status == 405
            assert refused.headers["allow"] == answer.headers["allow"]
            assert method in refused.error


@pytest.mark.parametrize("path", [path for path in READS if "meta" not in path] + ["/", "/api/v2/nowhere"])
@pytest.mark.parametrize("key", ["", "wrong", KEY + "x", KEY[:-1], "é"])
def test_request_without_a_valid_key_is_refused(filled, path, key):
    answer = filled.call("GET", path, headers={"signadot-api-key": key})
    assert answer.status == 401
    assert "signadot-api-key" in answer.error


def test_health_needs_no_key(filled):
    assert filled.call("GET", "/api/v2/meta/health", headers={"signadot-api-key": ""}).json == {
        "version": "1.2.3",
        "ok": True,
    }


@pytest.mark.parametrize("given", [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER  {KEY} "])
def test_the_key_may_come_as_a_bearer_token(filled, given):
    headers = {"signadot-api-key": "", "Authorization": given}
    assert filled.call("GET", "sandboxes", headers=headers).status == 200


@pytest.mark.parametrize("given", [KEY, f"Basic {KEY}", "Bearer", ""])
def test_other_credentials_are_no_key(filled, given):
    headers = {"signadot-api-key": "", "Authorization": given}
    assert filled.call("GET", "sandboxes", headers=headers).status == 401


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "LocalHost:1", "127.0.0.1:99999", "127.0.0.2:80"])
def test_loopback_names_are_answered(filled, name):
    assert filled.call("GET", "sandboxes", headers={"Host": name}).status == 200


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "", "::1"])
@pytest.mark.parametrize("path", ["sandboxes", "/api/v2/meta/health"])
def test_request_with_a_foreign_host_header_is_refused(filled, name, path):
    answer = filled.call("GET", path, headers={"Host": name})
    assert answer.status == 403
    assert "127.0.0.1" in answer.error


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1/orgs",
        "/api/v2",
        "routegroups/rg1/other",
        "sandboxes/sb1/other",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_unknown_path_lists_the_available_collections(filled, method, path):
    answer = filled.call(method, path)
    assert answer.status == 404
    assert "sandboxes" in answer.error


@pytest.mark.parametrize("path", [path.replace("/local", "/acme", 1) for path in READS if path.startswith(ORG)])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_path_of_another_organisation_is_404(filled, method, path):
    answer = filled.call(method, path, {})
    assert answer.status == 404
    assert '"acme"' in answer.error


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"spec": {"cluster": "\\ud800"}}', "not JSON"),
        (b'{"spec": NaN}', "not JSON"),
        (b"[" * 100_000, "nested"),
        (b"[]", "mapping"),
        (b"null", "mapping"),
        (b"17", "mapping"),
        (b"{}", "no spec; write both"),
    ],
)
@pytest.mark.parametrize("path", ["sandboxes/sb11", "resource-plugins/db1"])
def test_malformed_body_changes_nothing(filled, path, body, says):
    answer = filled.call("PUT", path, body)
    assert answer.status == 400
    assert says in answer.error
    assert [found["name"] for found in filled.get(path.partition("/")[0])] == [path.partition("/")[2][:-1]]


def test_longest_body_is_read_and_longer_one_refused(client):
    assert client.call("PUT", "sandboxes/sb1", b" " * (1 << 20)).status == 400
    answer = client.call("PUT", "sandboxes/sb1", b" " * ((1 << 20) + 1))
    assert answer.status == 413
    assert str(1 << 20) in answer.error
    assert answer.headers["connection"] == "close"


def test_an_endless_body_is_cut_off(client):
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        head = f"PUT {ORG}/sandboxes/sb1 HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\n"
        connection.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        with pytest.raises(OSError):  # noqa: PT012  -- whichever chunk it is that finds the door shut
            for _ in range(1000):
                connection.sendall(chunk)
    assert client.get("sandboxes") == []


HEAD = "PUT /api/v2/orgs HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD, "x: " + "y" * 1000 + "\r\n"),
        (HEAD + "x: ", "y" * 1000),
        ("GET /", "y" * 1000),
        (HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "x: " + "y" * 1000 + "\r\n"),
        (HEAD + "Transfer-Encoding: chunked\r\n\r\n1;", "y" * 1000),
    ],
    ids=["headers", "header", "address", "trailers", "extension"],
)
def test_an_endless_head_is_cut_off_without_a_key(client, begin, more):
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(begin.encode())
        with pytest.raises(OSError):  # noqa: PT012  -- whichever piece it is that finds the door shut
            for _ in range(1000):
                connection.sendall(more.encode() * 64)
    assert client.get("sandboxes") == []


def test_long_header_is_read_and_too_long_one_refused(client):
    assert client.call("GET", "sandboxes", headers={"x": "y" * 60_000}).status == 200
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall((HEAD + "x: " + "y" * 65_536).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"at most 65536 bytes" in answer


def test_incomplete_body_is_dropped(client):
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        head = f"PUT {ORG}/sandboxes/sb1 HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\nContent-Length: 99"
        connection.sendall(head.encode() + b'\r\n\r\n{"spec": {"cluster": "local"}}')
    time.sleep(0.2)
    assert client.get("sandboxes") == []


def test_several_requests_share_a_connection(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    for path, status in (("/api/v2/orgs/", 200), ("/nowhere", 404), (ORG + "/sandboxes", 200)):
        connection.request("GET", path, headers={"signadot-api-key": KEY})
        response = connection.getresponse()
        assert response.status == status
        response.read()
    assert connection.sock is not None
    connection.close()


def test_an_answer_does_not_wait_for_an_acknowledgement(filled):
    """A delayed acknowledgement takes 40 ms each time, so on a busy machine at least one of many answers is faster."""
    connection = http.client.HTTPConnection("127.0.0.1", filled.port, timeout=10)
    began = now = time.perf_counter()
    spans = []
    while len(spans) < 30 or (min(spans) >= 0.03 and now - began < 10):
        asked = time.perf_counter()
        connection.request("GET", ORG + "/sandboxes", headers={"signadot-api-key": KEY})
        connection.getresponse().read()
        now = time.perf_counter()
        spans.append(now - asked)
    connection.close()
    assert min(spans) < 0.03


def test_internal_error_names_its_request_in_the_log(client, host, caplog):
    client.put("sandboxes/sb1", specs.empty())
    host.history = lambda uid: 1 / 0
    answer = client.call("GET", "sandboxes/sb1/history")
    assert answer.status == 500
    assert "internal error of Dayfly" in answer.error
    assert "division" not in answer.body.decode()
    assert answer.json["requestId"] in caplog.text


def test_login_returns_the_organisation(client):
    assert client.get("/api/v2/orgs/")["orgs"][0]["name"] == "local"


def test_local_cluster_exists_and_stays(client):
    cluster = client.get("clusters/local")
    assert cluster["operator"] == {"version": "1.2.3"}
    assert client.put("clusters/local/", None) == cluster
    assert client.get("clusters/") == [cluster]
    assert client.get("clusters/local/tokens/") == []
    assert client.call("GET", "clusters/other").status == 404
    for method, path in (("DELETE", "clusters/local"), ("POST", "clusters/local/tokens")):
        answer = client.call(method, path, {})
        assert answer.status == 400
        assert "the server's own" in answer.error


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/jobs", "no jobs"),
        ("/jobs/j/attempts/0/logs/stream", "no jobs"),
        ("/runnergroups/", "no runner groups of jobs"),
        ("/artifacts/jobs/j", "no artifacts of jobs"),
        ("/devboxes/d/claim", "no devboxes"),
        ("/secrets/s", "no secrets of an organisation"),
        ("/service-accounts", "dayfly key create"),
        ("/tests/executions", "no Smart Tests"),
        ("/plan-tags/t", "no plans of that kind"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_signadot_features_without_equivalent_return_501(client, method, path, says):
    """Requests as Signadot's clients send them."""
    answer = client.call(method, ORG + path, {} if method == "PUT" else None)
    assert answer.status == 501
    assert answer.json["error"].startswith("Dayfly has no ")
    assert says in answer.json["error"]
    assert "sandboxes" in answer.json["error"], "the error lists the supported collections"
    assert client.call(method, ORG + "/jobsandmore", {} if method == "PUT" else None).status == 404


NUMBERS = {
    "sandboxes?limit=": 1,
    "routegroups?limit=": 1,
    "clusters?limit=": 1,
    "audit?limit=": 1,
    "audit?after=": 0,
    "ended-sandboxes?limit=": 1,
    "ended-sandboxes?before=": 1,
    "sandboxes/sb1/report?after=": 0,
    "sandboxes/sb1/report?wait=": 0,
    "sandboxes/sb1/log?unit=mydb/provision&attempt=": 1,
    "sandboxes/sb1/log?unit=mydb/provision&offset=": 0,
    "sandboxes/sb1/log?unit=mydb/provision&wait=": 0,
}


@pytest.mark.parametrize("path", NUMBERS)
@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1e3", "x", "٣", "1" + 18 * "0", "9" * 5000, "+1", "1_0"])
def test_number_outside_its_bounds_is_refused_by_name(filled, path, value):
    answer = filled.call("GET", path + urllib.parse.quote(value))
    if value == "0" and NUMBERS[path] == 0:
        assert answer.status == 200 or "there are no logs" in answer.error
    else:
        assert answer.status == 400
        assert answer.error.startswith(f"query parameter {re.split('[?&]', path)[-1][:-1]}: ")


@pytest.mark.parametrize("path", NUMBERS)
def test_numbers_within_their_bounds_are_accepted(filled, path):
    for value in ("1", "9" * 18):
        if "wait" not in path or value == "1":
            answer = filled.call("GET", path + value)
            assert answer.status == 200 or "there are no logs" in answer.error


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "resource-plugins/db?version="),
        ("GET", "sandboxes?label="),
        ("GET", "routegroups?sandbox="),
        ("GET", "sandboxes/sb1/outputs?masked="),
        ("GET", "sandboxes/sb1/outputs?uid="),
        ("GET", "sandboxes/sb1/logs?resource=mydb&sinceTime="),
        ("DELETE", "sandboxes/sb1?force="),
    ],
)
def test_empty_query_parameter_is_refused(filled, method, path):
    answer = filled.call(method, path)
    assert (answer.status, "query parameter" in answer.error) == (400, True)
    assert filled.get("resource-plugins/db")["name"] == "db"


@pytest.mark.parametrize("unit", ["", None, [], 0])
def test_retry_with_empty_unit_is_refused(filled, unit):
    answer = filled.call("POST", "sandboxes/sb1/retry", {"unit": unit})
    assert (answer.status, answer.error.partition(":")[0]) == (400, "unit")


@pytest.mark.parametrize("fault", [HostUnavailableError, HostSilentError, StoreError, OutcomeUnknownError])
def test_unavailable_store_or_cluster_is_a_warning(caplog, fault):
    assert to_request_error(fault("gone"), "r-1").status == 503
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "r-1" in caplog.text


def test_request_for_unconnected_cluster_logs_no_error(client, caplog):
    client.put("clusters/far", None)
    client.put("sandboxes/sb1", specs.empty(cluster="far"))
    wait_for(lambda: client.call("GET", "sandboxes/sb1/history").status == 503)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "GZIP", "identity, gzip"])
def test_encoded_body_is_refused_with_its_encoding(filled, encoding):
    body = gzip.compress(json.dumps(specs.empty()).encode())
    answer = filled.call("PUT", "sandboxes/sb2", body, {"Content-Encoding": encoding})
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert encoding.lower() in answer.error


OTHER_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/yaml",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/jsonx",
    "json",
)


@pytest.mark.parametrize("type_", OTHER_TYPES)
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "sandboxes/sb2"), ("POST", "keys"), ("PUT", "resource-plugins/q")]
)
def test_body_of_another_type_is_refused_with_the_right_one(filled, method, path, type_):
    answer = filled.call(method, path, {}, {"Content-Type": type_})
    assert (answer.status, answer.headers["accept"]) == (415, "application/json")
    assert "Content-Type: application/json" in answer.error


@pytest.mark.parametrize(
    "type_",
    [
        None,
        "application/json",
        "Application/JSON",
        "application/json; charset=UTF-8",
        'application/json;charset="utf-8"',
    ],
)
def test_json_body_is_read_with_and_without_its_type(client, type_):
    headers = {"Content-Encoding": "identity"} | ({"Content-Type": type_} if type_ else {})
    assert client.call("PUT", "sandboxes/sb2", specs.empty(), headers).status == 200


PUBLISHED = {
    "/api/v2/meta/plans": "plans of that kind",
    f"{ORG}/clusters/local/devmesh/analyze?namespace=a&status=ok": "DevMesh",
    f"{ORG}/clusters/none/devmesh/analyze": "DevMesh",
    f"{ORG}/events": "event log",
    f"{ORG}/users/u/api-keys/k": "users",
    f"{ORG}/plans/executions/e/steps/s/logs/live": "plans of that kind",
    f"{ORG}/plan-runnergroups/p/desired-images": "plans of that kind",
    "/api/v1/orgs/local/sandboxes/status": "/api/v2",
    "/api/v1/orgs/local/clusters": "/api/v2",
    "/api/v1/orgs/local/clusters/status": "/api/v2",
}


@pytest.mark.parametrize("path", PUBLISHED)
def test_unsupported_published_operation_is_named(filled, path):
    for address in (path, path.partition("?")[0] + "/"):
        answer = filled.call("GET", address)
        assert (answer.status, answer.error.startswith("Dayfly has no ")) == (501, True)
        assert PUBLISHED[path] in answer.error
        assert filled.call("GET", address, headers={"signadot-api-key": ""}).status == 401


@pytest.mark.parametrize("path", ["code/", "code", "token/", "token/refresh"])
@pytest.mark.parametrize("key", ["", KEY])
def test_login_without_key_points_to_login_with_a_key(filled, path, key):
    answer = filled.call("POST", f"/api/v2/auth/device/{path}", b'"x"', {"signadot-api-key": key})
    assert answer.status == 501
    assert "auth login --with-api-key" in answer.error


def test_only_published_login_addresses_are_named(filled):
    assert filled.call("POST", "/api/v2/auth/device/other").status == 404
    assert filled.call("POST", "/api/v2/auth/other", headers={"signadot-api-key": ""}).status == 401


@pytest.mark.parametrize("start", ["", "/page"])
@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_dashboard_link_redirects_to_page(filled, start, accept):
    """The URL that Signadot's command line prints, opened without a key."""
    connection = http.client.HTTPConnection("127.0.0.1", filled.port, timeout=10)
    connection.request("GET", f"{start}/sandbox/name/sb1", headers={"Accept": accept})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"]) == (307, "/page/sandboxes/sb1")
    connection.close()
    assert filled.call("PUT", "/sandbox/name/sb1").status in (401, 404)
