"""The log of a webhook: each request and response once, without secrets."""

import threading

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import send, unit

from dayfly.execute.webhook.sender import SHOWN_BYTES

CREATED = answer(201, {"id": "r-1"}, location="/r/1", etag="7")
POLL = {"until": {"path": "$.state", "in": ["done"]}}


def lines(sent, server):
    """Return the lines of the log, with `SERVER` for the address and `KEY` for the idempotency key."""
    key = sent.order["key"]
    return sent.log.replace(server.name, "SERVER").replace(key, "KEY").splitlines()


def test_exchange_is_logged_without_secrets(tmp_path):
    with Server(lambda *_: CREATED) as server:
        made = unit(
            f"{server.url}/v1",
            headers={
                "X-Team": "shop",
                "X-Token": {"$input": "token"},
                "Authorization": {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "},
            },
            body={"token": {"$input": "token"}, "other": 1},
            inputs={"token": "t0ken-of-team"},
        )
        sent = send(tmp_path, made, allowed=[server.name], sensitive=["token"], secrets={"DNS_TOKEN": "t0ken-of-dns"})
    assert lines(sent, server) == [
        "POST http://SERVER/v1",
        "  X-Team: shop",
        "  X-Token: ***",
        "  Authorization: ***",
        "  Content-Type: application/json",
        "  Idempotency-Key: KEY",
        '  {"token":"*************","other":1}',
        "response 201 Phrase",
        "  location: /r/1",
        "  content-type: application/json",
        '  {"id": "r-1"}',
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (answer(400, {"why": "no"}), ["response 400 Phrase", "TYPE", '  {"why": "no"}', "the status is not a success"]),
        (answer(399), ["response 399 Phrase", "the status is not a success; HINT"]),
        (answer(300), ["response 300 Phrase", "the status is not a success; HINT"]),
        (
            CREATED[:-3],
            ["response 201 Phrase", "  location: /r/1", "TYPE", '  {"id": "r-', "the response was truncated"],
        ),
        (answer(200, b"<p>"), ["response 200 Phrase", "  <p>", "the response is not JSON, so $.id cannot be read"]),
        (answer(200, {}), ["response 200 Phrase", "TYPE", "  {}", "the response has no value for output id"]),
        (
            None,
            [
                "sent, but no response: Remote end closed connection without response",
                "the request may be sent again with the same key",
            ],
        ),
        (answer(503), ["response 503 Phrase", "OPEN", "the request may be sent again with the same key"]),
    ],
)
def test_unusable_response_is_logged_with_the_reason(tmp_path, said, shown):
    with Server(lambda *_: said) as server:
        made = unit(server.url, outputs={"id": {"json_path": "$.id"}}, idempotent=True)
        sent = send(tmp_path, made, allowed=[server.name])
    words = {
        "TYPE": "  content-type: application/json",
        "OPEN": "with this status, the server may have carried out the request",
    }
    hint = "redirects are not followed: use the final address"
    wanted = [words.get(each, each).replace("HINT", hint) for each in shown]
    assert lines(sent, server)[2:] == wanted


def test_repeated_poll_response_is_logged_once(tmp_path):
    states = ["waits", "waits", "runs", "runs", "done"]

    def reply(request, _):
        return (
            answer(202, b"", location="/jobs/1") if request.method == "POST" else answer(200, {"state": states.pop(0)})
        )

    with Server(reply) as server:
        sent = send(tmp_path, unit(server.url, poll=POLL), allowed=[server.name])
    assert [line for line in lines(sent, server) if "state" in line] == [
        '  {"state": "waits"}',
        '  {"state": "runs"}',
        '  {"state": "done"}',
        '  {"state": "done"}',  # outputs are from the last response
    ]
    assert lines(sent, server).count("GET http://SERVER/jobs/1") == 1


def test_unanswered_poll_is_logged_and_repeated(tmp_path):
    states = [None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", answer(429), answer(200, {"state": "done"})]

    def reply(request, _):
        return answer(202, b"", location="/jobs/1") if request.method == "POST" else states.pop(0)

    with Server(reply) as server:
        sent = send(tmp_path, unit(server.url, poll=POLL), allowed=[server.name])
    assert (sent.code, states) == (0, [])
    assert "sent, but no response: Remote end closed connection without response" in lines(sent, server)


def test_each_retry_is_logged(tmp_path):
    with Server(lambda *_: CREATED) as server:
        name = server.name
    sent = send(tmp_path, unit(f"http://{name}/"), allowed=[name])
    why = f"cannot connect to {name}: connection refused"
    assert sent.log.splitlines()[2:] == [
        *(f"nothing was sent: {why}; retrying in {pause} s" for pause in ("0.5", "1", "2")),
        why,
    ]


def test_no_retry_without_remaining_time(tmp_path):
    with Server(lambda *_: CREATED) as server:
        name = server.name
    sent = send(tmp_path, unit(f"http://{name}/", run_ms=1_800), allowed=[name])
    assert (sent.reason, sent.pauses) == ("NotSent", [0.5])
    sent = send(tmp_path, unit(f"http://{name}/", run_ms=1_875), allowed=[name])
    assert sent.pauses == [0.5, 1.0], "1.5 s, used completely"


def test_unresolved_name_ends_the_attempt(tmp_path):
    never = threading.Event()

    def hangs(*_):
        never.wait()
        return []

    try:
        sent = send(tmp_path, unit("https://api.example/", run_ms=100), resolver=hangs)
    finally:
        never.set()
    assert sent.reason == "NotSent"
    assert sent.log.endswith("the name api.example was not resolved within 0.08 s")


def test_later_try_is_limited_to_the_remaining_time(tmp_path):
    never, asked = threading.Event(), []

    def hangs_at_last(*_):
        asked.append(1)
        if len(asked) > 1:
            never.wait()
        return []

    try:
        sent = send(tmp_path, unit("https://api.example/", run_ms=700), resolver=hangs_at_last)
    finally:
        never.set()
    assert (sent.reason, sent.pauses) == ("NotSent", [0.5])
    assert sent.log.endswith("the name api.example was not resolved within 0.06 s"), "of 0.56 s"


def test_name_without_an_address_is_reported(tmp_path):
    sent = send(tmp_path, unit("https://api.example/"), resolver=lambda *_: [])
    assert (sent.reason, sent.log.splitlines()[-1]) == ("NotSent", "the name api.example has no address")


def test_invalid_name_is_reported_as_unresolvable(tmp_path):
    def unwritable(host, _):
        raise UnicodeError("label too long")

    sent = send(tmp_path, unit("https://api.example/"), resolver=unwritable)
    assert sent.log.splitlines()[-1] == "the name api.example cannot be resolved: label too long"


def test_secret_in_a_response_is_masked(tmp_path):
    with Server(lambda *_: answer(201, {"you": "Bearer t0ken-of-dns"})) as server:
        bearer = {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "}
        made = unit(server.url, headers={"Authorization": bearer})
        sent = send(tmp_path, made, allowed=[server.name], secrets={"DNS_TOKEN": "t0ken-of-dns"})
    assert lines(sent, server)[-1] == '  {"you": "Bearer ************"}'


def test_secret_at_the_cut_of_a_logged_body_is_masked(tmp_path):
    token = "t0ken-of-team"
    for shown in range(len(token) + 1):
        padding = "x" * (SHOWN_BYTES - len('{"a":"","t":"') - shown)
        with Server(lambda request, _: answer(201, request.body)) as server:
            made = unit(server.url, body={"a": padding, "t": {"$input": "token"}}, inputs={"token": token})
            sent = send(tmp_path, made, allowed=[server.name], sensitive=["token"])
        assert sent.code == 0
        assert sent.log.count("*" * shown) >= 2, "in the request and in the response"
        assert "t0" not in sent.log


def test_secret_reformatted_as_json_is_masked(tmp_path):
    key = '{\n  "user": "shop",\n  "password": "é-s3cr3t"\n}'
    with Server(lambda request, _: answer(201, request.body)) as server:
        made = unit(server.url, body={"key": {"$input": "key", "json": True}}, inputs={"key": key})
        sent = send(tmp_path, made, allowed=[server.name], sensitive=["key"])
    assert server.seen[0].json == {"key": {"user": "shop", "password": "é-s3cr3t"}}
    assert "s3cr3t" not in sent.log


@pytest.mark.parametrize("lost", [False, True])
def test_sensitive_output_is_masked_in_every_answer(tmp_path, lost):
    states = ["waits", "runs", "done"]

    def reply(request, _):
        if request.method == "POST":
            return None if lost else answer(202, {"password": "s3cr3t-at-first"}, location="/jobs/1")
        state = states.pop(0)
        return answer(200, {"state": state, "password": f"s3cr3t-when-it-{state}"})

    with Server(reply) as server:
        way = {"find": {"path": ["it"], "when": POLL["until"]}} if lost else {"poll": POLL}
        made = unit(server.url, outputs={"p": {"json_path": "$.password", "sensitive": True}}, **way)
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.code, sent.outputs["p"]) == (0, "s3cr3t-when-it-done")
    assert "s3cr3t" not in sent.log
    assert '"state": "runs"' in sent.log


NOT_SHOWN = "  (not shown: it may contain a sensitive output that cannot be masked)"


def test_cut_answer_with_a_sensitive_output_is_not_logged(tmp_path):
    with Server(lambda *_: answer(201, {"password": "s3cr3t", "id": "r-1"})[:-3]) as server:
        made = unit(server.url, outputs={"p": {"json_path": "$.password", "sensitive": True}})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.reason, "s3cr3t" in sent.log) == ("ResponseTruncated", False)
    assert NOT_SHOWN in lines(sent, server)


def test_answer_with_ambiguous_sensitive_output_is_not_logged(tmp_path):
    """The query finds several values, so it is not known which one to mask."""

    def reply(request, _):
        if request.method == "POST":
            return answer(202, b"", location="/jobs/1")
        return answer(200, {"state": "done", "keys": [{"password": "s3cr3t"}, {"password": "other-s3cr3t"}]})

    with Server(reply) as server:
        made = unit(server.url, outputs={"p": {"json_path": "$..password", "sensitive": True}}, poll=POLL)
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.reason, "s3cr3t" in sent.log) == ("ResponseInvalid", False)
    assert NOT_SHOWN in lines(sent, server)


def test_response_that_is_not_json_is_logged(tmp_path):
    with Server(lambda *_: answer(400, b"no such zone")) as server:
        made = unit(server.url, outputs={"p": {"json_path": "$.password", "sensitive": True}})
        sent = send(tmp_path, made, allowed=[server.name])
    assert "  no such zone" in lines(sent, server)
