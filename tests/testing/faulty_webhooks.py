"""Plugins that ask a server, with one planted mistake each and without; and the server, which has what they make."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.testing.faulty_plugins import Planted
from tests.webhook.server import Seen, Server, answer

from dayfly.testing import Fault


class Records:
    """Records by number, each of an owner. With `keys` a request whose key it knows is answered as it was."""

    def __init__(self, *, keys: bool = True) -> None:
        self.there: dict[str, str] = {}
        self._keys = keys
        self._answers: dict[str, bytes] = {}
        self._made = 0
        self._one = threading.Lock()
        self.server = Server(lambda request, _: self._reply(request))

    def _reply(self, request: Seen) -> bytes:
        with self._one:
            key = request.key or ""
            if self._keys and key in self._answers:
                return self._answers[key]
            said = self._answer(request)
            if key:
                self._answers[key] = said
            return said

    def _answer(self, request: Seen) -> bytes:
        target = urlsplit(request.target)
        owner = parse_qs(target.query).get("owner", [""])[0]
        mine = [number for number, of in self.there.items() if of == owner]
        if request.method == "POST":
            self._made += 1
            self.there[f"r{self._made}"] = request.json["owner"]
            return answer(201, {"id": f"r{self._made}"})
        if request.method == "GET":
            return answer(200, {"ids": mine, "found": bool(mine)})
        named = target.path.removeprefix("/records").strip("/")
        gone = [number for number in ([named] if named else mine) if self.there.pop(number, None) is not None]
        return answer(204) if gone else answer(404)


OWNER = {"$env": "DAYFLY_RESOURCE_ID"}
FIND = {"query": {"owner": OWNER}, "when": {"path": "$.found", "in": [True]}}
GONE = {"status": [204, 404]}
BY_OWNER = {"query": {"owner": OWNER}, "expect": GONE}
BY_ID = {"path": [{"$input": "id"}], "expect": GONE}
LOOK = """\
#!/usr/bin/env python3
import json, os, urllib.request
with urllib.request.urlopen(f"@URL@?owner={os.environ['DAYFLY_RESOURCE_ID']}") as answer:
    ids = json.load(answer)["ids"]
for each in ids:
    print(json.dumps({"name": str(each)}))
print(json.dumps({"complete": True, "count": len(ids)}))
"""


def plugin(remove: dict[str, Any], *, again: bool = False, **make: Any) -> dict[str, Any]:
    """Return a plugin that creates one record with a webhook. `@URL@` is replaced by the URL of the server."""
    by_id = [{"name": "id", "valueFromStep": {"name": "make", "output": "id"}}]
    return {
        "create": [
            {
                "name": "make",
                "outputs": [{"name": "id", "valueFromJSONPath": "$.id"}],
                "webhook": {"method": "POST", "url": "@URL@", "body": {"owner": OWNER}, **make},
                **({"retry": {"idempotent": True}} if again else {}),
            }
        ],
        "delete": [
            {
                "name": "remove",
                "inputs": by_id if "path" in remove else [],
                "webhook": {"method": "DELETE", "url": "@URL@", **remove},
            }
        ],
        "inventory": [{"name": "look", "script": LOOK}],
    }


def written(spec: dict[str, Any], records: Records) -> dict[str, Any]:
    """The plugin of these records."""
    found: dict[str, Any] = json.loads(json.dumps(spec).replace("@URL@", f"{records.server.url}/records"))
    return found


PLANTED = {
    "removes by an unknown id": Planted(plugin(BY_ID), Fault.STUCK, "the response to make is lost"),
    "takes it for a failure that it is gone": Planted(
        plugin({"query": {"owner": OWNER}, "expect": {"status": [204]}}),
        Fault.STUCK,
        "the response to remove is lost",
        {"keys": ""},
    ),
    "has its key forgotten": Planted(
        plugin(BY_ID, again=True), Fault.LEFT, "the request of make arrives twice", {"keys": ""}
    ),
}
CLEAN = {
    "by owner": plugin(BY_OWNER),
    "by owner, and asked for": plugin(BY_OWNER, find=FIND),
    "sent again": plugin(BY_OWNER, again=True),
}
