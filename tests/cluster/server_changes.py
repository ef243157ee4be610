"""Changes by users at a server while one of its clusters is unreachable, and the expected result."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testcluster import images
from tests.cluster.journal import Journal
from tests.server.replicas import RetryingClient

PEOPLE = 6
PLUGIN = "words"


def plugin(journal: Journal) -> dict[str, Any]:
    """Return a plugin with one create and one delete step, for a real node and for KWOK."""

    def script(said: str) -> str:
        return f"#!/bin/sh\n{journal.tell(said)}\necho x >/tmp/o\n"

    make = {"name": "make", "script": script("create make"), "outputs": [{"name": "o", "valueFromPath": "/tmp/o"}]}
    drop = {"name": "drop", "script": script("delete drop")}
    return {"name": PLUGIN, "spec": {"runner": {"image": images.SHELL}, "create": [make], "delete": [drop]}}


def wish(cluster: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """Return a sandbox with one resource and a number as a label, which identifies the change."""
    resource = {"name": "db", "plugin": PLUGIN}
    return {"spec": {"cluster": cluster, "resources": [resource], "labels": {"n": str(number)}, **more}}


class Day:
    """The changes of several users in one cluster. Each user has separate sandboxes, so the result is certain.

    `living` maps names to the number of their last change. `brief` are sandboxes that expired before that.
    """

    def __init__(self, asking: RetryingClient, cluster: str, living: list[str], changes: int) -> None:
        self._asking = asking
        self._cluster = cluster
        self._changes = changes
        self._lock = threading.Lock()
        self.living = dict.fromkeys(living, 0)
        self.brief: set[str] = set()
        self.made = self.changed = self.deleted = 0

    @property
    def done(self) -> int:
        return self.made + self.changed + self.deleted

    def pass_by(self) -> None:
        """Make all changes; repeat requests without an answer."""
        theirs = [sorted(self.living)[number::PEOPLE] for number in range(PEOPLE)]
        with ThreadPoolExecutor(PEOPLE) as pool:
            list(pool.map(self._one, range(PEOPLE), theirs))

    def _one(self, person: int, mine: list[str]) -> None:
        chance = random.Random(person)
        for number in range(self._changes * person // PEOPLE + 1, self._changes * (person + 1) // PEOPLE + 1):
            match chance.choices(("make", "change", "delete"), (3, 5, 2))[0]:
                case "delete" if mine:
                    self._delete(mine.pop(chance.randrange(len(mine))))
                case "change" if mine:
                    self._change(chance.choice(mine), number)
                case _:
                    self._make(name := f"v{number}", number, brief=(brief := chance.random() < 0.1))
                    mine += [] if brief else [name]

    def _make(self, name: str, number: int, *, brief: bool) -> None:
        ttl = {"ttl": {"duration": "1h", "offsetFrom": "createdAt"}} if brief else {}
        self._asking.must("PUT", f"sandboxes/{name}", wish(self._cluster, number, **ttl))
        with self._lock:
            self.made += 1
            if brief:
                self.brief.add(name)
            else:
                self.living[name] = number

    def _change(self, name: str, number: int) -> None:
        self._asking.must("PUT", f"sandboxes/{name}", wish(self._cluster, number))
        with self._lock:
            self.changed += 1
            self.living[name] = number

    def _delete(self, name: str) -> None:
        self._asking.must("DELETE", f"sandboxes/{name}")
        with self._lock:
            self.deleted += 1
            del self.living[name]
