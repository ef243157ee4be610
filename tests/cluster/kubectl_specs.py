"""Plugins and sandboxes as objects for kubectl. Every step first sends a line to the journal."""

from typing import Any

from testcluster import images
from tests.cluster.installed import API
from tests.cluster.journal import Journal

Step = dict[str, Any]


def published(name: str, create: list[Step], delete: list[Step], *, image: str = images.SHELL, **runner: str) -> Any:
    """A plugin's version 1.0.0 as an object for kubectl."""
    return {
        "apiVersion": API,
        "kind": "ResourcePlugin",
        "metadata": {"name": f"{name}.1.0.0"},
        "spec": {
            "name": f"{name}@1.0.0",
            "runner": {"image": image, **runner},
            "create": create,
            "delete": delete,
        },
    }


class Wishes:
    """One plugin and one sandbox of a test, in a namespace; both have the test's name."""

    def __init__(self, name: str, namespace: str, journal: Journal) -> None:
        self.name = name
        self.namespace = namespace
        self._journal = journal

    def script(self, said: str, then: str = "") -> str:
        """Return a script that sends a line to the journal and then runs `then`."""
        return f"#!/bin/sh\n{self._journal.tell(said)}\n{then}\n"

    def plugin(self, *, overlay: str = "", image: str = images.SHELL, **first: Any) -> dict[str, Any]:
        """`first` writes a word, `second` reads it and writes two, `gone` deletes. `first` takes further fields."""
        template = {"podTemplateOverlay": overlay} if overlay else {}
        read = {"valueFromStep": {"name": "first", "output": "word"}}
        create = [
            {
                "name": "first",
                "outputs": [{"name": "word", "valueFromPath": "/tmp/word"}],
                "script": self.script("create first", "printf hello >/tmp/word"),
                **first,
            },
            {
                "name": "second",
                "inputs": [{"name": "word", **read}],
                "outputs": [{"name": "words", "valueFromPath": "/tmp/words"}],
                "script": self.script("create second", 'printf "$WORD world" >/tmp/words'),
            },
        ]
        gone = {
            "name": "gone",
            "inputs": [{"name": "word", **read}],
            "script": self.script("delete gone"),
            "timeouts": {"grace": "1s"},
        }
        return published(self.name, create, [gone], image=image, **template)

    def sandbox(self) -> dict[str, Any]:
        """With one resource, `pair`."""
        return {
            "apiVersion": API,
            "kind": "Sandbox",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"cluster": "local", "resources": [{"name": "pair", "plugin": f"{self.name}@1.0.0"}]},
        }
