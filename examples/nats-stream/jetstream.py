#!/usr/bin/env python3
"""Requests to JetStream in NATS' text protocol, so that any image with Python is sufficient.

The script of each step consists of this file and one more line, which calls the step's function.
"""

import json
import os
import re
import socket
from pathlib import Path

NOT_FOUND = 404
# Derived from the resource's id, so `remove` needs no output. All subjects begin with it, so sandboxes are isolated.
NAME = f"dayfly-{os.environ['DAYFLY_RESOURCE_ID']}"
# Limits for a stream that is never deleted.
LIMITS = {"max_bytes": 64 << 20, "max_age": 7 * 86_400 * 10**9, "discard": "old"}


def stream() -> None:
    config = {"name": NAME, "subjects": [f"{NAME}.>"], "retention": "limits", "storage": "file", **LIMITS}
    check(request(f"STREAM.CREATE.{NAME}", config))
    Path("/tmp/name").write_text(NAME)
    Path("/tmp/subject").write_text(NAME)
    print(f"made stream {NAME}")


def consumer() -> None:
    # The server refuses an invalid topic. The prefix keeps the topic within this stream.
    name, topic = "application", f"{os.environ['SUBJECT']}.{os.environ['TOPIC']}"
    config = {"durable_name": name, "filter_subject": topic, "ack_policy": "explicit", "deliver_policy": "all"}
    check(request(f"CONSUMER.DURABLE.CREATE.{NAME}.{name}", {"stream_name": NAME, "config": config}))
    Path("/tmp/name").write_text(name)
    print(f"made consumer {name} of {topic!r}")


def remove() -> None:
    """Delete the stream with its consumers, even after an incomplete create step."""
    answer = request(f"STREAM.DELETE.{NAME}", {})
    if answer.get("error", {}).get("code") != NOT_FOUND:
        check(answer)
    print(f"stream {NAME} is gone")


def inventory() -> None:
    """Print a JSON line for each stream, with DAYFLY_RESOURCE_ID only of that resource."""
    found = {}
    while True:  # the server returns a page at a time
        page = check(request("STREAM.LIST", {"offset": len(found)}))
        found |= {stream["config"]["name"]: stream["created"] for stream in page["streams"]}
        if len(found) >= page["total"]:
            break
        if not page["streams"]:
            raise SystemExit("the streams have changed while they were listed")
    pattern = NAME if NAME != "dayfly-" else "dayfly-[0-9a-f]{26}"
    names = [name for name in sorted(found) if re.fullmatch(pattern, name)]
    for name in names:
        created = found[name][:19] + "Z"
        print(json.dumps({"id": name.removeprefix("dayfly-"), "name": name, "created": created}))
    print(json.dumps({"complete": True, "count": len(names)}))


def request(subject: str, config: dict) -> dict:
    """Send a request to JetStream's API and return the response."""
    place = (os.environ["NATS_HOST"], int(os.environ["NATS_PORT"]))
    who = {"user": os.environ["NATS_USER"], "pass": os.environ["NATS_PASSWORD"]}
    body = json.dumps(config).encode()
    with socket.create_connection(place, timeout=30) as connection, connection.makefile("rb") as lines:
        hello = json.dumps({"verbose": False, "pedantic": False, "lang": "python", "version": "1", **who}).encode()
        inbox = f"_INBOX.{os.urandom(12).hex()}".encode()
        publish = f"PUB $JS.API.{subject} ".encode() + inbox + b" %d\r\n" % len(body) + body
        connection.sendall(b"CONNECT " + hello + b"\r\nSUB " + inbox + b" 1\r\n" + publish + b"\r\n")
        for line in lines:
            word, _, rest = line.strip().partition(b" ")
            if word == b"PING":
                connection.sendall(b"PONG\r\n")
            elif word == b"-ERR":
                raise SystemExit(f"NATS refuses: {rest.decode()}")
            elif word == b"MSG":
                return json.loads(lines.read(int(rest.split()[-1])))
    raise SystemExit("NATS closed the connection without a response")


def check(answer: dict) -> dict:
    """Return the response, or exit if it is an error."""
    if "error" in answer:
        raise SystemExit(f"NATS refuses: {answer['error'].get('description', answer['error'])}")
    return answer
