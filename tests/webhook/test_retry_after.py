"""`Retry-After` of 429 and 503: when the request is sent again, and what an end in between means."""

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import send, unit

from dayfly.execute.webhook.exit_codes import code_of_status
from dayfly.execute.webhook.read import explain_exit_code

CREATED = answer(201, {"id": "r-1"})
RUN_S = 58.0  # the sender's limit for `run_ms` of a minute


def busy(*answers):
    """Return a `reply` that gives these answers in order, and then the last one forever."""
    left = list(answers)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": 7}, 7),
        ({"retry_after": 0}, 0.5),
        ({"date": "Sun, 06 Nov 1994 08:49:37 GMT", "retry_after": "Sun, 06 Nov 1994 08:49:50 GMT"}, 13),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:50 GMT"}, 0.5),
    ],
    ids=["seconds", "zero", "date", "past date"],
)
def test_idempotent_request_is_sent_again_after_the_pause(tmp_path, status, headers, seconds):
    with Server(busy(answer(status, **headers), CREATED)) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name])
    assert (sent.code, len(server.seen), sum(sent.pauses)) == (0, 2, seconds), sent.log
    assert server.seen[0].key == server.seen[1].key


@pytest.mark.parametrize("retry_after", [None, "", "soon", "-1", "1.5", "Sun, 99 Nov 1994", "\u0661"])
def test_request_without_a_valid_pause_is_left_to_the_next_attempt(tmp_path, retry_after):
    headers = {} if retry_after is None else {"retry_after": retry_after}
    with Server(busy(answer(429, **headers), CREATED)) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name])
    assert (sent.reason, len(server.seen), sent.pauses) == ("ResponseLost", 1, [])


@pytest.mark.parametrize("retry_after", [59, 10**9, 10**400])
def test_pause_beyond_the_time_limit_ends_the_attempt_there(tmp_path, retry_after):
    with Server(busy(answer(429, retry_after=retry_after), CREATED)) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name])
    assert (sent.reason, len(server.seen), sum(sent.pauses)) == ("ResponseLost", 1, RUN_S)


def test_request_that_may_run_once_is_not_sent_again(tmp_path):
    with Server(busy(answer(429, retry_after=1), CREATED)) as server:
        sent = send(tmp_path, unit(server.url), allowed=[server.name])
    assert (sent.reason, len(server.seen)) == ("ResponseLost", 1)


def test_repeated_refusal_ends_the_attempt(tmp_path):
    with Server(busy(answer(429, retry_after=1))) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name])
    assert (sent.reason, len(server.seen)) == ("ResponseLost", 4)
    assert "definite-answer" not in sent.outputs


def test_cancelled_pause_does_not_count_as_unsent(tmp_path):
    """The server may have carried out the request."""
    with Server(busy(answer(429, retry_after=30), CREATED)) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name], cancel=2)
    assert (sent.reason, len(server.seen), len(sent.pauses)) == ("ResponseLost", 1, 2)


def test_unreachable_server_after_a_pause_does_not_count_as_unsent(tmp_path):
    names = []

    def resolve(_host, _port):
        names.append(_host)
        if len(names) > 1:
            raise OSError("no such name")
        return [(2, ("127.0.0.1", server.port))]

    with Server(busy(answer(429, retry_after=1), CREATED)) as server:
        sent = send(tmp_path, unit(server.url, idempotent=True), allowed=[server.name], resolver=resolve)
    assert (sent.reason, len(server.seen)) == ("ResponseLost", 1), sent.log


def test_poll_of_a_job_obeys_the_pause(tmp_path):
    poll = {"until": {"path": "$.state", "in": ["done"]}}
    job = answer(202, {}, location="/jobs/1")
    with Server(busy(job, answer(429, retry_after=20), answer(200, {"state": "done"}))) as server:
        sent = send(tmp_path, unit(server.url, poll=poll), allowed=[server.name])
    assert (sent.code, sum(sent.pauses)) == (0, 20.5), sent.log


@pytest.mark.parametrize("expect", [{}, {"failed": [429]}])
def test_message_names_the_rate_limit(expect):
    made = unit("https://dns.example.com/", expect=expect)
    assert "429 (too many requests)" in explain_exit_code(code_of_status(429), made)[1]
