"""Selects the backend of a command: the server of the home, a named server, or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import installed
from dayfly.cli.backends import target_server
from dayfly.cli.backends.protocol import (
    NO_TIMES,
    LogPart,
    LogTimeOptions,
    RunView,
    abandoned_too_early,
    pool_retry_error,
)
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.cli.backends.protocol import Backend
    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.cli.output.frame import Report
    from dayfly.link.wire import PoolAction
    from dayfly.spec.plugin import Plugin

_NOT_FOUND, _CONFLICT = 404, 409
_PAGE_SIZE = 500
_ENDED_REPORT = {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}
"""Defaults for a run that its host no longer knows."""


def find(context: str | None, namespace: str | None) -> Backend:
    """Return the cluster of a kubeconfig context, or the server if `context` is None.

    Raises:
        DayflyError: the options conflict, no server is known, or the context is invalid.
    """
    if context is not None:
        reject_server_option()
        return cluster(context, namespace)
    if namespace is not None:
        raise namespace_without_cluster()
    return ServerBackend(target_server.ServerClient.open())


def cluster(context: str, namespace: str | None) -> ClusterBackend:
    """Return the cluster of a kubeconfig context. It is closed at the end of the command.

    Raises:
        DayflyError: the context is invalid, or the extra for clusters is not installed.
    """
    try:
        from dayfly.cli.backends.cluster import ClusterBackend
    except ImportError as error:
        raise installed.missing_extra("operator", error) from None
    found = ClusterBackend.connect(context, namespace)
    click.get_current_context().call_on_close(found.close)
    return found


def reject_server_option() -> None:
    """Reject `--server` together with `--context`."""
    if target_server.server_name():
        raise DayflyError(Exit.USAGE, "--server and --context cannot be combined", "use one of them")


def namespace_without_cluster() -> DayflyError:
    """Return the error for `--namespace` without `--context`."""
    return DayflyError(Exit.USAGE, "--namespace needs a cluster", "add --context NAME")


class ServerBackend:
    """The server of this home, or one stored by `dayfly login`."""

    def __init__(self, client: ServerClient) -> None:
        self.client = client
        self.flags = client.flags

    def sandboxes(self, *, mine: bool = False) -> list[RunView]:
        return [self._view(each, each["name"]) for each in self._list("sandboxes", mine="true" if mine else None)]

    def groups(self) -> list[RunView]:
        return [self._view(each, subject.group_subject(each["name"])) for each in self._list("routegroups")]

    def _list(self, kind: str, **query: object) -> list[Any]:
        """Return all objects of a kind with their reports."""
        found: list[Any] = []
        while True:
            after = found[-1]["name"] if found else None
            page = self.client.get(kind, reports="true", limit=_PAGE_SIZE, after=after, **query)
            found += page
            if len(page) < _PAGE_SIZE:
                return found

    def sandbox(self, name: str) -> RunView:
        try:
            return self._view(self._fetch(name), name)
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND:
                raise
            report = self.report(name)  # the server keeps the report of an ended run for a week
            if not report.get("closed"):
                raise
            return RunView(subject.bare_name(name), "", report.get("routingKey", ""), {}, report)

    def report(self, name: str) -> Report:
        from dayfly.client.errors import RefusedError

        subject.check(name)
        try:
            return {**_ENDED_REPORT, **self.client.get(*subject.path(name), "report")}
        except RefusedError as fault:
            if fault.status != _NOT_FOUND:
                raise
            return dict(_ENDED_REPORT)

    def why(self, name: str) -> Any:
        if (found := subject.parse_published(name)) is None:
            return self._fetch(name, "why")
        kind, bare = found
        if kind == "lifecyclehook":
            message = "a server has no lifecycle hooks: they exist only in clusters"
            raise DayflyError(Exit.USAGE, message, f"name the cluster: dayfly why {name} --context NAME")
        self.plugin(*bare.partition("@")[::2])
        return {}  # servers reject invalid plugins, so a published plugin waits for nothing

    def attempts(self, name: str, *, follow: bool) -> list[Any]:  # noqa: ARG002 # the server always knows the length of a log
        return [{**info, "cut": 0} for info in self._fetch(name, "attempts")]

    def reset_logs(self) -> None:
        pass  # the server has the logs of all sandboxes

    def read(self, name: str, unit: str, attempt: int, offset: int, times: LogTimeOptions = NO_TIMES) -> LogPart:
        where: dict[str, Any] = {"unit": unit, "attempt": attempt, "offset": offset}
        if times.shown or times.since:
            where["timestamps"] = "true"
        if times.since:
            where["sinceTime"] = show.timestamp(times.since)
        answer = self.client.get(*subject.path(name), "log", **where)
        data: str = answer["data"]
        import base64

        found = base64.b64decode(data) if answer["encoding"] == "base64" else data.encode()
        return LogPart(answer["offset"], found, [_entry(each) for each in answer.get("times") or ()])

    def external_log_command(self, name: str, unit: str, times: LogTimeOptions = NO_TIMES) -> str:  # noqa: ARG002 # the server has all logs
        return ""

    def pause(self, seconds: float) -> None:
        import time

        time.sleep(seconds)

    def outputs(self, name: str) -> list[Any]:
        self._fetch(name)
        found: list[Any] = self.client.get(*subject.path(name), "outputs")
        return found

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        from dayfly.client.errors import RefusedError

        try:
            self.client.post(*subject.path(name), "abandon", body={"reason": reason, "force": force})
        except RefusedError as fault:
            if fault.status != _CONFLICT:
                raise
            raise abandoned_too_early(name, self.flags) from None

    def retry(self, name: str, unit: str) -> dict[str, int]:
        if subject.is_pool(name):
            raise pool_retry_error(name, self.flags)
        self._fetch(name)
        answer = self.client.post(*subject.path(name), "retry", body={"unit": unit} if unit else {})
        return {each["unit"]: each["attempt"] for each in answer["retried"]}

    def reset(self, name: str, resource: str) -> str:
        self._fetch(name)
        replaced: str = self.client.post(*subject.path(name), "reset", body={"resource": resource})["replaced"]
        return replaced

    def extend(self, name: str, seconds: int, until: str) -> str:
        self._fetch(name)
        body = {"until": until} if until else {"seconds": seconds} if seconds else {}
        answer = self.client.post(*subject.path(name), "extend", body=body)
        end: str = answer["status"]["scheduledDeleteTime"]
        return end

    def pools(self) -> list[Any]:
        found: list[Any] = self.client.get("resourcepools")
        return found

    def pool(self, name: str) -> Any:
        return self._fetch(subject.pool_subject(name))

    def explain_pool(self, name: str) -> Any:
        return self._fetch(subject.pool_subject(name), "explain")

    def control_pool(self, name: str, action: PoolAction) -> Any:
        self.pool(name)
        return self.client.post("resourcepools", name, action, body={})

    def plugin(self, name: str, version: str) -> Plugin:
        from dayfly.spec import documents
        from dayfly.spec.plugin import Plugin
        from dayfly.spec.scalars import semver

        body = self.client.get("resource-plugins", name, version=version or semver.LATEST)
        plugin = documents.from_wire(body, "ResourcePlugin")
        assert isinstance(plugin, Plugin), "the kind is an argument"
        return plugin

    def _view(self, found: Any, name: str) -> RunView:
        """Return a run with its report. `name` is as on the command line."""
        key, report = found.get("routingKey", ""), found.get("report")
        report = self.report(name) if report is None else {**_ENDED_REPORT, **report}
        status = {**found["status"], "endpoints": found.get("endpoints", [])}
        return RunView(
            found["name"], found["createdAt"], key, found["spec"], report, status, found.get("createdBy", "")
        )

    def _fetch(self, name: str, *what: str) -> Any:
        from dayfly.cli.backends import lookup

        return lookup.fetch(self.client, name, *what)


def _entry(line: dict[str, Any]) -> tuple[int, int]:
    import datetime as dt

    return line["offset"], round(dt.datetime.fromisoformat(line["time"]).timestamp() * 1000)
