"""The operator's requests for one sandbox, as a model: the bare loop sends the same for each of its sandboxes.

The model comes from the audit log of a cluster with no other work. So the loop's bodies are exactly those of this
version of the operator. They are texts with placeholders, because parsing and encoding bodies would be too much work
for a bare loop.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from bench.cluster.audit import named
from dayfly.execute.pod.names import run_name

if TYPE_CHECKING:
    from collections.abc import Iterable

# Placeholders in the bodies for the version and sequence number of each request.
_VERSION, _SEQUENCE = "the-version-before", 987654321
# The end of a name is a digest of its run. This many characters are replaced.
_DIGEST = 8


class Model(msgspec.Struct):
    """`said` contains the bodies of each kind of request (`patch pods`), in order.

    `sandbox` and `uid` are those of the recorded sandbox. `uids` are those of the created objects, by name. `names` are
    the names of these objects, by request and in order.
    """

    sandbox: str
    uid: str
    uids: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    said: dict[str, list[msgspec.Raw]] = {}


def model(sandbox: str, uid: str, events: Iterable[dict[str, Any]]) -> Model:
    """Build the model from the operator's successful requests in the audit log, with their bodies and responses."""
    found = Model(sandbox, uid)
    for event in events:
        body, request = event.get("requestObject"), named(event)
        if not isinstance(body, dict):
            continue
        if "resourceVersion" in body.get("metadata", {}):
            body["metadata"]["resourceVersion"] = _VERSION
        if event["verb"] == "update" and "ledger" in body:
            body["ledger"]["seq"] = _SEQUENCE
        if event["verb"] == "create":
            made = event["responseObject"]["metadata"]
            found.uids[made["name"]] = made["uid"]
            found.names.setdefault(request, []).append(made["name"])
        found.said.setdefault(request, []).append(msgspec.Raw(msgspec.json.encode(body)))
    return found


class Words:
    """The model's bodies with the names and UIDs of another sandbox."""

    def __init__(self, of: Model, sandbox: str, uid: str) -> None:
        self._model = of
        self._uid = uid
        self._pattern = _pattern(of)
        self._said: dict[str, int] = {}
        self._mine = {of.sandbox.encode(): sandbox.encode(), of.uid.encode(): uid.encode()}
        for name in of.uids:
            self._call(name, self._own(name, 0))
        self._call(run_name(of.sandbox, of.uid), run_name(sandbox, uid))

    def names(self, request: str) -> list[str]:
        """Return the names, in the model, of objects created by such requests."""
        return self._model.names[request]

    def times(self, request: str) -> int:
        """Return how often `next` was called for this request."""
        return self._said.get(request, 0)

    def made(self, name: str, uid: str) -> None:
        """Record the UID of the created object that has this name in the model."""
        self._call(self._model.uids[name], uid)

    def next(self, request: str, *, version: str = "", sequence: int = 0) -> msgspec.Raw:
        """Return the body of the next such request, or the last one again, with the object's version if it has one."""
        bodies, number = self._model.said[request], self._said.get(request, 0)
        self._said[request] = number + 1
        last = min(number, len(bodies) - 1)
        if number > last and request in self._model.names:
            name = self._model.names[request][last]
            self._call(name, self._own(name, number))
        self._call(_VERSION, version)
        self._call(str(_SEQUENCE), str(sequence))
        return msgspec.Raw(self._pattern.sub(self._word, bytes(bodies[last])))

    def _word(self, found: re.Match[bytes]) -> bytes:
        return self._mine.get(found[0], found[0])

    def _own(self, name: str, number: int) -> str:
        return name[:-_DIGEST] + hashlib.sha256(f"{name} {self._uid} {number}".encode()).hexdigest()[:_DIGEST]

    def _call(self, word: str, mine: str) -> None:
        self._mine[word.encode()] = mine.encode()


_patterns: dict[str, re.Pattern[bytes]] = {}


def _pattern(of: Model) -> re.Pattern[bytes]:
    if of.uid not in _patterns:
        # The longest first, because names of objects begin with the sandbox's name.
        words = {of.sandbox, of.uid, _VERSION, str(_SEQUENCE), *of.uids, *of.uids.values()}
        ordered = sorted(words, key=len, reverse=True)
        _patterns[of.uid] = re.compile("|".join(map(re.escape, ordered)).encode())
    return _patterns[of.uid]
