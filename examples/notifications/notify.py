#!/usr/bin/env python3
"""Forward CloudEvents of Dayfly to a chat: a webhook in the form of Slack, Mattermost or Rocket.Chat.

    NOTIFY_URL=https://hooks.example.com/... notify.py 127.0.0.1:8090 &
    dayfly up --events-to http://127.0.0.1:8090/

It reports sandboxes that are stuck, have failed or are about to expire. NOTIFY_TYPES selects others. It needs only
Python's standard library.
"""

import collections
import json
import os
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TITLES = {
    "ready": "is ready",
    "failed": "has failed",
    "stuck": "cannot be cleaned up",
    "expiring": "is about to be deleted",
}
MAX_REMEMBERED, MAX_BYTES, TIMEOUT_S = 10_000, 1_000_000, 8


class Notifier:
    """Sends each event of the wanted types once."""

    def __init__(self, url: str, types: set[str]) -> None:
        self._url, self._types = url, types
        self._sent: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._lock = threading.Lock()

    def handle(self, event: dict[str, Any]) -> None:
        """Send the event, unless it was sent already.

        Raises:
            OSError: the chat did not accept it.
        """
        kind = event["type"].rpartition(".")[2]
        with self._lock:  # one at a time: a repeated event must not be sent twice
            if kind not in self._types or event["id"] in self._sent:
                return
            body = json.dumps({"text": text(kind, event)}).encode()
            request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                self._sent[event["id"]] = None
            if len(self._sent) > MAX_REMEMBERED:
                self._sent.popitem(last=False)


def text(kind: str, event: dict[str, Any]) -> str:
    """Return the message. The characters of links and mentions are escaped, because users choose names and labels."""
    data = event["data"]
    where = "/".join(filter(None, [data["cluster"], data["namespace"]]))
    lines = [f"Sandbox {data['name']} in {where} {TITLES.get(kind, kind)}.", data["message"]]
    if kind == "expiring":
        lines.append(
            f"It is deleted at {data['scheduledDeleteTime']}. To keep it: dayfly sandbox extend {data['name']}"
        )
    if owner := data["labels"].get("owner"):
        lines.append(f"Owner: {owner}")
    found = "\n".join(filter(None, lines))
    return found.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Receiver(BaseHTTPRequestHandler):
    """The receiver of Dayfly's events."""

    notifier: Notifier

    def do_POST(self) -> None:
        """Forward one event. After 503, Dayfly sends it again."""
        status = 204
        try:
            length = int(self.headers.get("Content-Length", 0))
            self.notifier.handle(json.loads(self.rfile.read(min(length, MAX_BYTES))))
        except (ValueError, KeyError, TypeError, AttributeError):
            status = 400
        except OSError as fault:
            sys.stderr.write(f"notify: the chat did not accept the message: {fault}\n")
            status = 503
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing for each request."""


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    types = set(os.environ.get("NOTIFY_TYPES", "failed stuck expiring").split())
    Receiver.notifier = Notifier(os.environ["NOTIFY_URL"], types)
    with ThreadingHTTPServer((host, int(port)), Receiver) as server:
        sys.stderr.write("notify: receives events at http://{}:{}/\n".format(*server.server_address[:2]))
        server.serve_forever()


if __name__ == "__main__":
    main()
