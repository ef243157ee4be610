"""A leak check of the session's cluster, and its sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.cluster.installed import API, Installed, written_status
from tests.cluster.waiting import eventually

NAME = "check"


class Check:
    """A check that lists when it is created, and on request."""

    def __init__(self, operator: Installed) -> None:
        self._operator = operator

    def status(self) -> dict[str, Any]:
        return written_status(self._operator.get(f"/apis/{API}/leakchecks/{NAME}") or {})

    def sweep(self, request: str) -> dict[str, Any]:
        """Request a sweep, and return the status after it. Without a request, wait for the first sweep."""
        number = self.status().get("number", 0) if request else 0
        if request:
            annotation = f"dayfly.dev/leak-request={request} {number}"
            self._operator.own.kubectl("annotate", "--overwrite", "leakcheck.dayfly.dev", NAME, annotation)

        def ended() -> dict[str, Any] | None:
            seen = self.status()
            return seen if seen.get("number", 0) > number and not seen.get("sweeping") else None

        status = eventually(ended, "the end of the sweep")
        assert not status.get("error"), status["error"]
        return status

    def abandon(self, sandbox: str, namespace: str) -> dict[str, Any]:
        """End a sandbox without its cleanup. Return the status with its orphan."""
        annotation = "dayfly.dev/abandon=force: a test"
        self._operator.own.kubectl("annotate", "sandbox.dayfly.dev", sandbox, "-n", namespace, annotation)
        self._operator.wait_gone(sandbox, namespace)
        return eventually(lambda: (seen := self.sweep("sweep"))["counts"]["orphan"] and seen, "an orphan in two lists")


@contextlib.contextmanager
def checked(operator: Installed, plugin: str, **params: str) -> Iterator[Check]:
    """A check of a plugin, which may delete what is older than a second."""
    spec = {"plugin": plugin, "params": params, "every": "1h", "grace": "1s"}
    operator.apply({"apiVersion": API, "kind": "LeakCheck", "metadata": {"name": NAME}, "spec": spec})
    try:
        yield Check(operator)
    finally:
        operator.own.kubectl("delete", "leakcheck.dayfly.dev", NAME)
