"""Sessions of the page: links work once, cookies have the rights of their key, and other sites have no access."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import re
import time

import pytest
from tests.server.client import KEY, serving
from tests.server.databases import sql

from dayfly.server.admin import page_sessions

LINKS, ENTER, SESSION = "/api/v2/page/links", "/api/v2/page/enter", "/api/v2/page/session"
BOX = {"spec": {"cluster": "local"}}


def page_headers(client, **more):
    """The headers that the page sends with its cookie."""
    at = f"127.0.0.1:{client.port}"
    return {"signadot-api-key": "", "Dayfly-Page": "1", "Origin": f"http://{at}", **more}


def code(client, **headers):
    answer = client.call("POST", LINKS, {}, headers)
    assert answer.status == 200, answer.body
    path, _, found = answer.json["path"].partition("#")
    assert path == "/page/enter"
    assert answer.json["expiresInSeconds"] == 60
    return found


def enter(client, given, **headers):
    return client.call("POST", ENTER, {"code": given}, page_headers(client, **headers))


def cookie(client, key=KEY):
    answer = enter(client, code(client, **{"signadot-api-key": key}))
    assert answer.status == 200, answer.body
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def as_page(client):
    """A browser that is signed in as the owner of the home."""
    given = cookie(client)
    return lambda method, path, body=None, **more: client.call(
        method, path, body, page_headers(client, Cookie=given, **more)
    )


def test_link_becomes_strict_http_only_cookie(client):
    answer = enter(client, code(client))
    found = answer.headers["set-cookie"]
    assert re.fullmatch(
        rf"dayfly-{client.port}=[0-9a-f]{{16}}\.[\w-]{{43}}; HttpOnly; Max-Age=43200; Path=/; SameSite=strict", found
    )
    assert (answer.json["role"], answer.json["name"], answer.json["org"]) == ("admin", "this home", "local")
    who = client.call("GET", SESSION, headers=page_headers(client, Cookie=found.partition(";")[0]))
    assert who.json == answer.json


def test_under_tls_the_cookie_is_bound_to_host_and_tls(client):
    """A proxy terminates TLS, and the browser's origin has the scheme https."""
    answer = enter(client, code(client), Origin=f"https://127.0.0.1:{client.port}")
    found = answer.headers["set-cookie"]
    assert found.startswith("__Host-dayfly=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= set(found.split("; "))
    assert client.call("GET", SESSION, headers=page_headers(client, Cookie=found.partition(";")[0])).status == 200


def test_code_or_cookie_with_nul_is_refused(place, host):
    """PostgreSQL would reject it, and the request needs no key."""
    with serving(place, {"local": host}) as client:
        assert enter(client, "a\0.b").status == 401
        written = f'dayfly-{client.port}="a\\000.b"'
        assert client.call("GET", SESSION, headers=page_headers(client, Cookie=written)).status == 401


def test_link_works_once_for_concurrent_requests(client):
    given = code(client)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: enter(client, given), range(6)))
    assert sorted(answer.status for answer in answers) == [200, 401, 401, 401, 401, 401]
    assert next(answer for answer in answers if answer.status == 401).error == page_sessions.USED


def test_link_expires_after_minute_session_after_twelve_hours(client, monkeypatch):
    old, given, now = code(client), cookie(client), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert enter(client, old).error == page_sessions.USED
    assert client.call("GET", SESSION, headers=page_headers(client, Cookie=given)).status == 200
    monkeypatch.setattr(time, "time_ns", lambda: now + 43_300 * 10**9)
    assert client.call("GET", SESSION, headers=page_headers(client, Cookie=given)).status == 401


@pytest.mark.parametrize("given", ["", ".", "a.b", "0" * 16 + "." + "x" * 43, "é.é", "a" * 5000])
def test_malformed_code_is_refused(client, given):
    assert enter(client, given).error == page_sessions.USED
    assert client.call("POST", ENTER, {"code": 5}, page_headers(client)).error == page_sessions.USED


def test_code_and_cookie_are_not_interchangeable(client):
    given = code(client)
    as_cookie = client.call("GET", SESSION, headers=page_headers(client, Cookie=f"dayfly-{client.port}={given}"))
    assert as_cookie.status == 401
    secret = cookie(client).partition("=")[2]
    assert enter(client, secret).status == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"Dayfly-Page": ""},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_cross_site_request_with_cookie_is_refused(client, as_page, wrong):
    at = "/api/v2/orgs/local/sandboxes/sb1"
    assert as_page("PUT", at, BOX, **wrong).status == 403
    assert as_page("DELETE", SESSION, **wrong).status == 403
    assert enter(client, code(client), **wrong).status == 403
    assert client.get("sandboxes") == []
    assert as_page("PUT", at, BOX).status == 200, "the page of this server can"


def test_cookie_has_the_rights_and_lifetime_of_its_key(client):
    made = client.call("POST", "keys", {"name": "looker", "role": "viewer"}).json
    given = cookie(client, made["key"])
    by = lambda method, path, body=None: client.call(method, path, body, page_headers(client, Cookie=given))  # noqa: E731
    assert by("GET", "sandboxes").status == 200
    assert by("PUT", "sandboxes/sb1", BOX).error.startswith("PUT here needs the role member")
    assert by("GET", "audit").status == 403
    assert client.call("DELETE", f"keys/{made['id']}").status == 200
    assert by("GET", "sandboxes").status == 401
    assert by("GET", SESSION).status == 401


def test_expired_key_ends_its_sessions(client, monkeypatch):
    made = client.call("POST", "keys", {"name": "short", "role": "viewer", "expiresInSeconds": 60}).json
    given, now = cookie(client, made["key"]), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert client.call("GET", SESSION, headers=page_headers(client, Cookie=given)).status == 401


def test_cookie_creates_no_keys_tokens_or_links(as_page):
    """Access to a browser for a minute must not give permanent access."""
    org = "/api/v2/orgs/local"
    assert as_page("PUT", f"{org}/clusters/far").status == 200
    for path, body in (
        (f"{org}/keys", {"name": "n", "role": "admin"}),
        (f"{org}/clusters/far/tokens", {}),
        (LINKS, {}),
    ):
        assert "only be created with a key" in as_page("POST", path, body).error
        if path != LINKS:
            assert "only be created with a key" in as_page("DELETE", f"{path}/1").error


def test_cookie_changes_sandbox_named_like_a_key(as_page):
    for name in ("keys", "keys-of-team", "tokens", "page"):
        at = f"/api/v2/orgs/local/sandboxes/{name}"
        assert as_page("PUT", at, BOX).status == 200, name
        assert as_page("DELETE", at).status == 200, name


def test_signing_out_ends_the_session_and_is_audited(client, as_page):
    assert as_page("PUT", "/api/v2/orgs/local/sandboxes/sb1", BOX).status == 200
    answer = as_page("DELETE", SESSION)
    assert answer.status == 200
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert as_page("GET", SESSION).status == 401
    found = client.get("audit")["entries"]
    assert [(each["program"], each["action"], each["object"]) for each in found] == [
        ("page", "sign in", "page"),
        ("page", "create", "sandboxes/sb1"),
        ("page", "sign out", "page"),
    ]


def test_database_contains_no_usable_link_or_cookie(client):
    given, secret = code(client), cookie(client).partition("=")[2]
    rows = sql(client.store, "SELECT * FROM page_sessions")
    assert len(rows) == 2
    assert not [each for each in (given, secret) if each.partition(".")[2] in repr(rows)]


def test_key_takes_precedence_over_cookie(client):
    """A program with a key needs no page header, and a cookie gives it no further rights."""
    given = cookie(client)
    assert client.call("PUT", "sandboxes/sb1", BOX, {"Cookie": given}).status == 200
    assert client.call("GET", SESSION, headers={"Cookie": given, "signadot-api-key": "wrong"}).status == 401


def test_stream_ends_soon_after_its_session(client):
    given = cookie(client)
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=12)
    with contextlib.closing(connection):
        connection.request("GET", "/api/v2/orgs/local/changes", headers=page_headers(client, Cookie=given))
        with connection.getresponse() as stream:
            assert stream.status == 200
            assert client.call("DELETE", SESSION, None, page_headers(client, Cookie=given)).status == 200
            assert stream.read().startswith(b"event: ")
