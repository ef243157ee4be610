"""How sandboxes and route groups are ended, at a server or in a cluster: all are asked, then each is waited for."""

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


class DeletedRun(NamedTuple):
    """One that was asked to end: its identity, for another of the same name may come right after it, and its key."""

    uid: str
    routing_key: str


class _Place(Protocol):
    """Where they live."""

    def ask(self, name: str) -> DeletedRun:
        """Ask for its end."""

    def wait(self, name: str, uid: str, seconds: float) -> str:
        """Wait until it is gone, showing how far its cleanup is; how it ended: cleaned or abandoned."""


def end(
    chosen: Sequence[str], *, wait: bool, timeout: float, context: str | None = None, namespace: str | None = None
) -> int:
    """End these, sandboxes or route groups as `subject` names them, where they live."""
    for each in chosen:
        subject.check(each)
    place = _place(context, namespace)
    code: int = Exit.OK
    asked = []
    for each in chosen:  # all are asked to end before any is waited for: one that is gone or stuck keeps no other
        try:
            found = place.ask(each)
        except DayflyError as fault:
            code = _go_on(fault, code)
        else:
            show.talk(f"Deleting {subject.title(each)} (routing key: {found.routing_key}).")
            asked.append((each, found.uid))
    for each, uid in asked if wait else ():
        try:
            how = place.wait(each, uid, timeout)
        except DayflyError as fault:
            code = _go_on(fault, code)
        else:
            title = subject.title(each)
            abandoned = ", its cleanup was abandoned" if how == "abandoned" else ""
            show.talk(f"{title[0].upper()}{title[1:]} is gone{abandoned}.")
    return code


def _place(context: str | None, namespace: str | None) -> _Place:
    if context is None:
        if namespace is not None:
            raise hosts.no_cluster()
        return _AtServer(ServerClient.open())
    hosts.no_server_beside_it()
    return _InCluster(hosts.cluster(context, namespace))


def _go_on(fault: DayflyError, code: int) -> int:
    """Tell what is wrong with one of several; the code of the first. What would be wrong with each is raised."""
    if fault.code in (Exit.NO_SERVER, Exit.DENIED):
        raise fault
    show.talk(f"dayfly: {fault}")
    return code or fault.code


class _AtServer:
    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def ask(self, name: str) -> DeletedRun:
        found = lookup.find(self._client, name)
        uid: str = self._client.get(*subject.at(name), "report").get("uid", "")
        self._client.delete(*subject.at(name))
        return DeletedRun(uid, found.get("routingKey", ""))

    def wait(self, name: str, uid: str, seconds: float) -> str:
        from dayfly.cli import watch

        return watch.until_gone(self._client, name, uid, seconds)


class _InCluster:
    def __init__(self, cluster: ClusterBackend) -> None:
        self._cluster = cluster

    def ask(self, name: str) -> DeletedRun:
        key = self._cluster.sandbox(name).routing_key
        return DeletedRun(self._cluster.delete(name), key)

    def wait(self, name: str, uid: str, seconds: float) -> str:  # noqa: ARG002 # the cluster remembers whom it met
        deadline = time.monotonic() + seconds
        how = "cleaned"
        with progress.begin(name) as shown:
            while (standing := self._cluster.living(name)) is not None:
                report = standing.report
                how = "abandoned" if report.get("abandon") else "cleaned"
                if report["phase"] != "open":
                    shown.show(report)
                left = deadline - time.monotonic()
                if left <= 0:
                    message = f"{name} is still being deleted after {seconds:g} s"
                    because = f": {report['reason']}: {report['message']}"
                    see = f"see: dayfly why {name}{self._cluster.flags}"
                    raise DayflyError(Exit.TIMED_OUT, message + because, see)
                self._cluster.pause(min(_LOOK_S, left))
        return how


# A cluster is asked so often: whoever deletes a sandbox looks at it.
_LOOK_S = 0.5
