"""The sender with a real server: its requests, and its result for each response and for a missing one."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import ordered, send, unit

from dayfly.execute.webhook import sender
from dayfly.spec.run import OutputRecord, UnitRecord

CREATED = answer(201, {"id": "r-1", "size": 3, "tags": ["a", "b"], "secret": "s3cr3t-value"}, etag='"7"')


def test_request_has_whole_values_and_answer_gives_outputs(tmp_path):
    with Server(lambda *_: CREATED) as server:
        made = unit(
            f"{server.url}/v1",
            path=("records", {"$input": "zone"}),
            query={"dry": "no", "who": {"$env": "DAYFLY_SANDBOX_NAME"}, "gone": {"$input": "gone"}},
            headers={
                "X-Zone": {"$input": "zone"},
                "Authorization": {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "},
            },
            body={"name": {"$input": "name"}, "port": {"$input": "port", "json": True}, "absent": {"$input": "gone"}},
            inputs={"zone": "a/b c", "name": 'x"},{"y', "port": "5432", "gone": None},
            outputs={
                "id": {"json_path": "$.id"},
                "tag": {"json_path": "$.tags[?@ == 'b']"},
                "size": {"json_path": "$.size"},
                "etag": {"header": "ETag"},
                "status": {"status": True},
                "secret": {"json_path": "$.secret", "sensitive": True},
            },
        )
        sent = send(tmp_path, made, allowed=[server.name], secrets={"DNS_TOKEN": "t0ken-of-dns\n"})
    [seen] = server.seen
    assert sent.code == 0, sent.log
    assert (seen.method, seen.target) == ("POST", "/v1/records/a%2Fb%20c?dry=no&who=box")
    assert seen.headers["authorization"] == "Bearer t0ken-of-dns"
    assert seen.headers["x-zone"] == "a/b c"
    assert seen.json == {"name": 'x"},{"y', "port": 5432, "absent": None}
    assert sent.outputs == {
        "id": "r-1",
        "tag": "b",
        "size": "3",
        "etag": '"7"',
        "status": "201",
        "secret": "s3cr3t-value",
    }
    assert "t0ken-of-dns" not in sent.log
    assert "s3cr3t-value" not in sent.log
    assert "response 201" in sent.log


def _slow_body(_request, stream):
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    try:
        while True:
            stream.sendall(b"x")
            time.sleep(0.02)  # the server must be slow
    except OSError:
        return


FAULTS = {
    "closed": (lambda *_: None, "ResponseLost"),
    "no HTTP": (lambda *_: b"SSH-2.0-x\r\n", "ResponseLost"),
    "an interim answer alone": (lambda *_: b"HTTP/1.1 103 Early Hints\r\n\r\n", "ResponseLost"),
    "cut": (lambda *_: CREATED[:-5], "ResponseTruncated"),
    "cut within chunks": (
        lambda *_: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc",
        "ResponseTruncated",
    ),
    "a chunk smaller than none": (
        lambda *_: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n",
        "ResponseTruncated",
    ),
    "half of a surrogate pair": (lambda *_: answer(200, b'{"id": "\\ud83d"}'), "ResponseInvalid"),
    "slow": (_slow_body, "ResponseTimeout"),
    "huge": (lambda *_: answer(200, b"x" * ((1 << 20) + 1)), "ResponseTooLarge"),
    "not JSON": (lambda *_: answer(200, b"<html>"), "ResponseNotJSON"),
    "nothing found": (lambda *_: answer(200, {"no": 1}), "ResponseInvalid"),
    "redirect": (lambda *_: answer(302, b"", location="http://127.0.0.1:1/"), "Redirected"),
    "a bad request": (lambda *_: answer(400), "UnexpectedStatus"),
    "no": (lambda *_: answer(422, {"error": "no"}), "UnexpectedStatus"),
    "too many": (lambda *_: answer(429), "ResponseLost"),
    "unavailable": (lambda *_: answer(503), "ResponseLost"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_reason_and_nothing_is_sent_twice(tmp_path, fault):
    reply, reason = FAULTS[fault]
    with Server(reply) as server:
        made = unit(
            server.url, idempotent=True, outputs={"id": {"json_path": "$.id"}}, timeouts={"answer": "1s"}, body={}
        )
        sent = send(tmp_path, made, allowed=[server.name])
    assert sent.reason == reason, sent.log
    assert len(server.seen) == 1
    definite = reason in ("UnexpectedStatus", "Redirected", "ResponseTooLarge", "ResponseNotJSON", "ResponseInvalid")
    assert ("definite-answer" in sent.outputs) is definite


def test_too_deep_answer_is_unfit(tmp_path):
    deep = b'{"a":' * 200 + b"1" + b"}" * 200
    outputs = {"id": {"json_path": "$..id"}}
    with Server(lambda *_: answer(201, deep)) as server:
        sent = send(tmp_path, unit(server.url, outputs=outputs), allowed=[server.name])
    assert sent.reason == "ResponseInvalid"
    assert sent.log.endswith("the response is nested too deep for $..id")


def test_expected_status_is_never_inconclusive(tmp_path):
    with Server(lambda request, _: answer(503 if request.target == "/busy" else 404)) as server:
        gone = send(tmp_path, unit(server.url, "DELETE", expect={"status": [200, 404]}), allowed=[server.name])
        busy = send(tmp_path, unit(f"{server.url}/busy", expect={"failed": [503]}), allowed=[server.name])
    assert (gone.code, busy.reason) == (0, "UnexpectedStatus")
    assert "definite-answer" in busy.outputs


def test_key_changes_only_after_a_certain_refusal(tmp_path):
    said = OutputRecord(digest="sha256:" + "ab" * 32, size=1)
    with Server(lambda *_: CREATED) as server:
        for record in (
            UnitRecord(),
            UnitRecord(attempt=2, failures=1),
            UnitRecord(attempt=3, outputs={"definite-answer": said}),
            UnitRecord(attempt=4, outputs={"definite-answer": said, "location": said}),
        ):
            assert send(tmp_path, unit(server.url), allowed=[server.name], record=record).code == 0
    first, second, third, fourth = (seen.key for seen in server.seen)
    assert first == second != third == fourth


def test_unsent_request_is_retried_then_reported(tmp_path):
    with Server(lambda *_: CREATED) as server:
        name = server.name
    sent = send(tmp_path, unit(f"http://{name}/"), allowed=[name])
    assert (sent.reason, sent.pauses) == ("NotSent", [0.5, 1.0, 2.0])
    assert "definite-answer" not in sent.outputs

    def unknown(*_):
        raise OSError("no such name")

    sent = send(tmp_path, unit("https://nowhere.example/"), resolver=unknown)
    assert sent.reason == "NotSent"
    assert "nowhere.example cannot be resolved" in sent.log


def test_connect_and_answer_timeouts_are_separate(tmp_path, monkeypatch):
    ways, go = [], sender.send
    monkeypatch.setattr(sender, "send", lambda way, *more: ways.append(way) or go(way, *more))
    with Server(lambda *_: CREATED) as server:
        made = unit(server.url, timeouts={"connect": "10s", "answer": "1s"})
        assert send(tmp_path, made, allowed=[server.name]).code == 0
    assert [(way.connect_s, way.answer_s) for way in ways] == [(10, 1)]


def test_cancelled_request_is_not_sent(tmp_path):
    with Server(lambda *_: CREATED) as server:
        sent = send(tmp_path, unit(server.url), allowed=[server.name], cancel=0)
    assert (sent.reason, server.connections) == ("Cancelled", 0)


@pytest.mark.parametrize("value", ["a\nInjected: 1", "é", "a\x00"])
def test_invalid_header_value_sends_nothing(tmp_path, value):
    with Server(lambda *_: CREATED) as server:
        made = unit(server.url, headers={"X": {"$input": "x"}}, inputs={"x": value})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.reason, server.connections) == ("InputInvalid", 0)


def _certificate(folder):
    """Return a self-signed certificate for 127.0.0.1 in a file with its key."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=own -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", *made.split(), "-keyout", str(key), "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    return file


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return _certificate(tmp_path_factory.mktemp("tls"))


def test_private_ca_is_trusted_only_where_named(tmp_path, certificate):
    ca = certificate.read_text().partition("-----BEGIN PRIVATE")[0]
    with Server(lambda *_: CREATED, certificate=certificate) as server:
        other = send(tmp_path, unit(server.url), allowed=[server.name])
        assert server.seen == []
        own = send(tmp_path, unit(server.url, tls={"ca": ca}), allowed=[server.name])
    assert (other.reason, other.pauses) == ("NotSent", [])
    assert "the certificate of 127.0.0.1" in other.log
    assert own.code == 0, own.log


def test_text_around_a_certificate_is_ignored(tmp_path, certificate):
    ca = certificate.read_text().partition("-----BEGIN PRIVATE")[0]
    with Server(lambda *_: CREATED, certificate=certificate) as server:
        sent = send(tmp_path, unit(server.url, tls={"ca": f"# Autorité\n{ca}"}), allowed=[server.name])
    assert sent.code == 0, sent.log


# --- lost responses and `find` ----------------------------------------------------------------------------------------


def test_find_confirms_a_lost_request(tmp_path):
    asked = []

    def reply(request, _):
        if request.method == "POST":
            return None
        asked.append(request.target)
        if len(asked) < 3:
            return answer((404, 300)[len(asked) - 1], {"id": "r-0", "state": "ok"})
        return answer(200, {"id": "r-1", "state": "ok"})

    with Server(reply) as server:
        made = unit(
            f"{server.url}/records",
            body={"name": "x"},
            find={
                "path": ["by-owner"],
                "query": {"owner": {"$env": "DAYFLY_RESOURCE_ID"}},
                "when": {"path": "$.state", "in": ["ok"]},
            },
            outputs={"id": {"json_path": "$.id"}},
        )
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.code, sent.outputs) == (0, {"id": "r-1"}), sent.log
    assert [seen.method for seen in server.seen] == ["POST", "GET", "GET", "GET"]
    assert asked[0].startswith("/records/by-owner?owner=")
    assert "found: the request was carried out" in sent.log


def test_impossible_find_still_waits_until_the_deadline(tmp_path):
    with Server(lambda *_: None) as server:
        made = unit(server.url, find={"path": [{"$input": "gone"}]}, inputs={"gone": None})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.reason, sum(sent.pauses), len(server.seen)) == ("ResponseLost", 58, 1)
    assert "cannot send `find`: a segment of the path is absent; it may still be carried out" in sent.log


def test_find_continues_after_a_certificate_error(tmp_path, certificate, tmp_path_factory):
    another = _certificate(tmp_path_factory.mktemp("another"))

    def reply(*_):
        server.certify(another)

    with Server(reply, certificate=certificate) as server:
        ca = certificate.read_text().partition("-----BEGIN PRIVATE")[0]
        made = unit(server.url, tls={"ca": ca}, find={"path": ["x"]})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.reason, len(server.seen)) == ("ResponseLost", 1)
    assert sum(sent.pauses) > 20
    assert "not sent: the certificate of 127.0.0.1" in sent.log


def test_lost_request_without_find_waits_until_the_deadline(tmp_path):
    with Server(lambda *_: None) as server:
        sent = send(tmp_path, unit(server.url, run_ms=300_000), allowed=[server.name])
    assert (sent.reason, sum(sent.pauses), len(server.seen)) == ("ResponseLost", 298, 1)


# --- long jobs --------------------------------------------------------------------------------------------------------

POLL = {"until": {"path": "$.state", "in": ["done"]}, "failed": {"path": "$.state", "in": ["failed"]}}


def _job(states, begun):
    left = list(states)

    def reply(request, _):
        if request.method == "POST":
            return begun
        state = left.pop(0) if len(left) > 1 else left[0]
        return answer(state) if isinstance(state, int) else answer(200, {"state": state, "host": "h"})

    return reply


def test_long_job_is_polled_until_it_is_done(tmp_path):
    begun = answer(202, {"id": "r-1"}, location="/jobs/1?x=y")
    with Server(_job(["running", 503, "running", "done"], begun)) as server:
        outputs = {"id": {"json_path": "$.id"}, "host": {"json_path": "$.host"}}
        sent = send(tmp_path, unit(server.url, poll=POLL, outputs=outputs), allowed=[server.name])
    assert sent.code == 0, sent.log
    assert sent.outputs == {"id": "r-1", "host": "h", "location": f"{server.url}/jobs/1?x=y"}
    assert [seen.target for seen in server.seen] == ["/", *["/jobs/1?x=y"] * 4]
    assert all("idempotency-key" not in seen.headers for seen in server.seen[1:])


@pytest.mark.parametrize("run_s", [4, 30, 60, 300])
@pytest.mark.parametrize("way", ["poll", "find"])
def test_polling_continues_until_the_deadline(tmp_path, way, run_s):
    """A job that succeeds shortly before the time limit is found, even if pauses have become long."""
    seconds = max(run_s - 2, run_s * 0.8)

    def sent(done_s):
        passed = []

        def reply(request, _):
            if request.method == "POST":
                return answer(202, b"", location="/jobs/1") if way == "poll" else None
            return answer(200, {"state": "done" if sum(passed) >= done_s else "running"})

        with Server(reply) as server:
            more = {"poll": POLL} if way == "poll" else {"find": {"path": ["x"], "when": POLL["until"]}}
            return send(tmp_path, unit(server.url, run_ms=run_s * 1000, **more), allowed=[server.name], pauses=passed)

    assert sent(seconds - 1).code == 0
    never = sent(run_s + 1)
    assert never.reason == ("JobUnfinished" if way == "poll" else "ResponseLost")
    assert sum(never.pauses) == pytest.approx(seconds), "cleanup may not start before"


@pytest.mark.parametrize(
    ("begun", "states", "reason"),
    [
        (answer(202, {"href": "/jobs/1"}), ["failed"], "JobFailed"),
        (answer(202, {"href": "/jobs/1"}), [404], "JobFailed"),
        (answer(202, {"href": "/jobs/1"}), [400], "JobFailed"),
        (answer(202, {"href": "/jobs/1"}), [499], "JobFailed"),
        (answer(202, {"href": "/jobs/1"}), [429], "JobUnfinished"),
        (answer(202, {"href": "/jobs/1"}), [302], "JobUnfinished"),
        (answer(202, {"href": "https://elsewhere.example/jobs/1"}), ["done"], "ResponseInvalid"),
        (answer(202, {"href": "//elsewhere.example/"}), ["done"], "ResponseInvalid"),
        (answer(202, {}), ["done"], "ResponseInvalid"),
        (answer(202, {"href": "/jobs/1"}), ["running"], "JobUnfinished"),
    ],
)
def test_failed_job_is_reported_with_its_reason(tmp_path, begun, states, reason):
    with Server(_job(states, begun)) as server:
        made = unit(server.url, poll={**POLL, "location": "$.href"}, run_ms=60_000)
        sent = send(tmp_path, made, allowed=[server.name])
    assert sent.reason == reason, sent.log
    # Only a job that has certainly failed is started again, with another key.
    assert ("definite-answer" in sent.outputs) is (reason == "JobFailed")
    assert sum(seen.method == "POST" for seen in server.seen) == 1


def test_found_result_is_final_and_not_followed(tmp_path):
    """A response to a poll starts no job."""
    found = answer(202, {"id": "r-1"}, location="/jobs/1")
    with Server(lambda request, _: None if request.method == "POST" else found) as server:
        made = unit(server.url, poll=POLL, find={"path": ["by-owner"]}, outputs={"id": {"json_path": "$.id"}})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.code, sent.outputs) == (0, {"id": "r-1"}), sent.log
    assert [seen.method for seen in server.seen] == ["POST", "GET"]


def test_status_of_poll_starts_a_job(tmp_path):
    with Server(_job(["running", "done"], answer(202, b"", location="/jobs/1"))) as server:
        made = unit(server.url, poll=POLL, expect={"status": [200, 204], "failed": [202]})
        sent = send(tmp_path, made, allowed=[server.name])
    assert sent.code == 0, sent.log
    assert [seen.method for seen in server.seen] == ["POST", "GET", "GET"]


def test_response_without_a_job_is_final(tmp_path):
    with Server(lambda *_: CREATED) as server:
        made = unit(server.url, poll=POLL, outputs={"id": {"json_path": "$.id"}})
        sent = send(tmp_path, made, allowed=[server.name])
    assert (sent.code, sent.outputs) == (0, {"id": "r-1"})


# --- the program -----------------------------------------------------------------------------------------------------


def test_sender_ends_only_after_the_answer_to_a_sent_request(tmp_path):
    """The outcome of a sent request must be known. The signal prevents only requests that were not sent yet."""
    asked = threading.Event()

    def reply(*_):
        asked.wait(60)
        return CREATED

    with Server(reply) as server:
        made = unit(server.url, outputs={"id": {"json_path": "$.id"}})
        _, environment = ordered(tmp_path, made, allowed=[server.name])
        command = [sys.executable, "-m", sender.__name__]
        with subprocess.Popen(command, env={**os.environb, **environment}, stdout=subprocess.PIPE) as process:
            server.wait(1)
            process.send_signal(signal.SIGTERM)
            asked.set()
            log, _ = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert b"response 201" in log
    assert [path.read_text() for path in tmp_path.iterdir()] == ["r-1"]
