"""Requests with the values of variables, and exit codes."""

import json

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import send, unit

from dayfly.execute.webhook.exit_codes import ExitCode, code_of_status, is_inconclusive, status_of
from dayfly.execute.webhook.http_exchange import ANSWER_LIMIT
from dayfly.execute.webhook.request import (
    RequestValues,
    ServerOrigin,
    UnfitError,
    build,
    find_request,
    job_request,
    origin_of,
)

URL = "https://api.example/v1/"
VALUES = RequestValues(
    inputs={"name": b"a/b c", "gone": None, "port": b"5432", "bytes": b"\xff", "empty": b"", "up": b".."},
    environment={"DAYFLY_RESOURCE_ID": "box-db"},
    secrets={("dns", "token"): "t0ken\r\n"},
)
NAME, GONE = {"$input": "name"}, {"$input": "gone"}


def built(url=URL, method="POST", **written):
    return build({"url": url, "method": method, **written}, VALUES, "key-1")


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("https://api.example/", ServerOrigin("https", "api.example", 443), "api.example"),
        ("http://api.example", ServerOrigin("http", "api.example", 80), "api.example"),
        ("https://api.example:8443", ServerOrigin("https", "api.example", 8443), "api.example:8443"),
        ("http://api.example:443", ServerOrigin("http", "api.example", 443), "api.example:443"),
        ("https://[2606:4700::1111]/", ServerOrigin("https", "2606:4700::1111", 443), "[2606:4700::1111]"),
        ("https://api.example:0/", ServerOrigin("https", "api.example", 0), "api.example:0"),
    ],
)
def test_origin_is_parsed_from_the_url(url, origin, authority):
    assert (origin_of(url), origin.authority) == (origin, authority)


@pytest.mark.parametrize(
    "url", ["https://a\x7f/", "https://a b/", "https://a\\b/", "ftp://a/", "https:///x", "https://u@a/", "https://a:x/"]
)
def test_malformed_url_is_refused(url):
    with pytest.raises(UnfitError):
        origin_of(url)


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ({}, "/v1/"),
        ({"url": "https://api.example"}, "/"),
        ({"path": [NAME, "x"]}, "/v1/a%2Fb%20c/x"),
        ({"url": "https://api.example", "path": ["x"]}, "/x"),
        ({"query": {"a b": NAME, "gone": GONE, "n": 1}}, "/v1/?a%20b=a%2Fb%20c&n=1"),
        ({"query": {"gone": GONE}}, "/v1/"),
    ],
)
def test_target_is_built_from_url_path_and_query(written, target):
    request = built(**written)
    assert (request.target, request.url) == (target, f"https://api.example{target}")


@pytest.mark.parametrize(
    ("segment", "said"),
    [(GONE, "is absent"), ({"$input": "empty"}, "is ''"), ({"$input": "up"}, r"is '\.\.'"), (".", r"is '\.'")],
)
def test_path_segment_cannot_change_the_path(segment, said):
    with pytest.raises(UnfitError, match=f"a segment of the path {said}"):
        built(path=[segment])


def test_headers_are_resolved_and_constants_may_be_logged():
    secret = {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "}
    request = built(headers={"X-Plain": "a", "X-Name": NAME, "X-Gone": GONE, "Authorization": secret})
    assert request.headers == (
        ("X-Plain", "a"),
        ("X-Name", "a/b c"),
        ("Authorization", "Bearer t0ken"),
        ("Idempotency-Key", "key-1"),
    )
    assert request.shown == {"x-plain", "content-type", "idempotency-key"}
    assert built(idempotencyKey="X-Once").headers == (("X-Once", "key-1"),)


def test_body_is_json_with_its_content_type():
    request = built(
        body={"n": NAME, "deep": [{"port": {"$input": "port", "json": True}}], "ü": 1, "gone": {**GONE, "json": True}}
    )
    assert json.loads(request.body) == {"n": "a/b c", "deep": [{"port": 5432}], "ü": 1, "gone": None}
    assert request.body.startswith(b'{"n":"a/b c","deep"')
    assert request.headers[0] == ("Content-Type", "application/json")
    own = built(body=0, headers={"content-type": "application/x"})
    assert (own.body, own.headers[0]) == (b"0", ("content-type", "application/x"))
    assert len(own.headers) == 2
    assert built().body is None


@pytest.mark.parametrize("text", ["[" * 60_000, '"\\ud83d"', "NaN", "-Infinity", "1e400", "9" * 5_000, ""])
def test_invalid_json_input_is_refused(text):
    values = RequestValues(inputs={"it": text.encode()}, environment={}, secrets={})
    with pytest.raises(UnfitError, match="it is not JSON"):
        build({"method": "POST", "url": URL, "body": [{"$input": "it", "json": True}]}, values, "key-1")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"body": {"a": {"$input": "name", "json": True}}}, "name is not JSON"),
        ({"body": {"a": {"$env": "DAYFLY_RESOURCE_ID", "json": True}}}, "DAYFLY_RESOURCE_ID is not JSON"),
        ({"body": {"a": {"$input": "bytes"}}}, "input bytes is not text in UTF-8"),
        ({"headers": {"X": "a\tb"}}, "the value of header X is not one line of ASCII characters"),
        ({"headers": {"X": "é"}}, "the value of header X is not one line"),
    ],
)
def test_invalid_value_is_refused(written, said):
    with pytest.raises(UnfitError, match=said):
        built(**written)


def test_find_request_has_the_same_headers_without_key():
    written = {"url": URL, "method": "PUT", "headers": {"X-Team": "a"}, "body": {}, "idempotencyKey": "X-Once"}
    sent = build(written, VALUES, "key-1")
    for find, target in (({}, "/v1/"), ({"path": ["by", NAME], "query": {"q": NAME}}, "/v1/by/a%2Fb%20c?q=a%2Fb%20c")):
        question = find_request({**written, "find": find}, VALUES, sent)
        assert (question.method, question.target, question.body) == ("GET", target, None)
        assert (question.origin, question.headers) == (sent.origin, (("X-Team", "a"),))


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/jobs/1?x=y", "/jobs/1?x=y"),
        ("jobs/1", "/v1/jobs/1"),
        ("https://api.example", "/"),
        ("https://api.example:443/jobs", "/jobs"),
    ],
)
def test_job_location_is_resolved_against_the_url(location, target):
    question = job_request({"url": URL}, built(body={}), location)
    assert (question.method, question.target, question.body) == ("GET", target, None)
    assert question.headers == ()


@pytest.mark.parametrize("location", ["//elsewhere.example/", "http://api.example/", "https://api.example:444/"])
def test_job_location_on_another_server_is_refused(location):
    with pytest.raises(UnfitError, match=r"is not on api\.example"):
        job_request({"url": URL}, built(), location)


def test_each_unsuccessful_status_has_its_own_code():
    told = {
        code_of_status(status): status for status in range(200, 656) if code_of_status(status) != ExitCode.ODD_STATUS
    }
    assert {code: status_of(code) for code in told} == told
    assert {200, 229, 300, 339, 400, 499, 500, 555} <= set(told.values())
    assert {status for status in range(100, 700) if code_of_status(status) == ExitCode.ODD_STATUS} == {
        *(*range(100, 200), *range(230, 300), *range(340, 400), *range(556, 700))
    }
    assert max(told) == 255
    assert all(status_of(code) == 0 for code in (0, 1, *ExitCode))


@pytest.mark.parametrize(
    ("status", "failed", "is_so"),
    [
        *((status, (), True) for status in (408, 425, 429, 500, 503, 599)),
        *((status, (), False) for status in (400, 404, 499, 301, 200)),
        *((status, (408, 503), False) for status in (408, 503)),
    ],
)
def test_status_decides_whether_the_outcome_is_open(status, failed, is_so):
    assert is_inconclusive(status, failed) is is_so


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("HEAD", None, None), ("DELETE", None, None), ("POST", None, "0"), ("DELETE", {}, "2")],
)
def test_request_line_and_headers_are_exact(tmp_path, method, body, length):
    with Server(lambda *_: answer(200)) as server:
        made = unit(server.url, method, headers={"user-agent": "mine"}, **({} if body is None else {"body": body}))
        sent = send(tmp_path, made, allowed=[server.name])
    assert sent.code == 0, sent.log
    [seen] = server.seen
    wanted = {
        "host": server.name,
        "user-agent": "mine",
        "idempotency-key": sent.order["key"],
        "connection": "close",
        "accept": "application/json",
        "accept-encoding": "identity",
        **({"content-type": "application/json"} if body is not None else {}),
        **({"content-length": length} if length else {}),
    }
    assert (seen.method, seen.target, seen.headers) == (method, "/", wanted)


@pytest.mark.parametrize(("size", "reason"), [(ANSWER_LIMIT, ""), (ANSWER_LIMIT + 1, "ResponseTooLarge")])
def test_response_size_is_limited(tmp_path, size, reason):
    with Server(lambda *_: answer(200, b"x" * size)) as server:
        assert send(tmp_path, unit(server.url), allowed=[server.name]).reason == reason


def test_queries_return_values_of_the_response(tmp_path):
    said = {"n": 0, "no": False, "none": None, "list": [{"a": 1}, {"b": [True]}], "text": ""}
    outputs = {
        "n": {"json_path": "$.n"},
        "no": {"json_path": "$.no"},
        "last": {"json_path": "$.list[-1]"},
        "first": {"json_path": "$.list[0].a"},
        "text": {"json_path": "$.text"},
        "status": {"status": True},
    }
    with Server(lambda *_: answer(206, said)) as server:
        sent = send(tmp_path, unit(server.url, outputs=outputs), allowed=[server.name])
        lacks = {
            "beyond": "$.list[2]",
            "before": "$.list[-3]",
            "none": "$.none",
            "no list": "$.n[0]",
            "no map": "$.list.a",
        }
        for path in lacks.values():
            made = unit(server.url, outputs={"o": {"json_path": path}})
            assert send(tmp_path, made, allowed=[server.name]).reason == "ResponseInvalid", path
        several = unit(server.url, outputs={"o": {"json_path": "$.list[*]"}})
        assert "finds 2 values; it must find one" in send(tmp_path, several, allowed=[server.name]).log
    assert sent.outputs == {
        "n": "0",
        "no": "false",
        "last": '{"b":[true]}',
        "first": "1",
        "text": "",
        "status": "206",
    }


def test_comparison_distinguishes_booleans_from_numbers(tmp_path):
    states = [1, True]

    def reply(request, _):
        if request.method == "POST":
            return answer(202, b"", location="/jobs/1")
        return answer(200, {"state": states.pop(0)})

    with Server(reply) as server:
        made = unit(server.url, poll={"until": {"path": "$.state", "in": [True]}})
        assert send(tmp_path, made, allowed=[server.name]).code == 0
    assert states == []


def test_unicode_text_is_not_escaped_in_a_body():
    assert built(body={"name": "\u00e4\u4e2d"}).body == '{"name":"\u00e4\u4e2d"}'.encode()
