"""Events reach their receiver at least once, under ids by which it drops what it has heard."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from cli import wishes
from cli.command import refused, until
from client.test_retry import World
from dayfly.cli import events_out
from dayfly.client import Sandbox

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def sandbox(**status):
    told = {"ready": False, "reason": "ResourcesPending", "message": "m", **status}
    body = {"name": "demo", "routingKey": "k", "createdAt": NOW, "updatedAt": NOW, "endpoints": [], "status": told}
    spec = {"cluster": "local", "labels": {"team": "pay"}}
    return msgspec.convert(msgspec.to_builtins({**body, "spec": spec}), Sandbox)


SOON = {"conditions": [{"type": "ExpiresSoon", "status": "True"}], "scheduledDeleteTime": NOW}


@pytest.mark.parametrize(
    ("status", "kinds"),
    [
        ({}, []),
        ({"ready": True, "reason": "AllDesiredWorkloadsReady"}, ["ready"]),
        ({"reason": "ResourceFailed"}, ["failed"]),
        ({"reason": "HookFailed"}, ["failed"]),
        ({"reason": "CleanupStuck"}, ["stuck"]),
        ({"reason": "Deleting"}, []),
        ({"ready": True, **SOON}, ["ready", "expiring"]),
        ({"conditions": [{"type": "ExpiresSoon", "status": "False"}]}, []),
    ],
)
def test_what_is_worth_an_event(status, kinds):
    assert list(events_out.kinds(sandbox(**status))) == kinds


def test_an_event_has_what_cloudevents_asks_for_and_an_id_that_stays():
    event = events_out.cloud_event(sandbox(ready=True), "ready", "urn:x")
    assert {"specversion", "id", "source", "type"} <= event.keys()
    assert (event["specversion"], event["type"]) == ("1.0", "dev.dayfly.sandbox.ready")
    assert event["data"]["labels"] == {"team": "pay"}
    assert event == events_out.cloud_event(sandbox(ready=True), "ready", "urn:x")
    later = sandbox(**{**SOON, "scheduledDeleteTime": NOW + dt.timedelta(hours=1)})
    assert (
        events_out.cloud_event(later, "expiring", "")["id"]
        != events_out.cloud_event(sandbox(**SOON), "expiring", "")["id"]
    )


def test_each_is_sent_until_it_is_taken_in_order_and_once():
    """Time costs nothing here; the last fault of the script ends the world."""

    async def main(world, *sandboxes):
        teller = events_out.Teller(events_out.receiver("http://127.0.0.1:1/in?x=1", frozenset()), "urn:x", world)
        for each in (*sandboxes, *sandboxes):
            teller.note(each)
        with contextlib.suppress(IndexError, TimeoutError):
            await asyncio.wait_for(teller.send(), 0.2)
        return [json.loads(sent.partition(b"\r\n\r\n")[2])["type"].rpartition(".")[2] for sent in world.sent]

    world = World((503,), (429,), "lost", (200,), (200,))
    assert asyncio.run(main(world, sandbox(ready=True), sandbox(reason="CleanupStuck"))) == ["ready"] * 4 + ["stuck"]
    assert world.sent[0].startswith(b"POST /in?x=1 HTTP/1.1\r\n")
    assert b"application/cloudevents+json" in world.sent[0]
    assert len(world.pauses) == 3
    assert world.pauses[0] < world.pauses[2]
    world = World((400,), (302, "location: http://elsewhere/"))
    assert asyncio.run(main(world, sandbox(ready=True), sandbox(reason="HookFailed"))) == ["ready", "failed"]
    assert world.pauses == [], "what is refused for good holds up nobody, and nobody is followed elsewhere"


class Receiver:
    """A real one, which is busy at first."""

    def __init__(self):
        self.heard, self.busy = [], 1
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.heard.append((outer.busy > 0, json.loads(body)))
                outer.busy -= 1
                self.send_response(503 if outer.busy >= 0 else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/events"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def taken(self):
        return [
            (event["id"], event["type"].rpartition(".")[2], event["subject"]) for busy, event in self.heard if not busy
        ]


@pytest.fixture
def receiver():
    found = Receiver()
    yield found
    found.server.shutdown()
    found.thread.join()
    found.server.server_close()


@pytest.mark.rotates(2, "libraries")
def test_a_server_tells_of_its_sandboxes_and_again_after_a_restart(cli, journal, receiver):
    cli.write("p.yaml", wishes.plugin(journal))
    cli.write("good.yaml", "name: good\nspec: {cluster: local, resources: [{name: db, plugin: notes}]}\n")
    cli.write("q.yaml", wishes.plugin(journal, extra="exit 9").replace("name: notes", "name: broken"))
    cli.write("bad.yaml", "name: bad\nspec: {cluster: local, resources: [{name: db, plugin: broken}]}\n")
    up = ("up", "--detach", "--port", "0", "--events-to", receiver.url)
    assert cli(*up).code == 0
    cli("apply", "-f", "p.yaml", "-f", "q.yaml", "-f", "good.yaml")
    cli("apply", "-f", "bad.yaml")
    until(lambda: {each[1:] for each in receiver.taken()} == {("ready", "good"), ("failed", "bad")})
    first = set(receiver.taken())
    assert len(receiver.taken()) == 2, "once, for as long as the server runs"
    assert "notes" not in str([event["data"] for _, event in receiver.heard]), "no output, no step's text"
    assert cli("down").code == 0
    receiver.heard.clear()
    assert cli(*up).code == 0
    until(lambda: set(receiver.taken()) == first)
    for name in ("good", "bad"):
        assert cli("sandbox", "delete", name).code == 0
    assert cli("down").code == 0


def test_where_events_may_go(cli):
    for url, words in (
        (
            "http://hooks.example.com/x",
            "not without TLS; write https://, or allow it with --allow-webhook hooks.example.com:80",
        ),
        ("https://me:pw@hooks.example.com/x", "has a name or password in it"),
        ("ftp://hooks.example.com", "is not the address of a server"),
    ):
        refused(cli("up", "--events-to", url), 2, words)
    assert events_out.receiver("http://hooks.example.com/x", frozenset({"hooks.example.com:80"})).target == "/x"
    assert events_out.receiver("https://hooks.example.com", frozenset()).target == "/"
