"""Leak checks of a cluster as the REST API returns them, and requests to the operator in an annotation."""

from __future__ import annotations

import getpass
import secrets
from typing import TYPE_CHECKING, Any

from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.pod.read import format_time
from dayfly.kube import errors
from dayfly.operator.cluster.objects import LEAK_CHECKS, LEAK_REQUEST_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.kube.client import KubeClient

_CHECK_DICTS = LEAK_CHECKS.read_as(dict)


class ClusterLeaks:
    """The leak checks of a cluster. `run` runs a request, and turns its errors into those of the command line."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], client: KubeClient, context: str) -> None:
        self._run = run
        self._client = client
        self._context = context
        self.flags = f" --context {context}"

    def list_all(self) -> list[Any]:
        """Return all checks, by name."""
        found = self._run(self._client.list_all(_CHECK_DICTS)).items
        return sorted((self._describe(each) for each in found), key=lambda each: str(each["name"]))

    def get(self, name: str) -> Any:
        """Return one check.

        Raises:
            DayflyError: there is none.
        """
        found = self._run(self._client.find(_CHECK_DICTS, name))
        if found is None:
            wanted = f"see dayfly leaks --context {self._context}"
            raise DayflyError(Exit.NOT_FOUND, f'there is no leak check "{name}" in this cluster', wanted)
        return self._describe(found)

    def request_sweep(self, name: str, plan: str = "") -> None:
        """Request a sweep, which applies a plan if one is given."""
        note = f"{getpass.getuser()} {secrets.token_hex(4)}"  # the same text would be the same request
        text = f"apply {plan} {note}" if plan else f"sweep {note}"
        patch = {"metadata": {"annotations": {LEAK_REQUEST_ANNOTATION: text}}}
        self._run(self._client.patch(_CHECK_DICTS, patch, name))

    def delete(self, name: str) -> bool:
        """Delete a check; return whether it existed."""
        return bool(self._run(self._delete(name)))

    async def _delete(self, name: str) -> bool:
        try:
            await self._client.delete(_CHECK_DICTS, name)
        except errors.NotFound:
            return False
        return True

    def _describe(self, found: Any) -> dict[str, Any]:
        status = found.get("status") or {}
        times = {name: status[name] for name in ("sweptAt", "listedAt") if status.get(name)}
        # A check that is refused has no list, and the reason is in its message.
        error = status.get("error", "") or ("" if status.get("ready", True) else status.get("message", ""))
        numbers = {name: status.get(name, 0) for name in ("number", "left", "appliedNumber")}
        texts = {name: status.get(name, "") for name in ("plan", "applied", "appliedPlan")}
        return {
            "name": found["metadata"]["name"],
            "spec": {"params": {}, **found["spec"], "cluster": self._context or "-"},
            "plugin": status.get("plugin") or found["spec"]["plugin"],
            "status": {
                "sweeping": status.get("sweeping", False),
                "error": error,
                "counts": status.get("counts", {}),
                "findings": [_finding(each) for each in status.get("findings", ())],
                "deleted": status.get("deleted", []),
                "deletions": [_deletion(each) for each in status.get("deletions", ())],
                **times,
                **numbers,
                **texts,
            },
        }


def _finding(each: Any) -> dict[str, Any]:
    found = {name: each.get(name, "") for name in ("verdict", "id", "name", "reason", "plugin")}
    created = {"createdAt": format_time(each["created"])} if each.get("created") else {}
    return {**found, "deletable": each.get("deletable", False), **created}


def _deletion(each: Any) -> dict[str, Any]:
    texts = {name: each.get(name, "") for name in ("id", "plugin", "plan")}
    return {**texts, "at": format_time(each.get("at", 0)), "done": each.get("done", False)}
