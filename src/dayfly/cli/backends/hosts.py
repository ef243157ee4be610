"""Finds where a sandbox lives: with the server of a home, or in a cluster."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import installed
from dayfly.cli.backends import target_server
from dayfly.cli.backends.protocol import NO_TIMES, Piece, RunView, When, abandoned_too_early
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.cli.backends.protocol import Backend
    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.cli.output.frame import Report
    from dayfly.spec.plugin import Plugin

_NOT_FOUND, _CONFLICT = 404, 409
_OVER = {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}
"""What the report of a run leaves out if its host does not know the run any longer."""


def find(context: str | None, namespace: str | None) -> Backend:
    """The cluster of a context of the kubeconfig, or without one the server of this home.

    Raises:
        DayflyError: it cannot be reached.
    """
    if context is not None:
        no_server_beside_it()
        return cluster(context, namespace)
    if namespace is not None:
        raise no_cluster()
    return Served(target_server.ServerClient.open())


def cluster(context: str, namespace: str | None) -> ClusterBackend:
    """The cluster of a context of the kubeconfig, for as long as the command runs.

    Raises:
        DayflyError: it cannot be reached.
    """
    try:
        from dayfly.cli.backends.cluster import ClusterBackend
    except ImportError as error:
        message = f"the part that speaks to clusters is not installed ({error.name} is missing)"
        raise DayflyError(Exit.FAILED, message, installed.operators_part()) from None
    found = ClusterBackend.connect(context, namespace)
    click.get_current_context().call_on_close(found.close)
    return found


def no_server_beside_it() -> None:
    """Refuse a server that is named beside a cluster."""
    if target_server.named():
        raise DayflyError(Exit.USAGE, "--server and --context name two different places", "give one of them")


def no_cluster() -> DayflyError:
    """What is said of a namespace without a cluster."""
    return DayflyError(Exit.USAGE, "a namespace is part of a cluster", "name the cluster too, with --context NAME")


class Served:
    """The server of this home, or one that somebody has logged in to."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self.flags = client.flags

    def sandboxes(self) -> list[RunView]:
        return [self._standing(each, each["name"]) for each in self._client.get("sandboxes")]

    def groups(self) -> list[RunView]:
        return [self._standing(each, subject.group(each["name"])) for each in self._client.get("routegroups")]

    def sandbox(self, name: str) -> RunView:
        try:
            return self._standing(self._ask(name), name)
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND:
                raise
            report = self.report(name)  # of one that has ended there is still one, for a week
            if not report.get("closed"):
                raise
            return RunView(name, "", report.get("routingKey", ""), {}, report)

    def report(self, name: str) -> Report:
        from dayfly.client.errors import RefusedError

        subject.check(name)
        try:
            return {**_OVER, **self._client.get(*subject.at(name), "report")}
        except RefusedError as fault:
            if fault.status != _NOT_FOUND:
                raise
            return dict(_OVER)

    def why(self, name: str) -> Any:
        if (found := subject.published(name)) is None:
            return self._ask(name, "why")
        kind, bare = found
        if kind == "lifecyclehook":
            message = "a server has no lifecycle hooks: they exist only in clusters"
            raise DayflyError(Exit.USAGE, message, f"name the cluster: dayfly why {name} --context NAME")
        self.plugin(*bare.partition("@")[::2])
        return {}  # a server refuses a plugin that cannot be used

    def attempts(self, name: str, *, follow: bool) -> list[Any]:  # noqa: ARG002 # the server knows a log's length always
        return [{**info, "cut": 0} for info in self._ask(name, "attempts")]

    def read(self, name: str, unit: str, attempt: int, offset: int, when: When = NO_TIMES) -> Piece:
        where: dict[str, Any] = {"unit": unit, "attempt": attempt, "offset": offset}
        if when != NO_TIMES:
            where["timestamps"] = "true"
        if when.since:
            where["sinceTime"] = show.moment(when.since)
        answer = self._client.get(*subject.at(name), "log", **where)
        data: str = answer["data"]
        found = base64.b64decode(data) if answer["encoding"] == "base64" else data.encode()
        return Piece(answer["offset"], found, [_entry(each) for each in answer.get("times") or ()])

    def elsewhere(self, name: str, unit: str, when: When = NO_TIMES) -> str:  # noqa: ARG002 # it has all
        return ""

    def pause(self, seconds: float) -> None:
        import time

        time.sleep(seconds)

    def outputs(self, name: str) -> list[Any]:
        self._ask(name)
        found: list[Any] = self._client.get(*subject.at(name), "outputs")
        return found

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        from dayfly.client.errors import RefusedError

        try:
            self._client.post(*subject.at(name), "abandon", body={"reason": reason, "force": force})
        except RefusedError as fault:
            if fault.status != _CONFLICT:
                raise
            raise abandoned_too_early(name, self.flags) from None

    def retry(self, name: str, unit: str) -> dict[str, int]:
        self._ask(name)
        answer = self._client.post(*subject.at(name), "retry", body={"unit": unit} if unit else {})
        return {each["unit"]: each["attempt"] for each in answer["retried"]}

    def extend(self, name: str, seconds: int, until: str) -> str:
        self._ask(name)
        body = {"until": until} if until else {"seconds": seconds} if seconds else {}
        answer = self._client.post(*subject.at(name), "extend", body=body)
        end: str = answer["status"]["scheduledDeleteTime"]
        return end

    def plugin(self, name: str, version: str) -> Plugin:
        from dayfly.spec import documents
        from dayfly.spec.plugin import Plugin
        from dayfly.spec.scalars import semver

        body = self._client.get("resource-plugins", name, version=version or semver.LATEST)
        plugin = documents.from_wire(body, "ResourcePlugin")
        assert isinstance(plugin, Plugin), "asked for by its kind"
        return plugin

    def _standing(self, found: Any, name: str) -> RunView:
        """`name` is as commands take it."""
        key, report = found.get("routingKey", ""), self.report(name)
        return RunView(found["name"], found["createdAt"], key, found["spec"], report, found["status"])

    def _ask(self, name: str, *what: str) -> Any:
        from dayfly.cli.backends import lookup

        return lookup.ask(self._client, name, *what)


def _entry(told: dict[str, Any]) -> tuple[int, int]:
    import datetime as dt

    return told["offset"], round(dt.datetime.fromisoformat(told["time"]).timestamp() * 1000)
