"""Tests of all faults of each webhook request, with a real server that records what it carried out.

For every lost, late or damaged message, a request that may not run twice is sent once. A success is reported only if it
was one. An end is not reported while the server may still be working.
"""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import send, unit

RUN_S = 60
POLL = {"until": {"path": "$.state", "in": ["done"]}, "failed": {"path": "$.state", "in": ["failed"]}}
FIND = {"path": ["by-key"], "when": {"path": "$.state", "in": ["done"]}}
OUTPUTS = {"id": {"json_path": "$.id"}}


def _garbled(said):
    return answer(int(said.split()[1]), b"<html>502 of a proxy</html>", content_type="text/html")


def _cut(said):
    return said[:-3]


# Faults of one request: whether the server receives it, and which response the client receives.
FAULTS = {
    "not received, connection closed": (False, None),
    "received, connection closed": (True, None),
    "received, truncated head": (True, lambda said: said[:20]),
    "received, truncated body": (True, _cut),
    "received, damaged by a proxy": (True, _garbled),
    "not received, 502 by a proxy": (False, lambda _: answer(502, b"<html>")),
    "received, 504 by a proxy": (True, lambda _: answer(504, b"<html>")),
    "not received, 429": (False, lambda _: answer(429)),
    "received, response too large": (True, lambda said: answer(int(said.split()[1]), b"x" * ((1 << 20) + 1))),
}
LIVES = {
    "plain": {},
    "found": {"find": FIND},
    "long": {"poll": POLL},
    "long and found": {"poll": POLL, "find": FIND},
    "sent again": {"idempotent": True},
    "long, sent again": {"idempotent": True, "poll": POLL},
}


class Truth:
    """A service that creates one record for each key. With `long`, a job is running during three polls."""

    def __init__(self, *, long: bool, number: int, fault: str):
        self.long = long
        self.number, self.fault = number, FAULTS[fault]
        self.made: dict[str, int] = {}
        self.posts = 0
        self.asked = 0
        self.requests = 0

    def reply(self, request, _stream):
        """Handle a request according to the fault."""
        self.requests += 1
        heard, told = self.fault if self.requests == self.number else (True, lambda said: said)
        said = self._hear(request) if heard else answer(500)
        return None if told is None else told(said)

    def _hear(self, request):
        if request.method == "POST":
            self.posts += 1
            self.made[request.key] = self.made.get(request.key, 0) + 1
            return answer(202, {"id": "r-1"}, location="/jobs/1") if self.long else answer(201, {"id": "r-1"})
        if not self.made:
            return answer(404)
        self.asked += 1
        return answer(200, {"id": "r-1", "state": "running" if self.at_work else "done"})

    @property
    def at_work(self) -> bool:
        return self.long and self.asked < 3


def live(folder, life, number, fault) -> SimpleNamespace:
    """Run one attempt in which the `number`th request has the fault."""
    how = LIVES[life]
    truth = Truth(long="poll" in how, number=number, fault=fault)
    with Server(truth.reply) as server:
        made = unit(f"{server.url}/v1", body={"a": 1}, outputs=OUTPUTS, run_ms=RUN_S * 1000, **how)
        sent = send(folder, made, allowed=[server.name])
    return SimpleNamespace(truth=truth, sent=sent, posts=sum(seen.method == "POST" for seen in server.seen))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("life", LIVES)
def test_each_request_meets_each_fault(tmp_path, life, fault):
    undisturbed = live(tmp_path, life, 0, fault)
    assert (undisturbed.sent.code, undisturbed.sent.outputs["id"]) == (0, "r-1")
    for number in range(1, max(undisturbed.truth.requests, 3) + 1):
        found = live(tmp_path, life, number, fault)
        truth, sent = found.truth, found.sent
        note = f"request {number}: {sent.reason or 'success'}\n{sent.log}"
        assert found.posts == 1, f"sent again within one attempt; {note}"
        if not sent.code:
            assert truth.made, f"a success without a record; {note}"
            assert sent.outputs["id"] == "r-1", note
            assert not truth.at_work, f"a success while the job is running; {note}"
        elif not LIVES[life].get("idempotent"):
            over = sum(sent.pauses) >= RUN_S - 2  # the runner ends it at its deadline
            settled = truth.made and not truth.at_work
            assert over or settled or sent.reason == "NotSent", f"it may still be carried out; {note}"
            assert "may be sent again" not in sent.log, note
        else:
            assert "definite-answer" not in sent.outputs or truth.made, (
                f"another key is taken without a certain no; {note}"
            )


@pytest.mark.parametrize("life", LIVES)
def test_unreachable_server_is_sent_nothing(tmp_path, life):
    """A server that refuses or closes the connection before the request has received nothing."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        name = f"127.0.0.1:{closed.getsockname()[1]}"
    made = unit(f"http://{name}/v1", body={"a": 1}, outputs=OUTPUTS, run_ms=RUN_S * 1000, **LIVES[life])
    sent = send(tmp_path, made, allowed=[name])
    assert sent.reason == "NotSent"
    assert sum(sent.pauses) < RUN_S / 2
