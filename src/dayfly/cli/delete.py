"""Delete sandboxes, route groups and pools: request all deletions first, then wait for each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dayfly.cli.backends import hosts, lookup
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.output import progress, show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.cli.backends.cluster import ClusterBackend


_POLL_INTERVAL_S = 0.5


class DeletedRun(NamedTuple):
    """A run whose deletion was requested. Its UID distinguishes it from a later run of the same name."""

    uid: str
    routing_key: str


class _DeletionBackend(Protocol):
    def request(self, name: str) -> DeletedRun:
        """Request the deletion of a run, and return without waiting."""

    def wait(self, name: str, uid: str, seconds: float) -> str:
        """Wait until the run is gone, showing the progress of its cleanup. Return `cleaned` or `abandoned`."""


def delete_all(
    chosen: Sequence[str],
    *,
    wait: bool,
    timeout: float,
    context: str | None = None,
    namespace: str | None = None,
    ignore_not_found: bool = False,
    server: ServerClient | None = None,
) -> int:
    """Delete sandboxes, route groups and pools; `chosen` has subjects as in `client.subject`.

    Return the exit code of the first failure, or `Exit.OK`. With `ignore_not_found`, a missing run is no failure.
    `server` replaces the server of the options and the environment.
    """
    for each in chosen:
        subject.check(each)
    backend = _ServerDeletion(server) if server is not None else _find_backend(context, namespace)
    code: int = Exit.OK
    requested = []
    for each in chosen:  # request all before waiting, so that a stuck run does not delay the others
        try:
            found = backend.request(each)
        except DayflyError as fault:
            if not (ignore_not_found and fault.code == Exit.NOT_FOUND):
                code = _report_failure(fault, code)
        else:
            told = f" (routing key: {found.routing_key})" if found.routing_key else ""
            show.print_message(f"Deleting {subject.title(each)}{told}.")
            requested.append((each, found.uid))
    for each, uid in requested if wait else ():
        try:
            how = backend.wait(each, uid, timeout)
        except DayflyError as fault:
            code = _report_failure(fault, code)
        else:
            abandoned = ", its cleanup was abandoned" if how == "abandoned" else ""
            show.print_message(f"{show.capitalize(subject.title(each))} is gone{abandoned}.")
    return code


def _find_backend(context: str | None, namespace: str | None) -> _DeletionBackend:
    if context is None:
        if namespace is not None:
            raise hosts.namespace_without_cluster()
        return _ServerDeletion(ServerClient.open())
    hosts.reject_server_option()
    return _ClusterDeletion(hosts.cluster(context, namespace))


def _report_failure(fault: DayflyError, code: int) -> int:
    """Print the failure of one run. Return `code`, or the code of the failure if there was none before.

    Raises:
        DayflyError: the failure concerns all runs: there is no server, or access is denied.
    """
    if fault.code in (Exit.NO_SERVER, Exit.DENIED):
        raise fault
    show.print_message(f"dayfly: {fault}")
    return code or fault.code


class _ServerDeletion:
    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def request(self, name: str) -> DeletedRun:
        found = lookup.fetch(self._client, name)
        uid: str = self._client.get(*subject.path(name), "report").get("uid", "")
        self._client.delete(*subject.path(name))
        return DeletedRun(uid, found.get("routingKey", ""))

    def wait(self, name: str, uid: str, seconds: float) -> str:
        from dayfly.cli import watch

        return watch.until_gone(self._client, name, uid, seconds)


class _ClusterDeletion:
    def __init__(self, cluster: ClusterBackend) -> None:
        self._cluster = cluster

    def request(self, name: str) -> DeletedRun:
        key = self._cluster.sandbox(name).routing_key if not subject.is_pool(name) else ""
        return DeletedRun(self._cluster.delete(name), key)

    def wait(self, name: str, uid: str, seconds: float) -> str:  # noqa: ARG002 # `find_same` compares UIDs
        deadline = time.monotonic() + seconds
        how = "cleaned"
        with progress.begin(name) as shown:
            while (found := self._cluster.find_same(name)) is not None:
                report = found.report
                how = "abandoned" if report.get("abandon") else "cleaned"
                if report["phase"] != "open":
                    shown.show(report)
                left = deadline - time.monotonic()
                if left <= 0:
                    message = f"{name} is still being deleted after {seconds:g} s"
                    because = f": {report['reason']}: {report['message']}"
                    see = f"see: dayfly why {name}{self._cluster.flags}"
                    raise DayflyError(Exit.TIMED_OUT, message + because, see)
                self._cluster.pause(min(_POLL_INTERVAL_S, left))
        return how
