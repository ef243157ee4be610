"""A fake cloud outside the cluster, with items that the steps of a plugin create, delete and list."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from typing import Any

from testcluster import images


class Cloud:
    """A server at the address under which pods reach this machine. It has the items by name."""

    def __init__(self, address: str) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.deletions: list[str] = []
        """The resource IDs of all requests to delete."""
        self._lock = threading.Lock()
        self._server = _Server((address, 0), self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def plugin(self) -> dict[str, Any]:
        """Return the spec of a plugin whose resources are items of this cloud."""
        return {
            "runner": {"image": images.SHELL},
            "create": [self._step("make", "make $DAYFLY_RESOURCE_ID $DAYFLY_RESOURCE_TOKEN")],
            "delete": [self._step("drop", "drop $DAYFLY_RESOURCE_ID")],
            "inventory": [self._step("list", "list")],
        }

    def add(self, name: str, id_: str, token: str = "") -> None:
        with self._lock:
            self.items[name] = {"name": name, "id": id_, "token": token, "created": int(time.time())}

    def answer(self, action: str, id_: str = "", token: str = "") -> str:
        """Carry out the request of a step, and return the answer."""
        if action == "make":
            self.add(f"item-{id_}", id_, token)
            return "ok"
        with self._lock:
            if action == "drop":
                self.deletions.append(id_)
                self.items.pop(f"item-{id_}", None)
                return "ok"
            lines = [*self.items.values(), {"complete": True, "count": len(self.items)}]
            return "\n".join(json.dumps(line) for line in lines)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _step(self, name: str, request: str) -> dict[str, Any]:
        host, port = self._server.server_address[:2]
        script = f'#!/bin/sh\nanswer=$(echo "{request}" | nc {host} {port})\n[ -n "$answer" ] && echo "$answer"\n'
        return {"name": name, "script": script}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], cloud: Cloud) -> None:
        super().__init__(address, _Handler)
        self.cloud = cloud


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        if words := self.rfile.readline().decode().split():  # a step that was killed at once sends no line
            self.wfile.write(self.server.cloud.answer(*words).encode() + b"\n")
