"""The example of notifications: events of Dayfly become messages of a chat, each once."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from tests.examples.kinds import FOLDER
from tests.server.test_cloud_event_publisher import report

from dayfly.cli import event_receiver
from dayfly.client.loop_io import LoopIo
from dayfly.plan import cloud_events

PROGRAM = FOLDER / "notifications" / "notify.py"


class Chat(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.status
        if status == 200:
            self.server.messages.append(body["text"])
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def chat():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    server.status, server.messages = 200, []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def post(chat):
    """Post an event as Dayfly does, and return its result."""
    env = os.environ | {"NOTIFY_URL": f"http://127.0.0.1:{chat.server_address[1]}/hook"}
    process = subprocess.Popen([sys.executable, PROGRAM, "127.0.0.1:0"], env=env, stderr=subprocess.PIPE, text=True)
    (url,) = re.findall(r"http://\S+", process.stderr.readline())
    settings = event_receiver.parse_receiver(url, frozenset())

    def post(kind, *, name="demo", revision=1):
        subject = cloud_events.EventSubject("u", revision, "urn:x", name, name, "local")
        event = cloud_events.cloud_event(subject, kind, msgspec.structs.replace(report(ready=False), message="exit 3"))

        async def send():
            return await event_receiver.Poster(settings, LoopIo())(json.dumps(event).encode())

        return asyncio.run(send())

    yield post
    process.kill()
    process.communicate()


def test_events_that_need_a_person_become_messages(post, chat):
    for kind in ("ready", "failed", "stuck", "expiring"):
        assert not post(kind).problem
    assert len(chat.messages) == 3
    assert all("demo" in each and "exit 3" in each for each in chat.messages)
    assert "dayfly sandbox extend demo" in chat.messages[2]


def test_repeated_event_is_reported_once(post, chat):
    assert not post("stuck").problem
    assert not post("stuck").problem
    assert not post("stuck", revision=2).problem
    assert len(chat.messages) == 2


def test_event_is_retried_until_the_chat_accepts_it(post, chat):
    chat.status = 500
    assert post("failed").may_retry
    chat.status = 200
    assert not post("failed").problem
    assert len(chat.messages) == 1


def test_names_cannot_mention_people(post, chat):
    post("failed", name="<!channel>")
    assert "<" not in chat.messages[0]
