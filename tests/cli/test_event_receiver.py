"""CloudEvents of `up` and of a shared server reach their receiver. Checks of its URL and responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from tests.cli import sample_specs
from tests.cli.command import refused, until
from tests.client.test_retry import World
from tests.server import databases
from tests.server.fake_host import FakeHost

from dayfly.cli import event_receiver
from dayfly.client.errors import DayflyError, Exit
from dayfly.lib.delivery import DeliveryResult
from dayfly.link import wire
from dayfly.link.envelope import SentMessages, Session, SessionRequest, UnreadMessages

TO = event_receiver.parse_receiver("http://127.0.0.1:1/in?x=1", frozenset())
EVENT = b'{"id": "1"}'


def test_poster_reports_which_answers_are_worth_a_retry():
    """Time costs nothing here."""
    world = World((200,), (503,), (429,), "lost", "late", (302, "location: http://elsewhere/"), (410,))
    poster = event_receiver.Poster(TO, world)

    async def main():
        return [await poster(EVENT) for _ in range(7)]

    answers = asyncio.run(main())
    assert [each.may_retry for each in answers] == [False, True, True, True, True, False, False]
    assert [bool(each.problem) for each in answers] == [False, *[True] * 6]
    assert len(world.sent) == 7, "no redirect is followed, and the poster does not retry"
    assert world.sent[0].startswith(b"POST /in?x=1 HTTP/1.1\r\n")
    assert b"application/cloudevents+json" in world.sent[0]
    assert world.sent[0].endswith(EVENT)


class Drip(World):
    """Responds endlessly, byte by byte."""

    async def receive(self, timeout):  # noqa: ASYNC109 # as an Io has it
        await asyncio.sleep(0)
        return b"HTTP/1.1 200 OK\r\n\r\n" if (self.pauses.append(1) or len(self.pauses) == 1) else b"x" * len(self.sent)


def test_an_answer_without_an_end_ends_at_a_time_or_a_size(monkeypatch):
    monkeypatch.setattr(event_receiver, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(event_receiver, "_MAX_RESPONSE_BYTES", float("inf"))
    drip = Drip(None)
    found = asyncio.run(event_receiver.Poster(TO, drip)(EVENT))
    assert (found.may_retry, "did not respond within" in found.problem) == (True, True)
    monkeypatch.setattr(event_receiver, "_TIMEOUT_S", 30.0)
    monkeypatch.setattr(event_receiver, "_MAX_RESPONSE_BYTES", 100)
    drip = Drip(None)
    assert asyncio.run(event_receiver.Poster(TO, drip)(EVENT)) == DeliveryResult()
    assert len(drip.pauses) < 110


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


@pytest.mark.slow
@pytest.mark.long_story
def test_up_sends_events_and_resends_pending_after_restart(cli, journal, receiver):
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("good.yaml", "name: good\nspec: {cluster: local, resources: [{name: db, plugin: notes}]}\n")
    cli.write("q.yaml", sample_specs.plugin(journal, extra="exit 9").replace("name: notes", "name: broken"))
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
    receiver.busy = 10_000
    assert cli(*up).code == 0
    cli.write("more.yaml", "name: more\nspec: {cluster: local}\n")
    cli("apply", "-f", "more.yaml")
    until(lambda: receiver.heard)
    assert cli("down").code == 0
    (again,) = {event["id"] for _, event in receiver.heard}
    assert again not in {each[0] for each in first}, "accepted events are not sent again, even after a restart"
    receiver.busy = 0
    assert cli(*up).code == 0
    until(lambda: [each[0] for each in receiver.taken()] == [again])
    for name in ("good", "bad", "more"):
        assert cli("sandbox", "delete", name).code == 0
    assert cli("down").code == 0


class Agent:
    """An agent that connects to a server, with a scripted host."""

    def __init__(self, url, token):
        self.url, self.token, self.said = url, token, 0
        self.host, self.letters = FakeHost(), []
        self.session = self._ask("session", SessionRequest(cluster_uid="u"), Session)
        self.number, self.digest = self.session.number, self.session.digest

    def _ask(self, path, body, kind):
        headers = {"signadot-cluster-token": self.token, "dayfly-agent-protocol": str(wire.PROTOCOL)}
        data = msgspec.json.encode(body) if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v2/agent/{path}", data, headers)) as answer:
            return msgspec.json.decode(answer.read(), type=kind)

    @contextlib.contextmanager
    def at_work(self):
        over = threading.Event()

        async def work():
            self.host.end.attach(self.letters.append)
            while not over.is_set():
                await self._carry()

        thread = threading.Thread(target=asyncio.run, args=(work(),))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    async def _carry(self):
        """Fetch pending messages and send the answers of the host."""
        at = f"session={self.session.session}&after={self.number}&digest={self.digest}"
        for each in self._ask(f"messages?{at}", None, UnreadMessages).messages:
            self.number, self.digest = each.number, each.digest
            self.host.end.send(wire.decode_to_host(each.body.encode()))
        await asyncio.sleep(0.01)
        messages = [wire.encode(each).decode() for each in self.letters]
        if messages:
            self._ask(
                "messages", SentMessages(session=self.session.session, first=self.said + 1, messages=messages), dict
            )
        self.said += len(messages)
        self.letters.clear()


class Many:
    """Servers for many on one database, and one cluster that dials the last of them."""

    def __init__(self, cli, receiver, database="", count=1):
        self.cli, self.key = cli, cli("server", "init", "acme", DAYFLY_DATABASE=database).out.strip()
        self.database, self.receiver = database, receiver
        self.servers = [self.start() for _ in range(count)]
        self.url = self.servers[-1][1]

    def start(self):
        """One more; its process and address."""
        asked = ("server", "--listen", "127.0.0.1:0", "--events-to", self.receiver.url)
        process = self.cli.start(*asked, env=self.cli.environment(DAYFLY_DATABASE=self.database))
        return process, process.stderr.readline().decode().split()[-1]

    def call(self, method, path, body=None):
        headers = {"signadot-api-key": self.key, "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        asked = urllib.request.Request(f"{self.url}/api/v2/orgs/acme/{path}", data, headers, method=method)
        with urllib.request.urlopen(asked) as answer:
            return json.loads(answer.read())

    def ready(self, name, cluster="far"):
        """Apply a sandbox in a cluster that makes it ready at once, and wait for its event."""
        self.call("PUT", f"clusters/{cluster}", {})
        with Agent(self.url, self.call("POST", f"clusters/{cluster}/tokens", {})["token"]).at_work():
            self.call("PUT", f"sandboxes/{name}", {"spec": {"cluster": cluster}})
            until(lambda: name in [event["subject"] for _, event in self.receiver.heard])

    def kill(self):
        """The first one, with no chance to say anything."""
        process, _ = self.servers.pop(0)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def test_killed_server_resends_pending_cluster_events(cli, receiver):
    receiver.busy = 10_000
    many = Many(cli, receiver)
    many.ready("demo")
    (_, event), *_ = receiver.heard
    assert event["source"] == "urn:dayfly:organisation:acme:cluster:far"
    assert (event["subject"], event["type"], receiver.taken()) == ("demo", "dev.dayfly.sandbox.ready", [])
    many.kill()
    receiver.busy = 0
    many.start()
    until(receiver.taken)
    assert receiver.taken() == [(event["id"], "ready", "demo")]


@pytest.mark.proof
def test_another_replica_sends_events_when_the_sender_is_killed(cli, receiver):
    receiver.busy = 10_000
    with databases.postgres() as postgres:
        many = Many(cli, receiver, postgres.fresh(), count=3)
        many.ready("demo")
        many.kill()
        receiver.busy = 0
        until(receiver.taken, 90)
        (id_,) = {event["id"] for _, event in receiver.heard}
        many.ready("more", "near")
        until(lambda: len(receiver.taken()) == 2)
        assert [each[2] for each in receiver.taken()] == ["demo", "more"], "each once, by one of the servers"
        assert receiver.taken()[0][0] == id_
        for process, _ in many.servers:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://[x", "is not the address of a server"),
        ("https://hooks.example.com/a b", "'/a b' is not a valid path; percent-encode it"),
        ("https://hooks.example.com/?x=\u00e4", "percent-encode it"),
    ],
)
def test_unusable_event_address_is_refused_at_start(url, words):
    """Otherwise each event would fail forever, with a traceback in the log."""
    with pytest.raises(DayflyError, match=words) as refusal:
        event_receiver.parse_receiver(url, frozenset())
    assert refusal.value.code is Exit.USAGE


def test_event_address_needs_tls_or_an_allowed_host(cli):
    for url, words in (
        (
            "http://hooks.example.com/x",
            "TLS is required; write https://, or allow it with --allow-webhook hooks.example.com:80",
        ),
        ("https://me:pw@hooks.example.com/x", "contains a name or password"),
        ("ftp://hooks.example.com", "is not the address of a server"),
    ):
        refused(cli("up", "--events-to", url), 2, words)
        refused(cli("server", "--events-to", url), 2, words)
    assert (
        event_receiver.parse_receiver("http://hooks.example.com/x", frozenset({"hooks.example.com:80"})).target == "/x"
    )
    assert event_receiver.parse_receiver("https://hooks.example.com", frozenset()).target == "/"
