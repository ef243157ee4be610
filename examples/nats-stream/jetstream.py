#!/usr/bin/env python3
"""What the steps do with JetStream, in NATS' own protocol of text lines: any image with Python will do.

Each step's script is this file and one line more, which calls the function of its name.
"""

import json
import os
import socket
from pathlib import Path

NOT_FOUND = 404
# By the resource's id, so `remove` needs no output. Subjects begin with it: two sandboxes never hear each other.
NAME = f"dayfly-{os.environ['DAYFLY_RESOURCE_ID']}"
# Both keep a forgotten stream small.
BOUNDS = {"max_bytes": 64 << 20, "max_age": 7 * 86_400 * 10**9, "discard": "old"}


def stream() -> None:
    wish = {"name": NAME, "subjects": [f"{NAME}.>"], "retention": "limits", "storage": "file", **BOUNDS}
    must(ask(f"STREAM.CREATE.{NAME}", wish))
    Path("/tmp/name").write_text(NAME)
    Path("/tmp/subject").write_text(NAME)
    print(f"made stream {NAME}")


def consumer() -> None:
    # The server refuses a topic that is none. One that begins elsewhere cannot be said.
    name, topic = "application", f"{os.environ['SUBJECT']}.{os.environ['TOPIC']}"
    wish = {"durable_name": name, "filter_subject": topic, "ack_policy": "explicit", "deliver_policy": "all"}
    must(ask(f"CONSUMER.DURABLE.CREATE.{NAME}.{name}", {"stream_name": NAME, "config": wish}))
    Path("/tmp/name").write_text(name)
    print(f"made consumer {name} of {topic!r}")


def remove() -> None:
    """The stream with its consumers, however far the create steps came."""
    answer = ask(f"STREAM.DELETE.{NAME}", {})
    if answer.get("error", {}).get("code") != NOT_FOUND:
        must(answer)
    print(f"stream {NAME} is gone")


def ask(what: str, wish: dict) -> dict:
    """What the server answers to a request of JetStream's API."""
    place = (os.environ["NATS_HOST"], int(os.environ["NATS_PORT"]))
    who = {"user": os.environ["NATS_USER"], "pass": os.environ["NATS_PASSWORD"]}
    body = json.dumps(wish).encode()
    with socket.create_connection(place, timeout=30) as connection, connection.makefile("rb") as lines:
        hello = json.dumps({"verbose": False, "pedantic": False, "lang": "python", "version": "1", **who}).encode()
        inbox = f"_INBOX.{os.urandom(12).hex()}".encode()
        request = f"PUB $JS.API.{what} ".encode() + inbox + b" %d\r\n" % len(body) + body
        connection.sendall(b"CONNECT " + hello + b"\r\nSUB " + inbox + b" 1\r\n" + request + b"\r\n")
        for line in lines:
            word, _, rest = line.strip().partition(b" ")
            if word == b"PING":
                connection.sendall(b"PONG\r\n")
            elif word == b"-ERR":
                raise SystemExit(f"NATS refuses: {rest.decode()}")
            elif word == b"MSG":
                return json.loads(lines.read(int(rest.split()[-1])))
    raise SystemExit("NATS has ended the connection without an answer")


def must(answer: dict) -> dict:
    """The answer, unless it is an error."""
    if "error" in answer:
        raise SystemExit(f"NATS refuses: {answer['error'].get('description', answer['error'])}")
    return answer
